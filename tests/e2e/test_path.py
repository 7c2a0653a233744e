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
root, counted = sys.argv[1], collections.Counter()

def hook(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and code.co_flags & 0x2:  # a function, not a module or class body
        counted[code.co_filename[len(root) + 1:] + ":" + code.co_name] += 1

sys.setprofile(hook)
sys.argv = ["vauban", *sys.argv[2:]]
from vauban.cli import main
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
print(json.dumps(counted), file=sys.stderr)
"""

RUNS = {
    "fixed": "--smoothing gaussian:sigma=0.5 -n 500",
    "sequential": "--smoothing gaussian:sigma=0.5 -n 5000 --stop target:radius=0.5",
    "exact": "--smoothing splitting:sigma=0.3",
}


def calls(arguments: str, out: Path) -> dict[str, int]:
    """How often each of our functions was called."""
    command = [sys.executable, "-c", PROFILE, str(ROOT), "certify", *arguments.split(), "--limit", "3", "--json"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", RUNS)
def test_one_certify_enters_few_files_and_derives_its_claims_once(name: str, tmp_path: Path) -> None:
    for _ in ("begun", "finished already"):
        found = calls(RUNS[name], tmp_path / "run")
        files = {place.split(":")[0] for place in found}
        entered = sorted(file for file in files if not file.startswith(ELSEWHERE))
        assert len(entered) <= 15, entered
        assert {"smoothed.py", "methods.py", "certificates.py", "runs/store.py"} <= set(entered)
        lines = {file: len((ROOT / file).read_text().splitlines()) for file in files}
        assert max(lines.values()) <= 400, max(lines, key=lambda file: lines[file])
        derived = [found.get(f"certificates.py:{way}", 0) for way in ("derive", "derive_sequential", "derive_exact")]
        assert sum(derived) == 1
        assert found["runs/store.py:read_record"] <= 2  # to resume, and before sealing
