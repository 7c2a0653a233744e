"""Every published run gives the claims it always gave: as it stands, and for another k, alpha, bound or look.

That each verifies is what tests/runs/test_results.py asserts.
"""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vauban.cli import app

RESULTS = Path(__file__).parents[2] / "results"
KEPT = Path(__file__).parent / "kept_results.json"
RUNS = sorted(str(path.parent.relative_to(RESULTS)) for path in RESULTS.glob("*/*/manifest.json*"))
ASKED = {
    "sampled": (
        "",
        "-k 2",
        "-k 3 --bounds simuem --alpha 0.05",
        "-k 2 --bounds half",
        "-n 500",
        "-n 1000 --alpha 1e-6",
    ),
    "exact": ("", "-k 2", "-k 3"),
    "poisoning": ("", "-k 2"),
}


def claims(run: str, asked: str, out: Path) -> str:
    """A hash of the four first columns of the claims, or of what is said instead."""
    answer = CliRunner().invoke(app, ["claim", str(RESULTS / run), *asked.split(), "--out", str(out)])
    if answer.exit_code:
        return f"exit {answer.exit_code}"
    rows = [",".join(line.split(",")[:4]) for line in out.read_text().splitlines()]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def asked_of(run: str) -> tuple[str, ...]:
    return ASKED[run.split("/")[0]]


def test_every_published_run_is_kept() -> None:
    kept = json.loads(KEPT.read_text())
    assert sorted(kept) == RUNS
    assert len(RUNS) > 25


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=[pytest.mark.slow] if "finite-1200" in run else []) for run in RUNS]
)
def test_published_claims_are_as_they_were(run: str, tmp_path: Path) -> None:
    found = {asked: claims(run, asked, tmp_path / "claims.csv") for asked in asked_of(run)}
    assert found == json.loads(KEPT.read_text())[run]
