"""Radii of label noise against sums over all noisy labels of small worlds."""

from itertools import product

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.laws.poisoning.label_noise import kl_radius, log_thresholds, tight_radius


def noisy(labels: tuple[int, ...], flip: float, classes: int) -> dict[tuple[int, ...], float]:
    """The probability of every noisy version of these labels."""
    other = flip / (classes - 1)
    return {
        seen: float(np.prod([1 - flip if a == b else other for a, b in zip(seen, labels, strict=True)]))
        for seen in product(range(classes), repeat=len(labels))
    }


def most_under_flips(delta: float, flips: int, flip: float, classes: int) -> float:
    """The largest probability, once `flips` labels are flipped, of an event that had the probability delta: by sorting ratios."""
    before, after = (noisy((label,) * flips, flip, classes) for label in (0, 1))
    left, total = delta, 0.0
    for seen in sorted(before, key=lambda s: after[s] / before[s], reverse=True):
        share = min(1.0, left / before[seen])
        total, left = total + share * after[seen], left - share * before[seen]
        if left <= 0:
            break
    return total


@pytest.mark.parametrize(("classes", "flip"), [(2, 0.1), (2, 0.4), (3, 0.3), (4, 0.7)])
def test_the_tight_bound_is_exactly_where_a_worst_event_reaches_one_half(classes: int, flip: float) -> None:
    thresholds = np.exp(log_thresholds(flip, classes, -20))
    for flips in range(1, 5):
        delta = thresholds[flips - 1]
        assert most_under_flips(delta, flips, flip, classes) < 0.5
        assert most_under_flips(delta * (1 + 1e-6), flips, flip, classes) > 0.5
        log = np.log(delta) + np.array([-1e-6, 1e-6])
        assert tight_radius(log, flip, classes).tolist() == [flips, flips - 1]


@pytest.mark.parametrize(("classes", "flip"), [(2, 0.05), (2, 0.4), (10, 0.3), (10, 0.8)])
def test_the_bound_of_the_paper_is_sound_and_below_the_tight_one(classes: int, flip: float) -> None:
    log = -np.geomspace(0.694, 30, 200)
    kl, tight = kl_radius(log, flip, classes), tight_radius(log, flip, classes)
    thresholds = log_thresholds(flip, classes, -31)
    assert all(radius == 0 or log[i] < thresholds[radius - 1] for i, radius in enumerate(kl))
    assert (kl <= tight).all()
    assert tight.max() > kl.max()


def test_for_two_classes_it_is_the_printed_formula() -> None:
    p, q = 0.999, 0.2
    printed = np.log(4 * p * (1 - p)) / (2 * (1 - 2 * q) * np.log(q / (1 - q)))
    assert kl_radius([np.log(1 - p)], q, 2)[0] == int(printed)


def test_nothing_is_certified_at_one_half_and_noise_that_says_nothing_is_refused() -> None:
    assert kl_radius([np.log(0.5), 0.0], 0.2, 2).tolist() == [-1, -1]
    assert tight_radius([np.log(0.5), 0.0], 0.2, 2).tolist() == [-1, -1]
    for flip, classes in ((0.5, 2), (0.0, 3), (0.95, 10), (0.1, 1)):
        with pytest.raises(BadInput, match="stays more often"):
            kl_radius([-1.0], flip, classes)
