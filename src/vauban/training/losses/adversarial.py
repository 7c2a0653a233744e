"""Adversarial training of smoothed classifiers: views of pictures that an attack on the smoothed classifier found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from vauban.inputs import LEVELS
from vauban.smoothing import Smoothing
from vauban.specs import choose
from vauban.surrogate import log_mean_softmax
from vauban.training.losses.attacks import ascend_l1, ascend_l2, same_statistics
from vauban.training.losses.base import LOSSES, Batch, Loss, check_labels, check_numbers, repeated, widened

_ASCENDS = {"l2": ascend_l2, "l1": ascend_l1}


def adversarial(
    network: torch.nn.Module,
    smoothing: Smoothing,
    x: torch.Tensor,
    labels: torch.Tensor,
    *,
    epsilon: float = 0.5,
    steps: int = 2,
    views: int = 2,
    norm: str = "l2",
    words: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
    levels: int | None = LEVELS,
) -> torch.Tensor:
    """Inputs within `epsilon` of x [b, ...] that the smoothed classifier should mistake; pictures stay in [0, 1]. [Salman2019]

    Maximizes the cross-entropy of the log-mean-softmax over `views` views, whose noise is the same in all steps, by projected
    gradient ascent in the L2 or L1 norm. The network keeps its mode, and its batch statistics are restored. `words` [views, b, …]
    (or `generator`): of the noise; train on `smoothing.differentiable(result, words[i])` to use the same noise.
    """
    check_labels(labels, len(x))
    if words is None:
        words = torch.stack([smoothing.random_words(x, generator, levels) for _ in range(views)])
    flat, count = words.flatten(0, 1), len(words)

    def make(moved: torch.Tensor) -> torch.Tensor:
        return smoothing.differentiable(repeated(moved, count), flat, levels)

    return _found(network, make, x, labels, epsilon, steps, norm)


def _found(
    network: torch.nn.Module,
    make: Callable[[torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    labels: torch.Tensor,
    epsilon: float | torch.Tensor,
    steps: int,
    norm: str,
) -> torch.Tensor:
    """The attack; `make` makes views [count * b, ...] of pictures [b, ...], with the same noise at every call."""
    ascend = _ASCENDS[choose("norm", norm, _ASCENDS)]
    if isinstance(epsilon, float) and not epsilon:
        return x.detach()
    with same_statistics(network) as own:

        def objective(moved: torch.Tensor) -> torch.Tensor:
            scores = widened(own(make(moved))).unflatten(0, (-1, len(x)))
            check_labels(labels, *scores.shape[1:])
            return cross_entropy(log_mean_softmax(scores), labels, reduction="sum")

        return ascend(objective, x.detach(), epsilon, steps)


@LOSSES.register("adversarial")
@dataclass(frozen=True)
class Adversarial(Loss):
    """Cross-entropy on views of adversarial pictures, with the noise of the attack; `epsilon` grows to its value over the
    fraction `warmup` of training. [Salman2019]"""

    changes_views = True
    epsilon: float = 0.5
    steps: int = 2
    views: int = 2
    norm: str = "l2"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        choose("norm", self.norm, _ASCENDS)
        check_numbers(self, "epsilon", low=0, above=True)
        check_numbers(self, "steps", "views", low=1)
        check_numbers(self, "warmup", low=0, high=1)

    def views_of(self, batch: Batch, count: int) -> torch.Tensor:
        words = batch.words(count)
        reached = torch.as_tensor(batch.done / self.warmup).clamp(max=1) if self.warmup else 1.0
        attacked = words[: self.views]
        found = _found(
            batch.network,
            lambda moved: batch.differentiable(moved, attacked),
            batch.pictures,
            batch.labels,
            self.epsilon * reached,
            self.steps,
            self.norm,
        )
        with torch.no_grad():
            return batch.differentiable(found, words)
