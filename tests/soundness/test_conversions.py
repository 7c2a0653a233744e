"""Every change on small grids: whatever lies within a converted radius lies within the radius it came from."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import ot
import pytest
from amounts import some_slow
from numpy.typing import NDArray

from vauban.laws import conversions
from vauban.laws.conversions import convert, targets
from vauban.threats import L0, L0_FEATURES, L1, L2, WASSERSTEIN, WASSERSTEIN_L2, Threat, lp

STEPS = 4
HALF, THIRD, TWO_THIRDS = (lp(Fraction(*p)) for p in ((1, 2), (1, 3), (2, 3)))
SHAPES = [(4,), (1, 2, 2), (2, 1, 2), (3, 1, 1), (1, 1, 5)]
RADII = sorted({k / 8 for k in range(1, 17)} | {2.25, 3.0, 4.0, 4.5, 6.0, 9.0, 16.0, 25.0, *np.sqrt(np.arange(1, 6))})

Sizes = NDArray[np.float64]


def closed(threat: Threat) -> Threat:
    return Threat(threat.name, threat.metric, threat.unit, "closed", threat.integer)


def changes(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Every size of change of every feature, in steps [n, features]; signs make no difference."""
    return np.array(list(itertools.product(range(STEPS + 1), repeat=math.prod(shape))))


def powers(steps: NDArray[np.int64], p: float) -> Sizes:
    return (steps / STEPS) ** p


def patch_side(steps: NDArray[np.int64], shape: tuple[int, ...]) -> Sizes:
    """The side of the smallest square around all changed pixels."""
    pixels = steps.reshape(len(steps), *((1, 1, *shape)[-3:] if len(shape) < 3 else shape)).any(axis=1)
    extents = []
    for axis in (1, 2):
        hit = pixels.any(axis=axis)
        first, last = hit.argmax(axis=1), hit.shape[1] - 1 - hit[:, ::-1].argmax(axis=1)
        extents.append(np.where(hit.any(axis=1), last - first + 1, 0))
    return np.maximum(*extents).astype(float)


def size(name: str, steps: NDArray[np.int64], shape: tuple[int, ...]) -> Sizes:
    """The size of every change in a threat, straight from its definition."""
    channels = shape[0] if len(shape) == 3 else 1
    measures: dict[str, Callable[[], Sizes]] = {
        "l2": lambda: np.sqrt(powers(steps, 2).sum(axis=1)),
        "l1": lambda: powers(steps, 1).sum(axis=1),
        "linf": lambda: steps.max(axis=1) / STEPS,
        "l0-features": lambda: (steps > 0).sum(axis=1).astype(float),
        "l0": lambda: steps.reshape(len(steps), channels, -1).any(axis=1).sum(axis=1).astype(float),
        "patch": lambda: patch_side(steps, shape),
    }
    if name in measures:
        return measures[name]()
    p = float(Fraction(name[1:]))
    return powers(steps, p).sum(axis=1) ** (1 / p)


def within(sizes: Sizes, radius: float, ball: str, slack: float) -> NDArray[np.bool_]:
    """Which changes lie in a ball; `slack` makes it wider by what sums of roots may be wrong by."""
    return sizes < radius * (1 + slack) if ball == "open" else sizes <= radius * (1 + slack)


def play(source: Threat, target: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Cases tried, violations found, and counted radii whose next whole number holds a change outside the source's ball."""
    steps = changes(shape)
    before, after = size(source.name, steps, shape), size(target, steps, shape)
    counted = target in conversions.INTEGER_TARGETS
    ball = "closed" if counted else source.ball
    radii = [float(k) for k in range(6)] if source.integer else RADII
    tried = violations = tight = 0
    for radius in radii:
        converted = float(convert(radius, source, target, shape))
        if math.isnan(converted):
            continue
        attacks = within(after, converted, ball, 0.0 if counted else -1e-12)
        tried += int(attacks.sum())
        violations += int((attacks & ~within(before, radius, source.ball, 1e-12 if not source.integer else 0.0)).sum())
        if counted:
            outside = ~within(before, radius, source.ball, -1e-9 if source.ball == "open" else 1e-9)
            tight += bool((within(after, converted + 1, ball, 0.0) & outside).any())
    return tried, violations, tight


PAIRS = [
    (source, target)
    for base in (L2, L1, HALF, THIRD, TWO_THIRDS, L0, L0_FEATURES)
    for source in ([base] if base.integer else [base, closed(base)])
    for target in targets(source) + (["l1/2", "l2/3"] if source.name == "l1" else [])
    if not target.startswith("wasserstein")
]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda v: v if isinstance(v, str) else f"{v.name} {v.ball}")
def test_a_converted_ball_lies_in_the_one_it_came_from(source, target, cases_tried) -> None:
    tried, violations, tight = np.sum([play(source, target, shape) for shape in SHAPES], axis=0)
    cases_tried(tried)
    assert violations == 0
    assert tried > 0
    if target in conversions.INTEGER_TARGETS:
        assert tight > 0


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda v: v if isinstance(v, str) else f"{v.name} {v.ball}")
def test_a_radius_inflated_is_caught(source, target, monkeypatch) -> None:
    honest = conversions.convert
    more = 1.0 if target in conversions.INTEGER_TARGETS else 0.0

    def inflated(*args, **kwargs) -> NDArray[np.float64]:
        return honest(*args, **kwargs) * (1.0 if more else 1.3) + more

    monkeypatch.setitem(globals(), "convert", inflated)
    assert sum(play(source, target, shape)[1] for shape in SHAPES) > 0


def test_counts_are_exact_where_they_are_tight() -> None:
    """No slack: whole pixels changed by 1 each, in exact arithmetic, at radii next to every border."""
    for channels, pixels in itertools.product((1, 2, 3), range(1, 12)):
        shape = (channels, 1, 12)
        border = pixels * channels
        for name, value in (("l1", float(border)), ("l2", math.sqrt(border))):
            for radius in (math.nextafter(value, 0), value, math.nextafter(value, math.inf)):
                limit = Fraction(radius) ** (2 if name == "l2" else 1)
                for ball in ("open", "closed"):
                    count = float(convert(radius, Threat(name, "", "", ball), "l0", shape))
                    assert count == (pixels if border < limit or (ball == "closed" and border == limit) else pixels - 1)


def test_l_infinity_balls_touch_the_ball_they_came_from() -> None:
    """No slack: a change of the converted radius in every feature lies in the source's ball, of the next float outside it."""
    for size, radius in itertools.product((1, 2, 3, 12, 784, 3_072), (0.1, 1 / 3, 1.0, 28.0, math.pi)):
        for source, worth in ((L2, Fraction(2)), (L1, Fraction(1)), (HALF, Fraction(1, 2))):
            found = float(convert(radius, source, "linf", (size,)))
            sizes = []
            for each in (found, math.nextafter(found, math.inf)):
                # sum |e|^p <= R^p, in whole powers: d e^2 <= R^2, d e <= R, d^2 e <= R
                power, factor = (2, size) if worth == 2 else (1, size ** (1 / worth).numerator)
                sizes.append(factor * Fraction(each) ** power - Fraction(radius) ** power)
            assert sizes[0] <= 0 < sizes[1]


def masses(cells: int) -> list[tuple[int, ...]]:
    """All pictures of STEPS steps of mass."""
    return [m for m in itertools.product(range(STEPS + 1), repeat=cells) if sum(m) == STEPS]


@pytest.mark.parametrize("shape", some_slow([(4,), (1, 2, 2), (2, 1, 2), (1, 5)], quick={1, 2}))
def test_wasserstein_conversions_hold_for_every_pair_of_pictures(shape, cases_tried) -> None:
    """Distances from POT; pictures of several masses, so that the mass matters; channels keep theirs."""
    channels, height, width = (1,) * (3 - len(shape)) + shape
    places = np.array(list(itertools.product(range(height), range(width))), dtype=float)
    costs = {name: ot.dist(places, places, metric=m) for name, m in (("l1", "cityblock"), ("l2", "euclidean"))}
    tried = 0
    tightest = {"l1": 0.0, "l2": 0.0, "ground": 0.0}
    for x, y in itertools.combinations(masses(math.prod(shape)), 2):
        a, b = np.reshape(x, (channels, -1)) / STEPS, np.reshape(y, (channels, -1)) / STEPS
        if (a.sum(axis=1) != b.sum(axis=1)).any():
            continue
        far = {
            name: sum(float(ot.emd2(p, q, cost)) for p, q in zip(a, b, strict=True) if p.sum())
            for name, cost in costs.items()
        }
        for mass in (0.5, 1.0, 3.0):
            change = mass * np.abs(a - b).sum()
            for name, target in (("l1", "wasserstein"), ("l2", "wasserstein-l2")):
                # the largest L1 radius that leaves this pair out must not, converted, take it in
                worth = float(convert(change, L1, target, shape, mass=mass))
                assert worth <= far[name] * (1 + 1e-12)
                tightest[name] = max(tightest[name], worth / far[name])
                tried += 1
        assert float(convert(far["l1"], WASSERSTEIN, "wasserstein-l2", shape)) <= far["l2"] * (1 + 1e-12)
        assert float(convert(far["l2"], WASSERSTEIN_L2, "wasserstein", shape)) <= far["l1"] * (1 + 1e-12)
        tightest["ground"] = max(tightest["ground"], far["l1"] / math.sqrt(2) / far["l2"])
        tried += 2
    cases_tried(tried)
    assert tightest["l1"] > 1 - 1e-9  # so twice, or any more, would be wrong
    assert tightest["l2"] > 1 - 1e-9
    if height > 1:
        assert tightest["ground"] > 1 - 1e-9
