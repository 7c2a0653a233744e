"""Inputs are checked before any vote, and put on the grid exactly when they are on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput, RunRefused
from vauban.formats.results import units
from vauban.inputs import check_labels, collect, prepare
from vauban.standardise import Standardisation

PICTURES = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)


@pytest.mark.parametrize(
    "x",
    [
        PICTURES,
        PICTURES.numpy(),
        PICTURES.float() / 255,
        PICTURES.float() * (1 / 255),
        PICTURES.double() / 255,
        (PICTURES.double() / 255).float().numpy(),
    ],
)
def test_eight_bit_pictures_in_any_form_are_on_the_grid(x: object) -> None:
    inputs = prepare(x)
    assert inputs.arithmetic == "grid"
    assert torch.equal(inputs.values, PICTURES)


def test_other_floats_have_no_grid() -> None:
    x = torch.rand(3, 5)
    inputs = prepare(x)
    assert (inputs.arithmetic, inputs.levels) == ("float", None)
    assert torch.equal(inputs.values, x)
    assert prepare(PICTURES, "float").arithmetic == "float"
    with pytest.raises(BadInput, match=r"input 0 is not on the 8-bit grid.*float"):
        prepare(x, "grid")


@pytest.mark.parametrize(
    ("x", "complaint"),
    [
        (torch.tensor([[0.5], [float("nan")]]), "input 1 contains NaN"),
        (torch.tensor([[0.5], [1.5]]), r"input 1 has values outside \[0, 1\].*255"),
        (torch.tensor([[-0.1]]), r"input 0 has values outside \[0, 1\]"),
        (torch.tensor([[float("inf")]]), "input 0 has values outside"),
        (torch.tensor([[1, 2]]), "int64"),
        (torch.tensor([0.5, 0.5]), "batch"),
        (torch.zeros(0, 3), "batch"),
        (np.array([["a"]]), "type"),
    ],
)
def test_bad_inputs_are_named(x: object, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        prepare(x)


def test_any_range_by_choice() -> None:
    assert prepare(torch.tensor([[-3.0, 7.2]]), input_range=None).arithmetic == "float"
    assert prepare(torch.tensor([[-1.0, 2.0]]), input_range=None).arithmetic == "float"


def test_infinity_is_refused_even_without_a_range() -> None:
    with pytest.raises(BadInput, match="infinite"):
        prepare(torch.tensor([[float("inf")]]), input_range=None)


def test_labels() -> None:
    assert check_labels([0, 2], 2, 3).dtype == np.int64
    assert check_labels(torch.tensor([1]), 1, 3).tolist() == [1]
    for y, complaint in [([0, 3], "label 3 of input 1"), ([-1, 0], "label -1"), ([0], "2 inputs"), ([0.5, 1], "whole")]:
        with pytest.raises(BadInput, match=complaint):
            check_labels(y, 2, 3)


def test_labels_of_an_unknown_number_of_classes_are_any_whole_numbers() -> None:
    assert check_labels([-1, 700], 2, None).tolist() == [-1, 700]
    with pytest.raises(BadInput, match="for 3 samples: one whole number each"):
        check_labels([0, 1], 3, None, of="sample")


class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __init__(self, order: list[int]) -> None:
        self.order = order

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        return ((torch.full((4,), i / 255), i % 2) for i in self.order)


class Backwards(torch.utils.data.BatchSampler):
    def __iter__(self) -> Iterator[list[int]]:
        return iter([[3, 2], [1, 0]])


PAIRS = torch.utils.data.TensorDataset(torch.arange(16).view(4, 4) / 255, torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize(
    "order",
    [
        {"shuffle": True},
        {"batch_sampler": [[3, 2], [1, 0]]},
        {"batch_sampler": Backwards(torch.utils.data.SequentialSampler(PAIRS), 2, False)},
        {"sampler": torch.utils.data.SubsetRandomSampler([1, 2])},
        {"sampler": [1, 0], "batch_size": None},
    ],
)
def test_a_loader_that_may_read_in_another_order_is_refused(order: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"in the order of a .*shuffle=False, no sampler or batch_sampler of your own"):
        collect(torch.utils.data.DataLoader(PAIRS, **order), None, None, prepare)


def test_loaders_that_read_in_order_and_subsets_are_read(recwarn: pytest.WarningsRecorder) -> None:
    own = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(PAIRS), 3, False)
    whole = collect(PAIRS, None, None, prepare)
    for options in ({}, {"batch_size": 3}, {"batch_sampler": own}):
        assert collect(torch.utils.data.DataLoader(PAIRS, **options), None, None, prepare).sha256 == whole.sha256  # type: ignore[arg-type]
    some = collect(torch.utils.data.Subset(PAIRS, [2, 0]), None, None, prepare)
    assert some.inputs.values.tolist() == whole.inputs.values[[2, 0]].tolist()
    assert not recwarn.list


def test_an_iterable_data_set_is_read_with_a_warning_and_a_run_needs_the_same_order(tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(lambda views: views[:, :2], "gaussian:sigma=0.5", num_classes=2)

    def certify(order: list[int], **options: Any) -> vb.Certificates:
        source = options.pop("load", lambda stream: stream)(Stream(order))
        with pytest.warns(UserWarning, match="a Stream has no order that can be checked"):
            return smoothed.certify(source, n=100, alpha=0.01, seed=1, **options)

    certs = certify([3, 1, 2])
    assert certify([3, 1, 2], load=torch.utils.data.DataLoader) == certs
    assert certify([3, 1, 2], out=tmp_path / "run") == certs
    assert certify([3, 1, 2], out=tmp_path / "run") == certs
    with pytest.raises(RunRefused, match=r"data\.sha256: the run has"):
        certify([2, 1, 3], out=tmp_path / "run")


def test_numbers_that_float32_does_not_hold_are_refused() -> None:
    for input_range in (None, (-1e300, 1e300)):
        with pytest.raises(BadInput, match="input 1 contains numbers that are infinite in float32"):
            prepare(np.array([[1.0], [1e100]]), "float", input_range)
    tiny = Standardisation((0.0,), (1e-30,), "training", "0" * 64)
    with pytest.raises(BadInput, match="is standardised to numbers that are infinite"):
        prepare(np.array([[1e10]], dtype=np.float32), "float", None, by=tiny)


def test_what_is_wrong_with_a_table_is_said_of_tables() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"size": [0.5, 900.0], "kind": ["a", "b"], "old": [True, False]})
    with pytest.raises(
        BadInput, match=r"outside \[0, 1\]: for a table of any numbers give input_range=None \(--input-range none\)"
    ):
        prepare(frame[["size"]])
    with pytest.raises(BadInput, match="divide 8-bit values by 255"):
        prepare(np.full((1, 1, 2, 2), 3.0))
    with pytest.raises(
        BadInput, match=r"^columns without numbers: 'kind' \((object|str)\), 'old' \(bool\); leave them out"
    ):
        prepare(frame)
    with pytest.raises(BadInput, match="inputs of type torch.int64: uint8 numbers, or floats, are needed"):
        prepare(np.ones((2, 3), dtype=np.int64))
    for text in ("mnist:split=test", Path("a.csv")):
        with pytest.raises(BadInput, match=rf"^inputs '{text}': .* vauban.data.load\('{text}'\)"):
            collect(text, None, None, prepare)


def test_a_radius_of_inputs_of_one_axis_is_not_said_to_be_of_pictures() -> None:
    smoothed = vb.SmoothedClassifier(lambda views: views, vb.Gaussian(sigma=0.5), num_classes=3)
    of_floats = smoothed.certify(np.array([[0.1234, 0.5, 0.9]]), [2], n=100, seed=1, progress=False)
    assert "less than the radius (units of the input, inputs in [0,1])" in of_floats.claim
    of_bytes = smoothed.certify(np.array([[1, 128, 255]], dtype=np.uint8), [2], n=100, seed=1, progress=False)
    assert "every change to another row of whole numbers from 0 to 255, divided by 255, whose L2" in of_bytes.claim
    assert "pictures in [0,1]" in of_floats.record.manifest.claim  # verify compares it with that of earlier versions
    assert units(of_floats) == ()
    assert "inputs in [0,1]" in smoothed.plan(np.full((1, 3), 0.1234), n=100, seconds=None).threat
