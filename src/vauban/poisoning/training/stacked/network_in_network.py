"""Network in network, a base classifier of the thesis (chapter 7), stacked; sizes as RotNet's usual network has them."""

from __future__ import annotations

from math import sqrt

import torch
from torch.nn import functional

from vauban.poisoning.training.stacked.layers import StackedNetwork, TensorSpec, Weights, dense

BLOCKS = (
    ((5, 192), (1, 160), (1, 96)),
    ((5, 192), (1, 192), (1, 192)),
    ((3, 192), (1, 192), (1, 192)),
)
"""Kernel and channels of every convolution; the first block ends with a maximum over 3x3 pixels, the second with a mean."""


def network_in_network(first: int = 1) -> StackedNetwork:
    """Three blocks of three convolutions, each with batch normalisation and ReLU, then the mean over pixels and a linear layer.

    Models are stacked along the channels, as in the residual network. `first`: the first of the blocks 1 to 3 that it has; with 3
    it is the head of [Levine2023] on feature maps that RotNet learned by the two before.
    """

    def weights(shape: tuple[int, int, int], classes: int) -> dict[str, TensorSpec]:
        inputs, specs = shape[0], {}
        for name, kernel, outputs in _layers(first):
            specs[f"{name}.weight"] = TensorSpec(
                (outputs, inputs, kernel, kernel), sqrt(6 / (kernel * kernel * inputs))
            )
            specs[f"{name}.scale"] = TensorSpec((outputs,), fill=1.0)
            specs[f"{name}.bias"] = TensorSpec((outputs,))
            specs[f"{name}.mean"] = TensorSpec((outputs,), trained=False)
            specs[f"{name}.var"] = TensorSpec((outputs,), fill=1.0, trained=False)
            inputs = outputs
        specs["fc.weight"] = TensorSpec((inputs, classes), sqrt(1 / inputs))
        specs["fc.bias"] = TensorSpec((classes,))
        return specs

    def forward(w: Weights, x: torch.Tensor, training: bool) -> torch.Tensor:
        models = len(x)
        x = x.permute(1, 0, 4, 2, 3).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        for name, kernel, _ in _layers(first):
            filters = w[f"{name}.weight"].flatten(0, 1).to(x.dtype)
            out = functional.conv2d(x, filters, padding=kernel // 2, groups=models)
            mean, var, scale, bias = (w[f"{name}.{what}"].flatten() for what in ("mean", "var", "scale", "bias"))
            x = functional.batch_norm(out, mean, var, scale, bias, training, momentum=0.05).relu()
            if name == "block1c":
                x = pooled(x, largest=True)
            elif name == "block2c":
                x = pooled(x, largest=False)
        means = x.mean(dim=(2, 3)).view(len(x), models, -1).transpose(0, 1)
        return dense(means, w["fc.weight"], w["fc.bias"])

    return StackedNetwork(weights, forward)


def pooled(x: torch.Tensor, largest: bool) -> torch.Tensor:
    """Maximum or mean over 3x3 pixels at every second one, [n, c, h, w] to [n, c, ceil(h/2), ceil(w/2)]; x is at least 0.

    The border is padded with zeros, which are counted in a mean. Made of slices, whose gradients are added in a fixed order.
    """
    height, width = x.shape[2:]
    padded = functional.pad(x, (1, 1, 1, 1))
    slices = [padded[:, :, i : i + height : 2, j : j + width : 2] for i in range(3) for j in range(3)]
    total = slices[0]
    for one in slices[1:]:
        total = torch.maximum(total, one) if largest else total + one
    return total if largest else total / 9


def _layers(first: int) -> list[tuple[str, int, int]]:
    """Name, kernel and channels of each convolution from block `first` on."""
    return [
        (f"block{number}{letter}", kernel, outputs)
        for number, block in enumerate(BLOCKS, start=1)
        if number >= first
        for letter, (kernel, outputs) in zip("abc", block, strict=True)
    ]
