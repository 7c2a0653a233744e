"""What the tests of vauban poison share: a command in this process, a tiny learner, and inputs."""

from pathlib import Path

from typer.testing import CliRunner

from vauban.cli import app

TINY = "tiny-cnn:steps=6,group=5,views=1,batch=16"

PLAIN = "partition:spread=1,threat=samples"

TEST = ["--data", "mnist:split=test", "--limit", "40", "--device", "cpu"]


def vauban(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, f"exit {done.exit_code}\n{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr
