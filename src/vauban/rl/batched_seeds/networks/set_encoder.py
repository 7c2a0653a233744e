"""DeepSets encoders of several agents with stacked weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vauban.rl.batched_seeds.networks.items import kernels, width
from vauban.rl.batched_seeds.networks.mlp import StackedMLP


class SetEncoder(StackedMLP):
    """sum_i E(s, g_i) = (sum_i h_i) W + n b: the last, linear layer and its gradient are computed per set, not per goal.

    `half`: products of bfloat16 numbers, summed in float32. Gradients of the layers over goals are computed here by the chain
    rule instead of by autograd, to read and write the values of each goal as rarely as possible.
    """

    def __init__(self, networks: Sequence[Any], device: str, *, half: bool):
        super().__init__(networks, device)
        self.half = half
        self._computed: list[tuple[Tensor, Tensor]] = []

    @property
    def inner(self) -> list[Tensor]:
        """Weights and biases of the layers over goals."""
        return self.parameters[:-2]

    @property
    def last(self) -> list[Tensor]:
        """Weight and bias of the layer over sums."""
        return self.parameters[-2:]

    @torch.no_grad()
    def hidden(self, x: Tensor) -> list[Tensor]:
        """The inputs x and the outputs of every layer over goals, (agents, capacity, n) each."""
        outputs, self._computed = [x], self._computed_layers()
        for i, (weight, bias) in enumerate(self._computed):
            if i == 0 and self.half and (fast := kernels(x.device)):
                h = fast.first_layer(x, weight)
            elif not self.half:
                h = torch.baddbmm(bias, x, weight).relu_()
            else:
                h = x.new_empty(*x.shape[:2], weight.shape[2])
                for k, some in enumerate(bias):  # bias and ReLU fused with the product
                    torch._addmm_activation(some[0], x[k], weight[k], out=h[k])
            outputs.append(h)
            x = h
        return outputs

    def pooled(self, sums: Tensor, counts: Tensor) -> Tensor:
        """sum_i E(s, g_i) from the sums (agents, sets, n) of the last hidden layer and the numbers of goals (agents, sets, 1)."""
        weight, bias = self.last
        return torch.bmm(sums, weight) + counts * bias

    @torch.no_grad()
    def inner_gradients(self, outputs: list[Tensor], slope: Tensor, total: Tensor) -> list[Tensor]:
        """Gradients of `inner`, given the outputs of `hidden` and the pair that `Items.backward` returns for the last of them."""
        found: list[Tensor] = []
        for i in reversed(range(1, len(self._computed))):
            found = [torch.bmm(outputs[i].mT, slope).float(), total, *found]
            slope = torch.bmm(slope, self._computed[i][0].mT)
            if i > 1:
                slope = torch.where(outputs[i] > 0, slope, 0)
                total = slope.sum(1, keepdim=True, dtype=torch.float32)
        return [*self._first_layer(_first_layer_gradient(outputs[0], slope, outputs[1])), *found]

    def _computed_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Layers over goals as they are computed: the first with its bias as one more row, for the 1 in the inputs."""
        (weight, bias), *others = self.layers[:-1]
        if not self.half:
            return [(torch.cat([weight, bias], dim=1), torch.zeros_like(bias)), *others]
        rows = [weight, weight, bias]
        number = sum(part.shape[1] for part in rows)
        first = torch.cat([*rows, weight.new_zeros(len(weight), width(number) - number, weight.shape[2])], dim=1)
        layers = [(first, torch.zeros_like(bias)), *others]
        return [(weight.bfloat16(), bias.bfloat16()) for weight, bias in layers]

    def _first_layer(self, slope: Tensor) -> list[Tensor]:
        inputs = self.layers[0][0].shape[1]
        if not self.half:
            return [slope[:, :inputs], slope[:, inputs:]]
        return [slope[:, :inputs] + slope[:, inputs : 2 * inputs], slope[:, 2 * inputs : 2 * inputs + 1]]


def _first_layer_gradient(x: Tensor, slope: Tensor, h: Tensor) -> Tensor:
    """sum_i x_i (slope_i where h_i > 0) over all items, (agents, inputs, n)."""
    if x.dtype == torch.bfloat16 and (fast := kernels(x.device)):
        found: Tensor = fast.first_layer_gradient(x, slope, h)
        return found
    return torch.bmm(x.mT, torch.where(h > 0, slope, 0)).float()
