"""Flow noise on worlds small enough to enumerate: no event moves further than the shift of its Wasserstein distance allows.

Masses and noise are whole steps. Laplace or uniform flows rounded to steps are what the continuous law gives after rounding,
so its bounds must hold; views are made by `smoothing.flow.flow`, distances come from POT.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import ot
import pytest
import torch
from amounts import some_slow
from numpy.typing import NDArray
from scipy import stats

from vauban.laws.flow import FlowLaw, edges
from vauban.laws.topk import radius
from vauban.smoothing.flow import flow

STEPS = 4  # the mass of a picture, in steps
ROUNDING = 1e-7  # sums of 10^5 floats, errors times up to 10^6
Shape = tuple[int, int, int]


def pictures(shape: Shape) -> Iterator[tuple[int, ...]]:
    """All pictures of STEPS steps of mass."""
    cells = math.prod(shape)
    for bars in itertools.combinations(range(STEPS + cells - 1), cells - 1):
        places = (-1, *bars, STEPS + cells - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(places))


def distance(x: tuple[int, ...], y: tuple[int, ...], shape: Shape, ground: str) -> float:
    """1-Wasserstein distance of pictures normalised to mass 1, channel by channel; infinite if a channel changes mass."""
    channels, height, width = shape
    places = np.array(list(itertools.product(range(height), range(width))), dtype=float)
    cost = ot.dist(places, places, metric="cityblock" if ground == "l1" else "euclidean")
    total = 0.0
    for a, b in zip(np.reshape(x, (channels, -1)) / STEPS, np.reshape(y, (channels, -1)) / STEPS, strict=True):
        if a.sum() != b.sum():
            return math.inf
        total += float(ot.emd2(a, b, cost)) if a.sum() else 0.0
    return total


def differences(shape: Shape) -> dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every difference of two pictures with the same mass in each channel, with a pair that has it."""
    found = {}
    for x, y in itertools.permutations(pictures(shape), 2):
        if (np.reshape(x, (shape[0], -1)).sum(axis=1) == np.reshape(y, (shape[0], -1)).sum(axis=1)).all():
            found.setdefault(tuple(np.subtract(y, x)), (x, y))
    return found


def step_law(law: FlowLaw, reach: int) -> tuple[NDArray[np.float64], float]:
    """The probability of -reach..reach steps for one flow rounded to steps, and of all others together."""
    cdf = (
        stats.laplace(scale=law.sigma / math.sqrt(2)).cdf
        if law.law == "laplace"
        else stats.uniform(loc=-law.sigma * math.sqrt(3), scale=2 * law.sigma * math.sqrt(3)).cdf
    )
    below = cdf((np.arange(-reach, 1) - 0.5) / STEPS)  # the lower half, where no digits are lost
    left = np.diff(below)
    return np.concatenate([left, [1 - 2 * below[-1]], left[::-1]]), 2 * float(below[0])


def views(shape: Shape, law: FlowLaw, reach: int) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """Every view of the empty picture [n, cells], in steps, its probability, and what is left out: flows beyond `reach`."""
    count, (channels, height, width) = edges(shape), shape
    plans = np.array(list(itertools.product(range(-reach, reach + 1), repeat=count)))
    steps, beyond = step_law(law, reach)
    weights = steps[plans + reach].prod(axis=1)
    down, right = np.split(torch.from_numpy(plans).float(), [channels * (height - 1) * width], axis=1)
    made = flow(
        torch.zeros(len(plans), *shape),
        down.view(len(plans), channels, height - 1, width),
        right.view(len(plans), channels, height, width - 1),
    )
    unique, which = np.unique(made.long().view(len(plans), -1).numpy(), axis=0, return_inverse=True)
    return unique, np.bincount(which.ravel(), weights), count * beyond


def both_laws(
    outcomes: NDArray[np.int64], weights: NDArray[np.float64], difference: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probabilities of all views at a picture and at the one that differs by `difference`."""
    radix = 1 << 12
    powers = radix ** np.arange(outcomes.shape[1] - 1)  # the last cell follows from the others
    codes = (outcomes[:, :-1] + radix // 4) @ powers
    shifted = codes + np.array(difference[:-1]) @ powers
    _, which = np.unique(np.concatenate([codes, shifted]), return_inverse=True)
    n = len(codes)
    here, there = (np.bincount(half, weights, which.max() + 1) for half in (which[:n], which[n:]))
    return here, there


def worst_excess(law: FlowLaw, here: NDArray[np.float64], there: NDArray[np.float64], r: float, tail: float) -> float:
    """How far the worst events (by likelihood ratio: Neyman-Pearson) leave the bounds most and least at distance r.

    An event weighs up to `tail` more than the views that were enumerated. Events of nearly everything are left to their
    complements: in floating point their probability is 1.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(here > 0, there / here, np.inf))
    p, q = np.cumsum(here[order]), np.cumsum(there[order])
    over = q - law.most(np.minimum(p + tail, 1), r)
    p, q = np.cumsum(here[order[::-1]]), np.cumsum(there[order[::-1]])
    under = (law.least(np.minimum(p, 1), r) - (q + tail))[p < 1 - 1e-6]
    return float(max(over.max(), under.max()))


def uniform(steps: int, ground: str = "l1") -> FlowLaw:
    """Uniform flows over exactly so many steps."""
    return FlowLaw(steps / STEPS / (2 * math.sqrt(3)), "uniform", ground)


WORLDS: list[tuple[Shape, int, list[FlowLaw]]] = [
    ((1, 1, 2), 60, [FlowLaw(0.4), FlowLaw(1.0), FlowLaw(0.4, bound="paper"), uniform(3), uniform(9)]),
    ((1, 1, 3), 20, [FlowLaw(0.1), FlowLaw(0.4), uniform(3), uniform(7), uniform(7, "l2")]),
    ((1, 3, 1), 20, [FlowLaw(0.4), uniform(7)]),
    ((1, 1, 4), 10, [FlowLaw(0.1), FlowLaw(0.2), FlowLaw(0.2, ground="l2")]),
    ((1, 1, 4), 3, [uniform(3), uniform(7)]),
    ((1, 2, 2), 7, [FlowLaw(0.2, ground="l2")]),
    ((1, 2, 2), 7, [FlowLaw(0.1), FlowLaw(0.2)]),
    ((1, 2, 2), 3, [uniform(3), uniform(7), uniform(5, "l2")]),
    ((2, 1, 2), 20, [FlowLaw(0.1), FlowLaw(0.4), uniform(5)]),
    ((2, 1, 3), 4, [FlowLaw(0.1)]),
    ((2, 1, 3), 1, [uniform(3)]),
]


def excesses(law: FlowLaw, shape: Shape, reach: int) -> list[float]:
    """The worst excess at every difference of two pictures."""
    outcomes, weights, tail = views(shape, law, reach)
    assert tail < 1e-4
    worst = []
    for difference, (x, y) in differences(shape).items():
        here, there = both_laws(outcomes, weights, difference)
        worst.append(worst_excess(law, here, there, distance(x, y, shape, law.ground), tail))
    return worst


@pytest.mark.parametrize("world", some_slow(WORLDS, {0, 1, 2, 4, 5, 7, 8, 10}), ids=lambda w: "x".join(map(str, w[0])))
def test_no_event_moves_further_than_its_distance_allows(world, cases_tried) -> None:
    shape, reach, laws = world
    moves = 0
    for law in laws:
        worst = excesses(law, shape, reach)
        assert max(worst) < ROUNDING
        moves += len(worst)
    cases_tried(moves)


@pytest.mark.parametrize("shape", some_slow([(1, 1, 2), (1, 1, 3), (2, 1, 2), (1, 2, 2)], {0, 1, 2}))
@pytest.mark.parametrize("kind", ["laplace", "uniform"])
def test_an_inflated_radius_is_caught(shape, kind, monkeypatch) -> None:
    law, reach = (FlowLaw(0.1), 5) if kind == "laplace" else (uniform(7), 3)
    assert max(excesses(law, shape, reach)) < ROUNDING
    monkeypatch.setattr(FlowLaw, "_plan_norm", lambda self, r: np.asarray(r) / 1.2)
    assert max(excesses(law, shape, reach)) > 0.01


@pytest.mark.parametrize("law", [FlowLaw(0.3), FlowLaw(1.0), uniform(5), uniform(9)], ids=lambda law: str(law.spec))
def test_in_one_dimension_the_shift_is_attained(law) -> None:
    """Between two cells there is one flow: half-lines attain U and L at every distance."""
    outcomes, weights, tail = views((1, 1, 2), law, 80)
    assert tail < 1e-10
    for steps in (1, 2, 3):
        here, there = both_laws(outcomes, weights, (steps, -steps))
        r = distance((0, STEPS), (steps, STEPS - steps), (1, 1, 2), "l1")
        order = np.argsort(np.where(here > 0, there / np.maximum(here, 1e-300), np.inf))[::-1]
        p, q = np.minimum(np.cumsum(here[order]), 1), np.cumsum(there[order])
        assert np.abs(q - law.most(p, r)).min() < 1e-9
        middle = (p > 1e-3) & (p < 1 - 1e-3)
        assert np.abs(q - law.most(p, r))[middle].max() < 1e-9


@pytest.mark.parametrize(("classes", "k", "reach"), [(2, 1, 4), (3, 1, 2), (3, 2, 2)])
def test_no_classifier_at_all_loses_its_label_within_the_radius(classes, k, reach, cases_tried) -> None:
    """Every map from views to classes, on two cells with uniform flows over five steps; mass moves by up to `reach`."""
    law, lost, tried = uniform(5), 0, 0
    x = (4 - reach, reach)
    views_at = {
        s: np.arange(s, s + 5) for s in range(reach + 1)
    }  # five views each, one step further for each step moved
    maps = np.array(list(itertools.product(range(classes), repeat=5 + reach)))
    p = {s: np.stack([(maps[:, at] == c).sum(axis=1) for c in range(classes)], axis=1) for s, at in views_at.items()}
    for label in range(classes):
        rivals = np.sort(np.delete(p[0], label, axis=1), axis=1)[:, -k:]
        sums = np.minimum(np.cumsum(rivals, axis=1), 5 - p[0][:, [label]]) / 5
        radii = np.nan_to_num(radius(law, p[0][:, label] / 5, sums), nan=0.0)
        for s in range(1, reach + 1):
            far = distance(x, (x[0] + s, x[1] - s), (1, 1, 2), "l1")
            ahead = (np.delete(p[s], label, axis=1) >= p[s][:, [label]]).sum(axis=1)
            certified = radii > far * (1 + 1e-9)
            tried += int(certified.sum())
            assert (ahead[certified] < k).all()
            # tight: someone with the same votes at x loses the label one step beyond its radius
            just_beyond = (radii > 0) & (radii <= far * (1 + 1e-9)) & (radii > far - 1.001 / STEPS)
            lost += int((ahead[just_beyond] >= k).sum())
    cases_tried(tried)
    assert tried > 0
    assert lost > 0


def split(plan: torch.Tensor, divider: float) -> torch.Tensor:
    """Splitting noise on flows in [-1, 1], all with one divider (thesis D.4): the middle of the side a flow lies on."""
    return torch.where(plan < divider, (divider - 1) / 2, (divider + 1) / 2)


def test_splitting_noise_in_flow_space_has_no_proof() -> None:
    """Thesis D.4: two plans to the same picture have views of different laws, so 'the' probability at it does not exist."""
    vertical, horizontal = torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 3, 2)
    around_down, around_right = vertical.clone(), horizontal.clone()
    around_down[0, 0, 1, 1], around_down[0, 0, 1, 2] = 1, -1
    around_right[0, 0, 2, 1], around_right[0, 0, 1, 1] = 1, -1
    even = torch.full((1, 1, 3, 3), 1 / 9)
    assert torch.equal(flow(even, vertical, horizontal), even)
    assert torch.allclose(flow(even, around_down, around_right), even)
    dividers = (torch.arange(200) + 0.5) / 100 - 1
    still, moved = (
        torch.stack([flow(even, split(a, float(s)), split(b, float(s)))[0, 0, 1, 1] for s in dividers])
        for a, b in ((vertical, horizontal), (around_down, around_right))
    )
    untouched = (still - 1 / 9).abs() < 1e-5
    assert untouched.all()
    # the event 'the middle has its own mass': probability 1 by one plan, 0 by the other, at Wasserstein distance 0
    assert not ((moved - 1 / 9).abs() < 1e-5).any()
    # additive noise does not care
    noise = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 3, 2)
    one = flow(even, vertical + noise[0], horizontal + noise[1])
    other = flow(even, around_down + noise[0], around_right + noise[1])
    assert torch.allclose(one, other, atol=1e-5)


def test_the_distances_are_the_least_norms_of_plans() -> None:
    """Lemma 5.1 on all pairs of 2 x 2 pictures, plans enumerated; both grounds (Corollary D.3)."""
    plans = np.array(list(itertools.product(range(-STEPS, STEPS + 1), repeat=4)))
    # down left, down right, across the top, across the bottom
    change = np.stack(
        [-plans[:, 0] - plans[:, 2], plans[:, 2] - plans[:, 1], plans[:, 0] - plans[:, 3], plans[:, 1] + plans[:, 3]], 1
    )
    norms = np.abs(plans).sum(axis=1) / STEPS
    for difference, (x, y) in differences((1, 2, 2)).items():
        far = distance(x, y, (1, 2, 2), "l1")
        assert norms[(change == difference).all(axis=1)].min() == pytest.approx(far)
        assert far / math.sqrt(2) - 1e-12 <= distance(x, y, (1, 2, 2), "l2") <= far + 1e-12
