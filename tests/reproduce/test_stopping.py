"""Budgets, signals and pipes: what is stopped keeps what it did, and what is done is not stopped any more."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from vauban.errors import RunRefused
from vauban.files import locked
from vauban.reproduce import together
from vauban.reproduce.steps import _run_command

LATE = """
import signal, threading, time
from vauban.reproduce import budget

own, left, spent = budget.interrupt_main, threading.Event(), threading.Event()
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell began this in the background
budget.interrupt_main = lambda: (left.wait(0.5), own())
with budget.within(0.05, spent):
    assert spent.wait(60)
left.set()
time.sleep(0.3)  # a KeyboardInterrupt here would end it
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print("went on")
"""


def test_an_interrupt_that_comes_when_all_is_done_ends_nothing() -> None:
    """The budget is spent while the last step ends, and its signal is late; in a process of its own, which it may end."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr


def test_a_process_is_read_to_its_end_also_when_nobody_can_be_told() -> None:
    """`vauban reproduce … | head`: a pipe that nobody reads would stop the process for ever."""
    words = [sys.executable, "-c", "import sys; [print('x' * 1000, file=sys.stderr) for _ in range(1000)]"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    def broken(text: str) -> None:
        raise BrokenPipeError

    together._repeat(process, "it", broken).join(60)
    assert process.wait(60) == 0


@pytest.mark.slow
def test_sigterm_stops_the_command_of_an_entry_too(tmp_path: Path) -> None:
    code = (
        "from vauban.reproduce.steps import _run_command; _run_command(['vauban', *__import__('sys').argv[1:]], True)"
    )
    port = 30_000 + os.getpid() % 5_000
    words = ["serve", "-s", "gaussian:sigma=0.5", "--port", str(port), "--runs", str(tmp_path / "served")]
    parent = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    assert parent.stderr is not None
    for line in parent.stderr:
        if "startup complete" in line:
            break
    parent.send_signal(signal.SIGTERM)
    parent.stderr.read()  # to the end of both processes
    assert parent.wait(60) != 0


def test_a_command_of_an_entry_runs_in_any_thread(tmp_path: Path) -> None:
    """Signals can be handled in the main thread alone."""
    thread = threading.Thread(target=_run_command, args=(["vauban", "--version"], True))
    thread.start()
    thread.join(120)
    assert not thread.is_alive()


def small_trainings(out: Path, together: bool = True) -> tuple[list[Any], list[Any]]:
    """Two trainings of agents that take longer than a test waits."""
    from vauban.reproduce.learning import Candidate, Training
    from vauban.rl.training import open_run

    settings, length = {"batch_size": 8, "net_arch": [4], "learning_starts": 20}, {"steps": 20_000, "every": 10_000}
    world = ("ContinuousSeek-v0:dim=2", "dim-2")
    listed = [
        Training(Candidate(out, *world, algo, settings, algo, length), (0, 1)) for algo in ("ddpg", "reengage-ddpg")
    ]
    plans = [one.candidate.plan(together) for one in listed]
    for one, plan in zip(listed, plans, strict=True):
        open_run(one.folder, plan, one.candidate.label)
    return listed, plans


def check_that_a_signal_leaves_checkpoints(out: Path, number: int) -> None:
    from vauban.reproduce.agents import _train_together
    from vauban.reproduce.running import Options
    from vauban.rl.batched_seeds.loop import CHECKPOINT

    listed, plans = small_trainings(out)
    begun: list[int] = []

    def told(steps: int) -> None:
        begun.append(steps)
        if len(begun) == 6:
            os.kill(os.getpid(), number)

    assert not _train_together(listed, plans, Options(say=lambda text: None, jobs=2), told)
    assert all((one.folder / CHECKPOINT).exists() for one in listed)
    print("stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_every_batched_training_write_its_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    """In a process of its own: a signal that nobody handles would end the worker of these tests."""
    pytest.importorskip("stable_baselines3")
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import test_stopping; "
        "test_stopping.check_that_a_signal_leaves_checkpoints(pathlib.Path(sys.argv[2]), int(sys.argv[3]))"
    )
    words = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path), str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr


def test_a_folder_is_trained_into_by_one_process_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    from vauban.reproduce.agents import train
    from vauban.reproduce.running import Options

    listed, _ = small_trainings(tmp_path, together=False)
    with locked(listed[1].folder), pytest.raises(RunRefused, match="being written by another process"):
        train(listed, Options(say=lambda text: None, jobs=1))
