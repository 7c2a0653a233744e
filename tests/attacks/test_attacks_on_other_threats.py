"""vb.attack on flow, patch and fractional certificates: upper bounds beside them, and no alarm."""

from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb

SMALL: dict[str, Any] = {"views": 16, "votes": 300, "confirm_votes": 2_000, "seed": 1, "progress": False}


class Left(torch.nn.Module):
    """Class 1 where the left half of a view, all its channels, holds more than the right half."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        margin = x[..., :half].flatten(1).sum(1) - x[..., half:].flatten(1).sum(1)
        return torch.stack([-margin, margin], dim=1)


class FirstLeft(Left):
    """The same of the first half of the channels: of views (v, 1 - v) those of v."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, : x.shape[1] // 2])


@pytest.mark.parametrize(
    ("smoothing", "model", "attack"),
    [
        ("flow:sigma=0.03", Left(), "frank-wolfe:steps=20,every=2,factor=1.4"),
        ("band:size=2", FirstLeft(), "patch-ifgsm:size=1,largest=4,places=0,steps=20"),
        ("fractional:p=1/2,budget=30", Left(), "coordinates"),
    ],
)
def test_upper_bounds_stand_beside_certificates(smoothing: str, model: torch.nn.Module, attack: str) -> None:
    random = np.random.default_rng(0)
    x = random.integers(60, 160, size=(4, 1, 4, 4), dtype=np.uint8)
    smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=2)
    settings = {} if smoothed.smoothing.law.exact else {"n": 2_000, "seed": 1}
    certs = smoothed.certify(x, progress=False, **settings)
    found = vb.attack(smoothed, x, certs.label, certificates=certs, attacks=attack, **SMALL)
    sure = ~np.asarray(certs.abstained)
    assert not found.alarms
    assert np.isfinite(found.distance[sure]).any()
    assert (found.distance[sure] >= np.asarray(certs.radius)[sure]).all()
