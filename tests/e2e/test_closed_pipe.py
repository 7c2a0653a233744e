"""Output into a pipe whose reader has left, as `vauban verify RUN | head` has it."""

import os
import sys

import pytest
import typer

from vauban.cli import common


@common.example("vauban test")
def echoes() -> None:
    """Prints a line."""
    typer.echo("x" * 100_000)


@common.example("vauban test")
def prints_a_table() -> None:
    """Prints a table."""
    common.print_table(["a"], [["b"]])


@common.example("vauban test")
def breaks_elsewhere() -> None:
    """Fails at a pipe of its own."""
    raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("command", [echoes, prints_a_table])
def test_a_reader_who_leaves_is_no_error(
    command: typer.models.CommandFunctionType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(typer.Exit) as ended:
            command()
        output.write("more")
    assert ended.value.exit_code == common.READER_LEFT
    assert capsys.readouterr().err == ""


def test_another_broken_pipe_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        breaks_elsewhere()
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == "error: Broken pipe\n"
