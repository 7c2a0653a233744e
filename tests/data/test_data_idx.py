"""IDX files: the MNIST of the package, folders of others, and files that are broken."""

import gzip
import hashlib
import lzma
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import vauban.data
from vauban.data import load
from vauban.errors import BadInput
from vauban.specs import Spec

MNIST = Path(vauban.data.__file__).parent / "mnist"


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


PACK = {".gz": gzip.compress, ".xz": lzma.compress}


def write(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(PACK.get(name[-3:], bytes)(content))


@pytest.fixture
def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, pictures) -> Path:
    write(tmp_path, "t10k-images-idx3-ubyte", idx(pictures))
    write(tmp_path, "t10k-labels-idx1-ubyte", idx(np.array([0, 1, 2, 3, 1], np.uint8)))
    return tmp_path


def test_mnist_is_in_the_package_in_its_standard_order():
    digits = load("mnist")
    assert digits.images.shape == (10_000, 1, 28, 28)
    assert digits.images.dtype == np.uint8
    assert digits.labels.dtype == np.int64
    assert digits.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert np.bincount(digits.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert digits.num_classes == 10
    assert digits.class_names[3] == "3"
    assert digits.name == "mnist:split=test"
    assert digits.images.flags.writeable


def test_all_of_mnist_is_train_then_test():
    whole = load(Spec("mnist", {"split": "all"}))
    train = load("mnist:split=train")
    assert len(train) == 60_000
    assert np.array_equal(whole.images[:60_000], train.images)
    assert np.array_equal(whole.labels[60_000:], load("mnist:split=test").labels)


def test_attribution_names_the_licence_and_the_files_that_are_there():
    text = (MNIST / "ATTRIBUTION.md").read_text()
    for word in ("LeCun", "Cortes", "Burges", "CC BY-SA 3.0", "NIST"):
        assert word in text
    rows = re.findall(r"`(\S+\.[gx]z)` \| (\d+) \| `(\w{64})` \| `(\w{64})`", text)
    assert {row[0] for row in rows} == {path.name for path in MNIST.glob("*.?z")}
    for name, size, packed, inside in rows:
        content = (MNIST / name).read_bytes()
        assert len(content) == int(size)
        assert hashlib.sha256(content).hexdigest() == packed
        unpack = lzma.decompress if name.endswith(".xz") else gzip.decompress
        assert hashlib.sha256(unpack(content)).hexdigest() == inside
    assert sum(path.stat().st_size for path in MNIST.iterdir()) < 9_500_000


@pytest.mark.parametrize("ending", ["", *PACK])
@pytest.mark.parametrize("mark", ["-", "."])
def test_folder_may_be_plain_or_zipped_under_either_name(tmp_path, pictures, mark, ending):
    write(tmp_path, f"train-images{mark}idx3-ubyte{ending}", idx(pictures))
    write(tmp_path, f"train-labels{mark}idx1-ubyte{ending}", idx(np.array([0, 1, 2, 3, 1], np.uint8)))
    read = load(f"idx:path={tmp_path},split=train")
    assert np.array_equal(read.images, pictures[:, None])
    assert read.labels.tolist() == [0, 1, 2, 3, 1]
    assert read.num_classes == 4
    assert read.name == f"idx:path={tmp_path},split=train"


def test_classes_can_be_more_than_the_labels_show_and_not_fewer(folder):
    assert load(f"idx:path={folder},classes=10").num_classes == 10
    with pytest.raises(BadInput, match=r"label 2 of input 2 is outside the classes 0\.\.1"):
        load(f"idx:path={folder},classes=2")


def test_missing_split_says_which_files_are_needed(folder):
    with pytest.raises(BadInput, match="train-images-idx3-ubyte"):
        load(f"idx:path={folder},split=train")
    with pytest.raises(BadInput, match="does not exist"):
        load(f"idx:path={folder / 'nowhere'}")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda b: b[:-1], "truncated: 59 bytes of the 60"),
        (lambda b: b[:9], "ends inside its header"),
        (lambda b: b + b"\0", "holds more than the 60 bytes"),
        (lambda b: b"\0\0\x0d\x03" + b[4:], "starts with 00000d03.*starts with 00000803"),
        (lambda b: b"", "starts with nothing"),
        (lambda b: b[:4] + b"\xff" * 12 + b[16:], "truncated: 60 bytes of the"),
        (lambda b: gzip.compress(b)[:-12], "broken and cannot be unpacked"),
        (lambda b: lzma.compress(b)[:-40], "broken and cannot be unpacked"),
        (lambda b: lzma.compress(b)[:20] + b"0" * 60, "broken and cannot be unpacked"),
    ],
)
def test_broken_files_are_named_and_explained(folder, spoil, words):
    path = folder / "t10k-images-idx3-ubyte"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BadInput, match=words) as caught:
        load(f"idx:path={folder}")
    assert str(path) in str(caught.value)


def test_files_that_do_not_belong_together_are_refused(folder):
    write(folder, "t10k-labels-idx1-ubyte", idx(np.zeros(4, np.uint8)))
    with pytest.raises(BadInput, match="5 images and 4 labels, so number 4 has no partner"):
        load(f"idx:path={folder}")
