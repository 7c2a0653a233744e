"""The page's proofs in JavaScript: within 1e-9 of Python's radii, and never above them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amounts import few_then_all
from javascript import needs_node, run
from numpy.typing import NDArray

from vauban.bounds import eprocess
from vauban.bounds.clopper_pearson import lower_bound, upper_bound
from vauban.bounds.dataset import false_claims
from vauban.certificates import derive
from vauban.laws import law
from vauban.laws.exact import Ballots
from vauban.laws.poisoning.finite import finite_radius, finite_runoff_radius, spread_offsets
from vauban.laws.poisoning.partition import plurality_radius, runoff_radius
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes

pytestmark = needs_node

SAMPLED = [
    "gaussian:sigma=0.5",
    "gaussian:sigma=1.0",
    "gaussian:sigma=" + "/".join(["50.0", "0.5"] * 392),
    "laplace:sigma=0.5",
    "laplace:sigma=0.25,bound=theorem1",
    "laplace:sigma=1.0,bound=lecuyer",
    "uniform:sigma=0.5",
    "splitting:sigma=0.5,sampled=true",
    "ablation:retained=45",
    "ablation:retained=3",
    "ablation:retained=100,unit=feature",
    "band:size=4,sampled=true",
    "block:size=6,sampled=true,stride=2",
    "fractional:p=1/2,scale=9,sampled=true",
]
SHAPE = (1, 28, 28)

COUNTS = """
return given.map(({ manifest, counts, labels }) => {
  const radius = V.radiusOfCounts(manifest);
  return counts.map((row, i) => radius(row, labels[i]));
});
"""


def draw(rng: np.random.Generator, rows: int, n: int, classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts [rows, classes] that add up to n, many of them near unanimity, and labels that mostly lead."""
    rest = np.where(rng.random(rows) < 0.3, rng.integers(0, min(n, 20), rows), (n * rng.random(rows) ** 3).astype(int))
    weights = rng.dirichlet(np.full(classes - 1, 0.3), rows)
    others = np.array([rng.multinomial(r, w) for r, w in zip(rest, weights, strict=True)])
    counts = np.concatenate([(n - rest)[:, None], others], axis=1)
    turns = rng.permuted(np.tile(np.arange(classes), (rows, 1)), axis=1)
    shuffled = np.take_along_axis(counts, turns, axis=1)
    labels = np.where(rng.random(rows) < 0.9, shuffled.argmax(axis=1), rng.integers(0, classes, rows))
    return shuffled, labels


def groups(rng: np.random.Generator, number: int, rows: int) -> list[dict[str, Any]]:
    """Groups of random counts with random settings, as a manifest would state them."""
    made = []
    for i in range(number):
        spec, classes = SAMPLED[i % len(SAMPLED)], int(rng.choice([2, 3, 10, 100]))
        k = int(rng.integers(1, min(classes, 5)))
        bounds = str(rng.choice(["binocp", "simuem", "half"]))
        alpha, n = (
            float(rng.choice([0.001, 0.01, 0.05, 1e-6])),
            int(rng.choice([100, 1000, 10_000, 100_000, 1_000_000])),
        )
        deviation = float(rng.choice([0.0, 1e-12, 1e-7]))
        counts, labels = draw(rng, rows, n, classes)
        settings = {"k": k, "alpha": alpha, "bounds": bounds, "n": n}
        manifest = {
            "smoothing": spec,
            "settings": settings,
            "inputs": {"deviation_per_view": deviation},
            "compute": {},
            "data": {"shape": SHAPE},
        }
        made.append({"manifest": manifest, "counts": counts.tolist(), "labels": labels.tolist()})
    return made


def test_bounds_of_very_many_votes_are_never_above_those_of_python() -> None:
    polls = [
        (wins, n, alpha)
        for n in (10**6, 10**7, 10**8, 10**9)
        for alpha in (1e-6, 0.001, 0.05, 0.5)
        for wins in (1, 3, 8, 19, n // 1000, n // 2, n - 300, n - 7)
    ]
    found = run("return given.map(([w, n, a]) => [V.lowerBound(w, n, a), V.upperBound(w, n, a)]);", polls)
    for (wins, n, alpha), (low, high) in zip(polls, found, strict=True):
        assert low <= lower_bound(wins, n, alpha), (wins, n, alpha)
        assert high >= upper_bound(wins, n, alpha), (wins, n, alpha)


def check(made: list[dict[str, Any]]) -> tuple[int, float]:
    """Compare Python's and JavaScript's radii; how many are certified, and the largest difference."""
    certified, largest = 0, 0.0
    for group, found in zip(made, run(COUNTS, made), strict=True):
        said = group["manifest"]
        settings = {key: value for key, value in said["settings"].items() if key != "n"}
        certs = derive(
            np.array(group["counts"]),
            group["labels"],
            said["smoothing"],
            deviation=said["inputs"]["deviation_per_view"],
            shape=SHAPE,
            **settings,
        )
        mine = np.array([np.nan if r is None else r for r in found])
        assert np.array_equal(np.isnan(mine), np.isnan(certs.radius)), said
        less = (certs.radius - mine)[~certs.abstained]
        assert (less >= 0).all(), (said, less.min())
        assert (less <= 1e-9 * np.maximum(1, certs.radius[~certs.abstained])).all(), (said, less.max())
        certified, largest = certified + len(less), max(largest, float(less.max(initial=0.0)))
    return certified, largest


@pytest.mark.parametrize("rows", few_then_all(25, 100))
def test_radii_of_random_counts_are_within_1e_9_of_python_and_never_above(rows: int) -> None:
    certified, _ = check(groups(np.random.default_rng(2), 8 * len(SAMPLED), rows))
    assert certified > 40 * rows


BALLOTS = """
return given.map(({ manifest, votes, labels, classes, k }) => {
  const law = V.exactLaw(manifest), sets = law.sets;
  return votes.map((row, i) => {
    const ballot = { votes: row, classes, sets };
    ballot.counts = V.countVotes(ballot);
    return law.needsBallots ? law.ofBallot(ballot, labels[i], k) : law.ofCounts(ballot.counts, labels[i], k);
  });
});
"""

EXACT = [
    ("band:size=4", (1, 12, 10)),
    ("band:size=3,axis=row,stride=2", (1, 12, 10)),
    ("block:size=4", (3, 9, 11)),
    ("block:size=3,count=2", (1, 15, 15)),
    ("block:size=4,stride=3,bound=margin", (1, 12, 12)),
    ("band:size=4,threshold=0.3", (1, 10, 12)),
    ("band:size=4,threshold=0.3,bound=margin", (1, 10, 12)),
    ("sparse:scale=25", (1, 8, 8)),
    ("splitting:sigma=0.1", (1, 4, 4)),
    ("fractional:p=1/2,scale=2,budget=200", (1, 4, 4)),
    ("fractional:p=2/3,scale=1/2,budget=300", (1, 4, 4)),
    ("fractional:p=1/900,scale=2,budget=200", (1, 4, 4)),
]


@pytest.mark.parametrize(("spec", "shape"), EXACT)
def test_radii_of_ballots_are_those_of_python(spec: str, shape: tuple[int, ...]) -> None:
    rng, exact = np.random.default_rng(3), law(spec).for_shape(shape)
    made, radii = [], []
    for k in (1, 2):
        classes, rows = 4, 30
        favoured = rng.integers(0, classes, (rows, 1))
        loyal = rng.random((rows, exact.views)) < rng.random((rows, 1)) ** 0.2
        votes = np.where(loyal, favoured, rng.integers(0, classes, (rows, exact.views)))
        if getattr(exact, "sets", False):
            votes = (votes[:, :, None] == np.arange(classes)) | (rng.random((rows, exact.views, classes)) < 0.05)
        ballots = Ballots(votes, classes)
        labels = np.where(rng.random(rows) < 0.9, ballots.counts.argmax(axis=1), 0)
        radii.append(exact.radius(ballots, labels, k))
        manifest = {"smoothing": spec, "data": {"shape": shape}}
        flat = votes.reshape(rows, -1).astype(int).tolist()
        made.append({"manifest": manifest, "votes": flat, "labels": labels.tolist(), "classes": classes, "k": k})
    for right, found in zip(radii, run(BALLOTS, made), strict=True):
        mine = np.array([np.nan if r is None else r for r in found], dtype=float)
        assert np.array_equal(np.isnan(mine), np.isnan(right))
        less, there = (right - mine)[~np.isnan(right)], right[~np.isnan(right)]
        assert (less >= 0).all()
        assert (less <= (0 if exact.threat.integer else 1e-9 * np.maximum(1, there))).all()
    assert len(np.unique(np.concatenate(radii))) > 2


POISONED = """
return given.map(({ votes, label, settings, spread, models }) =>
  V.poisoningRadius(votes, label, settings, spread, V.spreadOffsets(models, spread)));
"""


def test_radii_of_poisoning_are_those_of_python() -> None:
    rng = np.random.default_rng(4)
    made, right = [], []
    for _ in range(150):
        classes, spread = int(rng.integers(2, 6)), int(rng.choice([1, 4]))
        models = 24 * spread
        scores = rng.random((1, models, classes)) + 0.6 * rng.random() * (np.arange(classes) == rng.integers(classes))
        votes = EnsembleVotes.from_arrays({"scores": scores}, classes, spread=spread)
        assert votes.winner is not None
        winner, ballots = int(votes.winner[0]), scores.argmax(axis=2)
        common: dict[str, Any] = {"counts": votes.counts[0].tolist(), "ballot": ballots[0].tolist(), "winner": winner}
        if spread == 1:
            assert votes.beats is not None
            common["beats"] = votes.beats[0].tolist()
            runoff = runoff_radius(votes.counts, [winner], votes.beats)
        else:
            assert votes.prefers is not None
            common["prefers"] = np.unpackbits(votes.prefers[0], axis=1, count=models).tolist()
            runoff = finite_runoff_radius(ballots, classes, spread, [winner], votes.prefers)
        made.append((common, winner, {"aggregate": "runoff", "k": 1}, spread, models))
        right.append(int(runoff[0]))
        for k in range(1, min(classes, 4)):
            label = int(rng.integers(classes)) if k > 1 else int(votes.counts[0].argmax())
            radius = (
                plurality_radius(votes.counts, [label], k)
                if spread == 1
                else finite_radius(ballots, classes, spread, [label], k)
            )
            made.append((common, label, {"aggregate": "plurality", "k": k}, spread, models))
            right.append(int(radius[0]))
    names = ("votes", "label", "settings", "spread", "models")
    assert run(POISONED, [dict(zip(names, one, strict=True)) for one in made]) == right
    assert len(set(right)) > 8


def test_the_spread_of_buckets_and_false_claims_are_those_of_python() -> None:
    pairs = [(1200, 16), (50, 5), (19200, 16)]
    assert run("return given.map(([m, s]) => V.spreadOffsets(m, s));", pairs) == [
        spread_offsets(m, s).tolist() for m, s in pairs
    ]
    cases = [(500, 0.001, 0.001), (10_000, 0.001, 0.001), (20, 0.05, 1e-6), (1, 0.01, 0.5), (300, 0.0, 0.001)]
    assert run("return given.map(([m, a, r]) => V.falseClaims(m, a, r));", cases) == [
        false_claims(m, a, r) for m, a, r in cases
    ]


def test_bounds_at_any_time_are_below_those_of_python() -> None:
    rng = np.random.default_rng(5)
    votes = rng.choice([1, 10, 14, 100, 1778, 10_000, 1_000_000], 400)
    wins = votes - (votes * rng.random(400) ** 4).astype(int)
    alpha = rng.choice([0.001, 0.05, 1e-6], 400)
    mine = np.array(
        run(
            "return given.map(([w, n, a]) => V.anytimeBound(w, n, a));",
            [*zip(*(x.tolist() for x in (wins, votes, alpha)), strict=True)],
        )
    )
    right = np.array([float(eprocess.lower_bound(w, n, a)) for w, n, a in zip(wins, votes, alpha, strict=True)])
    assert (mine <= right).all()
    assert (right - mine <= 1e-9 * np.minimum(right, 1 - right) + 1e-15).all()
