"""The gradient loss: the squared difference of a critic's gradient in the goal and its target's, here called slopes."""

from __future__ import annotations

import torch
from torch import Tensor


def goal_slopes(values: Tensor, goals: Tensor, *, train: bool) -> Tensor:
    """The gradient of each row of `values` (n, 1) with respect to its own goal, in the shape of `goals` (n, …).

    With `train` the result can be differentiated again, and the graph of `values` is kept. Without it, for targets, the result
    is a constant and the graph is freed.
    """
    (slopes,) = torch.autograd.grad(values.sum(), goals, create_graph=train)
    return slopes


def gradient_loss(
    slopes: Tensor, targets: Tensor, counted: Tensor | None = None, scale: Tensor | None = None
) -> Tensor:
    """E |slope - target|^2 over a batch, a squared norm in all goal coordinates [Levine2023, Eq. 8.8, 8.9, 8.12].

    `slopes` and `targets` are (n, …); `counted` (n, 1) drops rows but not their share of the mean (the indicator of Eq. 8.9);
    `scale` weighs coordinates (G.4). The goal weight alpha of the thesis multiplies this sum over coordinates, not their mean.

    >>> gradient_loss(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 2), torch.tensor([[True], [False]]))
    tensor(2.5000)
    """
    squares = (slopes - targets.detach()).square()
    if scale is not None:
        squares = squares * scale
    per_row = squares.flatten(1).sum(1)
    if counted is not None:
        per_row = per_row * counted.flatten()
    return per_row.mean()


def soft_value(values: Tensor, temperature: float) -> Tensor:
    """SoftMax[Q / tau] . Q of each row (n, actions) as (n, 1); tau = 0 is the maximum [Levine2023, Eq. G.9].

    >>> soft_value(torch.tensor([[1.0, 3.0]]), 0.0)
    tensor([[3.]])
    """
    if temperature == 0:
        return values.max(dim=1, keepdim=True).values
    return (torch.softmax(values / temperature, dim=1) * values).sum(dim=1, keepdim=True)
