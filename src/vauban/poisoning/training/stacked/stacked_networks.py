"""Computes many small networks at once: pure functions of stacked weights.

Pictures have shape [models, n, h, w, channels]. A convolution is `Tensor.unfold` and one batched product, or a grouped
convolution in larger networks, so the scores of each model depend on its own weights and pictures alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod, sqrt
from typing import Any

import torch
from torch.nn import functional

from vauban.errors import BadInput
from vauban.poisoning.training.stacked.layers import StackedNetwork, TensorSpec, Weights, dense
from vauban.poisoning.training.stacked.network_in_network import network_in_network
from vauban.specs import choose


def network(name: str) -> StackedNetwork:
    """The network of that name."""
    return NETWORKS[network_name(name)]


def network_name(name: str) -> str:
    """The present name of a network; ensembles saved earlier may hold another.

    >>> network_name("cnn")
    'tiny-cnn'
    """
    return choose("network", EARLIER_NAMES.get(name, name), NETWORKS)


def initial_weights(
    specs: Mapping[str, TensorSpec], uniforms: Callable[[int, int], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Initial stacked weights; uniforms(i, count) returns the i-th tensor's uniform numbers [models, count]."""
    weights = {}
    for i, (name, spec) in enumerate(specs.items()):
        u = uniforms(i, prod(spec.shape) if spec.limit else 1)
        values = (2 * u - 1) * spec.limit if spec.limit else torch.full_like(u, spec.fill)
        weights[name] = values.expand(-1, prod(spec.shape)).reshape(-1, *spec.shape).contiguous()
    return weights


def convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int = 1) -> torch.Tensor:
    """Square convolution with zero padding, [g, n, h', w', out]: x [g, n, h, w, c], weight [g, k*k*c, out], bias [g, out]."""
    models, n, _, _, channels = x.shape
    kernel = round(sqrt(weight.shape[1] // channels))
    patches: torch.Tensor = _Patches.apply(x, kernel, stride)
    height, width = patches.shape[2:4]
    out = dense(patches.view(models, n * height * width, weight.shape[1]), weight, bias)
    return out.view(models, n, height, width, -1)


class _Patches(torch.autograd.Function):
    """All square windows of zero-padded pictures, [g, n, h, w, c] to [g, n, h', w', k*k*c]; backward sums their gradients."""

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
                target = padded[
                    :, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride
                ]
                target += windows[:, :, :, :, i, j]
        return padded[:, :, edge : edge + height, edge : edge + width], None, None


def _product(inputs: int, outputs: int, last: bool = False) -> TensorSpec:
    return TensorSpec((inputs, outputs), sqrt((1 if last else 6) / inputs))


def _plain(convolutions: tuple[tuple[int, int, int], ...], hidden: tuple[int, ...]) -> StackedNetwork:
    """Convolutions (kernel, channels, stride), then dense layers, ReLU between all."""

    def weights(shape: tuple[int, int, int], classes: int) -> dict[str, TensorSpec]:
        inputs, height, width = shape
        specs = {}
        for i, (kernel, outputs, stride) in enumerate(convolutions, start=1):
            specs[f"conv{i}.weight"] = _product(kernel * kernel * inputs, outputs)
            specs[f"conv{i}.bias"] = TensorSpec((outputs,))
            inputs, height, width = outputs, -(-height // stride), -(-width // stride)
        inputs *= height * width
        for i, outputs in enumerate((*hidden, classes), start=1):
            specs[f"fc{i}.weight"] = _product(inputs, outputs, last=i > len(hidden))
            specs[f"fc{i}.bias"] = TensorSpec((outputs,))
            inputs = outputs
        return specs

    def forward(w: Weights, x: torch.Tensor, training: bool) -> torch.Tensor:
        for i, (_, _, stride) in enumerate(convolutions, start=1):
            x = convolve(x, w[f"conv{i}.weight"], w[f"conv{i}.bias"], stride).relu()
        x = x.flatten(2)
        for i in range(1, len(hidden) + 1):
            x = dense(x, w[f"fc{i}.weight"], w[f"fc{i}.bias"]).relu()
        return dense(x, w[f"fc{len(hidden) + 1}.weight"], w[f"fc{len(hidden) + 1}.bias"])

    return StackedNetwork(weights, forward)


def _residual(width: int) -> StackedNetwork:
    """Nine layers for colour pictures: a stem, three stages that double the channels and halve the picture, two shortcuts.

    Models are stacked along the channels, [n, models * c, h, w]: convolutions are grouped, and batch normalisation, which
    treats each channel by itself, is each model's own.
    """
    stages = ((2 * width, True), (4 * width, True), (8 * width, False))
    layers, inputs = [("stem", 3, width)], width
    for number, (outputs, residual) in enumerate(stages, start=1):
        layers.append((f"down{number}", inputs, outputs))
        layers += [(f"res{number}{part}", outputs, outputs) for part in "ab" if residual]
        inputs = outputs

    def weights(shape: tuple[int, int, int], classes: int) -> dict[str, TensorSpec]:
        if shape[0] != 3 or shape[1] % 8 or shape[2] % 8:
            raise BadInput(f"the network residual takes colour pictures [3, h, w], sides divisible by 8, not {shape}")
        specs = {}
        for name, inputs, outputs in layers:
            specs[f"{name}.weight"] = TensorSpec((outputs, inputs, 3, 3), sqrt(6 / (9 * inputs)))
            specs[f"{name}.scale"] = TensorSpec((outputs,), fill=1.0)
            specs[f"{name}.bias"] = TensorSpec((outputs,))
            specs[f"{name}.mean"] = TensorSpec((outputs,), trained=False)
            specs[f"{name}.var"] = TensorSpec((outputs,), fill=1.0, trained=False)
        specs["fc.weight"] = _product(8 * width, classes, last=True)
        specs["fc.bias"] = TensorSpec((classes,))
        return specs

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

    return StackedNetwork(weights, forward)


def halve(x: torch.Tensor) -> torch.Tensor:
    """Maximum over 2x2 pixels, [n, c, h, w] to [n, c, h/2, w/2]; equal values share the gradient."""
    rows = torch.maximum(x[:, :, 0::2], x[:, :, 1::2])
    return torch.maximum(rows[:, :, :, 0::2], rows[:, :, :, 1::2])


NETWORKS = {
    "linear": _plain((), ()),
    "dense": _plain((), (128,)),
    "tiny-cnn": _plain(((3, 16, 2), (3, 32, 2)), (64,)),
    "residual": _residual(32),
    "nin": network_in_network(),
    "nin-top": network_in_network(first=3),
}
EARLIER_NAMES = {"cnn": "tiny-cnn"}
