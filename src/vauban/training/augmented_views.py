"""Augmented copies of pictures for learning without labels: random parts, mirrored, recoloured, all at once. [Chen2020]"""

from __future__ import annotations

import math

import torch

from vauban.smoothing.grid import uniforms
from vauban.training.augment import WORDS as CROP_WORDS
from vauban.training.augment import resized_crop

WORDS = CROP_WORDS + 6  # random words for each copy

_JITTERED, _GREY = 0.8, 0.2  # shares of the copies whose colours change, and that become grey
_STRENGTH, _TURN = 0.4, 0.1  # most change of brightness, contrast and saturation; of the hue, in whole turns
_LUMA = (0.299, 0.587, 0.114)


def augmented(
    pictures: torch.Tensor,
    words: torch.Tensor,
    least: float = 0.2,
    side: int | None = None,
    mirror: bool = True,
    most: float = 1.0,
) -> torch.Tensor:
    """A copy of each float picture [n, c, h, w] in [0, 1] by its own row of random `words` [n, WORDS]: a part of `least` to
    `most` of its area at the size [side, side], mirrored half of the time, with other colours. Pictures have one channel or
    three."""
    crops = resized_crop(pictures, words[:, :CROP_WORDS], least, side, mirror, most)
    return recoloured(crops, uniforms(words[:, CROP_WORDS:WORDS]).float())


def recoloured(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Pictures with other brightness, contrast, saturation and hue, in four fifths of them, and a fifth grey; u [n, 6] in (0, 1).

    Brightness, saturation and hue are linear in a pixel, and contrast is with the picture's mean: one matrix and one offset for
    each picture. The hue turns about the grey axis.
    """
    changed = u[:, 0] < _JITTERED
    bright, contrast, colour = (
        torch.where(changed, 1 + _STRENGTH * (2 * u[:, i] - 1), 1.0)[:, None, None] for i in (1, 2, 3)
    )
    flat = x.flatten(2)
    luma = torch.cat([x.new_full((1,), share) for share in _LUMA]) if x.shape[1] == 3 else x.new_ones(1)
    middle = (luma @ flat).mean(1)[:, None, None]
    offset = (1 - contrast) * bright * middle
    if x.shape[1] == 1:
        return (flat * (bright * contrast) + offset).clamp(0, 1).view_as(x)
    eye = torch.eye(3, device=x.device)
    to_grey = luma.expand(3, 3)
    angle = torch.where(changed, 2 * math.pi * _TURN * (2 * u[:, 4] - 1), 0.0)[:, None, None]
    across = (eye.roll(1, 0) - eye.roll(-1, 0)) / math.sqrt(3)
    hue = angle.cos() * eye + (1 - angle.cos()) / 3 + angle.sin() * across
    matrix = bright * contrast * (hue @ (colour * eye + (1 - colour) * to_grey))
    matrix = torch.where((u[:, 5] < _GREY)[:, None, None], to_grey @ matrix, matrix)
    return (matrix @ flat + offset).clamp(0, 1).view_as(x)
