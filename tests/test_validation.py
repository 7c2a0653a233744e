"""What a wrong argument is answered: a text is shown as one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.validation import check_alpha, check_n0, check_rho


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (check_alpha, "0.1", "alpha='0.1': a probability strictly between 0 and 1"),
        (check_alpha, True, "alpha=True: a probability"),
        (check_alpha, np.float64(1.5), "alpha=1.5: a probability"),
        (check_alpha, 1e-300, "alpha=1e-300: at least 1e-200"),
        (check_rho, "0.1", "rho='0.1': a probability strictly between 0 and 1"),
        (check_n0, "100", "n0='100': at least one"),
    ],
)
def test_what_was_given_is_shown_as_it_is(check: Callable[[Any], Any], value: Any, said: str) -> None:
    with pytest.raises(BadInput, match=f"^{said}"):
        check(value)
