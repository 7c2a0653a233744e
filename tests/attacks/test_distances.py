"""Distances of pictures in the metric of every threat."""

import numpy as np
import pytest
import torch

from vauban.attacks.distances import distance
from vauban.errors import BadInput
from vauban.threats import Threat, named


def test_each_threat_measures_a_change_by_hand() -> None:
    x = torch.zeros(1, 2, 4, 5)
    y = x.clone()
    y[0, 0, 1, 1], y[0, 1, 1, 1], y[0, 0, 3, 2] = 0.25, -0.25, 0.5
    expected = {"l1": 1.0, "l2": (0.0625 * 2 + 0.25) ** 0.5, "linf": 0.5, "l0": 2, "l0-features": 3, "patch": 3}
    expected["l1/2"] = (0.5 + 0.5 + 0.5**0.5) ** 2
    for name, value in expected.items():
        assert distance(x, y, named(name))[0] == pytest.approx(value), name
        assert distance(x, x, named(name))[0] == 0, name


def test_rows_are_measured_one_by_one_and_vectors_have_no_channels() -> None:
    x, y = torch.zeros(3, 4), torch.tensor([[0.0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 1]])
    assert np.array_equal(distance(x, y, named("l0")), [0, 1, 3])
    with pytest.raises(BadInput, match="pictures"):
        distance(x, y, named("patch"))


def test_nan_other_shapes_and_unknown_threats_are_refused() -> None:
    x = torch.zeros(1, 3)
    with pytest.raises(BadInput, match="NaN"):
        distance(x, x * torch.nan, named("l2"))
    with pytest.raises(BadInput, match="alike"):
        distance(x, torch.zeros(2, 3), named("l2"))
    with pytest.raises(BadInput, match="no distance"):
        distance(x, x, Threat("colour", "hue", "degrees", "open"))
