"""vauban attack: how near there is an input with another answer, beside how far none is proven to be."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.certify import RowsOption
from vauban.cli.common import example

if TYPE_CHECKING:
    from vauban.attacks.results import Attacked


@example(
    "vauban attack runs/mnist --data mnist:split=test --budget 5min --out attacks/mnist",
    "vauban attack runs/mnist --model model.safetensors --data mnist --attack pgd:steps=400 --attack minimal --out attacks/a",
    "vauban attack --smoothing ablation:retained=45 --model ablation.safetensors --limit 20 --out attacks/l0",
    "vauban attack --smoothing none --threat linf --model model.safetensors --limit 100 --out attacks/undefended",
)
def attack(
    out: Annotated[Path, common.folder_option("folder of the attack; an existing one is continued")],
    run: Annotated[Path | None, typer.Argument(help="run folder; without one, --smoothing is needed")] = None,
    smoothing: Annotated[
        str | None, typer.Option("--smoothing", "-s", help="without a run: the smoothing, or none for the model alone")
    ] = None,
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="data set; of a run, the whole one [the run's, or mnist]")
    ] = None,
    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", "-a", help="name:key=value,…; repeat for more, the nearest counts [by threat]"),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="for all inputs: a time (60s, 5min, 2h) or a number of views (2000000) [no limit]"),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="attack each input to the end or not at all, as many as --budget is enough for"),
    ] = False,
    threat: Annotated[
        str | None, typer.Option(help="distance to make small; certificates are converted [the run's]")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="without a run: the label must leave the top k [1]")] = None,
    views: Annotated[int, typer.Option(min=1, help="views of common noise behind a gradient")] = 64,
    votes: Annotated[int, typer.Option(min=1, help="votes of common noise behind a hard label in the search")] = 1000,
    confirm_votes: Annotated[
        int, typer.Option(min=1, help="fresh votes that confirm an answer, at error 1e-6; exact: every view votes")
    ] = 10_000,
    abstain: Annotated[
        float | None,
        typer.Option(
            help="count it as a success where the classifier with --confirm-votes and this alpha abstains [no]"
        ),
    ] = None,
    together: Annotated[int, typer.Option(min=1, help="inputs attacked at once; more are faster on a GPU")] = 16,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    precision: Annotated[
        str | None,
        typer.Option(help="of a smoothed network without a run: fp32, tf32, bf16 or fp16 [fp32]", show_default=False),
    ] = None,
    rows: RowsOption = None,
    device: common.DeviceOption = "auto",
    seed: Annotated[
        int | None,
        typer.Option(help="seed of the search and of fresh votes [from the operating system]", show_default=False),
    ] = None,
    radii: Annotated[str | None, typer.Option(help="radii of the table, separated by commas")] = None,
    json: common.JsonOption = False,
) -> None:
    """Attack every input of a run with its own classifier, and show an upper bound beside each certificate.

    Attacks prove nothing by not finding anything. Only answers that fresh votes confirm count; abstentions do not, unless
    --abstain says so.
    Exit code 1: a confirmed answer contradicts a certificate; --out then holds a folder alarm/ that reproduces it.
    """
    from vauban.attacks.running import Budget
    from vauban.attacks.running import attack as run_attacks
    from vauban.report.summary import parse_radii

    shown_radii = parse_radii(radii)
    Budget.of(budget)
    subject, options = _subject(run, smoothing, model, weights, data, device, precision, rows, every, limit)
    attacked = run_attacks(
        subject,
        attacks=attacks or (),
        threat=threat,
        budget=budget,
        whole=whole,
        k=k,
        views=views,
        votes=votes,
        confirm_votes=confirm_votes,
        abstain=abstain,
        together=together,
        seed=seed,
        out=out,
        progress=not json,
        **options,
    )
    pictures = _draw(attacked, out)
    _show(attacked, out, shown_radii, pictures, json)
    if attacked.alarms:
        raise typer.Exit(1)


def _subject(
    run: Path | None,
    smoothing: str | None,
    model: str | None,
    weights: str | None,
    data: str | None,
    device: str,
    precision: str | None,
    rows: int | None,
    every: int,
    limit: int | None,
) -> tuple[Any, dict[str, Any]]:
    """What is attacked, and the arguments of `attack` that go with it."""
    from vauban.attacks.subjects import NONE
    from vauban.cli.build import classifier_and_data
    from vauban.errors import BadInput

    if (run is None) == (smoothing is None):
        given = "both a run and --smoothing" if run is not None else "neither a run nor --smoothing"
        raise BadInput(f"{given} given: name a run folder, or a smoothing (--smoothing none for the model alone)")
    if precision is not None and (run is not None or smoothing == NONE):
        has = "a run is attacked in its own precision" if run is not None else "--smoothing none is attacked in fp32"
        raise BadInput(f"--precision {precision}: {has}; leave it out")
    if rows is not None and (run is not None or smoothing == NONE):
        has = "a run is attacked in its own compute shape" if run is not None else "--smoothing none has no views"
        raise BadInput(f"--rows {rows}: {has}; leave it out")
    if run is not None:
        return run, _of_run(run, model, weights, data, device) | {"every": every, "limit": limit}
    assert smoothing is not None
    options = {
        "model": model,
        "weights": weights,
        "data": data or "mnist",
        "every": every,
        "limit": limit,
        "device": device,
    }
    if smoothing == NONE:
        with warnings.catch_warnings():  # the model is attacked without this smoothing
            warnings.filterwarnings("ignore", "the model was trained on views")
            smoothed, inputs = classifier_and_data(**options, smoothing="gaussian:sigma=1")  # type: ignore[arg-type]
        read = {"input_range": smoothed.input_range, "standardise": smoothed.standardise}
        return smoothed.base, {"data": inputs, "num_classes": smoothed.num_classes, "device": smoothed.device, **read}
    smoothed, inputs = classifier_and_data(**options, smoothing=smoothing, precision=precision or "fp32", rows=rows)  # type: ignore[arg-type]
    return smoothed, {"data": inputs}


def _of_run(run: Path, model: str | None, weights: str | None, data: str | None, device: str) -> dict[str, Any]:
    from vauban.data import load
    from vauban.errors import BadInput
    from vauban.runs import manifest as manifests

    if manifests.read_raw(run).get("kind") == "poisoning":
        raise BadInput(
            f"{run} is a poisoning run, whose training data is attacked, not its inputs: see docs/attacks.md"
        )
    manifest, where = manifests.read(run), common.pick_device(device)
    spec = common.run_data(run, manifest.data, data)
    chosen, loaded = common.run_model(run, manifest.model, model, weights, where)
    return {"model": loaded, "data": load(spec), "device": where, "called": _called(chosen, weights)}


def _called(model: str | Path, weights: str | None) -> str:
    """Options that name the model, for the command that reproduces an alarm."""
    words = ["--model", str(model), *([] if weights is None else ["--weights", weights])]
    return shlex.join(words)


def _draw(attacked: Attacked, out: Path) -> dict[str, str]:
    """Write curves and gallery; a picture that cannot be drawn is left out, with a word on why."""
    from vauban.attacks.folder import CURVES, GALLERY
    from vauban.errors import BadInput, MissingExtra

    written = {}
    title = "" if attacked.certs is None else str(attacked.certs.law.spec)
    for name, file, draw in (
        ("curves", CURVES, lambda path: attacked.plot(path, title)),
        ("gallery", GALLERY, attacked.gallery),
    ):
        try:
            draw(out / file)
            written[name] = str(out / file)
        except (BadInput, MissingExtra, OSError) as problem:
            typer.echo(f"no {name}: {problem}", err=True)
    return written


def _show(attacked: Attacked, out: Path, radii: list[float] | None, pictures: dict[str, str], json: bool) -> None:
    from vauban.report.attack_tables import headers, nice_radii, rows

    summary = attacked.summary(nice_radii(attacked) if radii is None else radii)
    if json:
        common.print_json({"out": str(out), **pictures, **summary})
        return
    common.print_table(headers(attacked), rows(attacked, summary), title=f"attacks in {attacked.threat.metric}")
    for note in summary["notes"]:
        typer.echo(f"note: {note}")
    for name, path in pictures.items():
        typer.echo(f"{name}: {path}")
    if attacked.alarms:
        where = ", ".join(map(str, summary["alarms"][:10]))
        typer.echo(
            f"ALARM: inputs {where} have another answer inside their certified radius; see {out}/alarm", err=True
        )
