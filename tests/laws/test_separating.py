"""Subsets that separate any two elements, both ways."""

import numpy as np
import pytest

from vauban.laws.subsets import separating


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 10, 50, 100, 253, 1000])
def test_of_any_two_elements_each_is_replaced_while_the_other_stays(n: int) -> None:
    subsets = separating(n).astype(int)
    replaced_while = subsets.T @ (1 - subsets)  # [j, i]: in how many subsets j is and i is not
    np.fill_diagonal(replaced_while, 1)
    assert (replaced_while > 0).all()


@pytest.mark.parametrize("n", [2, 3, 4, 6, 20])
def test_most_subsets_leave_and_replace_some(n: int) -> None:
    share = separating(n).mean(axis=1)
    assert ((share > 0) & (share < 1)).all()
