"""n networks of one shape as one network of stacked weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class StackedMLP:
    """n networks of the same shape: weights (n, in, out), biases (n, 1, out), ReLU between; tanh at the end if asked."""

    def __init__(self, networks: Sequence[Any], device: str, *, squash: bool = False):
        self.squash = squash
        self.layers: list[tuple[Tensor, Tensor]] = [
            (
                torch.stack([m.weight.detach().T for m in column]).to(device).contiguous(),
                torch.stack([m.bias.detach()[None] for m in column]).to(device),
            )
            for column in zip(*[_linear(network) for network in networks], strict=True)
        ]

    @property
    def parameters(self) -> list[Tensor]:
        """Weights and biases of every layer."""
        return [tensor for layer in self.layers for tensor in layer]

    def __call__(self, x: Tensor) -> Tensor:
        """(n, batch, in) to (n, batch, out)."""
        for i, (weight, bias) in enumerate(self.layers):
            x = torch.baddbmm(bias, x, weight)
            if i + 1 < len(self.layers):
                x = x.relu_()
        return x.tanh() if self.squash else x

    def along(self, x: Tensor, dx: Tensor) -> Tensor:
        """The derivative at x along dx, for networks without tanh: one more pass through the same gates."""
        for weight, bias in self.layers[:-1]:
            x = torch.baddbmm(bias, x, weight).relu()
            dx = torch.where(x > 0, torch.bmm(dx, weight), 0)
        return torch.bmm(dx, self.layers[-1][0])

    def copy_into(self, networks: Sequence[Any]) -> None:
        """Write each slice back into its network."""
        with torch.no_grad():
            for k, network in enumerate(networks):
                for (weight, bias), module in zip(self.layers, _linear(network), strict=True):
                    module.weight.copy_(weight[k].T)
                    module.bias.copy_(bias[k, 0])


def adam(parameters: list[Tensor], rate: Any, device: str) -> torch.optim.Adam:
    """The library's optimiser over stacked weights; on a GPU one kernel, which a graph can replay."""
    on_gpu = device.startswith("cuda")
    for parameter in parameters:
        parameter.requires_grad_()
    return torch.optim.Adam(parameters, lr=rate, fused=on_gpu, foreach=not on_gpu, capturable=on_gpu)


def descend(
    loss: Tensor, parameters: list[Tensor], optimiser: torch.optim.Optimizer, longest: float | None = None
) -> None:
    """One optimiser step; each network's gradient is shortened to `longest` on its own."""
    slopes = list(torch.autograd.grad(loss, parameters))
    if longest is not None:
        squares = sum(slope.square().flatten(1).sum(1) for slope in slopes)
        shorter = (longest / (torch.as_tensor(squares).sqrt() + 1e-6)).clamp(max=1)
        slopes = [slope * shorter[:, None, None] for slope in slopes]
    descend_along(slopes, parameters, optimiser)


def descend_along(slopes: Sequence[Tensor], parameters: list[Tensor], optimiser: torch.optim.Optimizer) -> None:
    """One optimiser step along given gradients."""
    for parameter, slope in zip(parameters, slopes, strict=True):
        parameter.grad = slope.contiguous()
    optimiser.step()


def follow(target: StackedMLP, network: StackedMLP, tau: float) -> None:
    """The target network comes a share tau nearer."""
    with torch.no_grad():
        torch._foreach_lerp_(target.parameters, network.parameters, tau)


def _linear(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]
