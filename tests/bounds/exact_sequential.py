"""Group-sequential boundaries and crossing probabilities in rational arithmetic, count by count and path by path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product

Mass = dict[int, Fraction]


def binomial(m: int, p: Fraction) -> Mass:
    return {s: math.comb(m, s) * p**s * (1 - p) ** (m - s) for s in range(m + 1)}


def after(mass: Mass, new_votes: int, p: Fraction) -> Mass:
    """The law of the count when so many more votes are cast."""
    out: Mass = {}
    for (s, a), (t, b) in product(mass.items(), binomial(new_votes, p).items()):
        out[s + t] = out.get(s + t, Fraction(0)) + a * b
    return out


def boundaries(p: float, looks: Sequence[int], spends: Sequence[float]) -> tuple[list[int], list[Fraction], bool]:
    """Least counts, the first-crossing probability at each look, and whether any choice was so close that floats may differ."""
    exact, going = Fraction(p), {0: Fraction(1)}
    least, crossed, close = [], [], False
    for j, (before, votes) in enumerate(pairwise((0, *looks))):
        going = after(going, votes - before, exact)
        budget = sum(map(Fraction, spends[: j + 1])) - sum(crossed)
        tail, c = Fraction(0), votes + 1
        while tail + going.get(c - 1, Fraction(0)) <= budget:
            tail += going.pop(c - 1, Fraction(0))
            c -= 1
        close |= abs(tail - budget) < Fraction(1, 10**9) * budget
        least.append(c)
        crossed.append(tail)
    return least, crossed, close


def ever_crosses(p: float, looks: Sequence[int], least: Sequence[int]) -> Fraction:
    """The probability that some look finds its least count or more, by the law of the count."""
    exact, going, total = Fraction(p), {0: Fraction(1)}, Fraction(0)
    for (before, votes), c in zip(pairwise((0, *looks)), least, strict=True):
        going = after(going, votes - before, exact)
        total += sum(mass for s, mass in going.items() if s >= c)
        going = {s: mass for s, mass in going.items() if s < c}
    return total


def ever_crosses_path_by_path(p: float, looks: Sequence[int], least: Sequence[int]) -> tuple[Fraction, int]:
    """The same from every sequence of votes there is, and how many there are."""
    exact, total, paths = Fraction(p), Fraction(0), 0
    for path in product((0, 1), repeat=looks[-1]):
        paths += 1
        if any(sum(path[:votes]) >= c for votes, c in zip(looks, least, strict=True)):
            total += exact ** sum(path) * (1 - exact) ** (len(path) - sum(path))
    return total, paths
