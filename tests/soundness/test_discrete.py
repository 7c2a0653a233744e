"""Keep-or-replace noise on worlds whose views can be written out: no claim is false, and the worst classifiers prove it tight.

Probabilities are integers over a common denominator, so that a tie is a tie.
"""

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from amounts import few_then_all
from numpy.typing import NDArray

from vauban.laws import topk
from vauban.laws.discrete import DiscreteLaw, LikelihoodRegions

Ints = NDArray[np.int64]


class World:
    """All inputs of d features with `values` values, which are also all views."""

    def __init__(self, d: int, values: int, keep: str):
        self.law, self.d = DiscreteLaw(float(keep), values, d), d
        self.points = np.array(list(itertools.product(range(values), repeat=d)))
        kept = Fraction(keep)
        scale = kept.denominator * (values - 1)
        same, other = int(kept * scale), int((1 - kept) * scale) // (values - 1)
        self.away = (self.points[:, None] != self.points[None, :]).sum(axis=2)  # [points, points]
        self.weights = same ** (d - self.away) * other**self.away  # [input, view]: probabilities times `whole`
        self.whole = scale**d
        assert (self.weights.sum(axis=1) == self.whole).all()

    def claims(self, label: Ints, rivals: Ints) -> NDArray[np.float64]:
        """Radii from true probabilities: label [m] and its k strongest rivals [m, k], ascending; -1 where none."""
        sums = np.minimum(np.cumsum(rivals, axis=1), (self.whole - label)[:, None])
        found = topk.radius(self.law, label / self.whole, sums / self.whole)
        return np.nan_to_num(found, nan=-1)


def stays(mass: Ints, k: int) -> NDArray[np.bool_]:
    """Whether class 0 is strictly among the top k; mass [..., classes]."""
    return (mass[..., 1:] >= mass[..., :1]).sum(axis=-1) < k


def try_classifiers(world: World, classes: int, k: int, limit: int = 20_000) -> tuple[int, int]:
    """(cases, false claims): every base classifier (or `limit` spread over them), one input, every other point."""
    views = len(world.points)
    every = classes**views
    numbers = np.arange(min(every, limit)) * max(1, every // limit)
    labels = numbers[:, None] // classes ** np.arange(views) % classes
    mass = np.stack([(labels == c) @ world.weights.T for c in range(classes)], axis=2)  # [classifiers, points, classes]
    claimed = world.claims(mass[:, 0, 0], np.sort(mass[:, 0, 1:], axis=1)[:, -k:])
    inside = world.away[0][None, :] <= claimed[:, None]
    return inside.size, int((inside & ~stays(mass, k)).sum())


def try_worst(world: World, target: Ints, r: int) -> tuple[int, int, int]:
    """(cases, false claims, claims that could be larger): label and one rival take the two ends of the likelihood ratio.

    Every pair of cuts; what is between them goes to a third class. Both weigh exactly L and U at the target, so a claim
    fails exactly where it should.
    """
    here, there = world.weights[0], world.weights[(world.points == target).all(axis=1).argmax()]
    order = np.argsort([Fraction(int(b), int(a)) for a, b in zip(here, there, strict=True)], kind="stable")
    low_here, low_there = (np.concatenate([[0], np.cumsum(w[order])]) for w in (here, there))
    cuts = np.unique(np.linspace(0, len(here), 60).astype(int))
    first, second = (grid.ravel() for grid in np.meshgrid(cuts, cuts))
    first, second = first[first <= second], second[first <= second]
    label, rival = low_here[first], world.whole - low_here[second]
    claimed = world.claims(label, rival[:, None])
    holds = low_there[first] > world.whole - low_there[second]
    return len(first), int((~holds & (claimed >= r)).sum()), int((holds & (claimed < r)).sum())


def try_many_rivals(world: World, target: Ints, k: int) -> tuple[int, int]:
    """(cases, false claims): the label takes the low end, k rivals share the rest as evenly at the target as they can."""
    here, there = world.weights[0], world.weights[(world.points == target).all(axis=1).argmax()]
    order = np.argsort([Fraction(int(b), int(a)) for a, b in zip(here, there, strict=True)], kind="stable")
    cases = false = 0
    for cut in np.unique(np.linspace(0, len(here), 40).astype(int)):
        rivals_here, rivals_there = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
        for view in order[cut:][::-1]:
            weakest = rivals_there.argmin()
            rivals_here[weakest] += here[view]
            rivals_there[weakest] += there[view]
        claim = world.claims(here[order[:cut]].sum(keepdims=True), np.sort(rivals_here)[None])[0]
        holds = stays(np.array([there[order[:cut]].sum(), *rivals_there]), k)
        cases, false = cases + 1, false + int(not holds and claim >= (target != world.points[0]).sum())
    return cases, false


SMALL = [
    *[(d, 2, keep, 3, k) for d in (1, 2, 3) for keep in ("0.6", "0.8", "0.95") for k in (1, 2)],
    *[(2, 3, keep, 3, k) for keep in ("0.4", "0.7", "0.9") for k in (1, 2)],
    *[(4, 2, keep, 2, 1) for keep in ("0.51", "0.7", "0.9")],
    *[(2, 2, keep, 4, k) for keep in ("0.6", "0.9") for k in (1, 2, 3)],
]
LARGE = [(d, values, keep) for d in (3, 4, 5, 6) for values in (2, 3) for keep in ("0.51", "0.55", "0.7", "0.9")]


def test_no_claim_is_false_for_any_classifier(cases_tried: Callable[[int], None]) -> None:
    cases = 0
    for d, values, keep, classes, k in SMALL:
        tried, false = try_classifiers(World(d, values, keep), classes, k, limit=70_000)
        assert false == 0, f"keep={keep} of {d} features with {values} values, {classes} classes, top {k}"
        cases += tried
    cases_tried(cases)
    assert cases > 500_000


def test_the_worst_classifiers_break_nothing_claimed_and_everything_else(cases_tried: Callable[[int], None]) -> None:
    cases = 0
    for d, values, keep in LARGE:
        world = World(d, values, keep)
        for r in range(1, d + 1):
            target = np.array([1] * r + [0] * (d - r))
            tried, false, loose = try_worst(world, target, r)
            assert (false, loose) == (0, 0), f"keep={keep} of {d} features with {values} values, {r} changed"
            cases += tried
    cases_tried(cases)
    assert cases > 50_000


@pytest.mark.parametrize("every", few_then_all(5, 1))
def test_rivals_that_share_the_worst_event_break_nothing_claimed(every: int) -> None:
    for d, values, keep in LARGE[:16:every]:
        world = World(d, values, keep)
        for r, k in itertools.product(range(1, d + 1), (2, 3)):
            assert try_many_rivals(world, np.array([values - 1] * r + [0] * (d - r)), k)[1] == 0


def test_the_trials_find_radii_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = topk.radius
    monkeypatch.setattr(topk, "radius", lambda *args: honest(*args) + 1)
    assert try_classifiers(World(3, 2, "0.6"), 3, 1)[1] > 0
    assert try_classifiers(World(2, 3, "0.7"), 3, 2)[1] > 0
    assert try_worst(World(5, 3, "0.51"), np.array([1, 1, 0, 0, 0]), 2)[1] > 0
    assert sum(try_many_rivals(World(5, 2, "0.55"), np.array([1] * r + [0] * (5 - r)), 2)[1] for r in range(1, 6)) > 0


def test_the_trials_find_shifts_that_are_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LikelihoodRegions.most
    monkeypatch.setattr(LikelihoodRegions, "most", lambda self, p: honest(self, p) * 0.98)
    assert sum(try_worst(World(5, 3, "0.51"), np.array([1] * r + [0] * (5 - r)), r)[1] for r in range(1, 6)) > 0
