"""Arrays from numpy.savez: shapes, layouts, labels, and arrays that are refused."""

import numpy as np
import pytest

from vauban.data import load
from vauban.errors import BadInput


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "made.npz", **arrays)
        return f"npz:path={tmp_path / 'made.npz'}"

    return write


LABELS = np.array([2, 0, 1], np.int32)
BYTES = np.random.default_rng(0).integers(0, 256, (3, 2, 4, 5), dtype=np.uint8)


def test_bytes_stay_bytes_and_labels_become_int64(save):
    read = load(save(images=BYTES, labels=LABELS))
    assert read.images.dtype == np.uint8
    assert np.array_equal(read.images, BYTES)
    assert read.labels.dtype == np.int64
    assert read.labels.tolist() == [2, 0, 1]
    assert (read.num_classes, read.class_names) == (3, ("0", "1", "2"))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint64, np.int8])
def test_labels_of_any_integer_type_give_the_number_of_classes(save, dtype):
    read = load(save(images=BYTES, labels=LABELS.astype(dtype)))
    assert read.labels.dtype == np.int64
    assert read.labels.tolist() == [2, 0, 1]
    assert (read.num_classes, read.classes_fixed) == (3, False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_become_float32_of_any_shape(save, dtype):
    read = load(save(images=np.linspace(0, 1, 21, dtype=dtype).reshape(3, 7)))
    assert read.images.dtype == np.float32
    assert read.images.shape == (3, 7)
    assert read.labels is None
    assert read.num_classes == 0


def test_greys_gain_a_channel_and_hwc_is_turned(save):
    assert np.array_equal(load(save(images=BYTES[:, 0])).images, BYTES[:, :1])
    turned = load(save(images=BYTES.transpose(0, 2, 3, 1)) + ",layout=hwc").images
    assert np.array_equal(turned, BYTES)
    assert turned.flags.c_contiguous
    with pytest.raises(BadInput, match="layout=hwc needs"):
        load(save(images=BYTES.reshape(3, -1)) + ",layout=hwc")


def test_sixteen_bits_are_rounded_to_eight_where_that_is_asked_for(save):
    ramp = np.arange(65_536, dtype=np.uint16).reshape(4, 1, 128, 128)
    spec = save(images=ramp) + ",depth=8"
    read = load(spec)
    assert np.array_equal(read.images, np.rint(ramp / 257))
    assert (read.images.min(), read.images.max()) == (0, 255)
    assert read.images.mean() == 127.5
    assert read.name.endswith(",layout=chw,depth=8")
    assert np.array_equal(load(save(images=BYTES) + ",depth=8").images, BYTES)
    assert "depth" not in load(save(images=BYTES)).name


def test_arrays_and_classes_can_be_named(save):
    read = load(save(x=BYTES, y=LABELS) + ",images=x,labels=y,classes=cat/dog/emu/fox")
    assert read.class_names == ("cat", "dog", "emu", "fox")
    assert load(save(x=BYTES, y=LABELS) + ",images=x,labels=y,classes=12").num_classes == 12


@pytest.mark.parametrize(
    ("arrays", "more", "words"),
    [
        ({"images": BYTES, "labels": LABELS}, ",classes=2", "label 2 of input 0 is outside"),
        ({"images": BYTES, "labels": LABELS[:2]}, "", "3 inputs and 2 labels"),
        ({"images": BYTES, "labels": LABELS.astype(float)}, "", "labels are float64; integers"),
        (
            {"images": BYTES, "labels": np.array([0, 1, 2**62])},
            "",
            "made.npz.*: 4611686018427387905 classes, and at most 1,000,000",
        ),
        ({"images": BYTES, "labels": np.array([0, 1, 2**64 - 1], np.uint64)}, "", "18446744073709551616 classes"),
        ({"images": BYTES}, ",classes=99999999999999", "99999999999999 classes, and at most 1,000,000"),
        ({"images": BYTES.astype(np.int32)}, "", "images are int32"),
        ({"images": BYTES.astype(np.uint16)}, "", "images are uint16 .* give depth=8 to divide by 257 and round"),
        ({"images": BYTES.astype(np.float32)}, ",depth=8", "images are float32; leave depth out"),
        ({"images": BYTES}, ",depth=16", "16 is not 8"),
        ({"images": np.array([[1.0], [np.nan]])}, "", "input 1 holds NaN"),
        ({"images": np.array([[1.0], [1e300]])}, "", "input 1 holds NaN or infinity"),
        ({"x": BYTES}, "", "no array 'images'; it has x"),
        ({"images": BYTES}, ",labels=y", "no array 'y'; it has images"),
        ({"images": np.array([{}, {}], object)}, "", "no objects"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(save, arrays, more, words):
    with pytest.raises(BadInput, match=words):
        load(save(**arrays) + more)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "made.npz"
    with pytest.raises(BadInput, match="is no file"):
        load(f"npz:path={path}")
    path.write_bytes(b"not a zip")
    with pytest.raises(BadInput, match=r"is no .npz"):
        load(f"npz:path={path}")
    np.savez_compressed(path, images=BYTES)
    spoilt = bytearray(path.read_bytes())
    spoilt[60:90] = bytes(30)
    path.write_bytes(spoilt)
    with pytest.raises(BadInput, match="cannot be read"):
        load(f"npz:path={path}")
