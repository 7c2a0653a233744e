"""kill -9 at random instants, again and again, and resume: the same votes as an undisturbed run, byte for byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from vauban.runs.verify import verify_run

KILLS = 20
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-c", "from vauban.cli import main; main()", "certify", "--smoothing", "gaussian:sigma=0.5"]
COMMAND += ["-n", "10000", "--every", "200", "--limit", "40", "--seed", "9", "--json", "--out"]


def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    folder, whole = killed_and_whole(COMMAND, KILLS, "tallies.jsonl", tmp_path)
    kept, undisturbed = (sorted((f / "tallies.jsonl").read_bytes().splitlines()) for f in (folder, whole))
    assert kept == undisturbed
    assert (folder / "claims.csv").read_bytes() == (whole / "claims.csv").read_bytes()
    verify_run(folder)


def test_a_run_that_stops_input_by_input_loses_nothing(tmp_path: Path) -> None:
    command = [*COMMAND[:6], "--stop", "target:radius=0.75", "-n", "20000", "--rows", "60", "--block", "20"]
    command += ["--every", "100", "--limit", "60", "--seed", "9", "--json", "--out"]
    folder, whole = killed_and_whole(command, 3, "tallies.jsonl", tmp_path)
    kept, undisturbed = (sorted((f / "tallies.jsonl").read_bytes().splitlines()) for f in (folder, whole))
    assert kept == undisturbed
    for file in ("claims.csv", "seal.json"):
        assert (folder / file).read_bytes() == (whole / file).read_bytes()
    verify_run(folder)


def test_an_exact_run_loses_nothing_either(tmp_path: Path) -> None:
    command = [*COMMAND[:4], "--smoothing", "splitting:sigma=0.5", "--every", "200", "--limit", "40", "--json", "--out"]
    folder, whole = killed_and_whole(command, 6, "ballots.jsonl", tmp_path)
    for file in ("claims.csv", "seal.json"):
        assert (folder / file).read_bytes() == (whole / file).read_bytes()
    verify_run(folder)


def killed_and_whole(command: list[str], kills: int, votes: str, where: Path) -> tuple[Path, Path]:
    """Folders of a run that was killed so often and taken up again, and of one that was not."""
    folder, whole, chance, killed = where / "killed", where / "whole", random.Random(1), 0
    while True:
        process = subprocess.Popen([*command, str(folder)], stdout=subprocess.DEVNULL, env=ONE_THREAD)
        if killed < kills:
            _wait_for_votes(process, folder / votes)
            time.sleep(chance.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        if code == 0:
            break
        killed += 1
    assert killed == kills
    subprocess.run([*command, str(whole)], stdout=subprocess.DEVNULL, env=ONE_THREAD, check=True)
    return folder, whole


def _wait_for_votes(process: subprocess.Popen, tallies: Path) -> None:
    """Until this process has appended something: it has loaded, and is voting."""
    before = tallies.stat().st_size if tallies.exists() else 0
    while process.poll() is None and (not tallies.exists() or tallies.stat().st_size == before):
        time.sleep(0.002)
