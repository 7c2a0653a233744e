"""Inputs are checked before any vote, and put on the grid exactly when they are on it."""

import numpy as np
import pytest
import torch

from vauban.errors import BadInput
from vauban.inputs import check_labels, prepare

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
