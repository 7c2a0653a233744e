"""The exact sparse law: every pixel has one home, and a radius counts pixels."""

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.sparse import SparseLaw
from vauban.threats import L0, L0_FEATURES


@pytest.mark.parametrize("layout", ["random", "lattice"])
def test_homes_are_shared_out_evenly(layout: str) -> None:
    homes = SparseLaw(7, layout=layout).view_of_feature((3, 5, 6))
    assert homes.shape == (3, 5, 6)
    assert (homes == homes[:1]).all()
    sizes = np.bincount(homes[0].ravel(), minlength=7)
    assert sizes.sum() == 30
    assert set(sizes) <= {4, 5}
    assert len({int(h) for h in SparseLaw(7, layout=layout).view_of_feature((1, 28, 28))[0, 0]}) > 3


@pytest.mark.parametrize("layout", ["random", "lattice"])
def test_features_have_homes_of_their_own(layout: str) -> None:
    homes = SparseLaw(10, unit="feature", layout=layout).view_of_feature((3, 4, 5))
    assert np.bincount(homes.ravel(), minlength=10).tolist() == [6] * 10
    assert (homes[0] != homes[1]).any()


def test_radii_are_whole_pixels() -> None:
    noise = SparseLaw(25)
    assert noise.radius_of_counts([[20, 5], [13, 12], [12, 13]], [0, 0, 1]).tolist() == [7, 0, 0]
    assert noise.largest_radius(1, 10) == 12
    assert noise.threat == L0
    assert SparseLaw(25, unit="feature").threat == L0_FEATURES


def test_other_seeds_share_out_otherwise() -> None:
    assert law("sparse:scale=9").views_hash((1, 8, 8)) == law("sparse:scale=9").views_hash((1, 8, 8))
    assert law("sparse:scale=9").views_hash((1, 8, 8)) != law("sparse:scale=9,offsets=2").views_hash((1, 8, 8))


@pytest.mark.parametrize(
    "wrong",
    [
        "sparse",
        "sparse:scale=0",
        "sparse:scale=2.5",
        "sparse:scale=5,unit=patch",
        "sparse:scal=5",
        "sparse:scale=5,sampled=true",
    ],
)
def test_refused(wrong: str) -> None:
    with pytest.raises(BadInput):
        law(wrong)
