"""Which memory layout a network computes in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

_CLOSE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest score: sums in another order differ by less
_CLOSE_16 = 0.1


def channels_last_is_faster(
    module: nn.Module, dimensions: int, device: torch.device | str, precision: str = "fp32"
) -> bool:
    """Whether a network is faster channels-last: one with convolutions over pictures, on the CPU, and on GPUs in every
    precision that tensor cores compute in (all but fp32)."""
    faster = torch.device(device).type == "cpu" or precision != "fp32"
    return faster and dimensions == 3 and any(isinstance(part, nn.Conv2d) for part in module.modules())


def trial_scores(network: Callable[[torch.Tensor], object], views: torch.Tensor) -> torch.Tensor | None:
    """The network's scores of these views, or None where it fails or returns something else."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found = network(views)
    except Exception:
        return None
    return found if isinstance(found, torch.Tensor) else None


def trial_views(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Two views [2, ...] of this shape, in the type and on the device of a tensor."""
    numbers = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
    return numbers.to(like)


def same_scores(plain: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether scores in another layout are those of the plain one, but for the order of sums; true where the plain one fails."""
    if plain is None:
        return True
    if other is None or plain.shape != other.shape:
        return False
    close = _CLOSE.get(plain.dtype, _CLOSE_16) * float(plain.abs().max())
    return bool(((plain - other).abs() <= close).all())
