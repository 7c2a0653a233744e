"""Augments training pictures: each augmented copy is a function of the picture and of uniform numbers in [0, 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from vauban.poisoning.training.input_transforms import affine
from vauban.specs import choose


@dataclass(frozen=True)
class Augmentation:
    """`apply` augments pictures [n, c, h, w] by `numbers` uniform numbers for each, [n, numbers]."""

    numbers: int
    apply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def augmentation(name: str) -> Augmentation:
    """The augmentation of that name."""
    return AUGMENTATIONS[choose("augmentation", name, AUGMENTATIONS)]


def _warp(x: torch.Tensor, u: torch.Tensor, strength: float = 1.0) -> torch.Tensor:
    """Rotate by up to 0.15, stretch by up to 0.1, shear by up to 0.15, shift by up to a pixel of 28; times `strength`."""
    turn, wider, taller, slant, right, down = ((2 * u - 1) * strength).unbind(dim=1)
    one = torch.ones_like(turn)
    cos, sin = torch.cos(0.15 * turn), torch.sin(0.15 * turn)
    rotation = torch.stack([cos, -sin, sin, cos], dim=1).view(-1, 2, 2)
    stretch = torch.stack([one + 0.1 * wider, 0.15 * slant, 0 * one, one + 0.1 * taller], dim=1).view(-1, 2, 2)
    return affine(x, rotation @ stretch, torch.stack([right, down], dim=1) * (x.shape[-1] / 28))


def _contrast(x: torch.Tensor, u: torch.Tensor, mirror: bool = True) -> torch.Tensor:
    """Crop a fifth of the picture or more, mirror half of the time, change brightness, contrast and tint; a fifth become grey."""
    zoom = (0.2 + 0.8 * u[:, 0]).sqrt()
    aspect = torch.exp((2 * u[:, 1] - 1) * 0.25)
    wide, high = (zoom * aspect).clamp(max=1), (zoom / aspect).clamp(max=1)
    side = torch.where((u[:, 2] < 0.5) & mirror, -1.0, 1.0)
    none = torch.zeros_like(wide)
    matrix = torch.stack([wide * side, none, none, high], dim=1).view(-1, 2, 2)
    room = torch.stack([(1 - wide) * x.shape[3] / 2, (1 - high) * x.shape[2] / 2], dim=1)
    views = affine(x, matrix, (2 * u[:, 3:5] - 1) * room)
    grey = views.mean(dim=1, keepdim=True)
    jitter = (0.6 + 0.8 * u[:, 5:11])[:, :, None, None]
    views = grey + (views - grey) * (2 * jitter[:, 0:1] - 1)
    middle = views.mean(dim=(1, 2, 3), keepdim=True)
    views = (middle + (views - middle) * jitter[:, 1:2]) * jitter[:, 2:3] * (0.75 + 0.25 * jitter[:, 3:6])
    return torch.where((u[:, 11] < 0.2).view(-1, 1, 1, 1), grey, views).clamp(0, 1)


def _shift(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Shift by up to 2 pixels along each axis; zeros fill the border."""
    return _crop(functional.pad(x, (2, 2, 2, 2)), u, 5)


def _crop_flip(x: torch.Tensor, u: torch.Tensor, mirror: bool = True) -> torch.Tensor:
    """Shift by up to 4 pixels over the mirrored border, mirror half of the time, and grey out a square of 8 pixels."""
    n, height, width = len(x), *x.shape[2:]
    views = _crop(functional.pad(x, (4, 4, 4, 4), mode="reflect"), u, 9)
    views = torch.where(((u[:, 2] < 0.5) & mirror).view(n, 1, 1, 1), views.flip(3), views)
    top, left = (u[:, 3] * (height + 1)).floor() - 4, (u[:, 4] * (width + 1)).floor() - 4
    rows = torch.arange(height, device=x.device) - top[:, None]
    columns = torch.arange(width, device=x.device) - left[:, None]
    hole = ((rows >= 0) & (rows < 8))[:, :, None] & ((columns >= 0) & (columns < 8))[:, None, :]
    return torch.where(hole[:, None], views.new_tensor(0.5), views)


def _crop(padded: torch.Tensor, u: torch.Tensor, positions: int) -> torch.Tensor:
    """Crop a window out of each padded picture at one of positions x positions offsets."""
    height, width = (size - positions + 1 for size in padded.shape[2:])
    top, left = ((u[:, i] * positions).floor().long() for i in (0, 1))
    rows = top[:, None] + torch.arange(height, device=padded.device)
    columns = left[:, None] + torch.arange(width, device=padded.device)
    which = torch.arange(len(padded), device=padded.device)[:, None, None]
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _none(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return x


AUGMENTATIONS = {
    "none": Augmentation(0, _none),
    "shift": Augmentation(2, _shift),
    "warp": Augmentation(6, _warp),
    "warp-far": Augmentation(6, partial(_warp, strength=2.5)),
    "contrast": Augmentation(12, _contrast),
    "contrast-unmirrored": Augmentation(12, partial(_contrast, mirror=False)),
    "crop": Augmentation(5, partial(_crop_flip, mirror=False)),
    "crop-flip": Augmentation(5, _crop_flip),
}
