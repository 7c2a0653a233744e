"""The certified radius against the worst classifier there is: it holds just inside and falls just outside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from amounts import some_slow
from line_worlds import in_top_k, true_shift, worst_classifier

from vauban.bounds.simultaneous import ProbabilityBounds
from vauban.laws.gaussian import GaussianLaw
from vauban.laws.topk import radius

LABELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 0.9999)
SHAPES = ((1, 1, 1, 1), (1, 2, 4, 8), (1, 1, 1, 20), (1, 20, 20, 20), (1, 3, 3, 10), (5, 6, 7, 8))
FILLS = (0.1, 0.5, 0.8, 1.0)
SIGMAS = (0.25, 1.0)
MOST_CLASSES = 200
JUST = 1e-6
CASES = {1: 256, 2: 490, 3: 510, 4: 498}


def worlds(k: int) -> Iterator[tuple[float, np.ndarray, float]]:
    """Probabilities of the label and of its k strongest rivals, ascending, and sigma; p_label + sum(rivals) <= 1."""
    for p_label, shape, fill, sigma in product(LABELS, dict.fromkeys(shape[-k:] for shape in SHAPES), FILLS, SIGMAS):
        rivals = np.array(shape) / sum(shape) * fill * (1 - p_label)
        if (1 - p_label) * (1 - fill) / rivals[0] <= MOST_CLASSES:
            yield p_label, rivals, sigma


def certified(p_label: float, rivals: np.ndarray, sigma: float) -> float:
    bounds = ProbabilityBounds(np.array([p_label]), rivals[None])
    return float(radius(GaussianLaw(sigma), bounds.label, bounds.sums())[0])


def survives(p_label: float, rivals: np.ndarray, shift: float) -> bool:
    """Whether label 0 of the classifier that is worst for this shift, in sigmas, is still in the top k after it."""
    worst = worst_classifier(p_label, rivals, shift)
    before = worst.probabilities(0.0)
    assert before[0] == pytest.approx(p_label, abs=1e-12)
    assert before[1 : len(rivals) + 1] == pytest.approx(rivals, abs=1e-12)
    assert (before[len(rivals) + 1 :] <= rivals[0] + 1e-12).all()
    assert before.sum() == pytest.approx(1, abs=1e-12)
    return in_top_k(worst.probabilities(shift), 0, len(rivals))


@pytest.mark.parametrize("k", some_slow(CASES, quick={0, 3}))
def test_the_worst_classifier_keeps_the_label_inside_and_drops_it_outside(k: int) -> None:
    cases = 0
    for p_label, rivals, sigma in worlds(k):
        r = certified(p_label, rivals, sigma)
        if not np.isnan(r):
            assert survives(p_label, rivals, r / sigma * (1 - JUST))
            assert not survives(p_label, rivals, r / sigma * (1 + JUST))
            cases += 1
    assert cases >= CASES[k]


@pytest.mark.parametrize("k", some_slow(CASES, quick={0, 3}))
def test_inside_the_radius_the_worst_classifier_for_any_other_shift_keeps_the_label(k: int) -> None:
    for p_label, rivals, sigma in list(worlds(k))[::3]:
        r = certified(p_label, rivals, sigma)
        if not np.isnan(r):
            for part in (0.3, 0.8, 1.2, 2.0):
                worst = worst_classifier(p_label, rivals, part * r / sigma)
                for shift in r / sigma * np.array([-1 + JUST, -0.5, 0.0, 0.5, 0.9, 1 - JUST]):
                    assert in_top_k(worst.probabilities(float(shift)), 0, k)


@pytest.mark.parametrize("k", some_slow(CASES, quick={0, 3}))
def test_where_nothing_is_certified_the_label_may_already_be_out(k: int) -> None:
    cases = 0
    for p_label, rivals, sigma in worlds(k):
        if np.isnan(certified(p_label, rivals, sigma)):
            assert not survives(p_label, rivals, 0.0) or not survives(p_label, rivals, JUST)
            cases += 1
    assert cases >= 10


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_radius_wrong_by_one_percent_either_way_is_noticed(factor: float) -> None:
    for k in CASES:
        for p_label, rivals, sigma in list(worlds(k))[::7]:
            r = factor * certified(p_label, rivals, sigma)
            if not np.isnan(r):
                inside_holds = survives(p_label, rivals, r / sigma * (1 - JUST))
                outside_falls = not survives(p_label, rivals, r / sigma * (1 + JUST))
                assert (inside_holds, outside_falls) == (factor < 1, factor > 1)


def test_the_reference_root_is_the_certified_radius() -> None:
    for k in CASES:
        for p_label, rivals, sigma in list(worlds(k))[::5]:
            true = sigma * true_shift([p_label, *rivals.tolist()], 0, k)
            assert np.nan_to_num(certified(p_label, rivals, sigma)) == pytest.approx(max(true, 0.0), abs=1e-9)
