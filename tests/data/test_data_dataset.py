"""What every data set promises: checked labels, finite inputs, a selection and a fingerprint."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from vauban import data
from vauban.data import Dataset
from vauban.errors import BadInput


def make(m: int = 7) -> Dataset:
    images = np.arange(m * 4, dtype=np.uint8).reshape(m, 1, 2, 2)
    return Dataset(images, np.arange(m, dtype=np.int64) % 3, 3, ("a", "b", "c"), "made")


def test_reading_data_needs_neither_torch_nor_pillow():
    code = "import sys, vauban.data as d; d.load('mnist'); print([m for m in ('torch', 'PIL') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("every", "limit", "wanted"),
    [(1, None, [0, 1, 2, 3, 4, 5, 6]), (3, None, [0, 3, 6]), (3, 2, [0, 3]), (100, 9, [0]), (1, 2, [0, 1])],
)
def test_selection_takes_every_so_many_up_to_a_limit(every, limit, wanted):
    whole = make()
    chosen = whole.select(every, limit)
    assert chosen.index.tolist() == wanted
    assert chosen.index.dtype == np.int64
    assert np.array_equal(chosen.images, whole.images[wanted])
    assert np.array_equal(chosen.labels, whole.labels[wanted])
    assert chosen.name == whole.name


@pytest.mark.parametrize(("every", "limit"), [(0, None), (-1, None), (1, 0)])
def test_selection_of_nothing_is_refused(every, limit):
    with pytest.raises(BadInput, match="selects nothing"):
        make().select(every, limit)


def test_fingerprint_depends_on_shape_dtype_and_every_value():
    base = make()
    other_images = base.images.copy()
    other_images[3, 0, 1, 1] ^= 1
    variants = [
        base,
        replace(base, images=other_images),
        replace(base, images=base.images.reshape(7, 1, 1, 4)),
        replace(base, images=base.images.astype(np.float32)),
        replace(base, labels=np.roll(base.labels, 1)),
        replace(base, labels=None),
    ]
    assert len({variant.fingerprint() for variant in variants}) == len(variants)
    assert make().fingerprint() == base.fingerprint()
    assert replace(base, images=np.asfortranarray(base.images)).fingerprint() == base.fingerprint()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.array([0, 1, 2, 0, 1, 3, 9])}, r"label 3 of input 5 is outside the classes 0..2"),
        ({"labels": np.array([0, -1, 2, 0, 1, 2, 0])}, r"label -1 of input 1 is outside"),
        ({"labels": np.array([0, 1])}, r"7 inputs and 2 labels, so the first without a partner is 2"),
        ({"labels": np.zeros(7, np.int32)}, r"int64 \[7\] is needed"),
        ({"class_names": ("a",)}, r"1 class names for 3 classes"),
        ({"images": np.zeros((7, 2), np.int32)}, r"int32; uint8 or float32"),
        ({"images": np.zeros((0, 2), np.uint8)}, r"shape \(0, 2\)"),
    ],
)
def test_what_does_not_belong_together_is_refused(change, words):
    with pytest.raises(BadInput, match=words):
        replace(make(), **change)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_named(value):
    images = np.zeros((7, 2), np.float32)
    images[4:, 1] = value
    with pytest.raises(BadInput, match="input 4 holds NaN or infinity"):
        replace(make(), images=images)


def test_listing_names_every_kind_and_says_what_is_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VAUBAN_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = {row.name: row for row in data.describe()}
    assert set(rows) == {"mnist", "cifar10", "gtsrb", "idx", "images", "imagenet", "npz", "table"}
    assert rows["mnist"].found is True
    assert rows["cifar10"].found is False
    assert rows["npz"].found is None
    assert "$VAUBAN_DATA" in rows["cifar10"].looks
    assert all(row.written.startswith(row.name) for row in rows.values())


def test_unknown_data_and_parameters_are_refused():
    with pytest.raises(BadInput, match="did you mean 'mnist'"):
        data.load("mnits")
    with pytest.raises(BadInput, match="no parameter 'spilt'"):
        data.load("mnist:spilt=test")
    with pytest.raises(BadInput, match="known: all, test, train"):
        data.load("mnist:split=validation")
