"""Multilayer perceptrons of several agents with stacked weights, and their optimiser steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class StackedMLP:
    """n networks of one shape: weights (n, in, out), biases (n, 1, out), ReLU between layers, with `squash` tanh at the end."""

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

    def jvp(self, x: Tensor, dx: Tensor) -> Tensor:
        """The directional derivative at x along dx, for networks without tanh."""
        for weight, bias in self.layers[:-1]:
            x = torch.baddbmm(bias, x, weight).relu()
            dx = torch.where(x > 0, torch.bmm(dx, weight), 0)
        return torch.bmm(dx, self.layers[-1][0])

    def copy_into(self, networks: Sequence[Any]) -> None:
        """Copy each slice of the stacked weights into its network."""
        with torch.no_grad():
            for k, network in enumerate(networks):
                for (weight, bias), module in zip(self.layers, _linear(network), strict=True):
                    module.weight.copy_(weight[k].T)
                    module.bias.copy_(bias[k, 0])


def adam(parameters: list[Tensor], rate: Any, device: str) -> torch.optim.Adam:
    """Adam over stacked weights, as in Stable-Baselines3; on a GPU fused and capturable in a CUDA graph."""
    on_gpu = device.startswith("cuda")
    for parameter in parameters:
        parameter.requires_grad_()
    return torch.optim.Adam(parameters, lr=rate, fused=on_gpu, foreach=not on_gpu, capturable=on_gpu)


def optimise(
    loss: Tensor, parameters: list[Tensor], optimiser: torch.optim.Optimizer, max_norm: float | None = None
) -> None:
    """One optimiser step on `loss`; with `max_norm` the gradient of each network is clipped separately."""
    gradients = list(torch.autograd.grad(loss, parameters))
    if max_norm is not None:
        squares = sum(gradient.square().flatten(1).sum(1) for gradient in gradients)
        scale = (max_norm / (torch.as_tensor(squares).sqrt() + 1e-6)).clamp(max=1)
        gradients = [gradient * scale[:, None, None] for gradient in gradients]
    apply_gradients(gradients, parameters, optimiser)


def apply_gradients(gradients: Sequence[Tensor], parameters: list[Tensor], optimiser: torch.optim.Optimizer) -> None:
    """One optimiser step with given gradients."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.contiguous()
    optimiser.step()


def update_target(target: StackedMLP, network: StackedMLP, tau: float) -> None:
    """Move the target network's weights a share tau towards the network's."""
    with torch.no_grad():
        torch._foreach_lerp_(target.parameters, network.parameters, tau)


def _linear(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]
