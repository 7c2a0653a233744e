"""Tries to break exact fractional and concave certificates on small worlds: every pair of inputs, through the real views."""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, product

import mpmath
import numpy as np
import pytest
import torch
from amounts import few_then_all

from vauban.laws.designs import law as design_law
from vauban.laws.designs.design import Design
from vauban.laws.designs.metrics import Power, Tabulated
from vauban.smoothing import Concave, Fractional
from vauban.smoothing import design_views as looked_up

FEATURES = 3
FIRST = Fraction(1, 3)
FRACTIONAL = [
    # p, scale, budget, levels, coupling, offsets (or their layout), representation
    ("1/2", "1", 40, 7, "cyclic", 0, "upper_lower"),
    ("1/2", "1.5", 31, 7, "cyclic", 1, "upper_lower"),
    ("1/2", "1.51", 20, 5, "arbitrary", 2, "upper_lower"),
    ("1/2", "0.6", 40, 7, "cyclic", 3, "upper_lower"),
    ("1/3", "1", 60, 7, "cyclic", 4, "center_error"),
    ("1/3", "2", 25, 6, "global", 5, "upper_lower"),
    ("3/4", "1.2", 30, 7, "arbitrary", 6, "center"),
    ("2/5", "1", 24, 4, "global", 7, "center_center"),
    ("1", "2", 28, 7, "cyclic", 8, "upper_lower"),
    ("1", "1", 12, 6, "global", 9, "center"),
    ("1/2", "1.5", 31, 7, "cyclic", "lattice", "upper_lower"),
    ("1/3", "2", 25, 6, "cyclic", "lattice", "center_error"),
]
CONCAVE = [
    # g, scale, budget, levels, coupling
    (lambda z: min(3 * z, 1), "1", 30, 7, "cyclic"),
    (lambda z: min(3 * z, 1), "0.5", 30, 7, "arbitrary"),
    (lambda z: min(z, FIRST) / 2 + z / 4, "1.5", 40, 6, "cyclic"),
    (np.log1p, "1", 45, 7, "global"),
]
SOME, FEW = 3, 7  # every third of these is tried in every run of the tests, every seventh where a mistake is planted


class World:
    """Every input on the grid, the view each word makes of it (`views` [inputs, V], equal numbers for equal views), and the
    exact size of every change, by the sorted steps of its coordinates (`kind` [inputs, inputs] into `sizes`).
    """

    def __init__(self, smoothing: Fractional | Concave, sizes: Callable[[int], mpmath.mpf]):
        self.law = smoothing.law
        levels, count = self.law.levels, self.law.views
        self.inputs = np.array(list(product(range(levels + 1), repeat=FEATURES)))
        words = torch.arange(count)[:, None]
        made = [smoothing.views(torch.from_numpy(x)[None], words, levels).numpy() for x in self.inputs]
        _, which = np.unique(np.concatenate(made), axis=0, return_inverse=True)
        self.views = which.reshape(len(self.inputs), count)
        self.changed = np.stack([(self.views != row).sum(axis=1) for row in self.views])
        kinds = {steps: i for i, steps in enumerate(combinations_with_replacement(range(levels + 1), FEATURES))}
        flat = np.zeros((levels + 1,) * FEATURES, dtype=np.int64)
        for steps in product(range(levels + 1), repeat=FEATURES):
            flat[steps] = kinds[tuple(sorted(steps))]
        apart = np.abs(self.inputs[:, None] - self.inputs[None])
        self.kind = flat[tuple(np.moveaxis(apart, 2, 0))]
        self.sizes = [mpmath.fsum(sizes(k) for k in steps) for steps in kinds]


@lru_cache(maxsize=4)
def worlds(every: int = 1) -> list[World]:
    """Every so many-th of the worlds; sizes are sums of g in 60 digits, g itself computed without Vauban."""
    made = []
    with mpmath.workdps(60):
        for p, scale, budget, levels, coupling, offsets, representation in FRACTIONAL[::every]:
            power = mpmath.mpf(Fraction(p).numerator) / Fraction(p).denominator
            placed = {"layout": offsets} if isinstance(offsets, str) else {"offsets": offsets}
            options = {"coupling": coupling, "representation": representation, **placed}
            smoothing = Fractional(p, scale, budget=budget, levels=levels, **options)
            made.append(World(smoothing, lambda k, q=levels, power=power: mpmath.power(mpmath.mpf(k) / q, power)))
        for g, scale, budget, levels, coupling in CONCAVE[::every]:
            smoothing = Concave(g, scale=scale, budget=budget, levels=levels, coupling=coupling)
            exact = (lambda k, q: mpmath.log1p(mpmath.mpf(k) / q)) if g is np.log1p else _of(g)
            made.append(World(smoothing, lambda k, q=levels, exact=exact: exact(k, q)))
    return made


def _of(g: Callable[[Fraction], Fraction]) -> Callable[[int, int], mpmath.mpf]:
    def exact(k: int, q: int) -> mpmath.mpf:
        value = Fraction(g(Fraction(k, q)))
        return mpmath.mpf(value.numerator) / value.denominator

    return exact


def rate(world: World) -> mpmath.mpf:
    """How many views an attack of size 1 may change: the budget, over the scale where that is below 1."""
    scale = min(world.law.scale, Fraction(1))
    return mpmath.mpf(world.law.budget) * scale.denominator / scale.numerator


def too_many_changed(every: int) -> tuple[int, int]:
    """Pairs of inputs, and those of which more views differ than R times their distance."""
    tried = broken = 0
    with mpmath.workdps(60):
        for world in worlds(every):
            most = np.array([int(mpmath.floor(rate(world) * d + mpmath.mpf(10) ** -40)) for d in world.sizes])
            tried += world.kind.size
            broken += int((world.changed > most[world.kind]).sum())
    return tried, broken


def inside(world: World, r: float) -> np.ndarray:
    """Whether each kind of change is in the closed ball of radius r, in 60 digits."""
    with mpmath.workdps(60):
        size = mpmath.mpf(r)
        if isinstance(world.law.metric, Power):
            size = mpmath.power(size, mpmath.mpf(world.law.p.numerator) / world.law.p.denominator)
        return np.array([d <= size for d in world.sizes])


def balls_broken(every: int) -> tuple[int, int]:
    """Every radius there is: pairs of inputs within it, and those of which more views differ than it stands for."""
    tried = broken = 0
    for world in worlds(every):
        for changed in range(world.law.views + 1):
            within = inside(world, float(world.law.radius_tolerating([changed])[0]))[world.kind]
            tried += int(within.sum())
            broken += int((within & (world.changed > changed)).sum())
    return tried, broken


def outvoted(counts: np.ndarray, label: int, k: int) -> np.ndarray:
    """Whether k or more classes are ahead of the label [...], ties to the smaller index; `counts` [..., classes]."""
    own = counts[..., label, None]
    ahead = (counts > own) | ((counts == own) & (np.arange(counts.shape[-1]) < label))
    return ahead.sum(axis=-1) >= k


def claims_broken(every: int, per_world: int = 4) -> tuple[int, int]:
    """Attacks from within the radius on random base classifiers, and those that succeed.

    A base classifier is a class for every view there is; the claim at x is attacked at every input within its radius, first
    with the votes this base classifier casts there, then with whatever the views that changed might vote.
    """
    tried = broken = 0
    rng = np.random.default_rng(0)
    classes = 3
    for world in worlds(every):
        for _ in range(per_world):
            label = int(rng.integers(classes))
            chances = np.full(classes, 0.1)
            chances[label] = 0.8
            votes = rng.choice(classes, size=world.views.max() + 1, p=chances)[world.views]
            counts = np.stack([(votes == c).sum(axis=1) for c in range(classes)], axis=1)
            for k in (1, 2):
                radii = world.law.radius_of_counts(counts, np.full(len(counts), label), k)
                for r in np.unique(radii[~np.isnan(radii)]):
                    reached = inside(world, float(r))
                    for x in rng.permutation(np.flatnonzero(radii == r))[:25]:
                        there = np.setdiff1d(np.flatnonzero(reached[world.kind[x]]), [x])
                        tried += 2 * len(there)
                        broken += int(outvoted(counts[there], label, k).sum())
                        broken += int(worst(world, votes[x], x, there, label, k, classes).sum())
    return tried, broken


def worst(world: World, ballot: np.ndarray, x: int, there: np.ndarray, label: int, k: int, classes: int) -> np.ndarray:
    """Whether some votes of the views that differ between x and each y of `there` put k classes ahead of the label.

    All of them leave the label; then the k rivals that lack least must lack no more than there are.
    """
    same = world.views[there] == world.views[x]
    kept = np.stack([(same & (ballot == c)).sum(axis=1) for c in range(classes)], axis=1)
    rivals = [j for j in range(classes) if j != label]
    lacking = np.stack([np.maximum(kept[:, label] + (j > label) - kept[:, j], 0) for j in rivals], axis=1)
    return np.sort(lacking, axis=1)[:, :k].sum(axis=1) <= (~same).sum(axis=1)


@pytest.mark.parametrize("every", few_then_all(SOME, 1))
def test_an_attack_changes_no_more_views_than_its_size_allows(every: int, cases_tried: Callable[[int], None]) -> None:
    tried, broken = too_many_changed(every)
    cases_tried(tried)
    assert tried > 1_000_000 / every
    assert broken == 0


@pytest.mark.parametrize("every", few_then_all(SOME, 1))
def test_no_radius_reaches_too_far(every: int, cases_tried: Callable[[int], None]) -> None:
    tried, broken = balls_broken(every)
    cases_tried(tried)
    assert tried > 1_000_000 / every
    assert broken == 0


@pytest.mark.parametrize("every", few_then_all(SOME, 1))
def test_no_certified_label_leaves_the_top_k(every: int, cases_tried: Callable[[int], None]) -> None:
    tried, broken = claims_broken(every)
    cases_tried(tried)
    assert tried > 50_000 / every
    assert broken == 0


@pytest.mark.parametrize("every", few_then_all(SOME, 1))
def test_the_worlds_are_those_of_the_laws(every: int, cases_tried: Callable[[int], None]) -> None:
    """One coordinate that moves k steps changes exactly the n(k) views of the design, whatever the coupling and the offset."""
    tried = 0
    for world in worlds(every):
        if world.law.representation in ("center", "center_center"):  # bins of one middle look alike
            continue
        moved = np.abs(world.inputs[:, None] - world.inputs[None])
        alone = (moved > 0).sum(axis=2) == 1
        assert (world.changed[alone] == world.law.design.separations()[moved.max(axis=2)[alone]]).all()
        tried += int(alone.sum())
    cases_tried(tried)
    assert tried > 10_000 / every


def test_radii_are_not_far_below_what_could_be_broken() -> None:
    """With the radius of twice as many views, claims do break: what is claimed is not vacuous."""
    tight = 0
    for world in worlds(SOME):
        for changed in range(1, world.law.views // 2):
            within = inside(world, float(world.law.radius_tolerating([2 * changed])[0]))[world.kind]
            tight += int((within & (world.changed > changed)).any())
    assert tight > 20


@pytest.fixture
def afresh() -> object:
    """Worlds and tables made anew inside a test that plants a mistake, and again after it."""
    caches = (worlds, looked_up._tables, design_law._radius_tolerating)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_a_design_with_one_outcome_too_many_would_be_seen(afresh: object, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = design_law.design

    def greedy(metric: Power | Tabulated, levels: int, budget: int, rate: Fraction) -> Design:
        made = dict(sound(metric, levels, budget, rate).weights)
        made[1] = made.get(1, 0) + metric.floor_views(1, levels, rate) + 1 - sum(made.values())
        return Design(tuple(sorted(made.items())), levels, budget)

    monkeypatch.setattr(design_law, "design", greedy)
    monkeypatch.setattr(design_law.DesignLaw, "views", property(lambda self: 2 * self.budget))
    assert too_many_changed(FEW)[1] > 0


def test_a_radius_of_one_view_too_many_would_be_seen(afresh: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for metric in (Power, Tabulated):
        sound = metric.radius_tolerating
        monkeypatch.setattr(
            metric, "radius_tolerating", lambda self, changed, rate, sound=sound: sound(self, changed + 1, rate)
        )
    assert balls_broken(FEW)[1] > 0


def test_a_list_that_is_not_gone_through_whole_would_be_seen(afresh: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other outcome twice: the coupling must be a permutation."""
    sound = looked_up._CyclicOffsets.__call__
    monkeypatch.setattr(looked_up._CyclicOffsets, "__call__", lambda self, number: sound(self, number // 2))
    assert too_many_changed(FEW)[1] > 0


def test_claims_for_one_view_too_many_would_be_seen(afresh: object, monkeypatch: pytest.MonkeyPatch) -> None:
    within = design_law.DesignLaw.radius_tolerating
    monkeypatch.setattr(
        design_law.DesignLaw, "radius_tolerating", lambda self, changed: within(self, np.asarray(changed) * 2 + 1)
    )
    assert claims_broken(FEW, 2)[1] > 0
