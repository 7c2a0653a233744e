"""A small entry as a file of one's own."""

from pathlib import Path

import pytest
from small_entry import ENTRY


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(ENTRY)
    return path
