"""The examples and notebooks run as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vauban

ROOT = Path(__file__).parents[2]
SAID = {
    "own_counts": "gaussian:sigma=0.5, top 1, l2: 0.9825, 0.1200, no claim",
    "check_a_run": "an altered copy is refused: ",
    "own_model": "50 claims recomputed from 50,000 votes",
    "predict_or_abstain": "no answer",
    "top_k": "note: this is a second claim (top 3",
    "fewer_votes": "is radius 0.5 certified? yes for",
    "patches": "keeps its answer under every 2x2 patch",
    "few_pixels": "this is exact, no probability is left",
    "poisoning": "keeps its label whatever 5 samples are added or removed",
    "table": "verified: 113 claims",
    "how_tight": "alarms, where an attack contradicts a certificate: 0",
}
QUICK = ("own_counts", "check_a_run")
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("examples/*.ipynb"))


def source() -> dict[str, str]:
    """The environment in which the package under test is the one that is imported."""
    return os.environ | {"PYTHONPATH": str(Path(vauban.__file__).parents[1])}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SAID])
def test_an_example_runs_and_says_what_it_shows(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / f"examples/{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=source(), capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout


def test_every_example_is_short_and_listed() -> None:
    listed = (ROOT / "examples/README.md").read_text()
    for name in SAID:
        assert f"({name}.py)" in listed
        assert 20 <= len((ROOT / f"examples/{name}.py").read_text().splitlines()) <= 60


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_is_kept_with_its_output(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    monkeypatch.setenv("VAUBAN_REPOSITORY", str(ROOT))
    monkeypatch.setenv("PYTHONPATH", source()["PYTHONPATH"])
    notebook = nbformat.read(ROOT / f"examples/{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs or cell.source.rstrip().endswith(")") for cell in code)
    client.NotebookClient(
        notebook, timeout=580, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
