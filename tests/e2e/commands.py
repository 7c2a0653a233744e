"""Commands as the tests of the command line run them: in this process, or in one of their own that can be interrupted."""

import os
import subprocess
import sys
import time
from pathlib import Path

from typer.testing import CliRunner

from vauban.cli import app


def vauban(*arguments: str | Path, code: int = 0) -> str:
    """Run a command in this process, expect its exit code, and return what it printed (its errors, if it was to fail)."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, f"exit {done.exit_code}\n{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


# A shell that starts tests in the background lets its children ignore Ctrl-C: a command is started as a terminal starts it.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from vauban.cli import main; main()"


def process(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_bytes(started: subprocess.Popen[str], path: Path, size: int) -> None:
    """Until a file that a process writes has grown to some size."""
    while not path.exists() or path.stat().st_size < size:
        assert started.poll() is None
        time.sleep(0.005)
