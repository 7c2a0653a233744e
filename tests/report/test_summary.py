"""The radii of a table are few and round, whatever the scale of the noise; inputs without a radius are called what they are."""

import math
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vauban.certificates import derive
from vauban.report.summary import round_numbers, rows


@example(1e30, False)
@example(math.inf, True)
@example(sys.float_info.max, False)
@given(st.floats(0, math.inf), st.booleans())
def test_round_numbers_are_few_ascend_and_reach_the_largest(largest: float, whole: bool) -> None:
    numbers = round_numbers(largest, whole)
    assert numbers[0] == 0
    assert len(numbers) <= 9
    assert all(below < above for below, above in pairwise(numbers))
    assert numbers[-1] <= math.nextafter(largest, math.inf)
    assert all(math.isfinite(number) for number in numbers)
    if largest >= 1:
        assert numbers[-1] >= min(largest, sys.float_info.max) / 2


@pytest.mark.parametrize(
    ("largest", "whole", "shown"),
    [
        (0.0, False, [0]),
        (1.3, False, [0, 0.25, 0.5, 0.75, 1, 1.25]),
        (3.0, True, [0, 1, 2, 3]),
        (2e7, True, [0, 5e6, 1e7, 1.5e7, 2e7]),
        (7.6e29, False, [0, 1e29, 2e29, 3e29, 4e29, 5e29, 6e29, 7e29]),
    ],
)
def test_round_numbers(largest: float, whole: bool, shown: list[float]) -> None:
    assert round_numbers(largest, whole) == shown


def test_an_input_without_a_radius_is_undecided_only_where_votes_chose_labels() -> None:
    certs = derive([[95, 5]] * 138 + [[5, 95]] * 5, [0] * 143, "gaussian:sigma=0.5")
    summary = certs.summary([0.0])
    shown = {name: value for name, value, _ in rows(summary)}
    assert shown["not certified"] == "3.50 %"  # 5 of 143: what is not proven is rounded up
    assert shown["certified at radius 0"] == "96.50 %"
    assert "undecided" in {name for name, *_ in rows(summary | {"labels": "votes"})}
