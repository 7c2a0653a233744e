"""A claim about a whole data set, from claims about its inputs that are each wrong with probability at most alpha."""

from __future__ import annotations

import math

from scipy.special import bdtrc

from vauban.specs import choose

METHODS = ("binomial", "bernstein")


def claim_floor(claimed: int, m: int, alpha: float, rho: float, method: str = "binomial") -> float:
    """Lower bound, with confidence 1 - rho, on the fraction of m inputs for which the claim is true.

    `claimed` of the m inputs got the claim, each independently wrong with probability at most `alpha`.
    - "binomial": the number of inputs with any false claim is stochastically at most Binomial(m, alpha), so its 1 - rho
      quantile is subtracted. Holds at every radius simultaneously.
    - "bernstein": [Jia2020] Lemma 11, for the event its proof is about (a false claim is z = 0, Y = 1). Holds at one radius.

    >>> round(500 * (0.9 - claim_floor(450, 500, 0.001, 0.001)))
    4
    """
    choose("method for a data set claim", method, METHODS)
    if method == "binomial" or alpha == 0.0:
        return max(0, claimed - false_claims(m, alpha, rho)) / m
    if 1 - alpha == 0.0:
        return 0.0
    log = math.log(1 / rho)
    slack = alpha + math.sqrt(2 * alpha * (1 - alpha) * log / m) + log / (3 * m)
    return max(0.0, (claimed / m - slack) / (1 - alpha) * (1 - 1e-12))


def false_claims(m: int, alpha: float, rho: float) -> int:
    """Least q with P[Binomial(m, alpha) > q] <= rho: with confidence 1 - rho, at most q claims are false."""
    if alpha == 0.0:
        return 0
    return next(q for q in range(m + 1) if q == m or bdtrc(q, m, alpha) * (1 + 1e-9) <= rho)
