"""BinoCP, SimuEM and half: which alpha each bound gets, which rivals count, and how sums are capped."""

from __future__ import annotations

import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.bounds.clopper_pearson import lower_bound, upper_bound
from vauban.bounds.simultaneous import ProbabilityBounds, checked_counts, probability_bounds
from vauban.errors import BadInput

ALPHA = 0.01


@st.composite
def tallies(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Counts [m, c] with equal row sums, labels [m], and k; ties and zeros are common."""
    classes = draw(st.integers(2, 6))
    n = draw(st.sampled_from([1, 5, 30, 1_000]))
    rows = draw(st.integers(1, 4))
    cuts = [sorted(draw(st.lists(st.integers(0, n), min_size=classes - 1, max_size=classes - 1))) for _ in range(rows)]
    counts = np.diff(np.array([[0, *row, n] for row in cuts]), axis=1)
    labels = np.array([draw(st.integers(0, classes - 1)) for _ in range(rows)])
    return counts, labels, draw(st.integers(1, classes - 1))


def slow_bounds(counts: list[int], label: int, k: int, for_label: float, for_rival: float) -> tuple[float, list[float]]:
    """One row, class by class: the label's lower bound and the k largest upper bounds of the others, ascending."""
    n = sum(counts)
    rivals = sorted(float(upper_bound(votes, n, for_rival)) for i, votes in enumerate(counts) if i != label)
    return float(lower_bound(counts[label], n, for_label)), rivals[-k:]


@pytest.mark.parametrize("method", ["simuem", "half"])
@examples(150)
@given(table=tallies())
def test_each_class_gets_its_share_of_alpha(method: str, table: tuple[np.ndarray, np.ndarray, int]) -> None:
    counts, labels, k = table
    classes = counts.shape[1]
    shares = {"simuem": (ALPHA / classes, ALPHA / classes), "half": (ALPHA / 2, ALPHA / 2 / (classes - 1))}[method]
    bounds = probability_bounds(counts, labels, k=k, alpha=ALPHA, method=method)
    for row, label, p_label, p_rivals in zip(counts.tolist(), labels, bounds.label, bounds.rivals, strict=True):
        slow_label, slow_rivals = slow_bounds(row, label, k, *shares)
        assert p_label == slow_label
        assert p_rivals == pytest.approx(slow_rivals, rel=1e-13)


@examples(100)
@given(table=tallies())
def test_binocp_spends_all_alpha_on_the_label(table: tuple[np.ndarray, np.ndarray, int]) -> None:
    counts, labels, k = table
    bounds = probability_bounds(counts, labels, k=k, alpha=ALPHA, method="binocp")
    for row, label, p_label, p_rivals in zip(counts.tolist(), labels, bounds.label, bounds.rivals, strict=True):
        assert p_label == lower_bound(row[label], sum(row), ALPHA)
        assert p_rivals.tolist() == [1 - p_label] * k
    assert np.array_equal(bounds.sums(), bounds.rivals)


def test_the_shares_by_hand() -> None:
    counts = [[60, 25, 10, 5]]
    label, rivals = lambda share: lower_bound(60, 100, share), lambda share: upper_bound([10, 25], 100, share)
    got = {m: probability_bounds(counts, [0], k=2, alpha=0.04, method=m) for m in ("binocp", "simuem", "half")}
    assert got["binocp"].label == label(0.04)
    assert got["simuem"].label == label(0.01)
    assert got["half"].label == label(0.02)
    assert got["simuem"].rivals[0] == pytest.approx(rivals(0.01), rel=1e-13)
    assert got["half"].rivals[0] == pytest.approx(rivals(0.04 / 6), rel=1e-13)


@pytest.mark.parametrize("method", ["binocp", "simuem", "half"])
@examples(60)
@given(table=tallies())
def test_sums_grow_by_rival_and_stop_at_what_the_label_leaves(
    method: str, table: tuple[np.ndarray, np.ndarray, int]
) -> None:
    counts, labels, k = table
    bounds = probability_bounds(counts, labels, k=k, alpha=ALPHA, method=method)
    sums = bounds.sums()
    assert sums.shape == bounds.rivals.shape == (len(counts), k)
    for p_label, rivals, got in zip(bounds.label, bounds.rivals, sums, strict=True):
        expected = [min(sum(rivals[:t]), 1 - p_label) for t in range(1, k + 1)]
        assert got == pytest.approx(expected, rel=1e-14)


def test_both_sides_of_the_cap_occur() -> None:
    sums = ProbabilityBounds(np.array([0.5, 0.5]), np.array([[0.1, 0.2, 0.6], [0.01, 0.02, 0.03]])).sums()
    assert sums[0].tolist() == pytest.approx([0.1, 0.3, 0.5])
    assert sums[1].tolist() == pytest.approx([0.01, 0.03, 0.06])


def test_widening_moves_every_bound_outward_and_stays_in_the_unit_interval() -> None:
    bounds = ProbabilityBounds(np.array([0.5, 0.05]), np.array([[0.1, 0.2], [0.4, 0.95]]))
    wide = bounds.widened(0.1)
    assert wide.label.tolist() == pytest.approx([0.4, 0.0])
    assert wide.rivals[0].tolist() == pytest.approx([0.2, 0.3])
    assert wide.rivals[1].tolist() == pytest.approx([0.5, 1.0])
    assert wide.sums()[0].tolist() == pytest.approx([0.2, 0.5])
    assert bounds.widened(0.0) == bounds


def test_an_unknown_method_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="binocp, half, simuem"):
        probability_bounds([[3, 1]], [0], k=1, alpha=ALPHA, method="simucp")


@pytest.mark.parametrize("k", [0, 3, -1])
def test_k_must_leave_a_rival_out(k: int) -> None:
    with pytest.raises(BadInput, match=f"k={k} of 3 classes"):
        probability_bounds([[3, 1, 0]], [0], k=k, alpha=ALPHA)


@pytest.mark.parametrize(
    ("counts", "labels", "message"),
    [
        ([[0.9, 0.1]], [0], "not their averages"),
        ([[float("nan"), 1.0]], [0], "not their averages"),
        ([["3", "1"]], [0], "not their averages"),
        ([3, 1], [0], "a row per input"),
        ([[3]], [0], "two or more"),
        ([[3, 1]], [2], "label 2 of input 0 is outside the classes 0..1"),
        ([[3, 1], [2, 2]], [0, -1], "label -1 of input 1"),
        ([[3, 1]], [0, 1], "one whole number each"),
        ([[3, 1]], [0.0], "one whole number each"),
        ([[5, -1]], [0], "negative"),
        ([[0, 0]], [0], "no votes"),
        (np.zeros((0, 2), dtype=int), np.zeros(0, dtype=int), "no votes"),
        ([[3, 1], [3, 2]], [0, 0], "input 1 has 5 votes where input 0 has 4"),
    ],
)
def test_tallies_that_cannot_be_right_are_refused(counts: object, labels: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        checked_counts(counts, labels)


def test_whole_numbers_in_any_type_are_the_same_tally() -> None:
    for dtype in (np.uint8, np.int32, np.uint64, np.float32, np.float64):
        table, labels, n = checked_counts(np.array([[3, 1], [0, 4]], dtype=dtype), np.array([0, 1], dtype=np.uint8))
        assert table.dtype == labels.dtype == np.int64
        assert table.tolist() == [[3, 1], [0, 4]]
        assert n == 4
