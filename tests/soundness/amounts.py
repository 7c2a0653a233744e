"""How much of a test `make test` runs; `make test-slow` runs the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings


def some_slow(values: Iterable[Any], quick: Collection[int]) -> list[Any]:
    """Values of a parameter; those whose number is not in `quick` are slow tests."""
    return [value if i in quick else pytest.param(value, marks=pytest.mark.slow) for i, value in enumerate(values)]


def few_then_all(few: Any, every: Any) -> list[Any]:
    """A number of cases, or a choice of worlds: `few` of them in every run of the tests, and `every` one as a slow test."""
    return [few, pytest.param(every, marks=pytest.mark.slow)]


def examples(count: int) -> settings:
    """So many examples of a property with the profile "thorough", which `make test-slow` takes, a quarter of them otherwise."""
    thorough = settings.get_current_profile_name() == "thorough"
    return settings(max_examples=count if thorough else max(count // 4, 25), deadline=None)
