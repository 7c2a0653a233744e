"""Fixed transforms of pictures before a network sees them: functions of one picture alone, so that no sample can poison them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from vauban.errors import BadInput
from vauban.specs import choose

_SPREAD = (3.4 / 28, 4.7 / 28)
"""Standard deviations of the ink of an upright digit, across and down, as fractions of the picture."""
_DIRECTIONS = 8


@dataclass(frozen=True)
class InputTransform:
    """Two functions, applied before and after augmentation; both take float32 [n, c, h, w] to [n, c', h', w']."""

    before: Callable[[torch.Tensor], torch.Tensor]
    after: Callable[[torch.Tensor], torch.Tensor]


def input_transform(name: str) -> InputTransform:
    """The input transform of that name."""
    return INPUT_TRANSFORMS[choose("front end", name, INPUT_TRANSFORMS)]


def upright(x: torch.Tensor) -> torch.Tensor:
    """Centre the ink of grey pictures [n, 1, h, w], remove its slant and scale its spread to that of a usual digit.

    The affine map is computed from the picture's first and second moments alone.
    """
    if x.ndim != 4 or x.shape[1] != 1:
        raise BadInput(f"pictures of shape {tuple(x.shape[1:])} cannot be set upright: grey ones [1, h, w] can")
    height, width = x.shape[2:]
    down = torch.arange(height, device=x.device, dtype=x.dtype) - (height - 1) / 2
    across = torch.arange(width, device=x.device, dtype=x.dtype) - (width - 1) / 2
    ink = x[:, 0] / (x[:, 0].sum(dim=(1, 2), keepdim=True) + 1e-6)
    rows, columns = ink.sum(dim=2), ink.sum(dim=1)
    y, x0 = (rows * down).sum(dim=1), (columns * across).sum(dim=1)
    dy, dx = down - y[:, None], across - x0[:, None]
    var_y, var_x = (rows * dy**2).sum(dim=1), (columns * dx**2).sum(dim=1)
    cov = ((ink * dx[:, None, :]).sum(dim=2) * dy).sum(dim=1)
    slant = (cov / (var_y + 1e-6)).clamp(-1, 1)
    spread_x = (var_x - cov**2 / (var_y + 1e-6)).clamp(min=0.01).sqrt()
    wider = (spread_x / (_SPREAD[0] * width)).clamp(0.45, 1.6)
    taller = (var_y.clamp(min=0.01).sqrt() / (_SPREAD[1] * height)).clamp(0.6, 1.6)
    none = torch.zeros_like(wider)
    matrix = torch.stack([wider, slant * taller, none, taller], dim=1).view(-1, 2, 2)
    return affine(x, matrix, torch.stack([x0, y], dim=1))


def affine(x: torch.Tensor, matrix: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Pictures [n, c, h, w] whose value at p, from the centre, is that of `x` at matrix [n, 2, 2] p + shift [n, 2], in pixels."""
    half = torch.tensor([x.shape[3] / 2, x.shape[2] / 2], device=x.device, dtype=x.dtype)
    theta = torch.cat([matrix * half / half[:, None], (shift / half)[:, :, None]], dim=2)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="zeros", align_corners=False)


def gradients(x: torch.Tensor) -> torch.Tensor:
    """Histogram of gradient directions in eight channels, [n, 8c, h/2, w/2] from [n, c, h, w], pooled and normalised.

    The share of direction d in a gradient g is max(0, g.d)^4 / |g|^3. It is pooled by a Gaussian at every second pixel and
    divided by the picture's norm; the square root is returned, scaled to about one.
    """
    right = functional.pad(x, (0, 1))[..., 1:] - functional.pad(x, (1, 0))[..., :-1]
    down = functional.pad(x, (0, 0, 0, 1))[..., 1:, :] - functional.pad(x, (0, 0, 1, 0))[..., :-1, :]
    turn = torch.arange(_DIRECTIONS, device=x.device, dtype=x.dtype) * (2 * math.pi / _DIRECTIONS)
    along = right[:, :, None] * turn.cos()[:, None, None] + down[:, :, None] * turn.sin()[:, None, None]
    shares = along.clamp_(min=0).square_().square_().mul_((right**2 + down**2 + 1e-8).pow_(-1.5)[:, :, None])
    pooled = (shares @ _pool(x.shape[3], x).T).transpose(3, 4).contiguous() @ _pool(x.shape[2], x).T
    pooled = pooled.transpose(3, 4).flatten(1, 2)
    norm = pooled.square().sum(dim=(1, 2, 3), keepdim=True).sqrt()
    return (pooled / (norm + 1e-6)).sqrt() * float(pooled[0].numel()) ** 0.25


def descriptors(x: torch.Tensor) -> torch.Tensor:
    """Gradient directions of brightness in cells of 4 and of 8 pixels, and the gradient directions of these maps in cells of 8;
    of colour pictures also those of two colour contrasts in cells of 8, and the mean colours there: [n, d, 1, 1] from
    [n, 1 or 3, h, w], each part scaled to a length of its own."""
    if x.ndim != 4 or x.shape[1] not in (1, 3) or min(x.shape[2:]) < 8:
        raise BadInput(
            f"inputs {tuple(x.shape[1:])} have no descriptors: pictures [1 or 3, h, w] of 8 pixels or more have"
        )
    first = gradients(x.mean(dim=1, keepdim=True))
    parts = [(1.0, functional.avg_pool2d(first, 2)), (1.0, functional.avg_pool2d(first, 4))]
    parts.append((1.0, functional.avg_pool2d(gradients(first), 2)))
    if x.shape[1] == 3:
        red, green, blue = x.split(1, dim=1)
        contrasts = [gradients((red - green) / 2), gradients((red + green) / 4 - blue / 2)]
        parts.append((0.7, functional.avg_pool2d(torch.cat(contrasts, dim=1), 4)))
        parts.append((0.5, functional.avg_pool2d(x, 8) - 0.5))
    scaled = [length * functional.normalize(part.flatten(1), dim=1) for length, part in parts]
    return torch.cat(scaled, dim=1)[:, :, None, None]


def _pool(size: int, like: torch.Tensor, pitch: int = 2, sigma: float = 1.2) -> torch.Tensor:
    """Gaussian weights [size // pitch, size] centred on every `pitch`-th pixel; every row sums to one."""
    at = torch.arange(size, device=like.device, dtype=like.dtype)
    centre = at[: size // pitch] * pitch + (pitch - 1) / 2
    weights = torch.exp(-((centre[:, None] - at) ** 2) / (2 * sigma**2))
    return weights / weights.sum(dim=1, keepdim=True)


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


INPUT_TRANSFORMS = {
    "none": InputTransform(_identity, _identity),
    "upright": InputTransform(upright, _identity),
    "gradients": InputTransform(upright, gradients),
    "descriptors": InputTransform(_identity, descriptors),
}
