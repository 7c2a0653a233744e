"""vauban reproduce: published experiments, and your own, from one small file each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example

if TYPE_CHECKING:
    from vauban.reproduce.outcome import Outcome
    from vauban.reproduce.running import Options


@example(
    "vauban reproduce --list",
    "vauban reproduce ablation-mnist --quick --out results/ablation-mnist-quick",
    "vauban reproduce ablation-cifar10 --only retained=75 --budget 10m --device cuda --out results/ablation-cifar10",
    "vauban reproduce ablation-cifar10 flow-cifar10 --jobs 4 --budget 1h --device cuda --out results/reproduce",
    "vauban reproduce my-experiment.toml --out results/mine",
    "vauban reproduce --table results/README.md --out results/reproduce",
)
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="entries out of --list, or .toml files of your own")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="folder of the results; of several entries, one folder in it for each"),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the entries, and exit")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="print the entries as files, to copy and change, and exit")
    ] = False,
    table: Annotated[
        list[Path] | None,
        typer.Option(
            help="put the table of all entries, published against the results in --out, into this page (repeat for more), and "
            "exit; it stands between the marks <!-- published: all --> and <!-- published: end -->"
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="stop after this time (90s, 10m, 2h); the same command goes on [no limit]")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="a version of about ten minutes on a CPU, of entries on MNIST and some of agents"),
    ] = False,
    printed: Annotated[
        bool, typer.Option("--printed", help="train as the paper prints it, not by Vauban's recipe")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="AXIS=VALUE: only these points of the grid (repeat for more axes)"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="trainings of every point, with seeds 0, 1, … [1; of agents the entry's]")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="how many trainings, with the runs of their networks, are made at a time, of all entries named, each in a "
            "process of its own [1]; of entries of "
            "agents: how many are trained at a time [one per core; on a GPU 8 trainings]",
        ),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="epochs of training [the entry's, or the recipe's]")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="environment steps of agents [the entry's]")] = None,
    inputs: Annotated[
        str | None, typer.Option(help="inputs to certify, first:last:step as in Python, such as ::10 [the entry's]")
    ] = None,
    votes: Annotated[
        int | None,
        typer.Option(min=1, help="votes that are counted for each input, of sampled smoothings [the entry's]"),
    ] = None,
    data_folder: Annotated[
        Path | None,
        typer.Option(help="folder of the data, where an entry needs one, as those on ImageNet do [imagenet]"),
    ] = None,
    use: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FOLDER: take a finished run folder for the run of this name, as runs/NAME (repeat for more)"
        ),
    ] = None,
    networks: Annotated[
        Path | None,
        typer.Option(
            help="folder of trained networks that entries share: those trained alike are taken from it, others are kept in it"
        ),
    ] = None,
    piece: Annotated[list[str] | None, typer.Option(hidden=True, help="a run to make, beside others")] = None,
    parent: Annotated[int | None, typer.Option(hidden=True, help="the process to end with")] = None,
    pack: Annotated[bool, typer.Option(help="gzip finished runs, which every command reads so")] = True,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Run published experiments: train what is missing, certify, verify, print published numbers beside ours, draw the figures.

    An entry is a small TOML file (docs/reproduce.md). Everything goes into --out: run folders, weights, pictures, README.md with
    the comparison. After Ctrl-C or a spent budget (exit code 3) the same command goes on; --json says what is finished.
    """
    from vauban.errors import BadInput, Incomplete, VaubanError
    from vauban.reproduce.entry import Entry, find, read_only, shipped

    if listed:
        _list(list(shipped().values()), json)
        return
    if table:
        _write_table(table, out)
        return
    if not names:
        raise BadInput("no entry is named: vauban reproduce --list shows them, and a .toml file is one too")
    if show:
        _show(names)
        return
    if out is None:
        raise BadInput("--out is missing: give the folder of the results, such as --out results/mine")
    entries = [find(name) for name in names]
    from vauban.reproduce.budget import read_budget
    from vauban.reproduce.outcome import Unfinished
    from vauban.reproduce.running import Options, left_to_do
    from vauban.reproduce.running import reproduce as run

    _refuse_options_of_others(
        entries,
        {"--steps": steps},
        {"--epochs": epochs, "--inputs": inputs, "--votes": votes, "--networks": networks},
    )
    _refuse_one_folder_for_two(entries)
    seconds, where, began = read_budget(budget), common.pick_device(device), time.monotonic()
    if parent is not None:
        from vauban.reproduce.together import stop_with

        stop_with(parent)

    as_given = {entry.name: name for entry, name in zip(entries, names, strict=True)}

    def options(entry: Entry) -> Options:
        """The options of one of the entries, with what is left of the budget."""
        return Options(
            device=where,
            budget=None if seconds is None else max(0.0, seconds - (time.monotonic() - began)),
            quick=quick,
            printed=printed,
            seeds=1 if entry.kind == "rl" else seeds or 1,
            rl_seeds=seeds if entry.kind == "rl" else None,
            rl_steps=steps if entry.kind == "rl" else None,
            jobs=jobs,
            only=read_only(only or [], entry),
            settings={} if epochs is None else {"epochs": epochs},
            inputs=inputs,
            votes=votes,
            folder=data_folder,
            use=_read_used(use or []),
            networks=networks,
            pack=pack,
            pieces=tuple(piece or ()),
            given=as_given[entry.name],
            progress=not json,
            say=lambda text: typer.echo(text, err=True),
            bar=None if json else lambda text, total, unit="percent": common.progress(text, total, unit, False),
        )

    folders = [out if len(entries) == 1 else out / entry.name for entry in entries]
    failed, late, outcomes = {}, [], []
    if jobs is not None and jobs > 1:
        given = {"--seeds": seeds, "--epochs": epochs, "--inputs": inputs, "--data-folder": data_folder}
        given |= {"--votes": votes, "--networks": networks}
        words = [*itertools.chain(*((name, str(value)) for name, value in given.items() if value is not None))]
        flags = {"--quick": quick, "--printed": printed, "--no-pack": not pack}
        words += [word for word, wanted in flags.items() if wanted]
        words += [*(f"--use={text}" for text in use or []), "--device", where]
        listed_entries = list(zip(entries, names, folders, strict=True))
        failed = _run_together(listed_entries, options, words, jobs, seconds)
    for entry, folder in zip(entries, folders, strict=True):
        stuck = any(piece.entry == entry.name for piece in failed)
        try:
            outcome = run(entry, folder, replace(options(entry), make=not stuck))
        except VaubanError as problem:
            late.append(problem)
            outcomes += [problem.outcome] if isinstance(problem, Unfinished) else []
            if jobs is None or jobs == 1:
                break
            typer.echo(f"{entry.name}: {problem}", err=True)
            continue
        outcomes.append(outcome)
        if not json:
            _print(outcome)
    if json:
        come_to = {outcome.entry.name for outcome in outcomes}
        for entry, folder in zip(entries, folders, strict=True) if late and isinstance(late[0], Incomplete) else ():
            outcomes += [] if entry.name in come_to else [left_to_do(entry, folder, options(entry))]
        common.print_json([outcome.to_json() for outcome in outcomes])
    if failed:
        said = ", ".join(f"{piece} (exit code {code})" for piece, code in failed.items())
        raise VaubanError(f"not finished: {said}; what they printed above says why, and the same command goes on")
    if late:
        raise late[0]


def _refuse_one_folder_for_two(entries: list[Any]) -> None:
    from vauban.errors import BadInput

    for number, entry in enumerate(entries):
        if any(entry.name == other.name for other in entries[:number]):
            raise BadInput(
                f"two entries are called {entry.name}, and would share a folder: name one of them, or rename a file"
            )


def _run_together(
    listed: list[tuple[Any, str, Path]],
    options: Callable[[Any], Options],
    words: list[str],
    jobs: int,
    seconds: float | None,
) -> dict[Any, int]:
    """Make the runs of entries that train no agents, several at a time; exit codes of those that failed."""
    from vauban.reproduce import together

    found = together.in_turns(
        together.pieces(entry, given, folder, options(entry), words)
        for entry, given, folder in listed
        if entry.kind in ("runs", "commands")
    )
    return together.run(found, jobs, seconds, lambda text: typer.echo(text, err=True)) if len(found) > 1 else {}


def _refuse_options_of_others(entries: list[Any], agents: dict[str, Any], classifiers: dict[str, Any]) -> None:
    """Refuse an option that an entry's kind does not have, so that none is ignored."""
    from vauban.errors import BadInput

    for entry in entries:
        given = classifiers if entry.kind == "rl" else agents
        for option in (name for name, value in given.items() if value is not None):
            those = "classifiers" if entry.kind == "rl" else "agents"
            raise BadInput(f"{option} belongs to entries that train {those}; {entry.name} does not: leave it out")


def _list(entries: list[Any], json: bool) -> None:
    if json:
        common.print_json(
            [{"name": one.name, "title": one.title, "source": one.source, "kind": one.kind} for one in entries]
        )
        return
    rows = []
    for one in entries:
        points = len(one.points()) if one.kind == "runs" else 0
        runs = {
            "runs": "1 run" if points == 1 else f"{points} runs",
            "analytic": "formulas",
            "commands": "commands",
            "rl": "agents",
        }[one.kind]
        rows.append([one.name, one.title, runs + (", --quick" if one.has_quick else ""), one.source])
    common.print_table(["name", "what", "made by", "source"], rows, numbers=False)


def _read_used(texts: list[str]) -> dict[str, Path]:
    from vauban.errors import BadInput

    pairs = [text.partition("=") for text in texts]
    for text, (name, _, folder) in zip(texts, pairs, strict=True):
        if not name or not folder:
            raise BadInput(f"--use {text}: NAME=FOLDER is needed, such as partitions-1200=results/poisoning/dpa-1200")
    return {name: Path(folder) for name, _, folder in pairs}


def _write_table(pages: list[Path], out: Path | None) -> None:
    """Write the table of all entries into pages; it holds what is stored in --out."""
    from vauban.errors import BadInput
    from vauban.reproduce.ledger import write

    if out is None or not out.is_dir():
        raise BadInput(
            "--table needs --out: the folder with a folder of results for each entry, such as results/reproduce"
        )
    for page in pages:
        if not page.is_file():
            raise BadInput(f"{page} does not exist: --table writes into a page that has the marks of the table")
        write(page, out)
        typer.echo(f"written: {page}")


def _show(names: list[str]) -> None:
    from importlib.resources import files

    from vauban.reproduce.entry import find

    for name in names:
        find(name)
        path = Path(name) if name.endswith(".toml") else files("vauban.reproduce") / "entries" / f"{name}.toml"
        typer.echo(path.read_text(encoding="utf-8"))


def _print(outcome: Outcome) -> None:
    from vauban.reproduce.comparing import headers, table_rows
    from vauban.reproduce.outcome import LEARNED, PAGE, learned_rows

    if outcome.learned:
        common.print_table(list(LEARNED), learned_rows(outcome.learned), title=outcome.entry.title)
    done = [row for row in outcome.rows if row.done]
    if done:
        common.print_table(headers(), table_rows(done), title=f"{outcome.entry.title}: {outcome.entry.source}")
    if len(done) < len(outcome.rows):
        typer.echo(f"{len(outcome.rows) - len(done)} more published numbers belong to runs that are not made yet")
    for text in outcome.verified:
        typer.echo(f"verified: {text}")
    for path in outcome.pictures:
        if path.suffix == ".png":
            typer.echo(f"picture: {path}")
    typer.echo(f"results: {outcome.out / PAGE}")
