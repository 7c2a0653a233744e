"""CIFAR-10 batches in both layouts, and pickles that must not be run."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from vauban.data import load
from vauban.data.pickles import read_pickle
from vauban.errors import BadInput

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def make(seed: int, m: int = 3) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (m, 3072), dtype=np.uint8), rng.integers(0, 10, m).tolist()


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Write, opcode by opcode, what Python 2's cPickle wrote for the published batches."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    data = pixels.tobytes()
    shape = b"".join(b"J" + struct.pack("<i", side) for side in pixels.shape) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R(K\x01" + shape
    array += dtype + b"K\x00tb\x89T" + struct.pack("<i", len(data)) + data + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    pairs = text(b"batch_label") + text(b"testing batch 1 of 1") + text(b"labels") + listed + text(b"data") + array
    return b"\x80\x02}(" + pairs + b"u."


def write_binary(folder: Path, name: str, pixels: np.ndarray, labels: list[int]) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{name}.bin").write_bytes(np.hstack([np.array(labels, np.uint8)[:, None], pixels]).tobytes())


@pytest.fixture
def binary(tmp_path) -> Path:
    for seed, name in enumerate(NAMES):
        write_binary(tmp_path / "cifar-10-batches-bin", name, *make(seed))
    return tmp_path


@pytest.fixture
def pickled(tmp_path) -> Path:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(python2_batch(*make(5)))
    return tmp_path


def test_binary_batches_are_joined_in_order(binary):
    train = load(f"cifar10:path={binary},split=train")
    assert train.images.shape == (15, 3, 32, 32)
    assert train.images.dtype == np.uint8
    assert np.array_equal(train.images[3:6].reshape(3, 3072), make(1)[0])
    assert train.labels[12:].tolist() == make(4)[1]
    assert train.num_classes == 10
    assert train.class_names[0] == "airplane"
    whole = load(f"cifar10:path={binary},split=all")
    assert np.array_equal(whole.images[15:].reshape(3, 3072), make(5)[0])


def test_folder_may_be_the_batches_or_their_parent(binary):
    inner = load(f"cifar10:path={binary / 'cifar-10-batches-bin'}")
    assert inner.fingerprint() == load(f"cifar10:path={binary}").fingerprint()
    assert len(inner) == 3


def test_published_pickles_equal_the_binary_batches(pickled, tmp_path):
    write_binary(tmp_path / "other", "test_batch", *make(5))
    read = load(f"cifar10:path={pickled}")
    assert read.fingerprint() == load(f"cifar10:path={tmp_path / 'other'}").fingerprint()
    assert read.images.flags.writeable


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("key", [str, str.encode])
def test_pickles_written_again_by_python_3_are_read(tmp_path, protocol, key):
    pixels, labels = make(5)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({key("data"): pixels, key("labels"): labels}, protocol))
    read = load(f"cifar10:path={tmp_path}")
    assert np.array_equal(read.images.reshape(3, 3072), pixels)
    assert read.labels.tolist() == labels


def test_arrays_by_column_and_of_other_byte_orders_are_read(tmp_path):
    made = {"data": np.asfortranarray(make(5)[0]), "labels": np.array([1, 2, 3], ">i4")}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(made, 2))
    read = load(f"cifar10:path={tmp_path}")
    assert np.array_equal(read.images.reshape(3, 3072), make(5)[0])
    assert read.labels.tolist() == [1, 2, 3]


def test_places_are_searched_when_no_path_is_given(binary, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.delenv("VAUBAN_DATA", raising=False)
    with pytest.raises(BadInput, match=r"VAUBAN_DATA, ./data, ~/.cache/vauban"):
        load("cifar10")
    monkeypatch.setenv("VAUBAN_DATA", str(binary))
    assert load("cifar10").name == "cifar10:split=test"
    monkeypatch.delenv("VAUBAN_DATA")
    (elsewhere / "data").symlink_to(binary)
    assert len(load("cifar10")) == 3


def test_broken_binary_batches_are_named(binary):
    path = binary / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"test_batch.bin has 9218 bytes"):
        load(f"cifar10:path={binary}")
    (binary / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(BadInput, match="does not hold all of data_batch_1"):
        load(f"cifar10:path={binary},split=train")


def test_labels_outside_the_ten_classes_are_named(tmp_path):
    write_binary(tmp_path, "test_batch", make(0)[0], [0, 10, 11])
    with pytest.raises(BadInput, match="label 10 of input 1 is outside"):
        load(f"cifar10:path={tmp_path}")


class Runs:
    """Pickles to a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_malicious_pickles_are_refused_and_not_run(tmp_path, protocol):
    mark = tmp_path / "was-run"
    pixels, _ = make(5)
    for evil in (Runs(os.system, f"touch {mark}"), Runs(open, str(mark), "w"), Runs(eval, f"open({str(mark)!r}, 'w')")):
        (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": pixels, "labels": evil}, protocol))
        with pytest.raises(BadInput, match=r"asks to run .*refused, nothing in it was run"):
            load(f"cifar10:path={tmp_path}")
    assert not mark.exists()
    pickle.loads(pickle.dumps(Runs(os.system, f"touch {mark}"), protocol))
    assert mark.exists(), "the pickles above would not have done anything anyway"


def test_pickles_cannot_alter_the_stand_ins_they_are_given(tmp_path):
    path = tmp_path / "altering"
    path.write_bytes(b"\x80\x02cnumpy\ndtype\n}U\x01aK\x01sb.")
    with pytest.raises(BadInput, match="tries to modify"):
        read_pickle(path)
    path.write_bytes(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aU\x05rot13\x86R.")
    with pytest.raises(BadInput, match="only latin1"):
        read_pickle(path)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([1, 2], "'data'"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "'labels', 2 integers"),
        ({"data": np.zeros((2, 100), np.uint8), "labels": [1, 2]}, "'data'"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "'labels', 2 integers"),
        ({"data": np.zeros((2, 3072), np.float32), "labels": [1, 2]}, "array of type 'f4'"),
        ({"data": np.array([[None]], object), "labels": [1]}, "not made of plain bytes"),
    ],
)
def test_pickles_of_something_else_are_refused(tmp_path, held, words):
    (tmp_path / "test_batch").write_bytes(pickle.dumps(held, 2))
    with pytest.raises(BadInput, match=words) as caught:
        load(f"cifar10:path={tmp_path}")
    assert str(tmp_path / "test_batch") in str(caught.value)


def test_truncated_pickles_are_refused(pickled):
    path = pickled / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadInput, match="not a readable pickle"):
        load(f"cifar10:path={pickled}")
