"""Whatever is changed in a run folder after the fact, verify notices."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vauban.engine.network import BaseClassifier
from vauban.errors import Incomplete, Lie, RunRefused
from vauban.runs.store import read_record
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier
from vauban.votes import SampledVotes, Tally

Model = Callable[[torch.Tensor], torch.Tensor]
TALLIES = SampledVotes.file


@pytest.fixture
def run(tmp_path: Path, half_spaces: Model) -> Path:
    inputs = torch.tensor([[0] * 8, [127] * 8, [255] * 8, [64] * 8], dtype=torch.uint8)
    base = BaseClassifier(half_spaces, "half-spaces", "m" * 64)
    smoothed = SmoothedClassifier(base, "gaussian:sigma=0.25", num_classes=3)
    smoothed.certify(inputs, [0, 1, 2, 0], n=300, alpha=0.001, seed=1, out=tmp_path / "run")
    return tmp_path / "run"


def line(folder: Path, *tally: Any) -> str:
    """A line with a check that fits."""
    record, _ = read_record(folder)
    return record.votes.line(Tally(*tally), record.manifest.identity)  # type: ignore[arg-type]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_an_honest_run_holds(run: Path) -> None:
    verdict = verify_run(run)
    assert (verdict.inputs, verdict.votes) == (4, 1_200)


def test_a_larger_radius_is_a_lie(run: Path) -> None:
    claim = (run / "claims.csv").read_text().split("\n")[2]
    radius = claim.split(",")[2]
    edit(run / "claims.csv", radius, f"{float(radius) + 1e-9:.9f}")
    with pytest.raises(Lie, match=r"claims.csv line 3 says .* the votes say"):
        verify_run(run)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"alpha": 0.001', '"alpha": 0.01'),
        ('"n": 300', '"n": 200'),
        ("gaussian:sigma=0.25", "gaussian:sigma=0.5"),
        ('"ball": "open"', '"ball": "closed"'),
        ('"k": 1', '"k": 2'),
        ('"deviation_per_view": ', '"deviation_per_view": 0.0, "was": '),
        ('"label": [0,1,2,0]', '"label": [0,1,2,1]'),
        ("is less than its radius", "is at most twice its radius"),
        ('"sha256": "mmm', '"sha256": "nnn'),
        ('"schema": 2', '"schema": 1'),
        ('"metric": "L2 norm"', '"metric": "Linf norm"'),
        ('"levels": 255', '"levels": -1'),
        ("gaussian:sigma=0.25", "gaussian"),
        ('"alpha": 0.001', '"alpha": "x"'),
        ('"shape": [8]', '"shape": [0]'),
        ('"settings"', '"settingz"'),
        ("{", "["),
    ],
)
def test_a_changed_manifest_is_a_lie(run: Path, old: str, new: str) -> None:
    edit(run / "manifest.json", old, new)
    with pytest.raises((Lie, RunRefused)):
        verify_run(run)


def test_removed_added_and_doubled_lines_are_lies(run: Path) -> None:
    path = run / TALLIES
    lines = path.read_text().splitlines(keepends=True)
    extra = line(run, 7, "count", 300, np.array([300, 0, 0])) + "\n"
    odd_look = line(run, 0, "count", 150, np.array([150, 0, 0])) + "\n"
    for changed in (lines[1:], lines[:-1], [*lines, lines[0]], [*lines, extra], [*lines, odd_look]):
        path.write_text("".join(changed))
        with pytest.raises(Lie):
            verify_run(run)


def test_votes_forged_with_a_fitting_check_still_break_the_claims_and_the_seal(run: Path) -> None:
    path = run / TALLIES
    lines = path.read_text().splitlines()
    earlier = read_record(run)[0].votes.looks[3][1]  # type: ignore[union-attr]
    forged = line(run, 3, "count", 300, earlier + np.array([100, 0, 0]))
    path.write_text(
        "\n".join([*(one for one in lines if not ('"input":3' in one and '"votes":300' in one)), forged, ""])
    )
    with pytest.raises(Lie, match=r"claims\.csv line 5"):
        verify_run(run)
    record, _ = read_record(run)
    (run / "claims.csv").write_text(record.texts(record.claims())["claims.csv"])
    with pytest.raises(Lie, match=r"tallies\.jsonl changed after the run was sealed"):
        verify_run(run)


def test_prefix_counts_that_shrink_are_a_lie(run: Path) -> None:
    path = run / TALLIES
    lines = path.read_text().splitlines()
    shrinking = line(run, 0, "count", 200, np.array([0, 200, 0]))
    path.write_text("\n".join([*(x for x in lines if not ('"input":0' in x and '"votes":200' in x)), shrinking, ""]))
    with pytest.raises(Lie, match="loses votes"):
        verify_run(run)


def test_a_sealed_run_without_its_claims_is_a_lie(run: Path) -> None:
    (run / "claims.csv").unlink()
    with pytest.raises(Lie, match="claims.csv"):
        verify_run(run)


def test_a_run_killed_before_its_seal_is_incomplete_and_its_claims_are_checked_all_the_same(run: Path) -> None:
    (run / "seal.json").unlink()
    with pytest.raises(Incomplete, match="not sealed"):
        verify_run(run)
    edit(run / "claims.csv", ",false", "1,false")
    with pytest.raises(Lie, match="claims.csv line 2"):
        verify_run(run)


def test_another_seed_file_is_a_lie_and_none_is_fine(run: Path) -> None:
    (run / "seed").write_text("00" * 32 + "\n")
    with pytest.raises(Lie, match="commits to"):
        verify_run(run)
    (run / "seed").unlink()
    verify_run(run)


def test_an_unfinished_run_is_incomplete_not_a_lie(run: Path) -> None:
    path = run / TALLIES
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    (run / "seal.json").unlink()
    (run / "claims.csv").unlink()
    with pytest.raises(Incomplete, match="3 of 4 inputs"):
        verify_run(run)


def test_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match="no manifest"):
        verify_run(tmp_path)


def test_verify_imports_no_torch(run: Path) -> None:
    code = f"import sys; from vauban.runs.verify import verify_run; verify_run({str(run)!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_copied_run_holds_elsewhere(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    verify_run(tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "seal.json").read_text()).keys() == {
        "manifest.json",
        "tallies.jsonl",
        "claims.csv",
    }
