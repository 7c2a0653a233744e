"""Data augmentation of training pictures, applied before the smoothing makes views."""

from __future__ import annotations

import torch

from vauban.specs import choose

AUGMENTATIONS = ("none", "shift", "crop-flip")


def augment(pictures: torch.Tensor, kind: str, words: torch.Tensor) -> torch.Tensor:
    """Augment each picture [b, c, h, w] by its own row of random `words` [b, 3].

    "shift": moved by up to 2 pixels in each direction, padded with zeros; "crop-flip": by up to 4, and mirrored half of the time.
    """
    choose("augmentation", kind, AUGMENTATIONS)
    if kind == "none":
        return pictures
    reach = 2 if kind == "shift" else 4
    height, width = pictures.shape[-2:]
    padded = torch.nn.functional.pad(pictures, (reach,) * 4)
    down, right = (words[:, i] % (2 * reach + 1) for i in (0, 1))
    rows = down[:, None] + torch.arange(height, device=pictures.device)
    columns = right[:, None] + torch.arange(width, device=pictures.device)
    if kind == "crop-flip":
        columns = torch.where((words[:, 2] % 2 == 0)[:, None], columns.flip(1), columns)
    which = torch.arange(len(pictures), device=pictures.device)
    return padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
