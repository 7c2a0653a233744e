"""Exact band and block certificates against plain loops over pixels, places and votes."""

import itertools
import math

import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.exact import Ballots
from vauban.laws.patches import positions
from vauban.laws.patches.exact import BOUNDS, ExactBandLaw, ExactBlockLaw, ExactPatchLaw

Pixels = set[tuple[int, int]]


def slow_views(there: ExactPatchLaw) -> list[Pixels]:
    """The pixels that each view keeps, from the definition."""
    height, width, size, step = there.height, there.width, there.size, there.stride
    if isinstance(there, ExactBandLaw):
        along = width if there.axis == "column" else height
        rest = height if there.axis == "column" else width
        across, spans = [0], (size, rest)
    else:
        along, across, spans = width, list(range(0, height, step)), (size, size)
    if there.count > 1:
        step = size
        across = across if isinstance(there, ExactBandLaw) else list(range(0, height, size))
    regions = []
    for first, second in itertools.product(across, range(0, along, step)):
        pixels = set()
        for i, j in itertools.product(range(spans[1]), range(spans[0])):
            row, column = first + i, second + j
            if isinstance(there, ExactBandLaw) and there.axis == "row":
                row, column = column, row
            if there.count == 1:
                row, column = row % height, column % width
            if row < height and column < width:
                pixels.add((row, column))
        regions.append(pixels)
    return [set().union(*some) for some in itertools.combinations(regions, there.count)]


def slow_touched(there: ExactPatchLaw, patch: tuple[int, int]) -> list[list[bool]]:
    h, w = min(patch[0], there.height), min(patch[1], there.width)
    kept = slow_views(there)
    return [
        [any((i, j) in view for i in range(top, top + h) for j in range(left, left + w)) for view in kept]
        for top in range(there.height - h + 1)
        for left in range(there.width - w + 1)
    ]


def slow_stands(there: ExactPatchLaw, votes, label: int, k: int, patch: tuple[int, int], touched=None) -> bool:
    """Place by place, with Python's integers; `votes` is a list of sets of classes, one per view."""
    classes = range(4)
    for row in touched or slow_touched(there, patch):
        left = [sum(c in vote for vote, hit in zip(votes, row, strict=True) if not hit) for c in classes]
        need = sorted(max(0, left[label] + (j > label) - left[j]) for j in classes if j != label)
        if (need[k - 1] if there.sets else sum(need[:k])) <= sum(row):
            return False
    return True


@st.composite
def laws(draw, sets: bool | None = None) -> ExactPatchLaw:
    height, width = draw(st.integers(1, 6)), draw(st.sampled_from([7, 6, 5, 4, 3, 2, 1]))
    kind = draw(st.sampled_from(["column", "row", "block"]))
    room = {"column": width, "row": height, "block": min(height, width)}[kind]
    size = draw(st.integers(1, room))
    cells = {"column": math.ceil(width / size), "row": math.ceil(height / size)}.get(
        kind, math.ceil(height / size) * math.ceil(width / size)
    )
    count = draw(st.integers(1, min(3, cells))) if cells <= 9 else 1
    stride = draw(st.integers(1, 4)) if count == 1 else 1
    threshold = 0.3 if (draw(st.booleans()) if sets is None else sets) else None
    common = {"stride": stride, "count": count, "threshold": threshold, "height": height, "width": width}
    return ExactBlockLaw(size, **common) if kind == "block" else ExactBandLaw(size, axis=kind, **common)


def cast(there: ExactPatchLaw, seed: int, m: int, classes: int = 4) -> tuple[Ballots, np.ndarray, list]:
    """Random ballots that lean to a label, those labels, and the same votes as sets."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, m)
    lean = rng.choice([0.2, 0.7, 0.95, 1.0], size=(m, 1))
    votes = np.where(rng.random((m, there.views)) < lean, labels[:, None], rng.integers(0, classes, (m, there.views)))
    if not there.sets:
        return Ballots(votes, classes), labels, [[{int(c)} for c in row] for row in votes]
    sets = votes[:, :, None] == np.arange(classes)
    sets ^= rng.random(sets.shape) < 0.5 * (1 - lean[:, :, None])
    return Ballots(sets, classes), labels, [[set(np.flatnonzero(v).tolist()) for v in row] for row in sets]


@examples(300)
@given(laws(), st.integers(0, 8), st.integers(0, 8))
def test_touched_views_are_those_whose_pixels_a_patch_covers(there, h, w) -> None:
    slow = slow_touched(there, (h, w))
    touched = there.touched((h, w))
    assert touched.tolist() == slow
    assert touched.shape[1] == there.views == len(slow_views(there))
    assert there.most_touched((h, w)) == max(sum(row) for row in slow)
    assert there.touched((1, 1), corners=[[0, 0], [there.height - 1, 0]]).tolist() == [
        slow_touched(there, (1, 1))[0],
        slow_touched(there, (1, 1))[(there.height - 1) * there.width],
    ]


@pytest.mark.parametrize(("stride", "count"), [(10, 6), (5, 11)])
def test_the_counts_that_published_code_gets_wrong(stride, count) -> None:
    """Width 224, patch 32, band 19: ceil((m + s - 1) / stride) is 5 and 10."""
    kept = [{(start + i) % 224 for i in range(19)} for start in range(0, 224, stride)]
    slow = max(sum(bool(set(range(p, p + 32)) & band) for band in kept) for p in range(224 - 32 + 1))
    there = ExactBandLaw(19, stride=stride).for_shape((3, 224, 224))
    assert there.most_touched((32, 32)) == slow == count > math.ceil((32 + 19 - 1) / stride)
    assert there.touched((32, 32)).sum(axis=1).max() == count


def test_bands_of_a_grid_that_are_cut_off_are_touched_as_the_thesis_counts() -> None:
    """Section E.4: at most ceil((m - 1) / s) + 1 of them, which wrapping ones exceed where s does not divide the width."""
    for width, size, m in itertools.product(range(2, 15), range(1, 8), range(1, 15)):
        if size <= width and m <= width and math.ceil(width / size) >= 2:
            there = ExactBandLaw(size, count=2).for_shape((1, 1, width))
            cells = math.ceil(width / size)
            most = min(math.ceil((m - 1) / size) + 1, cells)
            assert there.most_touched((1, m)) <= math.comb(cells, 2) - math.comb(cells - most, 2)
    five = ExactBlockLaw(4, count=3).for_shape((1, 28, 28))
    assert (five.views, five.most_touched((5, 5))) == (18424, 18424 - math.comb(45, 3))
    assert ExactBandLaw(4, stride=4).for_shape((1, 5, 5)).most_touched((1, 1)) == 2


@examples(300)
@given(laws(), st.integers(1, 3), st.integers(0, 2**31))
def test_certificates_are_those_of_plain_loops(there, k, seed) -> None:
    m = 10
    ballots, labels, votes = cast(there, seed, m)
    longest = max(there.height, there.width)
    places = [slow_touched(there, (side, side)) for side in range(longest + 1)]
    found = there.radius(ballots, labels, k)
    for i in range(m):
        stand = [slow_stands(there, votes[i], int(labels[i]), k, (s, s), places[s]) for s in range(longest + 1)]
        assert stand == sorted(stand, reverse=True)
        assert sum(stand) - 1 == np.nan_to_num(found[i], nan=-1)
    for patch in ((0, 3), (1, 4), (3, 1), (2, 9)):
        slow = [slow_stands(there, votes[i], int(labels[i]), k, patch) for i in range(m)]
        assert there.stands(ballots, labels, k, patch=patch).tolist() == slow


@examples(300)
@given(laws(), st.integers(1, 3), st.integers(0, 2**31))
def test_the_places_prove_at_least_what_the_margin_does(there, k, seed) -> None:
    ballots, labels, _ = cast(there, seed, 30)
    radii = there.radii(ballots, labels, k)
    assert set(radii) == set(BOUNDS)
    assert np.array_equal(np.isnan(radii["position"]), np.isnan(radii["margin"]))
    assert (np.nan_to_num(radii["position"], nan=-1) >= np.nan_to_num(radii["margin"], nan=-1)).all()
    margin = law(str(there.spec) + ",bound=margin")
    assert np.array_equal(margin.radius(ballots, labels, k), radii["margin"], equal_nan=True)
    assert np.array_equal(margin.radius_of_counts(ballots.counts, labels, k), radii["margin"], equal_nan=True)
    for patch in ((2, 2), (1, 5), (4, 2)):
        by_margin, by_place = (kind.stands(ballots, labels, k, patch=patch) for kind in (margin, there))
        assert (by_place >= by_margin).all()
        in_top = ~np.isnan(radii["position"])
        assert np.array_equal(
            by_margin, in_top & (tolerated_by_definition(there, ballots, labels, k) >= there.most_touched(patch))
        )


def tolerated_by_definition(there: ExactPatchLaw, ballots: Ballots, labels: np.ndarray, k: int) -> np.ndarray:
    """The largest T such that the label, T votes poorer, cannot be passed by k rivals with T votes to give."""
    answers = []
    for counts, label in zip(ballots.counts.tolist(), labels.tolist(), strict=True):
        best = -1
        for changed in range(there.views + 1):
            kept = max(counts[label] - changed, 0)
            need = sorted(max(0, kept + (j > label) - n) for j, n in enumerate(counts) if j != label)
            if (need[k - 1] if there.sets else sum(need[:k])) <= changed:
                break
            best = changed
        answers.append(best)
    return np.array(answers)


def test_at_top_one_the_margin_is_the_papers() -> None:
    """[Levine2023] Theorem 6.2: n_c >= max(n_j + [c > j]) + 2 (m + s - 1), ties and all."""
    for sets in (False, True):
        there = ExactBandLaw(2, bound="margin", threshold=0.3 if sets else None).for_shape((1, 12, 12))
        for counts in itertools.product(range(13), repeat=3):
            if not sets and sum(counts) != 12:
                continue
            for label in range(3):
                rival = max(n + (label > j) for j, n in enumerate(counts) if j != label)
                sides = [m for m in range(13) if counts[label] >= rival + 2 * (min(m + 1, 12) if m else 0)]
                found = there.radius_of_counts([counts], [label])[0]
                assert found == max(sides) if sides else np.isnan(found)


def test_the_places_can_prove_more() -> None:
    """Four rival votes of twelve: every patch of three covers one of them where they are spread, and loses it."""
    there = ExactBandLaw(1).for_shape((1, 12, 12))
    votes = np.array([[1] * 4 + [0] * 8])
    assert there.radii(Ballots(votes, 2), [0])["margin"] == [2]
    mixed = np.array([[1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0]])
    radii = there.radii(Ballots(mixed, 2), [0])
    assert (radii["margin"], radii["position"]) == ([2], [3])


@pytest.mark.slow
def test_memory_is_bounded_and_changes_nothing(monkeypatch) -> None:
    kinds = [
        ExactBlockLaw(3),
        ExactBlockLaw(2, count=2),
        ExactBandLaw(2, threshold=0.2),
        ExactBlockLaw(2, threshold=0.3),
    ]
    for kind, k in itertools.product(kinds, (1, 2)):
        there = kind.for_shape((1, 7, 8))
        ballots, labels, _ = cast(there, 3, 300)
        patches = list(itertools.product(range(5), repeat=2))
        whole = [there.stands(ballots, labels, k, patch=patch) for patch in patches]
        for room in (100, 1000, 5000):
            with monkeypatch.context() as patched:
                patched.setattr(positions, "_CHUNK", room)
                parts = [there.stands(ballots, labels, k, patch=patch) for patch in patches]
            assert np.array_equal(parts, whole)
        assert 0 < np.mean(whole) < 1


@pytest.mark.slow
def test_many_votes_are_counted_exactly() -> None:
    """A lead of one vote among 810,000 decides."""
    there = ExactBlockLaw(1).for_shape((1, 900, 900))
    assert there.views == 810_000
    votes = np.zeros((2, there.views), dtype=np.uint8)
    votes[0, : there.views // 2] = 1  # a tie, which the smaller index wins
    votes[1, : there.views // 2 + 1] = 1
    ballots = Ballots(votes, 2)
    assert there.stands(ballots, [0, 0], patch=(0, 0)).tolist() == [True, False]
    votes[0, : there.views // 2 - 9] = 1
    votes[0, there.views // 2 - 9 :] = 0
    assert [bool(there.stands(Ballots(votes[:1], 2), [0], patch=(s, s))[0]) for s in (3, 4)] == [True, False]


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_the_largest_radius_is_that_of_views_that_agree(threshold) -> None:
    band = ExactBandLaw(4, threshold=threshold).for_shape((3, 32, 32))
    assert band.largest_radius(1, 10) == 13  # 32 - (m + 3) + 1 > m + 3
    assert band.largest_radius(3, 10) == (13 if threshold else 21)  # 3 (32 - (m + 3) + 1) > m + 3
    assert ExactBandLaw(4, bound="margin", threshold=threshold).for_shape((3, 32, 32)).largest_radius(1, 10) == 13
    rng = np.random.default_rng(0)
    some = rng.random((200, 32, 10)) < 0.1 if threshold else rng.integers(0, 2, (200, 32))
    found = band.radius(Ballots(some, 10), np.zeros(200, dtype=int))
    assert np.nanmax(found) <= 13


def test_pictures_that_are_not_square() -> None:
    """A square taller than the picture is cut off there: it is a band of columns from edge to edge."""
    there = ExactBandLaw(1).for_shape((1, 2, 9))
    ballots = Ballots(np.zeros((1, 9), dtype=int), 2)
    assert there.radius(ballots, [0]) == [4]
    assert there.stands(ballots, [0], patch=(50, 4)).all()
    assert not there.stands(ballots, [0], patch=(1, 5)).any()
    rows = ExactBandLaw(1, axis="row").for_shape((1, 9, 2))
    assert rows.radius(ballots, [0]) == [4]


def test_text_forms() -> None:
    assert law("band:size=4") == law("band:size=4,sampled=false") == ExactBandLaw(4)
    assert law("block:size=4,count=2,threshold=0.3") == ExactBlockLaw(4, count=2, threshold=0.3)
    there = law("band:size=4,axis=row,stride=2,bound=margin").for_shape((3, 32, 30))
    assert str(there.spec) == "band:size=4,stride=2,bound=margin,height=32,width=30,axis=row"
    assert law(there.spec) == there
    assert (there.exact, there.views, there.threat.name, there.threat.ball) == (True, 16, "patch", "closed")
    plain, other = law("band:size=4"), law("band:size=4,bound=margin")
    assert plain.same_views(other)
    assert not plain.same_views(law("band:size=4,threshold=0.3"))
    assert not plain.same_views(law("band:size=4,sampled=true"))
    assert (plain.counts_suffice, other.counts_suffice) == (False, True)


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ("band:stride=2", "needs size"),
        ("band:size=0", "above zero"),
        ("band:size=4,count=0", "above zero"),
        ("band:size=4,levels=0", "above zero"),
        ("band:size=4,axis=diagonal", "column, row"),
        ("block:size=4,axis=row", "no parameter 'axis'"),
        ("block:size=4,bound=best", "margin, position"),
        ("block:size=4,threshold=0", "at most 1"),
        ("block:size=4,threshold=1.5", "at most 1"),
        ("block:size=4,threshold=nan", "at most 1"),
        ("block:size=4,count=2,stride=2", "leave the stride out"),
        ("block:size=9,height=8,width=12", "must fit"),
        ("block:size=4,count=3,height=4,width=8", "only 2 blocks"),
        ("block:size=4,count=9,height=28,width=28", "2,054,455,634 views"),
        ("block:size=4,height=1001,width=1000", "1,001,000 views"),
        ("band:size=4,height=99999999999999999999,width=99999999999999999999", r"10\^15 views"),
    ],
)
def test_wrong_texts_are_answered(wrong, answer) -> None:
    with pytest.raises(BadInput, match=answer):
        law(wrong)


def test_wrong_votes_are_refused() -> None:
    band = ExactBandLaw(2).for_shape((1, 5, 6))
    votes = np.zeros((3, 6), dtype=int)
    good = Ballots(votes, 4)
    with pytest.raises(BadInput, match="height=32,width=32"):
        _ = ExactBandLaw(2).views
    with pytest.raises(BadInput, match="or write bound=margin"):
        band.radius_of_counts([[6, 0, 0, 0]], [0])
    margin = ExactBandLaw(2, bound="margin").for_shape((1, 5, 6))
    with pytest.raises(BadInput, match="row 0 holds 5 votes"):
        margin.radius_of_counts([[5, 0, 0, 0]], [0])
    several = ExactBandLaw(2, bound="margin", threshold=0.5).for_shape((1, 5, 6))
    assert several.radius_of_counts([[6, 0, 0, 2]], [0]) == [1]
    with pytest.raises(BadInput, match="row 1 gives a class more votes than the 6 views"):
        several.radius_of_counts([[6, 0, 0, 2], [7, 0, 0, 0]], [0, 0])
    with pytest.raises(BadInput, match="give the threshold"):
        band.radius(Ballots(votes[:, :, None] == np.arange(4), 4), [0, 0, 0])
    with pytest.raises(BadInput, match="give the threshold"):
        several.radius(good, [0, 0, 0])
    for kwargs, answer in [
        ({"ballots": Ballots(votes[:, :5], 4)}, "ballots of 5 views"),
        ({"k": 4}, "k=4 of 4 classes"),
        ({"k": 0}, "k=0 of 4 classes"),
        ({"labels": [0, 0]}, "labels of shape"),
        ({"labels": [0, 0, 4]}, r"label 4 of input 2 is outside the classes 0\.\.3"),
        ({"labels": [0, -1, 0]}, "label -1 of input 1 is outside"),
        ({"ballots": Ballots(votes + 4, 4)}, "a vote is outside"),
        ({"patch": (-1, 2)}, "-1 x 2"),
        ({"patch": (2, 2.5)}, "whole numbers of pixels"),
    ]:
        given_ = {"ballots": good, "labels": [0, 0, 0], "k": 1, "patch": (2, 2), **kwargs}
        with pytest.raises(BadInput, match=answer):
            band.stands(**given_)
