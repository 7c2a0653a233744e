"""Every poisoning within the radius, retrained: no certified answer changes; one change more and some do."""

from collections.abc import Callable

import numpy as np
import pytest
from amounts import few_then_all
from poisoned_worlds import ASKED, POINTS, Samples, answers, certified, one_change, one_flip, training_sets, within
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from vauban.laws.poisoning import finite, partition
from vauban.poisoning import Ensemble, Partition, SklearnTrainer

LEARNERS = ("majority", "nearest", "stump")


def attack(
    samples: Samples, split: Partition, learner: str, aggregate: str, step: object, farthest: int
) -> tuple[int, int, int]:
    """Poisonings tried, certified answers that changed, and answers that changed one step outside their radius."""
    certs = certified(samples, split, learner, aggregate)
    radii = np.nan_to_num(certs.radius, nan=-1).astype(int)
    poisonings = list(within(samples, min(farthest, int(radii.max()) + 1), step))
    sizes = np.array([size for size, _ in poisonings])[:, None]
    changed = answers([poisoned for _, poisoned in poisonings], split, learner, aggregate) != certs.answer
    return len(poisonings), int((changed & (sizes <= radii)).sum()), int((changed & (sizes == radii + 1)).sum())


def assault(
    splits: list[Partition],
    aggregate: str,
    step: object,
    *,
    sets: int,
    size: int,
    farthest: int,
    cases_tried: Callable[[int], None],
) -> tuple[int, int, int]:
    totals = np.zeros(3, dtype=int)
    for split in splits:
        for learner in LEARNERS:
            for samples in training_sets(sets, size, seed=split.models):
                totals += attack(samples, split, learner, aggregate, step, farthest)
    cases_tried(int(totals[0]))
    return int(totals[0]), int(totals[1]), int(totals[2])


@pytest.mark.parametrize("count", few_then_all(1, 3))
@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
def test_samples_added_removed_and_relabelled(aggregate: str, count: int, cases_tried: Callable[[int], None]) -> None:
    splits = [Partition(7), Partition(5), Partition(5, by="pixel-sum")][:count]
    tried, broken, outside = assault(
        splits, aggregate, one_change, sets=1, size=11, farthest=2, cases_tried=cases_tried
    )
    assert broken == 0
    assert tried > 3_500 * count
    assert outside > 30 * count


@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
def test_two_changes_against_a_unanimous_ensemble(aggregate: str, cases_tried: Callable[[int], None]) -> None:
    samples, split = tuple((x, 0) for x in POINTS), Partition(5)
    assert (certified(samples, split, "nearest", aggregate).radius == 2).all()
    tried, broken, _ = attack(samples, split, "nearest", aggregate, one_change, 2)
    cases_tried(tried)
    assert broken == 0


@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
def test_flipped_labels(aggregate: str, cases_tried: Callable[[int], None]) -> None:
    splits = [Partition(5, by="sort"), Partition(6, by="sort"), Partition(6, by="stratified"), Partition(6)]
    tried, broken, outside = assault(splits, aggregate, one_flip, sets=2, size=10, farthest=3, cases_tried=cases_tried)
    assert broken == 0
    assert tried > 10_000
    assert outside > 100


@pytest.mark.parametrize("count", few_then_all(1, 2))
@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
def test_finite_aggregation(aggregate: str, count: int, cases_tried: Callable[[int], None]) -> None:
    splits = [Partition(5, spread=2), Partition(4, spread=3)][:count]
    tried, broken, outside = assault(
        splits, aggregate, one_change, sets=1, size=11, farthest=2, cases_tried=cases_tried
    )
    assert broken == 0
    assert tried > 5_000 * count
    assert outside > 15 * count


@pytest.mark.parametrize(
    "estimator", [KNeighborsClassifier(1), DecisionTreeClassifier(max_depth=1)], ids=["nearest", "stump"]
)
@pytest.mark.filterwarnings("ignore")
def test_whole_ensembles_of_scikit_learn(estimator: object, cases_tried: Callable[[int], None]) -> None:
    """The same through `Ensemble.fit`, training data shuffled each time."""
    rng = np.random.default_rng(0)
    points = np.array([[x] for x in ASKED], dtype=np.uint8)
    tried = 0
    for samples in training_sets(2, 10, seed=7):

        def fitted(some: Samples) -> Ensemble:
            order = rng.permutation(len(some))
            x, y = np.array([[some[i][0]] for i in order], dtype=np.uint8), np.array([some[i][1] for i in order])
            return Ensemble.fit(x, y, Partition(5), SklearnTrainer(estimator, 3))

        certs = fitted(samples).certify(points)
        for _, poisoned in within(samples, 1, one_change):
            answer = fitted(poisoned).certify(points).answer
            assert (answer == certs.answer)[certs.radius >= 1].all()
            tried += 1
    cases_tried(tried)


@pytest.mark.filterwarnings("ignore")
def test_these_tests_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Radii one too large, and buckets thought to hold one model: each is noticed."""
    samples, noticed = training_sets(2, 10, seed=5), []
    right = partition.plurality_radius
    with monkeypatch.context() as patch:
        patch.setattr("vauban.poisoning.votes.certificates.plurality_radius", lambda *a, **k: right(*a, **k) + 1)
        noticed.append(sum(attack(s, Partition(5), "nearest", "plurality", one_change, 2)[1] for s in samples))
    with monkeypatch.context() as patch:
        patch.setattr(finite, "_sum_by_bucket", lambda values, spread: values.astype(np.int64))
        noticed.append(
            sum(attack(s, Partition(4, spread=3), "nearest", "plurality", one_change, 2)[1] for s in samples)
        )
    assert min(noticed) > 0
