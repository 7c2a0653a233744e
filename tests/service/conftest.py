"""Waits of the tests of the service are short."""

import pytest

from vauban.client import RemoteBatch


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a batch looks 50 times a second, not twice: a batch of a test takes a tenth of one."""
    monkeypatch.setattr(RemoteBatch.wait, "__defaults__", (None, 0.02))
