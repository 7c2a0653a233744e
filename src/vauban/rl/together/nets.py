"""n networks of one shape as one network of stacked weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class StackedMLP:
    """n networks of the same shape: weights (n, in, out), biases (n, 1, out), ReLU between; tanh at the end if asked.

    `half`: products of bfloat16 numbers, added up in float32; the answer is float32, and can be differentiated once.
    """

    def __init__(self, networks: Sequence[Any], device: str, *, squash: bool = False, half: bool = False):
        self.squash, self.half = squash, half
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
        if self.half:
            x = Half.apply(x, *self.parameters)
        else:
            for i, (weight, bias) in enumerate(self.layers):
                x = torch.baddbmm(bias, x, weight)
                if i + 1 < len(self.layers):
                    x = x.relu_()
        return x.tanh() if self.squash else x

    def copy_into(self, networks: Sequence[Any]) -> None:
        """Write each slice back into its network."""
        with torch.no_grad():
            for k, network in enumerate(networks):
                for (weight, bias), module in zip(self.layers, _linear(network), strict=True):
                    module.weight.copy_(weight[k].T)
                    module.bias.copy_(bias[k, 0])


class Half(torch.autograd.Function):
    """Stacked layers in bfloat16, bias and ReLU within the product: large batches move each activation once.

    Inputs keep 16 bits, as a sum of two numbers side by side, so that positions stay apart.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        first = x.bfloat16()
        seen = [torch.cat([first, (x - first.float()).bfloat16()], dim=-1)]
        weights = [weight.bfloat16() for weight in parameters[::2]]
        weights[0] = torch.cat([weights[0], weights[0]], dim=1)
        for i, (weight, bias) in enumerate(zip(weights, parameters[1::2], strict=True)):
            if i + 1 == len(weights):
                ctx.save_for_backward(*weights, *seen)
                return torch.bmm(seen[-1], weight).float().add_(bias)
            following = weight.new_empty(*x.shape[:2], weight.shape[2])
            for k, some in enumerate(bias.bfloat16()):
                torch._addmm_activation(some[0], seen[-1][k], weight[k], out=following[k])
            seen.append(following)
        raise AssertionError("a network has layers")

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        count = len(ctx.saved_tensors) // 2
        weights, seen = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        slope = slope.bfloat16()
        slopes: list[Tensor] = []
        for i in reversed(range(count)):
            slopes = [_inner(seen[i], slope), slope.sum(1, keepdim=True, dtype=torch.float32), *slopes]
            if i:
                slope = torch.ops.aten.threshold_backward(torch.bmm(slope, weights[i].mT), seen[i], 0)
        inputs = slopes[0].shape[1] // 2
        slopes[0] = slopes[0][:, :inputs] + slopes[0][:, inputs:]
        return None, *slopes


def _inner(x: Tensor, y: Tensor) -> Tensor:
    """Sums over items of products (n, in, out); small ones are summed in parts, side by side, to keep a GPU busy."""
    parts = next((p for p in (16, 8, 4, 2) if x.shape[1] % p == 0), 1) if min(x.shape[2], y.shape[2]) < 100 else 1
    x, y = (tensor.unflatten(1, (parts, -1)).flatten(0, 1) for tensor in (x, y))
    return torch.bmm(x.mT, y).float().unflatten(0, (-1, parts)).sum(1)


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
    for parameter, slope in zip(parameters, slopes, strict=True):
        parameter.grad = slope.contiguous()
    optimiser.step()


def follow(target: StackedMLP, network: StackedMLP, tau: float) -> None:
    """The target network comes a share tau nearer."""
    with torch.no_grad():
        torch._foreach_lerp_(target.parameters, network.parameters, tau)


def _linear(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]
