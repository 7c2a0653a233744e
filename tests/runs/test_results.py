"""Every run folder under results/ verifies, at whatever depth it lies."""

import gzip
import shutil
from pathlib import Path

import pytest

from vauban.errors import Lie
from vauban.files import read_packed
from vauban.runs.verify import verify_run

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent.relative_to(RESULTS) for path in RESULTS.rglob("manifest.json*"))
LONG = ("finite-1200-16", "collective/dpa-1200")
"""Runs with the vote of every base classifier: seconds each."""


def marked(folder: Path) -> object:
    long = any(str(folder).endswith(name) for name in LONG)
    return pytest.param(folder, id=str(folder), marks=[pytest.mark.slow] if long else [])


def test_there_are_published_runs() -> None:
    assert {folder.parts[0] for folder in FOLDERS} >= {"sampled", "exact", "poisoning"}
    assert Path("poisoning/collective/dpa-1200") in FOLDERS


@pytest.mark.parametrize("folder", [marked(folder) for folder in FOLDERS])
def test_every_run_folder_of_the_results_verifies(folder: Path) -> None:
    verdict = verify_run(RESULTS / folder)
    claims = read_packed(RESULTS / folder / "claims.csv").splitlines()
    assert verdict.inputs == len(claims) - 1 > 0


@pytest.mark.parametrize("name", ["claims.csv", "ballots.jsonl"])
def test_a_second_file_beside_that_of_an_old_run_is_refused(name: str, tmp_path: Path) -> None:
    """Schema 1: a forged gzipped file beside the true one was not looked at."""
    shutil.copytree(RESULTS / "exact/sparse", tmp_path / "run")
    true = read_packed(tmp_path / "run" / name)
    (tmp_path / "run" / f"{name}.gz").unlink()
    (tmp_path / "run" / name).write_bytes(true)
    verify_run(tmp_path / "run")
    (tmp_path / "run" / f"{name}.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(Lie, match="both exist"):
        verify_run(tmp_path / "run")
