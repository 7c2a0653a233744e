"""The README's Python runs as it is written."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), names := {})
    assert names["run"].verify().votes == 10 * 2_000
    assert names["run"].certificates() == names["certs"]


def test_python_and_command_line_of_the_readme_use_different_run_folders() -> None:
    text = README.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ours = set(re.findall(r"runs/[\w-]+", code))
    theirs = set(re.findall(r"runs/[\w-]+", text.replace(code, "")))
    assert ours
    assert not ours & theirs
