"""Distances between pictures in the metric of a threat."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from importlib import import_module

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.threats import Threat

Floats = NDArray[np.float64]
Metric = Callable[[torch.Tensor, torch.Tensor], Floats]

METRICS: dict[str, Metric] = {}
"""From the name of a threat to its distance between pictures [b, ...]; `distance` knows norms without it."""


def metric(*names: str) -> Callable[[Metric], Metric]:
    """Decorator that registers the distance of the threats of these names."""

    def add(function: Metric) -> Metric:
        METRICS.update(dict.fromkeys(names, function))
        return function

    return add


def distance(x: torch.Tensor, other: torch.Tensor, threat: Threat) -> Floats:
    """How far each picture of `other` [b, ...] is from that of x [b, ...], in the threat's metric and unit, float64 [b].

    Pictures are compared as they are given: round them first where a claim is about 8-bit pictures. NaN in either is refused.

    >>> from vauban.threats import L0, L2
    >>> x = torch.zeros(1, 3, 2, 2)
    >>> y = x.clone(); y[0, :, 0, 0] = 1
    >>> distance(x, y, L0).tolist(), distance(x, y, L2).round(4).tolist()
    ([1.0], [1.7321])
    """
    if x.shape != other.shape or x.dim() < 2:
        raise BadInput(
            f"pictures of shapes {tuple(x.shape)} and {tuple(other.shape)}: two batches [b, ...] alike are needed"
        )
    if bool(x.isnan().any() | other.isnan().any()):
        raise BadInput("a picture contains NaN and has no distance: an attack that returned it is wrong")
    if threat.name.startswith("wasserstein"):
        import_module("vauban.attacks.wasserstein.transport")
    if threat.name in METRICS:
        return METRICS[threat.name](x, other)
    return _quasi_norm(x, other, _exponent(threat))


@metric("l2")
def l2(x: torch.Tensor, other: torch.Tensor) -> Floats:
    """The L2 norm of the change."""
    return _numbers(_change(x, other).norm(dim=1))


@metric("linf")
def linf(x: torch.Tensor, other: torch.Tensor) -> Floats:
    """The largest change of a number."""
    return _numbers(_change(x, other).abs().amax(dim=1))


@metric("l0-features")
def changed_features(x: torch.Tensor, other: torch.Tensor) -> Floats:
    """How many numbers differ."""
    return _numbers((x != other).flatten(1).sum(dim=1))


@metric("l0")
def changed_pixels(x: torch.Tensor, other: torch.Tensor) -> Floats:
    """How many pixels of pictures [b, channels, height, width] differ; of inputs of another shape, how many numbers."""
    return _numbers(pixels_of(x != other).any(dim=1).sum(dim=1))


@metric("patch")
def enclosing_square(x: torch.Tensor, other: torch.Tensor) -> Floats:
    """The side in pixels of the smallest square that holds every changed pixel of pictures [b, channels, height, width]."""
    if x.dim() != 4:
        raise BadInput(f"inputs of shape {tuple(x.shape[1:])}: a patch needs pictures [channels, height, width]")
    changed = (x != other).any(dim=1)
    return np.maximum(_span(changed.any(dim=2)), _span(changed.any(dim=1)))


def pixels_of(values: torch.Tensor) -> torch.Tensor:
    """Values [b, ...] as [b, channels, pixels]: a pixel is all its channels; in other shapes every number is a pixel."""
    return values.flatten(2) if values.dim() == 4 else values.flatten(1)[:, None]


def _span(changed: torch.Tensor) -> Floats:
    """From the first changed row to the last, both included, of rows [b, n]; 0 where none is."""
    places = torch.arange(1, changed.shape[1] + 1, device=changed.device) * changed
    first = torch.where(changed, places, changed.shape[1] + 1).amin(dim=1)
    return _numbers((places.amax(dim=1) - first + 1).clamp(min=0))


def _exponent(threat: Threat) -> float:
    try:
        return float(Fraction(threat.name.removeprefix("l")))
    except (ValueError, ZeroDivisionError):
        raise BadInput(
            f"the threat {threat.name!r} has no distance between pictures here: see docs/attacks.md"
        ) from None


def _quasi_norm(x: torch.Tensor, other: torch.Tensor, p: float) -> Floats:
    """(sum |change|^p)^(1/p), 0 < p <= 1."""
    return _numbers(_change(x, other).abs().pow(p).sum(dim=1).pow(1 / p))


def _change(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (other.double() - x.double()).flatten(1)


def _numbers(tensor: torch.Tensor) -> Floats:
    return tensor.detach().cpu().double().numpy()
