"""Laws and polls for ways to stop."""

from __future__ import annotations

import numpy as np

from vauban.laws import Law, law
from vauban.laws.gaussian import GaussianLaw

ALPHA = 0.05
GAUSS = GaussianLaw(sigma=0.25)
SHAPE = (3, 32, 32)


def sampled(spec: str) -> Law:
    found = law(spec).for_shape(SHAPE)
    assert isinstance(found, Law)
    return found


def poll(p: float, looks: list[int], trials: int, seed: int = 0) -> np.ndarray:
    """Cumulative wins [trials, J] of a label of probability p."""
    rng = np.random.default_rng(seed)
    return np.cumsum([rng.binomial(m, p, trials) for m in np.diff([0, *looks])], axis=0).T
