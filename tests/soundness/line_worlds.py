"""Classifiers of the line whose probabilities under Gaussian noise are known in closed form, the worst ones included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LineClassifier:
    """Class `labels[i]` between `cuts[i - 1]` and `cuts[i]`, in units of sigma from the input."""

    cuts: Floats
    labels: NDArray[np.int64]

    def probabilities(self, shift: float) -> Floats:
        """The smoothed classifier's probabilities at the input moved by `shift` sigmas."""
        edges = np.concatenate([[-np.inf], self.cuts, [np.inf]]) - shift
        return np.bincount(self.labels, weights=interval_mass(edges[:-1], edges[1:]))


def interval_mass(low: Floats, high: Floats) -> Floats:
    """P[low < Z < high] for a standard normal Z, by the tail that is nearer."""
    return np.where(low + high > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def in_top_k(p: Floats, label: int, k: int) -> bool:
    """Whether fewer than k other classes reach the label's probability."""
    return int((np.delete(p, label) >= p[label]).sum()) < k


def true_shift(p: Sequence[float], label: int, k: int) -> float:
    """The largest shift, in sigmas, that a classifier with these probabilities is sure to survive; below 0 if none.

    [Jia2020] Theorem 1 and 2 with the true probabilities: the best over t of a scalar root. Independent of Vauban.
    """
    rivals = sorted(q for i, q in enumerate(p) if i != label)[-k:]
    z_label = ndtri(p[label])
    roots = []
    for t in range(1, k + 1):
        z = ndtri(min(sum(rivals[:t]), 1 - p[label]))
        roots.append(brentq(lambda s, z=z, t=t: t * ndtr(z_label - s) - ndtr(z + s), -60, 60, xtol=1e-14))
    return float(max(roots))


def worst_classifier(p_label: float, rivals: Sequence[float], shift: float) -> LineClassifier:
    """The classifier that treats label 0 worst when the input moves by `shift` sigmas. [Jia2020] Lemma 4

    Label 0 holds the half-line behind; rivals 1..k, ascending, lie in the half-line ahead of mass sum(rivals); what is
    left goes to classes no larger than the smallest rival. Places are measured by q, the probability of what lies farther
    ahead; the shift makes q weigh U(q) = Phi(Phi^-1(q) + shift). Where t minimises the mean U(p_St) / t, the t smallest
    rivals share the mass ahead of q = p_St and the others what follows. Each, the largest first, takes the stretch of what
    is still free that the shift makes weigh exactly that mean or, where even the last stretch weighs more, that one.
    """
    ends = np.cumsum(rivals)
    means = ndtr(ndtri(ends) + shift) / np.arange(1, len(rivals) + 1)
    sharing = int(means.argmin()) + 1
    pieces: list[tuple[float, float, int]] = []
    for first, last in ((0, sharing), (sharing, len(rivals))):
        if first < last:
            start = 0.0 if first == 0 else float(ends[first - 1])
            sizes = {j + 1: float(rivals[j]) for j in range(first, last)}
            pieces += _share((start, float(ends[last - 1])), sizes, float(means.min()), shift)
    pieces += _rest(float(ends[-1]), 1 - p_label, float(rivals[0]), len(rivals) + 1)
    pieces = sorted([*pieces, (1 - p_label, 1.0, 0)], reverse=True)
    return LineClassifier(-ndtri([piece[0] for piece in pieces[:-1]]), np.array([piece[2] for piece in pieces]))


def _share(
    stretch: tuple[float, float], sizes: dict[int, float], weight: float, shift: float
) -> list[tuple[float, float, int]]:
    """Cut a stretch of q into the given sizes, the largest first, each of that weight after the shift if possible."""
    free = [stretch]
    taken: list[tuple[float, float, int]] = []
    *larger, (smallest, _) = sorted(sizes.items(), key=lambda item: -item[1])
    for label, size in larger:
        room = sum(b - a for a, b in free) - size

        def surplus(skip: float, free: list = free, size: float = size) -> float:
            return (
                sum(float(ndtr(ndtri(b) + shift) - ndtr(ndtri(a) + shift)) for a, b in _take(free, skip, size)) - weight
            )

        assert surplus(0.0) > -1e-12, "Lemma 4 promises a stretch that weighs enough"
        skip = room if surplus(room) >= 0 else 0.0 if surplus(0.0) <= 0 else brentq(surplus, 0.0, room, xtol=1e-16)
        mine = _take(free, skip, size)
        taken += [(a, b, label) for a, b in mine]
        free = _take(free, 0.0, skip) + _take(free, skip + size, room - skip)
    return taken + [(a, b, smallest) for a, b in free]


def _take(free: list[tuple[float, float]], skip: float, size: float) -> list[tuple[float, float]]:
    """The part of the free stretches between `skip` and `skip + size`, counted along what is free."""
    out, seen = [], 0.0
    for a, b in free:
        low, high = max(a, a + skip - seen), min(b, a + skip + size - seen)
        if high > low:
            out.append((low, high))
        seen += b - a
    return out


def _rest(start: float, stop: float, most: float, first_label: int) -> list[tuple[float, float, int]]:
    """What is left of q, in equal parts of at most `most`, a class each."""
    if stop - start < 1e-12:
        return []
    parts = int(np.ceil((stop - start) / most * (1 + 1e-9)))
    edges = np.linspace(start, stop, parts + 1)
    return [(float(a), float(b), first_label + i) for i, (a, b) in enumerate(pairwise(edges))]
