"""kill -9 at random instants, again and again, and resume: the same votes as an undisturbed run, byte for byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vauban.runs.verify import verify_run

ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}

FORKS = """
import os, sys
import vauban.cli, vauban.data, vauban.models, vauban.smoothed  # what takes seconds to load is loaded once
code, *arguments = sys.argv[1:]
for folder in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.argv = ["vauban", *arguments, folder.rstrip()]
        exec(code)
        sys.exit()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Forks for every folder that it reads a process that runs `code` there; prints its number, then its exit code."""

PYTHON = """
import sys
import vauban as vb
from vauban.data import load
from vauban.models import load as load_model, packaged

smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), "{smoothing}", **{options})
smoothed.certify(load("mnist").select({every}, {limit}), out=sys.argv[1], progress=False, **{settings})
"""

RUNS = {
    "fixed": ("gaussian:sigma=0.5", {}, {"n": 2_000, "seed": 9}, 400, 24),
    "sequential": (
        "gaussian:sigma=0.5",
        {"rows": 60, "block": 20},
        {"n": 20_000, "stop": "target:radius=0.75", "seed": 9},
        250,
        24,
    ),
    "exact": ("splitting:sigma=0.5", {}, {}, 200, 40),
}


def command(name: str, caller: str, times: int) -> list[str]:
    """The same run by the command line or in Python, of so many times as many inputs: code and its arguments but the folder."""
    smoothing, options, settings, every, limit = RUNS[name]
    every, limit = every // times, limit * times
    if caller == "python":
        script = PYTHON.format(smoothing=smoothing, options=options, settings=settings, every=every, limit=limit)
        return [script]
    pairs = {"smoothing": smoothing, "every": every, "limit": limit, **options, **settings}
    words = [str(w) for key, value in pairs.items() for w in (f"-{key}" if key == "n" else f"--{key}", value)]
    return ["from vauban.cli import main; main()", "certify", *words, "--json", "--out"]


@pytest.mark.slow
def test_a_killed_run_loses_nothing(tmp_path: Path) -> None:
    check("fixed", "python", 1, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("caller", ["python", "cli"])
@pytest.mark.parametrize("name", RUNS)
def test_twenty_kills_lose_nothing(name: str, caller: str, tmp_path: Path) -> None:
    check(name, caller, 20, 4, tmp_path)


def check(name: str, caller: str, kills: int, times: int, where: Path) -> None:
    votes = "ballots.jsonl" if name == "exact" else "tallies.jsonl"
    folder, whole = killed_and_whole(command(name, caller, times), kills, votes, where)
    if name != "exact":
        kept, undisturbed = (sorted((f / votes).read_bytes().splitlines()) for f in (folder, whole))
        assert kept == undisturbed
    for file in ("manifest.json", "claims.csv", "seal.json"):
        assert (folder / file).read_bytes() == (whole / file).read_bytes()
    verify_run(folder)


def killed_and_whole(command: list[str], kills: int, votes: str, where: Path) -> tuple[Path, Path]:
    """Folders of a run that was killed so often and taken up again, and of one that was not."""
    folder, whole, chance, killed = where / "killed", where / "whole", random.Random(1), 0
    program = [sys.executable, "-c", FORKS, *command]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ONE_THREAD, text=True) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        while True:
            print(folder, file=forks.stdin, flush=True)
            process = int(forks.stdout.readline())
            if killed < kills:
                _wait_for_votes(process, folder / votes)
                time.sleep(chance.uniform(0, 0.1))
                os.kill(process, signal.SIGKILL)
            code = int(forks.stdout.readline())
            if code == 0:
                break
            assert code == -signal.SIGKILL
            killed += 1
        assert killed == kills
        print(whole, file=forks.stdin, flush=True)
        forks.stdout.readline()
        assert int(forks.stdout.readline()) == 0
    return folder, whole


def _wait_for_votes(process: int, votes: Path) -> None:
    """Until this process has appended something: it has loaded, and is voting."""
    before = votes.stat().st_size if votes.exists() else 0
    while not votes.exists() or votes.stat().st_size == before:
        os.kill(process, 0)  # it has not ended by itself
        time.sleep(0.002)
