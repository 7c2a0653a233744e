"""Certificates against label flips from random labels: how many flips a majority over noisy training labels withstands.

Every training label stays with probability 1 - q, and else becomes each of the K - 1 others with probability q' = q / (K - 1),
independently; the smoothed classifier answers the class that the base classifier gives with probability above 1/2 over this
noise. Let P be the law of noisy labels around the labels as they are, Q that around labels of which r are flipped, and A the
event that the base classifier gives the answer: P(A) >= 1 - delta, and Q(A) > 1/2 is to be shown. [Rosenfeld2020]

`kl_radius`, the paper's bound: if Q(A) <= 1/2 < P(A), then KL(Q || P) >= kl(Q(A) || P(A)) >= kl(1/2 || 1 - delta)
= -log(4 delta (1 - delta)) / 2. One flipped label contributes (1 - q - q') log((1 - q) / q') to KL(Q || P). So every r with
r (1 - q - q') log((1 - q) / q') < -log(4 delta (1 - delta)) / 2 is certified; for K = 2 this is the paper's formula.

`tight_radius`, by Neyman and Pearson: of the r flipped labels let L be the number whose noisy value is the flipped one less the
number whose noisy value is the one before. dQ/dP = ((1 - q) / q')^L, so among events of P-probability at most delta one that
takes the largest values of L has the largest Q-probability. It is below 1/2 if and only if delta < t(r), the P-probability of
the largest values of L that have Q-probability 1/2. L is a sum of r independent terms +1, -1, 0: no attack does better than
this bound says, and some base classifier reaches it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput

_SAFE = 1e-9  # relative error of sums of up to a million logarithms, and of sums of probabilities, at most
_MOST = 5_000  # flips up to which the tight bound is computed; beyond, the other one counts


def check_flip(flip: float, classes: int) -> float:
    """q' for a probability `flip` that a label changes; refused unless a label stays more often than it becomes another one."""
    if classes < 2 or not 0 < flip < (classes - 1) / classes:
        raise BadInput(
            f"flip={flip} with {classes} classes: a probability above 0 and below {(classes - 1) / max(classes, 1):.3g} is "
            "needed, so that a label stays more often than it becomes any other"
        )
    return flip / (classes - 1)


def kl_radius(log_wrong: ArrayLike, flip: float, classes: int) -> NDArray[np.int64]:
    """The largest certified number of flips [m] by the bound of the paper; -1 where delta = exp(log_wrong) [m] is 1/2 or more.

    >>> kl_radius([-700.0, -1.0, -0.5], 0.3, 2).tolist()
    [1030, 0, -1]
    """
    other = check_flip(flip, classes)
    log_delta = np.asarray(log_wrong, np.float64)
    known = log_delta < math.log(0.5) * (1 + _SAFE)
    delta = np.where(known, np.exp(np.minimum(log_delta, -0.5)), 0.25)
    enough = -(math.log(4) + np.where(known, log_delta, -2.0) + np.log1p(-delta)) / 2
    each = (1 - flip - other) * math.log((1 - flip) / other)
    radius = np.floor(np.maximum(enough * (1 - _SAFE) - _SAFE, 0) / (each * (1 + _SAFE)))
    return np.where(known, radius, -1).astype(np.int64)


def tight_radius(log_wrong: ArrayLike, flip: float, classes: int) -> NDArray[np.int64]:
    """The largest certified number of flips [m] by the tight bound; never below `kl_radius`; -1 where delta is 1/2 or more."""
    log_delta = np.asarray(log_wrong, np.float64)
    least = kl_radius(log_delta, flip, classes)
    if not (least >= 0).any():
        return least
    thresholds = log_thresholds(flip, classes, float(log_delta.min()))
    # thresholds[r - 1] falls with r: radius = how many of them are above log_delta
    found = np.searchsorted(-thresholds, -log_delta, side="left")
    return np.where(least >= 0, np.maximum(found, least), -1).astype(np.int64)


def log_thresholds(flip: float, classes: int, lowest: float) -> NDArray[np.float64]:
    """log t(r) for r = 1, 2, …, rounded down, up to the first at or below `lowest`."""
    other = check_flip(flip, classes)
    step = np.array([other, flip - other, 1 - flip])  # Q-probabilities of -1, 0 and +1
    log_ratio = math.log((1 - flip) / other)
    mass, found = np.ones(1), [0.0]
    while found[-1] > lowest and len(found) <= _MOST:
        mass = np.convolve(mass, step)
        mass[mass < 1e-300] = 0.0
        found.append(min(found[-1], _log_threshold(mass, log_ratio)))
    return np.array(found[1:])


def _log_threshold(mass: NDArray[np.float64], log_ratio: float) -> float:
    """log t(r) from the Q-probabilities of L = -r … r."""
    flips = len(mass) // 2
    value = np.arange(-flips, flips + 1)[::-1]
    falling = mass[::-1]
    before = np.concatenate([[0.0], np.cumsum(falling)[:-1]])
    taken = np.clip(0.5 * (1 - _SAFE) - before, 0, falling)
    some = taken > 0
    logs = np.log(taken[some]) - value[some] * log_ratio
    top = logs.max()
    return float(top + math.log(np.exp(logs - top).sum())) - _SAFE * (1 + abs(float(top)))


def linear_radius(alpha: NDArray[np.float64], labels: NDArray[np.int64], num_classes: int) -> tuple[int, int]:
    """The answer of the scores sum over i of alpha_i [y_i = c], alpha [n], and how many label flips it withstands, without any
    noise; exact.

    Flipping label i moves the lead of the answer c over a rival j by at most g_i: 2 |alpha_i| from c to j if alpha_i > 0, and
    from j to c if alpha_i < 0; nothing the other way round; |alpha_i| if y_i is neither. So j wins or draws level with r flips if
    and only if the r largest g_i reach the lead. -1: a draw without any.

    >>> linear_radius(np.array([1.0, 1.0, 1.0, 0.5]), np.array([0, 0, 0, 1]), 2)
    (0, 1)
    """
    sums = np.bincount(labels, alpha, num_classes)
    answer, size = int(sums.argmax()), np.abs(alpha)
    own, radius = labels == answer, len(alpha)
    for rival in set(range(num_classes)) - {answer}:
        theirs = labels == rival
        gain = np.where(own, 2 * size * (alpha > 0), np.where(theirs, 2 * size * (alpha < 0), size))
        lead = (sums[answer] - sums[rival]) * (1 - _SAFE) - _SAFE * float(size.sum())
        reached = np.cumsum(np.sort(gain)[::-1]) >= lead
        needed = 0 if lead <= 0 else int(reached.argmax()) + 1 if reached.any() else len(alpha) + 1
        radius = min(radius, needed - 1)
    return answer, radius
