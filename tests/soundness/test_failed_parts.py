"""Poisonings that learners fail on (NaN, labels that are no class, too few samples), retrained: certified answers stay."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from vauban.poisoning import Ensemble, Partition, PoisoningCertificates, SklearnTrainer

POINTS = (0.0, 1.5, 2.0, 3.5, 5.0, 6.0, 7.5, 9.0)
NEW = (4.0, float("nan"), float("inf"))
LABELS = (0, 1, 2, 3, -1)  # the last two are no classes
ASKED = np.array([[0.5], [4.5], [8.0]], dtype=np.float32)
CLASSES = 3

Samples = tuple[tuple[str, int], ...]
"""Inputs as text, so that NaN equals itself, with their labels."""

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@cache
def certified(samples: Samples, split: Partition, neighbours: int, aggregate: str) -> PoisoningCertificates:
    """Claims of the ensemble really trained on these samples."""
    return trained(samples, split, neighbours).certify(ASKED, aggregate=aggregate)


@cache
def trained(samples: Samples, split: Partition, neighbours: int) -> Ensemble:
    """The ensemble trained on these samples, in an order of its own."""
    order = np.random.default_rng(len(samples)).permutation(len(samples))
    x = np.array([[float(samples[i][0])] for i in order], dtype=np.float32).reshape(-1, 1)
    y = np.array([samples[i][1] for i in order], dtype=np.int64)
    trainer = SklearnTrainer(KNeighborsClassifier(neighbours, algorithm="kd_tree"), CLASSES)
    return Ensemble.fit(x, y, split, trainer)


def one_change(samples: Samples) -> Iterator[Samples]:
    """Every training set with one sample added, removed or relabelled."""
    for i, (point, label) in enumerate(samples):
        rest = samples[:i] + samples[i + 1 :]
        yield rest
        yield from (tuple(sorted((*rest, (point, other)))) for other in LABELS if other != label)
    yield from (tuple(sorted((*samples, (str(x), y)))) for x, y in itertools.product(NEW, LABELS))


def attack(samples: Samples, split: Partition, neighbours: int, aggregate: str, twice: int) -> tuple[int, int]:
    """Poisonings tried, and certified answers that changed; of two changes, every `twice`-th poisoning (0: none)."""
    certs = certified(samples, split, neighbours, aggregate)
    near = set(one_change(samples)) - {samples}
    far = {new for old in sorted(near) for new in one_change(old)} - near - {samples} if twice else set()
    rings = {1: sorted(near), 2: sorted(far)[::twice] if twice else []}
    tried = broken = 0
    for size, sets in rings.items():
        for poisoned in sets:
            answer = certified(poisoned, split, neighbours, aggregate).answer
            broken += int(((answer != certs.answer) & (certs.radius >= size)).sum())
            tried += 1
    return tried, broken


def training_set(lean: int, seed: int, wrong: bool = False) -> Samples:
    """Mostly one label; `wrong` adds a sample that fails its part from the start."""
    rng = np.random.default_rng(seed)
    chances = np.full(CLASSES, 0.15)
    chances[lean] = 0.7
    some = [(str(point), int(rng.choice(CLASSES, p=chances))) for point in POINTS]
    return tuple(sorted([*some, ("nan", lean)] if wrong else some))


@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
@pytest.mark.parametrize(
    ("split", "neighbours"),
    [(Partition(3), 3), (Partition(5), 2), (Partition(3, spread=2), 4)],
    ids=["three", "five", "shared"],
)
def test_what_learners_fail_on(
    split: Partition, neighbours: int, aggregate: str, cases_tried: Callable[[int], None]
) -> None:
    counted = np.zeros(2, dtype=int)
    safe = 0
    for lean, wrong in ((0, False), (1, False), (2, True)):
        samples = training_set(lean, seed=lean + split.models, wrong=wrong)
        counted += attack(samples, split, neighbours, aggregate, twice=0)
        safe += int((certified(samples, split, neighbours, aggregate).radius >= 1).sum())
    cases_tried(int(counted[0]))
    assert counted[1] == 0
    assert counted[0] > 100
    assert safe > 0


def test_two_changes_that_learners_fail_on(cases_tried: Callable[[int], None]) -> None:
    samples = tuple(sorted((str(point), 1) for point in (*POINTS, 10.0)))  # no part is empty
    assert (certified(samples, Partition(5), 3, "plurality").radius == 2).all()
    tried, broken = attack(samples, Partition(5), 3, "plurality", twice=2)
    cases_tried(tried)
    assert broken == 0


def test_label_flips_to_labels_that_are_no_class(cases_tried: Callable[[int], None]) -> None:
    split, tried = Partition(5, by="sort"), 0
    for seed in range(3):
        samples = training_set(1, seed)
        certs = certified(samples, split, 2, "plurality")
        for i, other in itertools.product(range(len(samples)), LABELS):
            flipped = tuple((x, other if i == j else y) for j, (x, y) in enumerate(samples))
            answer = certified(flipped, split, 2, "plurality").answer
            assert (answer == certs.answer)[certs.radius >= 1].all()
            tried += 1
    cases_tried(tried)


def test_these_tests_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one sample with NaN failed every part, it would be noticed."""
    from vauban.poisoning.training import fitting

    right = fitting.invalid_parts

    def leaking(x, labels, members, trainer):  # type: ignore[no-untyped-def]
        parts = [i for i, rows in enumerate(members) if len(rows)]
        return dict.fromkeys(parts, "leaked") if right(x, labels, members, trainer) else {}

    samples = tuple((str(point), 1) for point in POINTS)
    assert (certified(samples, Partition(5), 2, "plurality").radius >= 1).all()
    certified.cache_clear()
    trained.cache_clear()
    monkeypatch.setattr(fitting, "invalid_parts", leaking)
    broken = attack(samples, Partition(5), 2, "plurality", twice=0)[1]
    certified.cache_clear()
    trained.cache_clear()
    assert broken > 0
