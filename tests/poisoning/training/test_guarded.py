"""Base classifiers that fail: attributed to their part and input alone, the others bit for bit the same."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from vauban.errors import NotRepeated
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.training.failures import Failure
from vauban.poisoning.training.guarded import fit_parts, guarded_scores

BAD, CLASSES = 99.0, 3
PARTS = [(np.full((2, 4), float(i)), np.array([i % 3, 1])) for i in range(7)]


class Sums:
    """Trains in groups of three; a model is the sum of its part. Raises for a part that holds BAD, in `fit` or in `scores`."""

    num_classes = CLASSES

    def __init__(self, where: str = "fit", as_list: bool = False, problems: Sequence[BaseException | None] = ()):
        self.where, self.as_list, self.problems = where, as_list, list(problems)

    @property
    def spec(self) -> dict[str, Any]:
        return {}

    def fit(self, parts: Sequence[TrainingSet], numbers: Sequence[int], on_progress: Any = None) -> Iterator[Any]:
        for first in range(0, len(parts), 3):
            some = range(first, min(first + 3, len(parts)))
            if self.where == "fit" and any((parts[i][0] == BAD).any() for i in some):
                self._fail()
            sums = [torch.tensor(parts[i][0].sum(axis=0)) for i in some]
            yield [numbers[i] for i in some], sums if self.as_list else {"sum": torch.stack(sums)}

    def scores(self, weights: Any, x: np.ndarray) -> torch.Tensor:
        sums = torch.stack(weights) if self.as_list else weights["sum"]
        bad_model, bad_input = bool((sums >= BAD).any()), bool((x == BAD).any())
        if (self.where == "scores" and bad_model) or (self.where == "input" and bad_model and bad_input):
            self._fail()
        products = (sums[:, None] * torch.tensor(x)).sum(dim=2)
        scores = torch.stack([products * c for c in (1.0, -1.0, 0.5)], dim=2)
        if self.where == "nan":
            scores[(sums >= BAD).any(dim=1), :, 1] = torch.nan
        return scores

    def _fail(self) -> None:
        problem = self.problems.pop(0) if self.problems else ValueError("bad sample")
        if problem is not None:
            raise problem


def trained(trainer: Sums, parts: Sequence[TrainingSet]) -> tuple[dict[int, bytes], dict[int, str]]:
    """Each base classifier's weights, and the problems of those that failed."""
    weights, failed = {}, {}
    for numbers, found in fit_parts(trainer, parts, range(len(parts))):
        if isinstance(found, Failure):
            failed |= dict.fromkeys(numbers, found.problem)
        else:
            rows = found if trainer.as_list else found["sum"]
            weights |= {number: row.numpy().tobytes() for number, row in zip(numbers, rows, strict=True)}
    return weights, failed


def poisoned(*which: int) -> list[TrainingSet]:
    return [(np.where(i in which, BAD, x), y) for i, (x, y) in enumerate(PARTS)]


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("where", ["fit", "scores", "nan"])
@pytest.mark.parametrize("which", [(4,), (0, 1), (6,), tuple(range(7))], ids=str)
def test_a_failing_part_changes_no_other(where: str, as_list: bool, which: tuple[int, ...]) -> None:
    clean, nothing = trained(Sums(where, as_list), PARTS)
    assert nothing == {}
    weights, failed = trained(Sums(where, as_list), poisoned(*which))
    assert sorted(failed) == list(which)
    assert weights == {number: bits for number, bits in clean.items() if number not in which}
    try:
        raise OSError("handled by a caller")
    except OSError:
        assert trained(Sums(where, as_list), poisoned(*which)) == (weights, failed)
    expected = "a score is NaN" if where == "nan" else "ValueError: bad sample"
    assert set(failed.values()) == {expected}


@pytest.mark.parametrize("where", ["fit", "scores"])
def test_a_failure_that_does_not_repeat_stops_training(where: str) -> None:
    flaky = Sums(where, problems=[ValueError("once"), None, None, None, None, None, None])
    with pytest.raises(NotRepeated, match="once"):
        trained(flaky, poisoned(4))


@pytest.mark.parametrize("where", ["fit", "scores"])
@pytest.mark.parametrize("problem", [MemoryError(), OSError("disk"), KeyboardInterrupt()], ids=repr)
def test_the_machine_stops_training(where: str, problem: BaseException) -> None:
    for before in ([], [ValueError("first")]):
        with pytest.raises(type(problem)):
            trained(Sums(where, problems=[*before, problem]), poisoned(4))


def scored(trainer: Sums, parts: Sequence[TrainingSet], x: np.ndarray) -> np.ndarray:
    groups = trainer.fit(parts, range(len(parts)))
    return torch.cat([guarded_scores(trainer.scores, weights, x, CLASSES) for _, weights in groups]).numpy()


@pytest.mark.parametrize("as_list", [False, True])
def test_a_failure_on_one_input_is_a_constant_vote_for_it_alone(as_list: bool) -> None:
    x = np.random.default_rng(0).normal(size=(5, 4))
    x[3] = BAD
    trainer = Sums("input", as_list)
    scores, clean = scored(trainer, poisoned(4), x), scored(Sums("never", as_list), poisoned(4), x)
    assert (scores[4, 3] == 0).all()
    clean[4, 3] = 0
    assert np.array_equal(scores, clean)


def test_nan_on_one_input_is_a_constant_vote() -> None:
    x = np.ones((2, 4))
    scores = scored(Sums("nan"), poisoned(4), x)
    assert (scores[4] == 0).all()
    assert (scores[5] != 0).all()


def test_a_failure_in_voting_must_repeat() -> None:
    with pytest.raises(NotRepeated):
        scored(Sums("scores", problems=[ValueError("once"), None]), poisoned(4), np.ones((2, 4)))
    with pytest.raises(NotRepeated, match="none of them alone"):
        scored(Sums("scores", problems=[ValueError("a"), ValueError("b"), None]), poisoned(4)[3:5], np.ones((1, 4)))

    class Pairs(Sums):
        def scores(self, weights: Any, x: np.ndarray) -> torch.Tensor:
            if len(set(weights["sum"][:, 0].tolist())) > 1:
                raise ValueError("models of two kinds")
            return super().scores(weights, x)

    with pytest.raises(NotRepeated, match="none of them alone"):
        scored(Pairs(), PARTS, np.ones((1, 4)))
    turns = iter([True, False])

    class Flickering(Sums):
        def scores(self, weights: Any, x: np.ndarray) -> torch.Tensor:
            return super().scores(weights, x) * (torch.nan if next(turns) else 1.0)

    with pytest.raises(NotRepeated, match="NaN"):
        scored(Flickering(), PARTS[:1], np.ones((2, 4)))


def test_scores_of_a_wrong_shape_are_a_failure() -> None:
    class Narrow(Sums):
        def scores(self, weights: Any, x: np.ndarray) -> torch.Tensor:
            scores = super().scores(weights, x)
            return scores[:, :, :2] if len(scores) == 1 and (weights["sum"] >= BAD).any() else scores

    alone = [(np.full((2, 4), BAD), np.array([0, 1]))]
    weights, failed = trained(Narrow("never"), alone)
    assert weights == {}
    assert "scores of shape (1, 1, 2)" in failed[0]
