"""Type2 training: noisy pictures, each moved by one step against the network."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vauban.inputs import LEVELS
from vauban.smoothing import Smoothing
from vauban.training.losses.attacks import gradient, same_statistics
from vauban.training.losses.base import LOSSES, Batch, Loss, check_labels, check_numbers, mean_cross_entropy, repeated


def type2(
    network: torch.nn.Module,
    smoothing: Smoothing,
    x: torch.Tensor,
    labels: torch.Tensor,
    *,
    step: float = 8 / 255,
    views: int = 1,
    words: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
    levels: int | None = LEVELS,
) -> torch.Tensor:
    """Views [views * b, ...] of x [b, ...] plus `step` * sign(gradient of the cross-entropy). [Teng2020] section 5.1

    Each view has a gradient and a step of its own. The step is taken in the picture and the view made again from the same
    words: with additive noise this is picture + noise + step; other views stay views, with nothing added at hidden pixels.
    The network keeps its mode, and its batch statistics are restored. `words`: [views, b, …], or drawn from `generator`.
    """
    check_labels(labels, len(x))
    if words is None:
        words = torch.stack([smoothing.random_words(x, generator, levels) for _ in range(views)])
    pictures, flat = repeated(x.detach(), len(words)), words.flatten(0, 1)
    answers = repeated(labels, len(words))
    with same_statistics(network) as own:

        def objective(some: torch.Tensor) -> torch.Tensor:
            return mean_cross_entropy(own(smoothing.differentiable(some, flat, levels)), answers)

        slope = gradient(objective, pictures)
    with torch.no_grad():
        return smoothing.differentiable(pictures + step * slope.sign(), flat, levels)


@LOSSES.register("type2")
@dataclass(frozen=True)
class Type2(Loss):
    """Cross-entropy on `views` views of each picture, each moved by `step` * sign(gradient). [Teng2020] section 5.1"""

    changes_views = True
    step: float = 8 / 255
    views: int = 1

    def __post_init__(self) -> None:
        check_numbers(self, "step", low=0, above=True)
        check_numbers(self, "views", low=1)

    def views_of(self, batch: Batch, count: int) -> torch.Tensor:
        words = batch.words(count)
        return type2(
            batch.network,
            batch.smoothing,
            batch.pictures,
            batch.labels,
            step=self.step,
            words=words,
            levels=batch.levels,
        )
