"""What a base classifier answers, checked, and the votes that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vauban.errors import BadInput

Model = Callable[[torch.Tensor], Any]


def scores_of(model: Model, views: torch.Tensor, num_classes: int) -> torch.Tensor:
    """The model's scores [rows, num_classes] for a batch of views, or an error that says what it answered instead.

    Scores of 16 bits are widened to float32, which changes none of them.
    """
    scores = model(views)
    if not isinstance(scores, torch.Tensor):
        try:
            scores = torch.as_tensor(np.asarray(scores), device=views.device)
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(f"the model answered {type(scores).__name__}: a tensor of scores is needed") from None
    if scores.shape != (len(views), num_classes):
        raise BadInput(
            f"the model answered {tuple(scores.shape)} to {len(views)} views: scores of shape "
            f"({len(views)}, {num_classes}) are needed, one column per class"
        )
    if scores.is_complex():
        raise BadInput(f"the model answered scores of type {scores.dtype}: numbers that can be compared are needed")
    if not scores.is_floating_point():
        return scores.double()
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def votes_of(scores: torch.Tensor) -> torch.Tensor:
    """One vote per view [rows]: the class of the highest score (the first of equals), one past the last where NaN."""
    best, votes = scores.max(dim=1)
    return votes.masked_fill_(best.isnan(), scores.shape[1])


def not_comparable(views: int) -> BadInput:
    """The error for views whose scores are NaN."""
    return BadInput(
        f"the model answered NaN on {views} views: a vote needs scores that can be compared; "
        "check its weights and its normalisation"
    )
