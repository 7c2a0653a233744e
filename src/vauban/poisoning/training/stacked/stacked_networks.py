"""Networks of many base classifiers at once: pure functions of stacked weights, one batched product a layer.

Pictures are given as [models, n, h, w, channels]. A convolution is `Tensor.unfold` and one batched product, or a grouped
convolution for larger networks, so each model's scores are made from its own weights and pictures alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import torch
from torch.nn import functional

from vauban.errors import BadInput
from vauban.specs import choose

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Weight:
    """One tensor a model has: its shape, and its first values: uniform within +-`reach`, or all `fill` where reach is 0."""

    shape: tuple[int, ...]
    reach: float = 0.0
    fill: float = 0.0
    trained: bool = True


@dataclass(frozen=True)
class Network:
    """`weights` says what one model has for pictures [c, h, w] and so many classes; `forward` computes all models' scores.

    forward(weights, x [models, n, h, w, c], training) gives [models, n, classes]. In training, networks with batch normalisation
    use each model's own batch, and move its running means and variances, which are weights too but not trained.
    """

    weights: Callable[[tuple[int, int, int], int], dict[str, Weight]]
    forward: Callable[[Weights, torch.Tensor, bool], torch.Tensor]


def network(name: str) -> Network:
    """The network of that name."""
    return NETWORKS[choose("network", name, NETWORKS)]


def first_weights(shapes: Mapping[str, Weight], draw: Callable[[int, int], torch.Tensor]) -> dict[str, torch.Tensor]:
    """Fresh stacked weights; draw(i, count) gives the i-th tensor's uniform numbers [models, count]."""
    made = {}
    for i, (name, weight) in enumerate(shapes.items()):
        u = draw(i, prod(weight.shape) if weight.reach else 1)
        values = (2 * u - 1) * weight.reach if weight.reach else torch.full_like(u, weight.fill)
        made[name] = values.expand(-1, prod(weight.shape)).reshape(-1, *weight.shape).contiguous()
    return made


def convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int = 1) -> torch.Tensor:
    """Square convolutions that keep the size up to the stride: x [g, n, h, w, c], weight [g, k*k*c, out], bias [g, out]."""
    models, n, _, _, channels = x.shape
    kernel = round(sqrt(weight.shape[1] // channels))
    patches: torch.Tensor = _Patches.apply(x, kernel, stride)
    height, width = patches.shape[2:4]
    out = dense(patches.view(models, n * height * width, weight.shape[1]), weight, bias)
    return out.view(models, n, height, width, -1)


class _Patches(torch.autograd.Function):
    """Every square window of zero-padded pictures, [g, n, h, w, c] to [g, n, h', w', k*k*c], and back by adding them up."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, kernel: int, stride: int) -> torch.Tensor:
        ctx.shape, ctx.kernel, ctx.stride = x.shape, kernel, stride
        edge = kernel // 2
        padded = functional.pad(x, (0, 0, edge, edge, edge, edge))
        windows = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)
        return windows.permute(0, 1, 2, 3, 5, 6, 4).flatten(4).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        models, n, height, width, channels = ctx.shape
        kernel, stride, edge = ctx.kernel, ctx.stride, ctx.kernel // 2
        rows, columns = grad.shape[2:4]
        windows = grad.view(models, n, rows, columns, kernel, kernel, channels)
        padded = grad.new_zeros(models, n, height + 2 * edge, width + 2 * edge, channels)
        for i in range(kernel):
            for j in range(kernel):
                place = padded[
                    :, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride
                ]
                place += windows[:, :, :, :, i, j]
        return padded[:, :, edge : edge + height, edge : edge + width], None, None


def dense(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [g, n, in] times weight [g, in, out], plus bias [g, out], in the precision of x."""
    weight = weight.to(x.dtype)
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.to(x.dtype)[:, None], x, weight)


def _product(inside: int, outside: int, last: bool = False) -> Weight:
    return Weight((inside, outside), sqrt((1 if last else 6) / inside))


def _plain(convolutions: tuple[tuple[int, int, int], ...], hidden: tuple[int, ...]) -> Network:
    """Convolutions (kernel, channels, stride), then dense layers, ReLU between all."""

    def weights(shape: tuple[int, int, int], classes: int) -> dict[str, Weight]:
        inside, height, width = shape
        made = {}
        for i, (kernel, outside, stride) in enumerate(convolutions, start=1):
            made[f"conv{i}.weight"] = _product(kernel * kernel * inside, outside)
            made[f"conv{i}.bias"] = Weight((outside,))
            inside, height, width = outside, -(-height // stride), -(-width // stride)
        inside *= height * width
        for i, outside in enumerate((*hidden, classes), start=1):
            made[f"fc{i}.weight"] = _product(inside, outside, last=i > len(hidden))
            made[f"fc{i}.bias"] = Weight((outside,))
            inside = outside
        return made

    def forward(w: Weights, x: torch.Tensor, training: bool) -> torch.Tensor:
        for i, (_, _, stride) in enumerate(convolutions, start=1):
            x = convolve(x, w[f"conv{i}.weight"], w[f"conv{i}.bias"], stride).relu()
        x = x.flatten(2)
        for i in range(1, len(hidden) + 1):
            x = dense(x, w[f"fc{i}.weight"], w[f"fc{i}.bias"]).relu()
        return dense(x, w[f"fc{len(hidden) + 1}.weight"], w[f"fc{len(hidden) + 1}.bias"])

    return Network(weights, forward)


def _residual(width: int) -> Network:
    """Nine layers for colour pictures: a stem, three stages that double the channels and halve the picture, two shortcuts.

    All models lie along the channels, [n, models * c, h, w], so that convolutions are grouped ones and batch normalisation, a
    thing of each channel alone, is each model's own.
    """
    stages = ((2 * width, True), (4 * width, True), (8 * width, False))
    layers, inside = [("stem", 3, width)], width
    for number, (outside, residual) in enumerate(stages, start=1):
        layers.append((f"down{number}", inside, outside))
        layers += [(f"res{number}{part}", outside, outside) for part in "ab" if residual]
        inside = outside

    def weights(shape: tuple[int, int, int], classes: int) -> dict[str, Weight]:
        if shape[0] != 3 or shape[1] % 8 or shape[2] % 8:
            raise BadInput(f"the network residual takes colour pictures [3, h, w], sides divisible by 8, not {shape}")
        made = {}
        for name, inside, outside in layers:
            made[f"{name}.weight"] = Weight((outside, inside, 3, 3), sqrt(6 / (9 * inside)))
            made[f"{name}.scale"] = Weight((outside,), fill=1.0)
            made[f"{name}.bias"] = Weight((outside,))
            made[f"{name}.mean"] = Weight((outside,), trained=False)
            made[f"{name}.var"] = Weight((outside,), fill=1.0, trained=False)
        made["fc.weight"] = _product(8 * width, classes, last=True)
        made["fc.bias"] = Weight((classes,))
        return made

    def forward(w: Weights, x: torch.Tensor, training: bool) -> torch.Tensor:
        models = len(x)

        def layer(x: torch.Tensor, name: str) -> torch.Tensor:
            kernel = w[f"{name}.weight"].flatten(0, 1).to(x.dtype)
            out = functional.conv2d(x, kernel, padding=1, groups=models)
            mean, var, scale, bias = (w[f"{name}.{what}"].flatten() for what in ("mean", "var", "scale", "bias"))
            return functional.batch_norm(out, mean, var, scale, bias, training, momentum=0.05).relu()

        x = x.permute(1, 0, 4, 2, 3).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        x = layer(x, "stem")
        for number, (_, residual) in enumerate(stages, start=1):
            x = halve(layer(x, f"down{number}"))
            if residual:
                x = x + layer(layer(x, f"res{number}a"), f"res{number}b")
        pooled = x.mean(dim=(2, 3)).view(len(x), models, -1).transpose(0, 1)
        return dense(pooled, w["fc.weight"], w["fc.bias"])

    return Network(weights, forward)


def halve(x: torch.Tensor) -> torch.Tensor:
    """The largest of every 2x2 pixels, [n, c, h, w] to [n, c, h/2, w/2]; equal ones share the gradient."""
    rows = torch.maximum(x[:, :, 0::2], x[:, :, 1::2])
    return torch.maximum(rows[:, :, :, 0::2], rows[:, :, :, 1::2])


NETWORKS = {
    "linear": _plain((), ()),
    "dense": _plain((), (128,)),
    "cnn": _plain(((3, 16, 2), (3, 32, 2)), (64,)),
    "residual": _residual(32),
}
