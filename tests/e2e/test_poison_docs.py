"""The Python of docs/poisoning.md runs as it is written, and its numbers are those of the text."""

import re
from pathlib import Path

import pytest

import vauban as vb

PAGE = Path(__file__).parents[2] / "docs" / "poisoning.md"


def test_the_ten_lines_for_a_table_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, "poisoning.md", "exec"), names := {})
    certs, run = names["certs"], vb.Run.open("runs/cancer")
    assert run.verify().inputs == len(certs) == 143
    assert certs.clean_accuracy > 0.9
    assert certs.median_radius > 5
    assert run.collective(5).kept >= run.collective(5).claimed - run.collective(5).one_by_one
    assert run.collective(5).proof in ("weights", "one by one")
