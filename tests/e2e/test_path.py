"""How long the path of one `vauban certify` is: which of our files it enters, and how often claims are derived and votes read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vauban

ROOT = Path(vauban.__file__).parent
ELSEWHERE = ("cli/", "data/", "models/", "report/", "bounds/", "laws/", "smoothing/")
"""Rooms that every certificate needs and that do not certify."""

PROFILE = """
import collections, json, sys
import matplotlib.figure, mpmath, numpy, rich.progress, scipy.special, scipy.stats, torch, typer  # not ours, slow to follow
import matplotlib.backends.backend_agg
import vauban.laws, vauban.smoothing  # where every law and smoothing registers itself, which is not certifying
import vauban.cli.certify, vauban.models.building, vauban.report.curve, vauban.smoothed
root, counted = sys.argv[1], collections.Counter()

def hook(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and code.co_flags & 0x2:  # a function, not a module or class body
        counted[code.co_filename[len(root) + 1:] + ":" + code.co_name] += 1

sys.argv = ["vauban", *sys.argv[2:]]
from vauban.cli import main
for _ in ("begun", "finished already"):
    counted.clear()
    sys.setprofile(hook)
    try:
        main()
    except SystemExit:
        pass
    sys.setprofile(None)
    print("calls:", json.dumps(counted), file=sys.stderr)
"""

RUNS = {
    "fixed": "--smoothing gaussian:sigma=0.5 -n 500",
    "sequential": "--smoothing gaussian:sigma=0.5 -n 5000 --stop target:radius=0.5",
    "exact": "--smoothing splitting:sigma=0.3",
}


def calls(arguments: str, out: Path) -> list[dict[str, int]]:
    """How often each of our functions was called when a run was made, and when the same command was given again."""
    command = [sys.executable, "-c", PROFILE, str(ROOT), "certify", *arguments.split(), "--limit", "3", "--json"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
    said = [line.removeprefix("calls: ") for line in done.stderr.splitlines() if line.startswith("calls: ")]
    return [json.loads(line) for line in said]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fixed", "sequential", "exact"])
def test_one_certify_enters_few_files_and_derives_its_claims_once(name: str, tmp_path: Path) -> None:
    both = calls(RUNS[name], tmp_path / "run")
    assert len(both) == 2
    for found in both:
        files = {place.split(":")[0] for place in found}
        entered = sorted(file for file in files if not file.startswith(ELSEWHERE))
        assert len(entered) <= 15, str(entered)
        assert {"smoothed.py", "methods.py", "certificates.py", "runs/store.py"} <= set(entered)
        lines = {file: len((ROOT / file).read_text().splitlines()) for file in files}
        assert max(lines.values()) <= 400, max(lines, key=lambda file: lines[file])
        derived = [found.get(f"certificates.py:{name}", 0) for name in ("derive", "derive_sequential", "derive_exact")]
        assert sum(derived) == 1
        assert found["runs/store.py:read_record"] <= 2  # to resume, and before sealing
