"""Addressed random numbers: functions of (seed, lane, purpose, step) alone, the same on every device.

They choose initial weights, batches and augmentations. No certificate depends on their quality, so SplitMix64 [Steele2014] is
enough; no state is consumed, so the numbers of one base classifier never depend on another.
"""

from __future__ import annotations

import torch

PURPOSES = {"weights": 0, "views": 1, "steps": 2, "features": 3}

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def uniforms(seed: int, lanes: torch.Tensor, purpose: str, step: int, count: int) -> torch.Tensor:
    """Uniform numbers in [0, 1), multiples of 2^-24: float32 [lanes, count] for the whole numbers `lanes` [lanes]."""
    state = torch.full_like(lanes, seed)
    for word in (lanes, PURPOSES[purpose], step):
        state = _mix(state) + word
    words = _mix(_mix(state)[:, None] + _GOLDEN * torch.arange(1, count + 1, device=lanes.device))
    return ((words >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24


def _mix(z: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finalizer on 64 bits held in int64, whose products wrap."""
    z = z + _GOLDEN
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: torch.Tensor, by: int) -> torch.Tensor:
    return (z >> by) & ((1 << (64 - by)) - 1)
