"""Ablation on worlds small enough to try every base classifier: no claim is false, and none could be larger.

At a point that differs in r pixels, views that keep none of them are the same ("shared"), the others are new ("moved").
Which classes the shared, the lost and the new views have is all that counts, so trying all counts tries all classifiers.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from vauban.bounds.simultaneous import ProbabilityBounds
from vauban.laws import topk
from vauban.laws.ablation import AblationLaw

Ints = NDArray[np.int64]


def splits(total: int, classes: int) -> Ints:
    """All ways to give `total` views to classes [ways, classes]."""
    bars = itertools.combinations(range(total + classes - 1), classes - 1)
    return np.array([np.diff([-1, *bar, total + classes - 1]) - 1 for bar in bars])


def stays(counts: Ints, k: int) -> NDArray[np.bool_]:
    """Whether class 0 is strictly among the top k, whatever the rule for ties; counts [..., classes]."""
    return (counts[..., 1:] >= counts[..., :1]).sum(axis=-1) < k


def radii(law: AblationLaw, counts: Ints, k: int, slack: float = 0.0) -> NDArray[np.float64]:
    """Claims for class 0 from the true counts [m, classes], or from bounds that miss them by `slack` views; -1: none."""
    whole = math.comb(law.total, law.retained)
    label = np.maximum(0, counts[:, 0] - slack) / whole
    strongest = np.sort(counts[:, 1:], axis=1)[:, -k:]
    bounds = law.calibrated(ProbabilityBounds(label, np.minimum(1, (strongest + slack) / whole)))
    return np.nan_to_num(topk.radius(law, bounds.label, bounds.sums()), nan=-1)


def try_all(d: int, e: int, classes: int, k: int, slack: float = 0.0) -> tuple[int, int, int]:
    """(cases, false claims, claims that could be larger) over every base classifier and every number of changed pixels."""
    law, whole = AblationLaw(e, features=d), math.comb(d, e)
    votes = splits(whole, classes)
    claimed = radii(law, votes, k, slack)
    cases = false = loose = 0
    for r in range(d + 1):
        same = math.comb(d - r, e)
        shared, moved = splits(same, classes), splits(whole - same, classes)
        reached = shared[:, None] + moved[None, :]  # counts at the changed point
        fails = ~stays(reached, k)
        for vote, claim in zip(votes, claimed, strict=True):
            possible = (shared <= vote).all(axis=1)  # the rest of this vote are the views that are lost
            cases += int(possible.sum()) * len(moved)
            broken = bool(fails[possible].any())
            false += broken and claim >= r
            loose += not broken and claim < r
    return cases, false, loose


WORLDS = [
    *[(d, e, 2, 1) for d in range(2, 7) for e in range(1, d)],
    *[
        (d, e, 3, k)
        for d, e in ((2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3), (5, 1), (5, 2), (6, 1), (6, 2), (6, 3))
        for k in (1, 2)
    ],
    *[(d, e, 4, k) for d, e in ((3, 1), (4, 1), (4, 2), (5, 1), (5, 2)) for k in (1, 2, 3)],
]


def test_no_claim_is_false_and_none_could_be_larger(cases_tried: Callable[[int], None]) -> None:
    cases = 0
    for d, e, classes, k in WORLDS:
        tried, false, loose = try_all(d, e, classes, k)
        assert (false, loose) == (0, 0), f"{e} of {d} kept, {classes} classes, top {k}"
        cases += tried
    cases_tried(cases)
    assert cases > 1_000_000


@pytest.mark.parametrize("slack", [0.3, 0.97])
def test_p_prime_makes_loose_bounds_as_good_as_the_truth(slack: float) -> None:
    for d, e, classes, k in WORLDS:
        if math.comb(d, e) <= 10:
            _, false, loose = try_all(d, e, classes, k, slack)
            assert (false, loose) == (0, 0)


def test_the_trial_finds_radii_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = topk.radius
    monkeypatch.setattr(topk, "radius", lambda *args: honest(*args) + 1)
    for d, e, classes, k in ((3, 1, 2, 1), (5, 2, 2, 1), (4, 2, 3, 2), (4, 1, 4, 3)):
        assert try_all(d, e, classes, k)[1] > 0


def test_the_trial_finds_shifts_that_are_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = AblationLaw._delta
    monkeypatch.setattr(AblationLaw, "_delta", lambda self, r: honest(self, r) * 0.9)
    assert try_all(6, 3, 2, 1)[1] > 0


def test_the_trial_finds_p_prime_rounded_the_wrong_way(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = AblationLaw.rounded_up
    monkeypatch.setattr(AblationLaw, "rounded_up", lambda self, p: honest(self, np.asarray(p) + 1e-9))
    assert try_all(4, 1, 2, 1)[1] > 0


@pytest.mark.parametrize(
    ("d", "e", "classes", "k"), [(3, 1, 4, 2), (3, 2, 2, 1), (4, 1, 3, 2), (4, 3, 2, 1), (4, 1, 3, 1)]
)
def test_every_classifier_of_every_view_of_binary_inputs(d: int, e: int, classes: int, k: int) -> None:
    """Views written out, and classifiers that label each of them: every input, every attack."""
    law = AblationLaw(e, features=d)
    kept = list(itertools.combinations(range(d), e))
    views = {view: n for n, view in enumerate(itertools.product(kept, itertools.product((0, 1), repeat=e)))}
    inputs = list(itertools.product((0, 1), repeat=d))
    seen = np.array([[views[one, tuple(x[i] for i in one)] for one in kept] for x in inputs])
    numbers = np.arange(min(classes ** len(views), 20_000)) * max(1, classes ** len(views) // 20_000)
    labels = numbers[:, None] // classes ** np.arange(len(views)) % classes  # [classifiers, views]
    counts = np.stack(
        [(labels[:, seen] == c).sum(axis=2) for c in range(classes)], axis=2
    )  # [classifiers, inputs, classes]
    votes = splits(len(kept), classes)
    claims = {tuple(vote): claim for vote, claim in zip(votes.tolist(), radii(law, votes, k), strict=True)}
    claimed = np.array([[claims[tuple(v)] for v in row] for row in counts.tolist()])
    holds = stays(counts, k)
    away = np.array([[sum(a != b for a, b in zip(x, y, strict=True)) for y in inputs] for x in inputs])
    within = away[None] <= claimed[:, :, None]
    assert within.sum() > 1_000
    assert not (within & ~holds[:, None, :]).any()
    assert ((away[None] <= claimed[:, :, None] + 1) & ~holds[:, None, :]).any()
