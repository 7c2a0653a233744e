"""Radii of partition aggregation against exhaustive search over which models (or buckets) change to what."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from poisoned_votes import (
    all_ballots,
    changed_masks,
    distance,
    in_top,
    least_buckets,
    preference_counts,
    ranking,
    run_off,
)

from vauban.errors import BadInput
from vauban.laws import exact
from vauban.laws.poisoning import finite, partition
from vauban.laws.poisoning.finite import finite_radius, finite_runoff_radius, spread_offsets
from vauban.laws.poisoning.partition import (
    LABELS,
    SAMPLES,
    finalists,
    plurality,
    plurality_radius,
    runoff,
    runoff_radius,
    tally,
)


def trained_on(models: int, spread: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(b) for b in (i + spread_offsets(models, spread)) % models) for i in range(models))


@pytest.mark.parametrize(
    ("models", "classes"), [(1, 2), (4, 2), (7, 2), (3, 3), (5, 3), (6, 3), (4, 4), (5, 4), (3, 5)]
)
def test_plurality_is_exactly_the_least_number_of_models(
    models: int, classes: int, cases_tried: Callable[[int], None]
) -> None:
    ballots = all_ballots(models, classes)
    counts = tally(ballots, classes)
    everyone = tuple((i,) for i in range(models))
    tried = 0
    for label, k in itertools.product(range(classes), range(1, classes)):
        stays = np.array([in_top(label, k)(row) for row in counts.tolist()])
        radii = plurality_radius(counts, np.full(len(counts), label), k)
        assert np.array_equal(radii >= 0, stays)
        for ballot, radius, own in zip(ballots, radii, counts[:, label], strict=True):
            true = distance(ballot, ballots, ~stays, everyone) - 1
            assert radius <= true
            if true + 1 <= own or k == 1:
                assert radius == true
            tried += 1
    cases_tried(tried)


def test_plurality_is_theorem_7_1() -> None:
    rng = np.random.default_rng(0)
    counts = rng.multinomial(1200, [0.3, 0.3, 0.2, 0.1, 0.1], size=500)
    radii = plurality_radius(counts)
    for row, radius, answer in zip(counts.tolist(), radii, plurality(counts), strict=True):
        c = ranking(row)[0]
        assert answer == c
        assert radius == (row[c] - max(n + (j < c) for j, n in enumerate(row) if j != c)) // 2


@pytest.mark.parametrize(
    ("partitions", "spread", "classes"), [(3, 2, 2), (2, 3, 2), (4, 2, 2), (3, 2, 3), (2, 3, 3), (2, 2, 4), (5, 1, 3)]
)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_finite_aggregation_is_never_above_the_least_number_of_buckets(
    partitions: int, spread: int, classes: int, k: int, cases_tried: Callable[[int], None]
) -> None:
    if k >= classes:
        return
    models = partitions * spread
    ballots, owned = all_ballots(models, classes), trained_on(models, spread)
    counts = tally(ballots, classes)
    tight = tried = 0
    for label in range(classes):
        stays = np.array([in_top(label, k)(row) for row in counts.tolist()])
        radii = finite_radius(ballots, classes, spread, np.full(len(ballots), label), k)
        assert np.array_equal(radii >= 0, stays)
        cover, lost = least_buckets(owned), ballots[~stays]
        for ballot, radius in zip(ballots, radii, strict=True):
            true = int(cover[changed_masks(ballot, lost)].min()) - 1
            assert radius <= true
            tight += radius == true
            tried += 1
    assert tight > tried // 2
    cases_tried(tried)


@pytest.mark.slow
def test_finite_aggregation_beats_dividing_by_the_spread() -> None:
    rng = np.random.default_rng(1)
    gained = 0
    for spread, classes in ((2, 3), (4, 10), (16, 10), (300, 3)):
        models = 12 * spread
        votes = rng.choice(classes, p=np.r_[0.5, np.full(classes - 1, 0.5 / (classes - 1))], size=(40, models))
        counts = tally(votes, classes)
        label = plurality(counts)
        rivals = counts + (np.arange(classes) < label[:, None])
        rivals[np.arange(40), label] = -1
        gap = counts.max(axis=1) - rivals.max(axis=1)
        radii = finite_radius(votes, classes, spread)
        assert (radii >= gap // (2 * spread)).all()
        gained += int((radii > gap // (2 * spread)).sum())
        slow = [_slow_finite(row, classes, spread) for row in votes[:10]]
        assert radii[:10].tolist() == slow
    assert gained > 20


def _slow_finite(row: np.ndarray, classes: int, spread: int) -> int:
    owned = trained_on(len(row), spread)
    counts = [int((row == c).sum()) for c in range(classes)]
    label = ranking(counts)[0]
    best = len(row)
    for rival in range(classes):
        if rival == label:
            continue
        budget = counts[label] - counts[rival] - (rival < label)
        takes = [0] * len(row)
        for model, buckets in enumerate(owned):
            for b in buckets:
                takes[b] += 2 if row[model] == label else 0 if row[model] == rival else 1
        count, total = 0, 0
        for take in sorted(takes, reverse=True):
            total += take
            if total > budget:
                break
            count += 1
        best = min(best, count)
    return best


def test_spread_of_one_is_plain_partition_aggregation() -> None:
    votes = np.random.default_rng(2).integers(0, 4, size=(200, 30))
    for k in (1, 2):
        label = ranking_labels(votes, 4)
        assert np.array_equal(finite_radius(votes, 4, 1, label, k), plurality_radius(tally(votes, 4), label, k))


def ranking_labels(votes: np.ndarray, classes: int) -> np.ndarray:
    return plurality(tally(votes, classes))


def elections(models: int, classes: int) -> tuple[list[tuple[tuple[int, ...], ...]], np.ndarray]:
    """Every election of unnamed models, each with an order of preference; and how many hold each order."""
    orders = list(itertools.permutations(range(classes)))
    chosen = list(itertools.combinations_with_replacement(range(len(orders)), models))
    table = np.zeros((len(chosen), len(orders)), dtype=np.int64)
    for row, which in enumerate(chosen):
        np.add.at(table[row], list(which), 1)
    return [tuple(orders[i] for i in which) for which in chosen], table


@pytest.mark.parametrize(("models", "classes"), [(3, 2), (8, 2), (1, 3), (4, 3), (7, 3), (8, 3), (2, 4), (3, 4)])
def test_run_off_is_never_above_the_least_number_of_models(
    models: int, classes: int, cases_tried: Callable[[int], None]
) -> None:
    everything, table = elections(models, classes)
    answers = np.array([run_off(orders, classes) for orders in everything])
    counts, duels = map(np.array, zip(*(preference_counts(orders, classes) for orders in everything), strict=True))
    assert np.array_equal(runoff(counts, duels), answers)
    beats = duels[np.arange(len(duels)), answers]
    radii = runoff_radius(counts, answers, beats)
    tight = 0
    for row, (radius, answer) in enumerate(zip(radii, answers, strict=True)):
        changed = models - np.minimum(table[answers != answer], table[row]).sum(axis=1)
        true = int(changed.min()) - 1
        assert 0 <= radius <= true
        tight += radius == true
    assert tight > 0.9 * len(everything)
    cases_tried(len(everything))


@pytest.mark.parametrize(
    ("partitions", "spread", "classes", "some"), [(2, 2, 3, None), (3, 2, 3, 250), (2, 3, 3, 250), (2, 2, 2, None)]
)
def test_run_off_over_finite_aggregation_is_never_above_the_least_number_of_buckets(
    partitions: int, spread: int, classes: int, some: int | None, cases_tried: Callable[[int], None]
) -> None:
    models = partitions * spread
    orders = list(itertools.permutations(range(classes)))
    states = np.array(list(itertools.product(range(len(orders)), repeat=models)))
    answers = _all_run_offs(states, orders, classes)
    rng = np.random.default_rng(3)
    chosen = np.arange(len(states)) if some is None else rng.choice(len(states), some, replace=False)
    for row in chosen[:50]:
        assert answers[row] == run_off([orders[i] for i in states[row]], classes)
    place = np.array([[order.index(c) for c in range(classes)] for order in orders])
    where = place[states[chosen]]
    votes, winner = where.argmin(axis=2), answers[chosen]
    bits = where[np.arange(len(chosen)), :, winner][:, :, None] < where
    prefers = np.packbits(bits.transpose(0, 2, 1), axis=2)
    radii = finite_runoff_radius(votes, classes, spread, winner, prefers)
    cover = least_buckets(trained_on(models, spread))
    true = np.array(
        [int(cover[changed_masks(states[row], states[answers != answers[row]])].min()) - 1 for row in chosen]
    )
    assert (radii <= true).all()
    assert (radii >= 0).all()
    assert (radii == true).mean() > 0.5
    cases_tried(len(chosen))


def _all_run_offs(states: np.ndarray, orders: list[tuple[int, ...]], classes: int) -> np.ndarray:
    place = np.array([[order.index(c) for c in range(classes)] for order in orders])
    where = place[states]
    counts = (where == 0).sum(axis=1)
    duels = np.stack([(where[:, :, [a]] < where).sum(axis=1) for a in range(classes)], axis=1)
    return runoff(counts, duels)


def test_run_off_over_a_spread_of_one_is_never_above_the_run_off_of_disjoint_partitions() -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(300, 21, 4)) + np.array([0.6, 0.3, 0.2, 0])
    votes = scores.argmax(axis=2)
    counts = tally(votes, 4)
    duels = (scores[:, :, :, None] > scores[:, :, None, :]).sum(axis=1)
    winner = runoff(counts, duels)
    bits = scores[np.arange(300), :, winner][:, :, None] > scores
    one = finite_runoff_radius(votes, 4, 1, winner, np.packbits(bits.transpose(0, 2, 1), axis=2))
    other = runoff_radius(counts, winner, duels[np.arange(300), winner])
    assert (one <= other).all()
    assert (one == other).mean() > 0.9


def test_run_off_can_lose_to_plurality_on_a_single_input() -> None:
    counts, beats = np.array([[40, 35, 25]]), np.array([[0, 51, 60]])
    assert runoff_radius(counts, [0], beats)[0] == 1
    assert plurality_radius(counts)[0] == 2


def test_run_off_gains_where_third_classes_prefer_the_winner() -> None:
    counts, beats = np.array([[40, 35, 25]]), np.array([[0, 60, 70]])
    assert runoff_radius(counts, [0], beats)[0] > plurality_radius(counts)[0]


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        ("leads", lambda: test_plurality_is_exactly_the_least_number_of_models(4, 4, lambda _: None)),
        (
            "_sum_by_bucket",
            lambda: test_finite_aggregation_is_never_above_the_least_number_of_buckets(3, 2, 3, 1, lambda _: None),
        ),
        ("finalists", lambda: test_run_off_is_never_above_the_least_number_of_models(4, 3, lambda _: None)),
    ],
)
def test_these_tests_can_fail(broken: str, caught_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tie bit the wrong way, models missing from a bucket, finalists tied to the larger class: each is noticed."""
    if broken == "leads":
        right = exact.leads
        ties = lambda c, label: np.sign(np.arange(c.shape[1]) - label[:, None])  # noqa: E731
        monkeypatch.setattr(exact, "leads", lambda c, label: right(c, label) - ties(c, label))
    elif broken == "_sum_by_bucket":
        monkeypatch.setattr(finite, "_sum_by_bucket", lambda values, spread: values.astype(np.int64))
    else:

        def last_of_ties(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            backwards = np.argsort(-np.asarray(counts)[:, ::-1], axis=1, kind="stable")
            return np.asarray(counts).shape[1] - 1 - backwards[:, 0], np.asarray(counts).shape[1] - 1 - backwards[:, 1]

        monkeypatch.setattr(partition, "finalists", last_of_ties)
    with pytest.raises((AssertionError, BadInput)):
        caught_by()


def test_finalists_break_ties_by_the_smaller_class() -> None:
    first, second = finalists([[2, 3, 3, 2], [1, 1, 1, 1]])
    assert first.tolist() == [1, 0]
    assert second.tolist() == [2, 1]


def test_units_are_said() -> None:
    assert "counts twice" in SAMPLES.unit
    assert "relabelled" in LABELS.metric
    assert SAMPLES.integer
    assert LABELS.ball == "closed"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tally([[0, 3]], 3), "votes are 0 to 2"),
        (lambda: tally([[0.5, 1]], 3), "whole numbers"),
        (lambda: tally([[0, 0]], 1), "two classes"),
        (lambda: plurality_radius([[1, 2], [1, 1]]), "every model votes once"),
        (lambda: plurality_radius([[1, 2]], k=2), "below the number of classes"),
        (lambda: plurality_radius([[1, 2]], [2]), "outside the classes"),
        (lambda: plurality_radius([[-1, 2]]), "numbers of votes"),
        (lambda: finite_radius([[0, 1, 1]], 2, 2), "partitions \\* spread"),
        (lambda: runoff_radius([[2, 1]], [1], [[1, 0]]), "did not win"),
        (lambda: runoff_radius([[2, 1]], [0], [[0, 1]]), "do not fit"),
        (lambda: runoff_radius([[2, 1]], [0], [[0, 1, 1]]), "must be equal"),
        (lambda: finite_runoff_radius([[0, 1]], 2, 1, [0], np.zeros((1, 2, 2), np.uint8)), "packed bits"),
        (lambda: finite_runoff_radius([[0, 0]], 2, 1, [0], np.zeros((1, 2, 1), np.uint8)), "do not fit"),
        (lambda: finite_runoff_radius([[0, 0]], 2, 1, [0], np.array([[[0], [0xE0]]], np.uint8)), "do not fit"),
    ],
)
def test_bad_votes_are_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        call()


@pytest.mark.parametrize(("models", "spread", "classes", "k"), [(6, 2, 3, 1), (6, 2, 3, 2), (6, 3, 2, 1)])
def test_altered_models_are_allowed_for(
    models: int, spread: int, classes: int, k: int, cases_tried: Callable[[int], None]
) -> None:
    """Some models vote otherwise than said, and then buckets change: whatever is reached, the label stays in the top k."""
    everything, least = all_ballots(models, classes), least_buckets(trained_on(models, spread))
    altered_alone = np.array([bits.bit_count() for bits in range(1 << models)])
    tried = gained = 0
    for votes in everything[:: max(1, len(everything) // 60)]:
        label = int(plurality(np.bincount(votes, minlength=classes)[None])[0])
        lost = np.array([label not in ranking(np.bincount(v, minlength=classes))[:k] for v in everything])
        reached = np.unique(changed_masks(votes, everything[lost]))
        for altered in (1, 2):
            radius = int(finite_radius(votes[None], classes, spread, [label], k, altered)[0])
            # the least number of buckets that covers what a choice of `altered` models leaves
            needed = min(
                (
                    least[mask & ~chosen]
                    for mask in reached.tolist()
                    for chosen in range(1 << models)
                    if altered_alone[chosen] == altered
                ),
                default=models + 1,
            )
            assert radius < needed
            gained += radius >= 0
            tried += len(reached)
    cases_tried(tried)
    assert gained > 0


def test_altered_models_are_allowed_for_in_both_rounds(cases_tried: Callable[[int], None]) -> None:
    """Random run-offs of six models that share buckets: one is altered and buckets are changed, in every way towards a rival."""
    rng, models, spread, classes, tried, certain = np.random.default_rng(2), 6, 2, 3, 0, 0
    orders = list(itertools.permutations(range(classes)))
    for _ in range(60):
        cast = [orders[i] for i in np.minimum(rng.integers(0, len(orders), models), rng.integers(0, 4, models))]
        winner = run_off(cast, classes)
        bits = np.array([[order.index(winner) < order.index(c) for order in cast] for c in range(classes)])
        packed, votes = np.packbits(bits, axis=1)[None], np.array([[order[0] for order in cast]])
        radius = int(finite_runoff_radius(votes, classes, spread, [winner], packed, 1)[0])
        assert radius <= int(finite_runoff_radius(votes, classes, spread, [winner], packed)[0])
        if radius < 0:
            continue
        certain += 1
        for buckets in itertools.combinations(range(models), radius):
            for altered in range(models):
                owned = trained_on(models, spread)
                hit = [i for i in range(models) if i == altered or set(owned[i]) & set(buckets)]
                for towards in itertools.product(orders, repeat=min(len(hit), 3)):
                    moved = list(cast)
                    for place, i in enumerate(hit):
                        moved[i] = towards[place % len(towards)]
                    assert run_off(moved, classes) == winner
                    tried += 1
    cases_tried(tried)
    assert certain > 0
