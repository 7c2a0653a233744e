"""The exact splitting law: how many views, which radii, what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.splitting import ExactSplittingLaw


@pytest.mark.parametrize("sigma", [0.01, 0.1, 0.25, 0.5, 1.0, 3.5, 7.25])
def test_views_are_the_floor_of_the_width_in_steps(sigma: float) -> None:
    views = ExactSplittingLaw(sigma).views
    width_squared = 12 * Fraction(sigma) ** 2 * 255**2
    assert views**2 <= width_squared < (views + 1) ** 2
    assert views == math.floor(2 * math.sqrt(3) * sigma * 255)


def test_radius_is_half_the_gap_in_steps() -> None:
    noise = ExactSplittingLaw(0.5)
    counts = np.array([[300, 141, 0], [141, 300, 0], [221, 220, 0], [220, 221, 0]])
    radii = noise.radius_of_counts(counts, np.array([0, 1, 0, 1]))
    assert radii.tolist() == [79 / 255, 79 / 255, 0.0, 0.0]
    assert np.isnan(noise.radius_of_counts(counts, np.array([1, 0, 1, 0]))).all()


def test_no_radius_is_beyond_half_the_width() -> None:
    for sigma in (0.2, 1.0, 3.5):
        noise = ExactSplittingLaw(sigma)
        assert noise.largest_radius(1, 10) == noise.views // 2 / 255
        assert noise.threat.ball == "closed"


def test_specs() -> None:
    assert str(law("splitting:sigma=3.5").spec) == "splitting:sigma=3.5"
    assert str(law("splitting:sigma=3.5,offsets=4,levels=7").spec) == "splitting:sigma=3.5,offsets=4,levels=7"
    assert law("splitting:sigma=1").views_hash((1, 4, 4)) != law("splitting:sigma=1,offsets=1").views_hash((1, 4, 4))
    wrong = ["sigma=0.0001", "sigma=-1", "sigma=1,levels=0", "sigma=1,offsets=-1", "sigma=1e6", "sigma=1e300"]
    for text in [*wrong, f"sigma=1,offsets={2**64}"]:
        with pytest.raises(BadInput):
            law(f"splitting:{text}")


@pytest.mark.parametrize(
    "text",
    [
        "splitting:sigma=1,sampled=true,layout=lattice",
        "fractional:p=1/2,scale=18,sampled=true,layout=lattice",
        "band:size=4,sampled=true,threshold=0.3",
    ],
)
def test_what_belongs_to_the_exact_form_is_refused_by_name(text: str) -> None:
    with pytest.raises(
        BadInput, match=r"(layout|threshold) belongs to exact \w+: leave it out, or leave sampled=true out"
    ):
        law(text)
