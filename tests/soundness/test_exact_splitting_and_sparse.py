"""Tries to break exact splitting and sparse certificates: every input, every attack within the radius, many base classifiers."""

from collections.abc import Callable

import numpy as np
import pytest
from exact_worlds import World, attacked, world, worst_votes

from vauban.laws.exact import ExactLaw
from vauban.laws.splitting import ExactSplittingLaw
from vauban.smoothing import Smoothing, build, splitting


def of_period(period: int, levels: int, offsets: int = 0, layout: str = "random") -> Smoothing:
    """Exact splitting with dividers this many steps apart."""
    sigma = (period + 0.3) / levels / (2 * np.sqrt(3))
    made = build(f"splitting:sigma={sigma},offsets={offsets},levels={levels},layout={layout}")
    assert isinstance(made.law, ExactSplittingLaw)
    assert made.law.views == period
    return made


SPLITTINGS = [(period, 7, 2) for period in (1, 3, 6, 7, 8, 13)] + [(period, 4, 3) for period in (1, 2, 4, 5, 9)]
SPLITTINGS += [(5, 2, 4), (2, 2, 4)]
SPARSES = [("sparse:scale=3,levels=2", (1, 2, 2)), ("sparse:scale=4,levels=1", (2, 2, 2))]
SPARSES += [("sparse:scale=5,levels=1,unit=feature", (2, 2, 2)), ("sparse:scale=2,levels=3,offsets=5", (4,))]
SPARSES += [("sparse:scale=3,levels=2,layout=lattice", (1, 2, 2)), ("sparse:scale=2,levels=3,layout=lattice", (4,))]


def l1(there: World) -> np.ndarray:
    return there.steps.sum(axis=2) / there.law.levels


def l0(there: World) -> np.ndarray:
    if there.law.spec.params.get("unit") == "feature" or there.inputs.ndim == 2:
        return (there.steps > 0).sum(axis=2)
    pixels = there.steps.reshape(*there.steps.shape[:2], there.inputs.shape[1], -1)
    return (pixels > 0).any(axis=2).sum(axis=2)


def attack(there: World, distance: np.ndarray, classifiers: int) -> tuple[int, int]:
    rng = np.random.default_rng(len(there.inputs) + there.law.views)
    tried = broken = 0
    for number in range(classifiers):
        classes = 2 + number % 3
        i, j = rng.integers(0, len(there.inputs), 2)
        votes = worst_votes(there, i, j, int(rng.integers(classes)), rng, classes)
        for k in range(1, classes):
            cases, failures = attacked(there, distance, votes, classes, k)
            tried, broken = tried + cases, broken + failures
    return tried, broken


@pytest.mark.parametrize("layout", ["random", "lattice"])
@pytest.mark.parametrize(("period", "levels", "dimensions"), SPLITTINGS)
def test_splitting(period: int, levels: int, dimensions: int, layout: str, cases_tried: Callable[[int], None]) -> None:
    made = of_period(period, levels, offsets=dimensions if layout == "random" else 0, layout=layout)
    there = world(made, (dimensions,) if layout == "random" else (1, 1, dimensions))
    steps = there.steps
    assert (there.changed <= np.minimum(steps, period).sum(axis=2)).all()
    single = (steps > 0).sum(axis=2) == 1
    assert (there.changed[single] == np.minimum(steps.max(axis=2), period)[single]).all()
    tried, broken = attack(there, l1(there), 60)
    assert broken == 0
    cases_tried(tried + there.changed.size)


@pytest.mark.parametrize(("spec", "shape"), SPARSES)
def test_sparse(spec: str, shape: tuple[int, ...], cases_tried: Callable[[int], None]) -> None:
    there = world(build(spec), shape)
    assert (there.changed <= l0(there)).all()
    tried, broken = attack(there, l0(there), 60)
    assert broken == 0
    cases_tried(tried + there.changed.size)


@pytest.mark.parametrize("kind", ["splitting", "sparse"])
def test_a_radius_one_step_larger_breaks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search can find something: with one more changed view tolerated it does."""
    spec = (of_period(5, 4), (3,)) if kind == "splitting" else (build("sparse:scale=3,levels=2"), (1, 2, 2))
    there = world(*spec)
    right = type(there.law).radius_tolerating
    monkeypatch.setattr(
        type(there.law), "radius_tolerating", lambda self, changed: right(self, np.asarray(changed) + 1)
    )
    assert isinstance(there.law, ExactLaw)
    assert attack(there, l1(there) if kind == "splitting" else l0(there), 60)[1] > 0


def test_dividers_too_close_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = splitting.grid_bins
    monkeypatch.setattr(splitting, "grid_bins", lambda x, place, period, levels: right(x, place % 2, 2, levels))
    there = world(of_period(5, 7), (2,))
    assert (there.changed > np.minimum(there.steps, 5).sum(axis=2)).any()
