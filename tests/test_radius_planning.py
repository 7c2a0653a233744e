"""Plans for a radius agree with what counts certify, and the least noise level is the least."""

import math

import numpy as np
import pytest
from scipy.stats import beta, norm

from vauban.errors import BadInput
from vauban.laws import sampled_law
from vauban.laws.from_counts import radii_of_counts
from vauban.radius_planning import plan_radius


@pytest.mark.parametrize(
    ("smoothing", "radius"),
    [
        ("gaussian", 0.5),
        pytest.param("laplace", 1.0, marks=pytest.mark.slow),
        ("uniform", 0.3),
        ("ablation:retained=45", 3),
    ],
)
@pytest.mark.parametrize("k", [1, 3])
def test_the_wins_of_a_plan_certify_the_radius_and_one_less_does_not(smoothing: str, radius: float, k: int) -> None:
    plan = plan_radius(radius, smoothing, n=500, k=k, alpha=0.01)
    for need in (*plan.levels, *plan.votes[:2]):
        law = sampled_law(need.smoothing).for_shape((1, 28, 28))
        wins = [need.wins, need.wins - 1]
        counts = np.array([[won, need.n - won, 0, 0] for won in wins])
        settings = {"k": k, "alpha": 0.01, "bounds": "binocp", "deviation": law.deviation((1, 28, 28), 255)}
        enough, short = radii_of_counts(counts, np.zeros(2, dtype=np.int64), law, **settings)
        assert enough >= radius
        assert not short >= radius


def test_the_least_sigma_of_a_gaussian_is_the_papers() -> None:
    for n in (100, 10_000):
        least = plan_radius(0.5, n=n).levels[0]
        exact = 0.5 / norm.ppf(beta.ppf(0.001, n, 1))
        assert exact <= float(least.smoothing.removeprefix("gaussian:sigma=")) <= exact * 1.001
        assert least.largest_radius >= 0.5


def test_a_radius_out_of_reach_is_said() -> None:
    plan = plan_radius(2.0, "gaussian:sigma=0.25", n=10_000)
    assert plan.levels[0].wins is None
    assert plan.levels[0].largest_radius < 2.0
    beyond = plan_radius(2.0, "uniform:sigma=0.5", n=10_000)
    assert math.isnan(beyond.levels[0].probability)
    assert beyond.to_json()["levels"][0]["probability"] is None
    with pytest.raises(BadInput, match="at no noise level"):
        plan_radius(0.5, n=5)
    with pytest.raises(BadInput, match="a finite number above zero is needed"):
        plan_radius(-1.0)
    with pytest.raises(BadInput, match="alpha=0: a probability strictly between 0 and 1 is needed"):
        plan_radius(0.5, alpha=0)
    with pytest.raises(BadInput, match="needs sigma=3.127e.08 or more, .* give a smaller radius"):
        plan_radius(1e9)
