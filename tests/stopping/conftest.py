"""Boundaries are computed once for all tests of ways to stop."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAUBAN_CACHE", str(tmp_path_factory.getbasetemp() / "stopping"))
