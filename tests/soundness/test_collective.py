"""One poisoning against many inputs, by brute force: never more labels change than the bound says, and often as many."""

from collections.abc import Callable

import numpy as np
import pytest
from collective_worlds import most_changed, world
from poisoned_worlds import CLASSES, answers, certified, ensemble_scores, one_change, one_flip, training_sets, within

from vauban.laws.poisoning.collective import Scores, best_weights, collective_scores, weighed
from vauban.laws.poisoning.programme import solved
from vauban.poisoning import Partition
from vauban.poisoning.votes import collective as claims
from vauban.poisoning.votes.certificates import derive
from vauban.poisoning.votes.collective import collective_claim
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes


def tried(worlds: int, spread: int, seed: int) -> tuple[int, int, int]:
    """Violations, worlds where the bound is below the count one by one, and worlds where it is the exact number."""
    random, violations, better, exact = np.random.default_rng(seed), 0, 0, 0
    for _ in range(worlds):
        votes, classes, k, budget = world(random, spread)
        ballots = EnsembleVotes.from_arrays({"votes": votes}, classes, spread=spread, keep_votes=True)
        certs = derive(ballots, k=k, label="votes")
        claim = collective_claim(ballots, certs, budget)
        most = most_changed(votes, classes, spread, certs.label.tolist(), budget, k)
        assert claim.changed <= claim.one_by_one
        violations += most > claim.changed
        better += claim.changed < claim.one_by_one
        exact += most == claim.changed
    return violations, better, exact


@pytest.mark.parametrize("spread", [1, 2])
def test_no_poisoning_changes_more_labels_than_the_bound(spread: int, cases_tried: Callable[[int], None]) -> None:
    violations, better, exact = tried(300, spread, seed=7)
    cases_tried(300)
    assert violations == 0
    assert better > 3
    assert exact > 200


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1, 2])
def test_no_poisoning_changes_more_labels_than_the_bound_in_many_worlds(
    spread: int, cases_tried: Callable[[int], None]
) -> None:
    worlds = 10_000 if spread == 1 else 4_000
    violations, better, exact = tried(worlds, spread, seed=1)
    cases_tried(worlds)
    assert violations == 0
    assert better > worlds // 100
    assert exact > worlds // 2


@pytest.mark.parametrize("worlds", [40, pytest.param(600, marks=pytest.mark.slow)])
def test_the_integer_programme_is_a_bound_too_and_the_exact_number_for_two_classes(
    worlds: int, cases_tried: Callable[[int], None]
) -> None:
    random, exact, two = np.random.default_rng(3), 0, 0
    for _ in range(worlds):
        votes, classes, k, budget = world(random, 1)
        labels = derive(EnsembleVotes.from_arrays({"votes": votes}, classes)).label
        scores = collective_scores(votes, classes, 1, labels, budget, k)
        most, bound = most_changed(votes, classes, 1, labels.tolist(), budget, k), solved(scores, 10)
        assert most <= bound <= weighed(scores, best_weights(scores))
        two, exact = two + (classes == 2), exact + (classes == 2 and most == bound)
    cases_tried(worlds)
    assert exact == two > 0


@pytest.mark.parametrize(
    ("split", "step"),
    [
        (Partition(5), one_change),
        (Partition(5, by="sort"), one_flip),
        (Partition(5, by="stratified"), one_flip),
        (Partition(3, spread=2), one_change),
    ],
)
def test_trained_anew_after_every_poisoning_no_more_answers_change(
    split: Partition, step: object, cases_tried: Callable[[int], None]
) -> None:
    tries, reached = 0, 0
    for learner in ("majority", "nearest", "stump"):
        for samples in training_sets(2, 9, seed=5):
            certs = certified(samples, split, learner, "plurality")
            ballots = ensemble_scores(samples, split, learner).argmax(axis=2)
            votes = EnsembleVotes.from_arrays(
                {"votes": ballots}, CLASSES, spread=split.spread, against=split.against, keep_votes=True
            )
            poisonings = [poisoned for _, poisoned in within(samples, 1, step)]
            changed = (answers(poisonings, split, learner, "plurality") != certs.answer).sum(axis=1)
            claim = collective_claim(votes, certs, 1)
            assert changed.max() <= claim.changed
            tries, reached = tries + len(poisonings), reached + (changed.max() == claim.changed > 0)
    cases_tried(tries)
    assert reached > 0


def test_larger_weights_than_the_lowest_sum_allows_are_cut() -> None:
    scores = Scores(np.array([[-4, 1, 1], [1, -4, 1]]), np.arange(2), 0, 1)
    assert weighed(scores, np.array([1e9, 1e9])) == weighed(scores, np.ones(2))
    assert weighed(scores, np.zeros(2)) == 2


def test_sums_that_would_overflow_are_weighed_with_coarser_weights() -> None:
    large = 2**40
    scores = Scores(np.array([[-1, large], [large, -1]]), np.arange(2), 0, 1)
    assert weighed(scores, np.ones(2)) == 2


def test_weights_beyond_their_limit_would_be_refuted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brute force in these worlds finds a violation once weights are four times as large as the lowest sum allows."""

    def too_much(scores: Scores, shares: np.ndarray) -> int:
        totals = (4 * shares / -scores.low) @ scores.table
        inputs = len(scores.table)
        return scores.certain + max(0, inputs + int(np.partition(totals, -scores.budget)[-scores.budget :].sum()))

    monkeypatch.setattr(claims, "weighed", too_much)
    assert tried(200, 1, seed=7)[0] > 0
