"""vauban poison attack: looks for small changes of the training set that move an ensemble's answers, beside what is certified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example

if TYPE_CHECKING:
    from vauban.attacks.poisoning.retraining import Poisoned
    from vauban.poisoning.ensemble import Ensemble

TABLE = "table.csv"

TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        help="a type that the ensemble's skops files may hold, such as sklearn.tree._tree.Tree; repeat it for more",
        show_default=False,
    ),
]


@example(
    "vauban poison attack --ensemble ens/ --data mnist:split=test --every 1000 --out attacks/dpa",
    "vauban poison attack --ensemble ens/ --data mnist:split=test --change add --limit 5 --out attacks/dpa-added",
)
def attack(
    out: Annotated[Path, common.folder_option("folder of the attack")],
    ensemble: Annotated[Path, typer.Option("--ensemble", "-e", help="folder that vauban poison train wrote")],
    data: common.DataOption = "mnist",
    train_data: Annotated[
        str | None, typer.Option(help="the training set, as vauban poison train was given it [the ensemble's]")
    ] = None,
    change: Annotated[
        str, typer.Option(help="flip: relabel samples; add: add samples; remove: remove samples")
    ] = "flip",
    most: Annotated[int, typer.Option(min=1, help="changes tried in one part, at most")] = 64,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of the samples that are added")] = 0,
    trust: TrustOption = None,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Poison the training set of an ensemble: for each input a small change that moves its answer, found by training anew.

    What is found is an upper bound beside the certified lower bound; finding nothing proves nothing. It trains parts of the
    ensemble several times for each input: choose few. Exit code 1: a change smaller than what is certified moves an answer.
    """
    from vauban.attacks.poisoning.retraining import poison
    from vauban.data.dataset import any_samples
    from vauban.errors import BadInput
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.ensemble_training import load_ensemble
    from vauban.poisoning.selection import select

    loaded = load_ensemble(ensemble, common.pick_device(device), trust or ())
    if not isinstance(loaded, Ensemble):
        raise BadInput(f"{ensemble} is an ensemble of clusters, which this attack cannot train anew: give one of parts")
    with any_samples():
        source = _training_set(loaded, train_data)
        samples = select(**source)
    inputs = select(data, split="test", every=every, limit=limit, labels_needed=False)
    assert samples.y is not None
    found = []
    with common.progress(f"poisoning for {len(inputs.x)} inputs", len(inputs.x), "inputs", json) as advance:
        for i in range(len(inputs.x)):
            found += poison(loaded, samples.x, samples.y, inputs.x[i : i + 1], change=change, most=most, seed=seed + i)
            advance(1)
    summary = _written(out, inputs.index.tolist(), found, change)
    if json:
        common.print_json({"out": str(out), **summary})
    else:
        rows = [[name.replace("_", " "), str(value)] for name, value in summary.items()]
        common.print_table(["changes of the training set", ""], rows, title=str(loaded.partition))
    if summary["contradicted"]:
        typer.echo(f"ALARM: a smaller change than certified moves an answer; see {out / TABLE}", err=True)
        raise typer.Exit(1)


def _training_set(ensemble: Ensemble, given: str | None) -> dict[str, Any]:
    """The arguments of `select` that give the ensemble's training set."""
    from vauban.errors import BadInput

    source = ensemble.manifest["data"]
    spec = given or source.get("spec")
    if spec is None:
        raise BadInput("the ensemble does not say what it was trained on: give its training set (--train-data)")
    kept = {"every": source.get("every") or 1, "limit": source.get("limit"), "classes": source.get("classes")}
    return {"data": spec, "split": "train", **kept}


def _written(out: Path, index: list[int], found: list[Poisoned], change: str) -> dict[str, Any]:
    """Write one line for each input; what all of them say together."""
    from vauban.attacks.folder import write_table

    out.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, one in zip(index, found, strict=True):
        upper = "" if one.change is None else len(one.change)
        lines.append((number, one.label, one.certified, upper, "" if one.answer is None else one.answer))
    write_table(out / TABLE, ("index", "label", "certified", "found", "answer"), lines)
    sizes = sorted(one.upper for one in found)
    moved = [one for one in found if one.change is not None]
    middle = sizes[len(sizes) // 2] if sizes else float("inf")
    return {
        "change": change,
        "inputs": len(found),
        "moved": len(moved),
        "median_certified": sorted(one.certified for one in found)[len(found) // 2] if found else None,
        "median_found": None if middle == float("inf") else int(middle),
        "contradicted": sum(one.upper < one.certified for one in found),
    }
