"""Training for certificates against patches: all views of a picture vote, and its label is to win wherever a patch lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from vauban.errors import BadInput
from vauban.laws.patches.exact import ExactPatchLaw
from vauban.laws.patches.positions import maximal
from vauban.smoothing import Smoothing
from vauban.training.losses.base import LOSSES, Batch, Loss, Scores, check_labels, check_numbers, stacked


def patch_lead(
    scores: Scores, labels: torch.Tensor, touched: torch.Tensor, threshold: float, sharpness: float = 4.0
) -> torch.Tensor:
    """By how many votes each label leads a rival that gets all touched votes: [b, positions, classes], infinite for itself.

    `scores` [views, b, classes], of every view; `touched` [positions, views]: 1 where a patch touches a view. A view votes for a
    class with sigmoid(sharpness (log p - log threshold)), which for large sharpness is the vote of `threshold`: a label whose
    leads are all above zero is then certified (`laws/patches/positions.stays`).
    """
    together = stacked(scores)
    check_labels(labels, *together.shape[1:])
    votes = torch.sigmoid(sharpness * (together.log_softmax(-1) - math.log(threshold)))
    with torch.autocast(votes.device.type, enabled=False):  # sums of votes in 16 bits would be off by whole votes
        left = votes.sum(0)[:, None] - torch.einsum("pv,vbc->bpc", touched, votes)
    own = labels[:, None, None].expand(-1, left.shape[1], 1)
    lead = left.gather(2, own) - left - touched.sum(1)[:, None]
    return lead.scatter(2, own, torch.inf)


def patch_deficit(lead: torch.Tensor, target: float, softness: float) -> torch.Tensor:
    """How many votes the smoothed minimum of the leads [b, positions, classes] of `patch_lead` lacks of `target`; mean over b."""
    worst = -softness * torch.logsumexp(-lead.flatten(1) / softness, dim=1)
    return torch.relu(target - worst).mean()


@LOSSES.register("patch-margin")
@dataclass(frozen=True)
class PatchMargin(Loss):
    """Cross-entropy on all views plus `weight` times the votes that the label lacks of being certified against a square of `side`
    pixels by `target` votes; the second part is added after `warm` of the training. For exact band and block smoothing, whose
    `threshold`, if they have one, must be the same."""

    changes_views = True
    side: int = 5
    threshold: float = 0.3
    weight: float = 1.0
    target: float = 3.0
    sharpness: float = 4.0
    softness: float = 1.0
    warm: float = 0.5

    def __post_init__(self) -> None:
        check_numbers(self, "side", low=1)
        check_numbers(self, "threshold", low=0, above=True, high=1)
        check_numbers(self, "weight", "target", low=0)
        check_numbers(self, "sharpness", "softness", low=0, above=True)
        if not 0 <= self.warm < 1:
            raise BadInput(f"{self}: warm must be a number from 0 to below 1")

    def check(self, smoothing: Smoothing, soft_labels: bool = False) -> None:
        theirs = _law(smoothing).threshold
        if theirs is not None and theirs != self.threshold:
            raise BadInput(
                f"{self} has threshold={self.threshold}, and {smoothing.spec} another: give the loss that of the smoothing, "
                f"threshold={theirs}"
            )
        if soft_labels:
            raise BadInput("patch-margin needs one label for each picture: leave mixup and cutmix out")

    def check_shape(self, smoothing: Smoothing, shape: torch.Size) -> None:
        law = _law(smoothing).for_shape(shape)
        assert isinstance(law, ExactPatchLaw)
        if self.side > max(shape[1:]):
            raise BadInput(
                f"{self}: side={self.side} is larger than pictures of {shape[1]} x {shape[2]}: give the side of a patch that may "
                "lie inside them"
            )
        if self.target > law.views:
            raise BadInput(
                f"{self}: target={self.target:g} is more than the {law.views} votes of {smoothing.spec}: give a smaller lead"
            )

    def views_of(self, batch: Batch, count: int) -> torch.Tensor:
        law = _fitted(batch)
        words = torch.arange(law.views, device=batch.x.device)[:, None, None].expand(-1, len(batch.x), 1)
        return batch.made(words)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        touched = _touched(_fitted(batch), self.side, scores.device, scores.dtype)
        lead = patch_lead(scores, batch.labels, touched, self.threshold, self.sharpness)
        begun = (torch.as_tensor(batch.done, device=scores.device) >= self.warm).to(scores)
        return self.weight * begun * patch_deficit(lead, self.target, self.softness)


def _law(smoothing: Smoothing) -> ExactPatchLaw:
    if not isinstance(smoothing.law, ExactPatchLaw):
        raise BadInput(
            f"patch-margin counts every view, and {smoothing.spec} has no such list: use exact band or block"
        )
    return smoothing.law


def _fitted(batch: Batch) -> ExactPatchLaw:
    law = batch.smoothing.law.for_shape(batch.x.shape[1:])
    assert isinstance(law, ExactPatchLaw)
    return law


@lru_cache(maxsize=8)
def _touched(law: ExactPatchLaw, side: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Which views [positions, views] a square touches, at positions whose set of views is in no larger one. It is kept on the
    device: an update that is recorded there cannot copy it."""
    return torch.from_numpy(maximal(law.touched((side, side)))).to(device, dtype)
