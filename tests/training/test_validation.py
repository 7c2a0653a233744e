"""Held-out pictures are judged by the votes that certify counts."""

import numpy as np
import pytest
import torch

from vauban.data import Dataset
from vauban.smoothing import build
from vauban.training import Validation
from vauban.training.validation import validate

WIDTH = 8


class ByColumn(torch.nn.Module):
    """Gives class 1 a probability of 0.9 where the kept column is even, and of 0.45 against 0.55 for class 0 where it is odd."""

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        column = views.sum(dim=(1, 2)).argmax(dim=1)
        sure = torch.tensor([0.1, 0.9, 1e-9], device=views.device)
        unsure = torch.tensor([0.55, 0.45, 1e-9], device=views.device)
        return torch.where((column % 2 == 0)[:, None], sure, unsure).log()


@pytest.mark.parametrize(
    ("smoothing", "accuracy", "certified"),
    [
        ("band:size=1", 0.0, 0.0),  # four votes for each of the two, and class 0 wins a draw
        ("band:size=1,threshold=0.3", 1.0, 1.0),  # eight votes for class 1, four for class 0
        ("band:size=1,threshold=0.5", 0.0, 0.0),  # as without a threshold
    ],
)
def test_a_view_votes_for_every_class_that_reaches_the_threshold(
    smoothing: str, accuracy: float, certified: float
) -> None:
    pictures = np.full((5, 1, WIDTH, WIDTH), 128, np.uint8)
    data = Dataset(pictures, np.ones(5, np.int64), 3, ("a", "b", "c"), "made")
    found = validate(ByColumn(), Validation(data, radius=1.0), build(smoothing), torch.device("cpu"), "fp32")
    assert found.base_accuracy == 0.5
    assert (found.accuracy, found.certified) == (accuracy, certified)
