"""How many kept regions a patch meets, against sets of pixels; the shifts and radii that follow, in fractions."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.patches.regions import Regions, meets, touched_by_side
from vauban.laws.patches.sampled import BandLaw, BlockLaw
from vauban.laws.rounded_noise import BITS
from vauban.laws.topk import radius


def slow_meets(start: int, size: int, length: int, place: int, extent: int) -> bool:
    kept = {(start + i) % length for i in range(size)}
    return bool(kept & set(range(place, place + extent)))


def slow_region(regions: Regions, top: int, left: int) -> set[tuple[int, int]]:
    return {
        ((top + i) % regions.height, (left + j) % regions.width)
        for i in range(regions.rows)
        for j in range(regions.columns)
    }


def slow_most_touched(regions: Regions, side: int) -> int:
    """Pixel sets against pixel sets, at every place of a square, cut off at the picture's edges."""
    height, width = min(side, regions.height), min(side, regions.width)
    kept = [slow_region(regions, t, x) for t in regions.tops.tolist() for x in regions.lefts.tolist()]
    most = 0
    for top, left in itertools.product(range(regions.height - height + 1), range(regions.width - width + 1)):
        patch = set(itertools.product(range(top, top + height), range(left, left + width)))
        most = max(most, sum(bool(patch & region) for region in kept))
    return most


@examples(300)
@given(st.data())
def test_a_run_meets_a_patch_where_their_pixels_do(data) -> None:
    length = data.draw(st.integers(1, 12))
    size, extent = data.draw(st.integers(1, length)), data.draw(st.integers(0, length))
    starts = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=5))
    places = np.arange(length - extent + 1)
    found = meets(starts, size, length, places, extent)
    assert found.shape == (len(places), len(starts))
    assert found.tolist() == [[slow_meets(s, size, length, p, extent) for s in starts] for p in places]


@examples(40)
@given(st.integers(1, 5), st.integers(1, 6), st.data())
def test_counts_of_touched_regions_are_those_of_pixel_sets(height, width, data) -> None:
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    strides = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    regions = Regions(height, width, rows, columns, *strides)
    assert touched_by_side(regions).tolist() == [slow_most_touched(regions, m) for m in range(max(height, width) + 1)]
    patch = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    places = np.array(list(itertools.product(range(height - patch[0] + 1), range(width - patch[1] + 1))))
    touched = regions.touched(places, patch)
    assert touched.shape == (len(places), regions.count) == (len(places), len(regions.positions))
    for row, (top, left) in zip(touched, places, strict=True):
        pixels = set(itertools.product(range(top, top + patch[0]), range(left, left + patch[1])))
        assert row.tolist() == [bool(pixels & slow_region(regions, *p)) for p in regions.positions.tolist()]
    tops, lefts = (axis.sum(axis=1) for axis in regions.touched_by_axis(patch))
    assert touched.sum(axis=1).tolist() == np.multiply.outer(tops, lefts).ravel().tolist()


def test_the_counts_that_published_code_gets_wrong() -> None:
    """Width 224, patch 32, band 19: 6 at stride 10 and 11 at stride 5, where ceil((m + s - 1) / stride) is 5 and 10."""
    for stride, count in ((10, 6), (5, 11)):
        band = BandLaw(19, True, stride).for_shape((3, 224, 224))
        assert band.regions.most_touched((32, 32)) == count > -(-(32 + 19 - 1) // stride)


def test_at_stride_one_the_counts_are_those_of_the_thesis() -> None:
    for size, side in itertools.product((1, 4, 9), (1, 5, 20)):
        band, block = (kind(size, True).for_shape((3, 30, 32)).regions for kind in (BandLaw, BlockLaw))
        assert band.most_touched((side, side)) == min(side + size - 1, 32)
        assert block.most_touched((side, side)) == min(side + size - 1, 30) * min(side + size - 1, 32)
        row = BandLaw(size, True, axis="row").for_shape((3, 30, 32)).regions
        assert row.most_touched((side, side)) == min(side + size - 1, 30)


def test_aligned_bands_that_wrap_can_meet_more_than_the_thesis_counts() -> None:
    """Section E.4 counts at most ceil((m - 1) / s) + 1 of the bands at multiples of s: wrong where s does not divide w."""
    assert BandLaw(4, True, 4).for_shape((1, 5, 5)).regions.most_touched((1, 1)) == 2


@examples(60)
@given(st.data())
def test_radii_are_those_of_exact_fractions(data) -> None:
    height, width = data.draw(st.integers(2, 9)), data.draw(st.integers(2, 9))
    size, stride = data.draw(st.integers(1, min(height, width))), data.draw(st.integers(1, 3))
    kinds = [BandLaw(size, True, stride), BandLaw(size, True, stride, axis="row"), BlockLaw(size, True, stride)]
    there = data.draw(st.sampled_from(kinds)).for_shape((2, height, width))
    n, k = data.draw(st.integers(10, 1000)), data.draw(st.integers(1, 2))
    votes = sorted(data.draw(st.lists(st.integers(0, n), min_size=3, max_size=3)))
    votes = [votes[0], votes[1] - votes[0], votes[2] - votes[1], n - votes[2]]
    label, *rivals = sorted(votes, reverse=True)
    sums = np.minimum(np.cumsum(rivals[:k][::-1]), n - label)
    delta = [Fraction(slow_most_touched(there.regions, m), there.regions.count) for m in range(max(height, width) + 1)]

    def stays(m: int) -> bool:
        most = [min(Fraction(1), Fraction(int(s), n) + delta[m]) / (t + 1) for t, s in enumerate(sums)]
        return max(Fraction(0), Fraction(label, n) - delta[m]) > min(most)

    expected = max((m for m in range(len(delta)) if all(stays(i) for i in range(m + 1))), default=None)
    found = radius(there, [label / n], [sums / n])[0]
    assert (expected is None and np.isnan(found)) or found == expected


def test_shifts_are_safe_and_vectorised() -> None:
    band = BandLaw(3, True).for_shape((1, 7, 7))
    p, r = np.array([0.0, 0.3, 1.0])[:, None], np.arange(8)
    delta = [Fraction(min(m + 2, 7) if m else 0, 7) for m in range(8)]
    for i, j in itertools.product(range(3), range(8)):
        most = min(Fraction(1), Fraction(float(p[i, 0])) + delta[j])
        least = max(Fraction(0), Fraction(float(p[i, 0])) - delta[j])
        assert most * (1 - Fraction(1, 10**15)) <= band.most(p, r)[i, j] <= most * (1 + Fraction(1, 10**14))
        assert least - Fraction(1, 10**14) <= band.least(p, r)[i, j] <= least + Fraction(1, 10**16)
    assert band.most(0.0, 1.5) == band.most(0.0, 2)
    assert band.max_distance == 7


@pytest.mark.parametrize("count", [1, 2, 3, 32, 224, 1024, 50176, 12345])
def test_deviation_of_a_position_is_that_of_the_modulus(count) -> None:
    whole, extra = divmod(2**BITS, count)
    exact = (extra * abs(Fraction(whole + 1, 2**BITS) - Fraction(1, count))) * Fraction(1, 2)
    exact += (count - extra) * abs(Fraction(whole, 2**BITS) - Fraction(1, count)) * Fraction(1, 2)
    found = BandLaw(1, True).deviation((1, 1, count), 255)
    assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**12))


def test_text_forms_and_what_is_refused() -> None:
    assert law("band:size=4,sampled=true") == BandLaw(4, True)
    assert law("block:size=4,sampled=true,height=8,width=9").regions == BlockLaw(4, True).for_shape((3, 8, 9)).regions
    assert str(law("band:size=4,axis=row,sampled=true").spec) == "band:size=4,sampled=true,axis=row"
    assert law("band:size=4,sampled=true").threat.integer
    assert law("band:size=4,sampled=true").threat.ball == "closed"
    for wrong, answer in [
        ("band:size=4,sampled=true,count=2", "count belongs to exact band"),
        ("band:sampled=true", "needs size"),
        ("band:size=0,sampled=true", "above zero"),
        ("band:size=2.5,sampled=true", "cannot be read"),
        ("band:size=4,sampled=true,axis=diagonal", "column, row"),
        ("block:size=4,sampled=true,axis=row", "no parameter 'axis'"),
        ("block:size=4,sampled=true,stride=-1", "above zero"),
        ("block:size=9,sampled=true,height=8,width=12", "must fit"),
        ("band:size=13,sampled=true,height=8,width=12", "must fit"),
    ]:
        with pytest.raises(BadInput, match=answer):
            law(wrong)
    with pytest.raises(BadInput, match="patches.exact has the exact one"):
        BandLaw(4, False)
    with pytest.raises(BadInput, match="whole number"):
        BandLaw(2.5, True)  # type: ignore[arg-type]
    band = BandLaw(4, True)
    with pytest.raises(BadInput, match="height=32,width=32"):
        band.most(0.5, 1)
    with pytest.raises(BadInput, match=r"\[channels, height, width\]"):
        band.for_shape((32, 32))
    with pytest.raises(BadInput, match="must fit"):
        band.for_shape((3, 32, 3))
    with pytest.raises(BadInput, match="leave it out"):
        law("band:size=4,sampled=true,height=8,width=8").for_shape((3, 32, 32))
