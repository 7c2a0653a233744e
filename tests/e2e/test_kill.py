"""kill -9 at random instants, twenty times, and resume: the same tallies as an undisturbed run, byte for byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from vauban.verify import verify_run

KILLS = 20
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-c", "from vauban.cli import main; main()", "certify", "--smoothing", "gaussian:sigma=0.5"]
COMMAND += ["-n", "10000", "--every", "200", "--limit", "40", "--seed", "9", "--json", "--out"]


def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    folder, chance, kills = tmp_path / "killed", random.Random(1), 0
    while True:
        process = subprocess.Popen([*COMMAND, str(folder)], stdout=subprocess.DEVNULL, env=ONE_THREAD)
        if kills < KILLS:
            _wait_for_votes(process, folder / "tallies.jsonl")
            time.sleep(chance.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        if code == 0:
            break
        kills += 1
    assert kills == KILLS
    subprocess.run([*COMMAND, str(tmp_path / "whole")], stdout=subprocess.DEVNULL, env=ONE_THREAD, check=True)
    killed, whole = (sorted((f / "tallies.jsonl").read_bytes().splitlines()) for f in (folder, tmp_path / "whole"))
    assert killed == whole
    assert (folder / "claims.csv").read_bytes() == (tmp_path / "whole" / "claims.csv").read_bytes()
    verify_run(folder)


def _wait_for_votes(process: subprocess.Popen, tallies: Path) -> None:
    """Until this process has appended something: it has loaded, and is voting."""
    before = tallies.stat().st_size if tallies.exists() else 0
    while process.poll() is None and (not tallies.exists() or tallies.stat().st_size == before):
        time.sleep(0.002)
