"""The README is short, its Python runs as it is written, and its commands say what it shows."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vauban

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def shown() -> Iterator[tuple[str, list[str]]]:
    """Every command after a dollar sign, and the lines of output below it."""
    for block in re.findall(r"(?:^    .*\n)+", README.read_text(), re.MULTILINE):
        for command, output in re.findall(r"^    \$ (vauban .*)\n((?:    [^$\n].*\n)*)", block, re.MULTILINE):
            yield command, [" ".join(line.split()) for line in output.splitlines()]


def python(text: str) -> str:
    """All examples in Python, one after another."""
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(python(README.read_text()), "README.md", "exec"), names := {})
    assert names["run"].verify().votes == 10 * 2_000
    assert names["run"].certificates() == names["certs"]
    (said,) = re.findall(r"# right whichever 3 rows are added or removed: ([\d.]+)", README.read_text())
    assert round(names["cancer"].accuracy(3), 3) == float(said)
    assert vauban.Run.open("runs/cancer").verify().inputs == len(names["cancer"]) == 284


@pytest.mark.slow
def test_the_commands_of_the_readme_say_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(ROOT / "results")
    env = os.environ | {"PYTHONPATH": str(Path(vauban.__file__).parents[1])}
    commands = list(shown())
    assert len(commands) == 5
    for command, lines in commands:
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        said = " ".join(done.stdout.split())
        assert lines
        for line in lines:
            assert line in said, f"{command}: {line}"


def test_the_readme_is_one_short_page() -> None:
    assert len(README.read_text().splitlines()) < 160


def test_python_and_command_line_of_the_readme_use_different_run_folders() -> None:
    text = README.read_text()
    code = python(text)
    ours = set(re.findall(r"runs/[\w-]+", code))
    theirs = set(re.findall(r"runs/[\w-]+", re.sub(r"```python\n.*?```", "", text, flags=re.DOTALL)))
    assert ours
    assert not ours & theirs
