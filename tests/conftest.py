"""What tests share: quiet threads, and a tiny classifier whose probabilities are known in closed form."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

os.environ["VAUBAN_CACHE"] = tempfile.mkdtemp(prefix="vauban-cache-")
atexit.register(shutil.rmtree, os.environ["VAUBAN_CACHE"], ignore_errors=True)

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture
def half_spaces() -> Callable[[torch.Tensor], torch.Tensor]:
    """Three classes cut by the mean of a view at 0.25 and 0.75."""

    def model(views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([0.25 - mean, -(mean - 0.5).abs() + 0.25, mean - 0.75], dim=1)

    return model


@pytest.fixture
def cases_tried(record_property: Callable[[str, object], None]) -> Callable[[int], None]:
    """Tell how many cases a brute-force test tried; the number in all is printed at the end."""
    return lambda count: record_property("cases tried", int(count))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("passed")
    tried = sum(count for report in reports for name, count in report.user_properties if name == "cases tried")
    if tried:
        terminalreporter.write_line(f"brute force: {tried:,} cases tried, no violation")
