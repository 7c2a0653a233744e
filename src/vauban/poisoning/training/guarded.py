"""Trains and scores base classifiers so that one that fails has a constant vote, by `failures.RULE`, and no other changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import NotRepeated
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.failures import Failure, about_the_machine, attempt, describe
from vauban.poisoning.training.trainer import Trainer

Score = Callable[[Any, NDArray[Any]], torch.Tensor]
"""Takes weights of base classifiers and inputs to scores [models, inputs, classes]."""


def fit_parts(
    trainer: Trainer,
    parts: Sequence[TrainingSet],
    numbers: Sequence[int],
    on_progress: ProgressCallback | None = None,
) -> Iterator[tuple[list[int], Any]]:
    """What `trainer.fit` yields, with a `Failure` in place of the weights of base classifiers that cannot be trained.

    An error ends `trainer.fit` without saying which part it is about. So the parts that are left are then trained one by one,
    which gives the same weights by what a `Trainer` promises.
    """
    if not len(numbers):
        return
    zeros = np.zeros_like(parts[0][0][:1])
    left = {number: i for i, number in enumerate(numbers)}
    together = _fit(trainer, parts, numbers, on_progress)
    while True:
        handled = sys.exc_info()[1]
        try:
            some, weights = next(together)
        except StopIteration:
            return
        except Exception as problem:
            if about_the_machine(problem, handled):
                raise
            first = describe(problem)
            break
        for number in some:
            left.pop(number, None)
        yield from _able_to_score(trainer, some, weights, zeros)
    failed = False
    for number, i in left.items():
        alone = attempt(partial(_fit_one, trainer, parts[i], number))
        for some, weights in [([number], alone)] if isinstance(alone, Failure) else alone:
            failed |= isinstance(weights, Failure)
            yield from _able_to_score(trainer, some, weights, zeros)
        if on_progress:
            on_progress(1)
    if not failed:
        raise NotRepeated(
            f"training failed ({first}), and each of the {len(left)} parts that were left could be trained on its own: the "
            "failure is no function of one part, so nothing can be certified; make the trainer repeatable"
        )


def guarded_scores(score: Score, weights: Any, x: NDArray[Any], num_classes: int) -> torch.Tensor:
    """Scores [models, inputs, classes], all 0 where a base classifier fails, or returns NaN, on an input."""
    return _scores(score, weights, x, num_classes)[0]


def _fit(
    trainer: Trainer, parts: Sequence[TrainingSet], numbers: Sequence[int], on_progress: ProgressCallback | None
) -> Iterator[tuple[list[int], Any]]:
    yield from trainer.fit(parts, numbers, on_progress)


def _fit_one(trainer: Trainer, part: TrainingSet, number: int) -> list[tuple[list[int], Any]]:
    return list(trainer.fit([part], [number], None))


def _able_to_score(
    trainer: Trainer, numbers: Sequence[int], weights: Any, zeros: NDArray[Any]
) -> Iterator[tuple[list[int], Any]]:
    """The group without the base classifiers that cannot score an input of zeros, and a `Failure` for each of these."""
    if isinstance(weights, Failure):
        yield list(numbers), weights
        return
    problems = _scores(trainer.scores, weights, zeros, trainer.num_classes)[1]
    for i, number in enumerate(numbers):
        if (i, 0) in problems:
            yield [number], Failure(problems[i, 0])
    able = [i for i in range(len(numbers)) if (i, 0) not in problems]
    if able:
        yield [numbers[i] for i in able], weights if len(able) == len(numbers) else _chosen(weights, able)


def _scores(
    score: Score, weights: Any, x: NDArray[Any], num_classes: int
) -> tuple[torch.Tensor, dict[tuple[int, int], str]]:
    """Scores as in `guarded_scores`, and the problem of each base classifier and input that has one."""
    models = len(next(iter(weights.values()))) if isinstance(weights, dict) else len(weights)
    problems: dict[tuple[int, int], str] = {}
    scores = _attempted(partial(_checked, score, weights, x, (models, len(x), num_classes)))
    if isinstance(scores, Failure):
        rows = [_one_model(score, weights, models, i, x, num_classes) for i in range(models)]
        problems = {(i, j): problem for i, (_, found) in enumerate(rows) for j, problem in found.items()}
        if not problems:
            raise NotRepeated(
                f"base classifiers failed together ({scores.problem}), and none of them alone on one input: the failure is no "
                "function of a part and an input, so nothing can be certified"
            )
        scores = torch.cat([row for row, _ in rows])
    missing = scores.isnan().any(dim=2)
    if not missing.any():
        return scores, problems
    problems |= {(int(i), int(j)): "a score is NaN" for i, j in missing.nonzero().tolist()}
    return scores.masked_fill(missing[:, :, None], 0), problems


def _one_model(
    score: Score, weights: Any, models: int, i: int, x: NDArray[Any], num_classes: int
) -> tuple[torch.Tensor, dict[int, str]]:
    """Scores [1, inputs, classes] of model i, in its place of a group that holds it `models` times; 0 where it fails, and why."""
    own = weights if models == 1 else _chosen(weights, [i] * models)
    together = _attempted(partial(_checked, score, own, x, (models, len(x), num_classes)))
    if not isinstance(together, Failure):
        return together[i : i + 1].cpu(), {}
    rows, problems = [], {}
    for j in range(len(x)):
        row = _attempted(partial(_checked, score, own, x[j : j + 1], (models, 1, num_classes)))
        if isinstance(row, Failure):
            problems[j] = row.problem
            rows.append(torch.zeros(1, 1, num_classes))
        else:
            rows.append(row[i : i + 1].cpu())
    return torch.cat(rows, dim=1), problems


def _attempted(work: Callable[[], torch.Tensor]) -> torch.Tensor | Failure:
    """Scores, with NaN only where it repeats; or why they cannot be computed, twice."""
    scores = attempt(work)
    if not isinstance(scores, Failure) and scores.isnan().any():
        again = attempt(work)
        if isinstance(again, Failure) or not torch.equal(scores.isnan().any(dim=2), again.isnan().any(dim=2)):
            raise NotRepeated(
                "a base classifier returned NaN, and not when it was asked again: nothing can be certified"
            )
    return scores


def _checked(score: Score, weights: Any, x: NDArray[Any], shape: tuple[int, int, int]) -> torch.Tensor:
    scores = score(weights, x)
    if tuple(scores.shape) != shape:
        raise ValueError(f"scores of shape {tuple(scores.shape)}: [models, inputs, classes] = {list(shape)} is needed")
    return scores


def _chosen(weights: Any, rows: Sequence[int]) -> Any:
    """The weights of some base classifiers of a group."""
    if isinstance(weights, dict):
        return {name: value[list(rows)] for name, value in weights.items()}
    return [weights[i] for i in rows]
