"""Options, exit codes, progress bars and table printing shared by all commands."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.errors import BadInput, ModelFailed, VaubanError, needs_torch
from vauban.report.progress import bar as progress
from vauban.report.progress import counter

if TYPE_CHECKING:
    from vauban.models import LoadedModel
    from vauban.runs.sections import DataSection, ModelSection

__all__ = ["counter", "progress"]

INTERRUPTED = 130
_LONGEST_NAME = 40  # characters in the first column of a table that are not broken into two lines
_LONGEST_NUMBER = 14  # characters of a cell that is a number, such as 100.00 %

debug: ContextVar[bool] = ContextVar("debug", default=False)
"""Whether the traceback of an error is shown; set by `vauban --debug`."""


def _yield_cores(value: str | None) -> str | None:
    """Let waiting threads of torch sleep where another library runs the network (a backend, an .onnx file, bf16).

    By default they spin for a while after each operation, and take the cores from that library's threads: small networks then
    have half of their speed. OpenMP reads the variable when torch is loaded; one that the user has set stays.
    """
    if (
        value
        and (value in ("openvino", "onnxruntime", "auto", "bf16") or ".onnx" in value)
        and "torch" not in sys.modules
    ):
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return value


ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        callback=_yield_cores,
        help="a .safetensors, .onnx or .skops file, an architecture or package.module:callable; A+B is an ensemble of models, "
        "'D > A' a denoiser in front of one [packaged one for mnist; of a run: its own, if its file is found]",
    ),
]
WeightsOption = Annotated[str | None, typer.Option(help="state dict for --model: .safetensors, .pt or .pth")]
SourceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]",
        help="picture, folder of pictures, or table (.csv, .parquet, .npz) in place of --data",
        show_default=False,
    ),
]
DataOption = Annotated[str, typer.Option("--data", "-d", help="data set, name:key=value,… (see: vauban data)")]
MaybeDataOption = Annotated[
    str | None,
    typer.Option("--data", "-d", help="data set, name:key=value,… (see: vauban data) [mnist]", show_default=False),
]
SmoothingOption = Annotated[str, typer.Option("--smoothing", "-s", help="for example gaussian:sigma=0.5")]
KOption = Annotated[int, typer.Option("-k", help="certify the label among the top k")]
AlphaOption = Annotated[
    float | None, typer.Option(help="failure probability allowed per input; not for exact smoothings [0.001]")
]
BoundsOption = Annotated[
    str | None, typer.Option(help="binocp, simuem or half [binocp for k = 1, simuem above]", show_default=False)
]
EveryOption = Annotated[int, typer.Option(min=1, help="take every n-th input")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="take at most this many inputs")]
ShuffleOption = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="SEED", help="shuffle the data set by this seed before --every and --limit; the run records it"
    ),
]
SkipBadOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad", help="leave out pictures that cannot be decoded; the run records which [they are refused]"
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=0, max=256, help="threads that decode pictures; changes no result [4]", show_default=False),
]
InputRangeOption = Annotated[
    str | None,
    typer.Option(
        metavar="none|LOW,HIGH",
        help="values that inputs may have: none for any, or two numbers [0,1; for tables none]",
        show_default=False,
    ),
]
StandardiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="scale features by mean and standard deviation of this training data, which the run records; none: do not "
        "[those that the model file holds, if any]",
        show_default=False,
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1")]
SeedOption = Annotated[
    int | None, typer.Option(help="seed of the noise [from the operating system]", show_default=False)
]
StochasticOption = Annotated[
    str | None,
    typer.Option(
        help="for a model that is random by design: views calls it with one view at a time, rows with many whose votes are "
        "independent"
    ),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        callback=_yield_cores,
        help="precision of the network: fp32, tf32 (NVIDIA), bf16 or fp16; a certificate holds only for its own precision",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        callback=_yield_cores,
        help="what runs the network: torch, fused (its graph with folded batch norms), on the CPU onnxruntime or openvino, or "
        "auto (the first that can); it is part of the claim [torch; of a resumed run: its own; for .onnx files, and for bf16 on "
        "the CPU: auto]",
    ),
]
CompileOption = Annotated[
    bool,
    typer.Option(
        "--compile", help="compile noise, network and counting with torch.compile (this makes another classifier)"
    ),
]
TuneOption = Annotated[
    bool,
    typer.Option(
        "--tune", help="--compile, and time kernels for each convolution first: takes minutes, worth it for long runs"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]


def read_folder(text: str | Path) -> Path:
    """Read the name of a folder; an empty one would be the current folder, which is written with a dot."""
    if not str(text).strip():
        raise typer.BadParameter("the name is empty: give a folder, such as runs/mnist, or . for the current one")
    return Path(text)


def folder_option(help: str) -> Any:
    """The option --out of a command that writes to a folder."""
    return typer.Option("--out", "-o", help=help, parser=read_folder, metavar="PATH")


def example(*lines: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that turns a command's errors into exit codes, prints its warnings on a line and adds examples to its help."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*args: Any, **kwargs: Any) -> None:
            try:
                with plain_warnings():
                    command(*args, **kwargs)
            except VaubanError as problem:
                _show_error(problem, str(problem))
                raise typer.Exit(problem.exit_code) from None
            except ModuleNotFoundError as problem:
                if (missing := needs_torch(problem, "this command")) is None:
                    raise
                _show_error(problem, str(missing))
                raise typer.Exit(missing.exit_code) from None
            except SystemExit as problem:
                _show_error(
                    problem,
                    f"code that this command called tried to end the process, sys.exit({problem.code!r}): the work is not done; "
                    "take that call out of the model or the data set",
                )
                raise typer.Exit(2) from None
            except OSError as problem:
                if isinstance(problem, BrokenPipeError) and _nobody_reads():
                    raise  # typer ends the process with exit code 1 and without a word
                where = f"{problem.filename}: " if problem.filename and problem.strerror else ""
                _show_error(problem, f"{where}{problem.strerror or problem}")
                raise typer.Exit(1) from None
            except MemoryError as problem:
                _show_error(
                    problem,
                    f"this machine has too little memory ({problem or 'for this command'}): give smaller --rows or --batch where "
                    "the command has them, or fewer inputs",
                )
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                typer.echo("\nstopped; what was done is kept: run the same command again to continue", err=True)
                raise typer.Exit(INTERRUPTED) from None

        shown = "\n\n".join(f"  {line}" for line in lines)
        run.__doc__ = (
            f"{inspect.cleandoc(command.__doc__ or '')}\n\n\b\nExample:\n{chr(10).join('  ' + line for line in lines)}"
            if shown
            else ""
        )
        return run

    return wrap


def _nobody_reads() -> bool:
    """Whether the reader of standard output has left, as `head` does."""
    import select

    try:
        watched = select.poll()
        watched.register(sys.stdout.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in watched.poll(0))
    except (AttributeError, OSError):  # Windows has no poll; a stream in memory has no number
        return False


def _show_error(problem: BaseException, text: str) -> None:
    """Print the text of an error, after its traceback if --debug was given; of a model's error, say how to see it."""
    if debug.get():
        typer.echo("".join(traceback.format_exception(problem)), err=True)
    typer.echo("\n".join(map(printable, f"error: {text}".split("\n"))), err=True)
    if isinstance(problem, ModelFailed) and not debug.get():
        typer.echo("vauban --debug COMMAND …, or VAUBAN_DEBUG=1, shows the traceback", err=True)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each warning on one line, without its source location."""
    import warnings

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
        yield


def pick_device(name: str) -> str:
    """The device of this name; "auto" is a GPU if there is one, else the CPU."""
    import torch

    from vauban.validation import device_of

    where = device_of(name)
    if where.type not in ("cpu", "cuda"):
        raise BadInput(f"device {name!r}: Vauban computes on 'cpu' and 'cuda'; 'auto' is a GPU if there is one")
    if where.index is not None and where.type == "cuda":
        torch.cuda.set_device(where)  # for what is launched without naming a device
    return where.type if name == "auto" else name


def run_model(
    run: Path, named: ModelSection, model: str | None, weights: str | None, device: str
) -> tuple[str | Path, LoadedModel]:
    """The model given for a run, or the one that its manifest names where it is found; and the text or file it comes from."""
    from vauban.models.files import load
    from vauban.models.finding import find

    if model is not None:
        return model, load(model, weights, device)
    if weights is not None:
        raise BadInput(f"--weights {weights} belong to a model that is not named: give --model too")
    return find(run, named, device)


def run_data(run: Path, named: DataSection, data: str | None) -> str:
    """The data set given for a run, or the one that its manifest names; a run of arrays names only their type."""
    from vauban.data import KINDS
    from vauban.data.registry import parse

    if data is None and parse(named.spec).name not in KINDS.names():
        raise BadInput(
            f"{run} names no data set that can be read, only {named.spec!r}, the type of its inputs: give --data; "
            "arrays are saved by numpy.savez('inputs.npz', images=…, labels=…) and read by --data npz:path=inputs.npz"
        )
    return data or named.spec


def printable(text: str) -> str:
    """One line of text from a file, with line breaks and commands to the terminal shown and not obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_json(value: Any) -> None:
    """Print indented JSON."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False))


def print_table(headers: list[str], rows: list[list[str]], title: str | None = None, numbers: bool = True) -> None:
    """Print an aligned table; `numbers`: whether all columns but the first are aligned to the right.

    The first column, if it holds names that are not too long, is not broken: a name in two lines cannot be copied.
    Nor are numbers: those with their errors, ±, are broken before the ± alone, where the table would be too wide. Where it still
    is, lines are longer than the screen, since digits in two lines cannot be read.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    cells = [[row[i] for row in rows if len(row) > i] for i in range(len(headers))]
    if sum(max(map(len, [header, *column])) + 3 for header, column in zip(headers, cells, strict=True)) > console.width:
        rows = [[cell.replace(" ± ", "\n±") for cell in row] for row in rows]
    table = Table(*(Column(Text(header)) for header in headers), box=SIMPLE_HEAD)
    for i, column in enumerate(table.columns):
        column.justify = "right" if i and numbers else "left"
        column.overflow = "fold"
    table.columns[0].no_wrap = all(len(row[0]) <= _LONGEST_NAME for row in rows)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    errors = any("±" in cell for row in rows for cell in row)
    if errors or (numbers and all(len(cell) <= _LONGEST_NUMBER for row in rows for cell in row[1:])):
        for i, header in enumerate(headers):
            cut = [*header.split(), *(row[i] for row in rows if len(row) > i and (i or table.columns[0].no_wrap))]
            table.columns[i].min_width = max((len(line) for text in cut for line in text.split("\n")), default=0)
        wide = console.measure(table, options=console.options.update(width=9999))
        console.width = max(console.width, wide.minimum if sys.stdout.isatty() and not errors else wide.maximum)
    with console.capture() as captured:  # rich itself would end the process where nobody reads on
        if title:
            console.print(Text(title))
        console.print(table)
    typer.echo(captured.get(), nl=False)


def duration(seconds: float) -> str:
    """Seconds as text with a fitting unit."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
