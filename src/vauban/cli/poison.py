"""vauban poison: train an ensemble on parts of a training set, and certify how much of the set may be poisoned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example
from vauban.specs import Spec

if TYPE_CHECKING:
    from vauban.poisoning.progress import Progress, ProgressCallback

app = typer.Typer(
    help="Defend the training set: how many samples must an attacker add, remove or relabel to change an answer?",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DefenseOption = Annotated[
    str,
    typer.Option("--defense", "--defence", help="dpa, finite:spread=16 or ss-dpa:features=rotnet (by=hash, sort, …)"),
]
ClassesOption = Annotated[
    str | None, typer.Option(help="keep these classes only, as 1,7; they become 0, 1, … [all]", show_default=False)
]
AggregateOption = Annotated[str, typer.Option(help="plurality, or runoff: a second round between the two most voted")]
OutRunOption = Annotated[Path, typer.Option("--out", "-o", help="run folder")]


@app.command()
@example(
    "vauban poison train --data mnist --partitions 1200 --defense dpa --model cnn --out ens/",
    "vauban poison train --data mnist --partitions 1200 --defense ss-dpa:features=rotnet --out ens/",
    "vauban poison train --data mnist --defense ss-dpa:features=clusters --classes 1,7 --out ens/",
)
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="folder of the ensemble; taken up where it ended")],
    data: common.DataOption = "mnist",
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="how many parts", min=1)] = None,
    defense: DefenseOption = "dpa",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="network and recipe, as cnn:steps=300,lr=0.002 [by data]")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="partition: each its own, or shared [partition]")] = None,
    seed: Annotated[int, typer.Option(help="seed of weights and views", min=0, max=2**63 - 1)] = 0,
    normalise: Annotated[
        str | None, typer.Option("--normalise", "--normalize", help="partition: by its own mean, or fixed [by data]")
    ] = None,
    preprocess: Annotated[str, typer.Option(help="none, or equalise: spread each picture's histogram")] = "none",
    classes: ClassesOption = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    device: common.DeviceOption = "auto",
    on: Annotated[str, typer.Option(help="here, or ray[:address=host:port]: hand groups to a Ray cluster")] = "here",
    json: common.JsonOption = False,
) -> None:
    """Train one base classifier on each part of a training set (its train split unless another is named).

    What is trained is kept as it is trained: after Ctrl-C or a kill the same command goes on where it stopped.
    """
    from vauban.cli.poison_parts import check_fixed_classes, kept_classes, trainer_for
    from vauban.data import load_some
    from vauban.data.registry import with_split
    from vauban.errors import BadInput
    from vauban.poisoning.cluster_ensemble import ClusterEnsemble
    from vauban.poisoning.defense import package_entry, parse_defense
    from vauban.poisoning.ensemble import Ensemble

    chosen, where = parse_defense(defense), common.pick_device(device)
    check_fixed_classes(data)
    selected, index = load_some(with_split(data, "train"), every, limit)
    x, y, _, num_classes = kept_classes(selected, index, classes)
    source = {"spec": selected.name, "every": every, "limit": limit, "classes": classes, "defense": defense}
    source |= package_entry(defense)
    with notes():
        if getattr(chosen, "features", None) == "clusters":
            if partitions is not None:
                raise BadInput("features=clusters has one partition for each sample: leave --partitions out")
            made = ClusterEnsemble.fit(x, y, source=source)
            made.save(out)
            _say_trained(out, made.manifest, data, json)
            return
        if partitions is None:
            raise BadInput("--partitions is needed: how many parts, for example --partitions 1200")
        changes = {"seeds": seeds, "seed": seed, "normalise": normalise}
        shared = chosen.shared_features(x.shape[1] if x.ndim == 4 else 1)
        trainer = trainer_for(model, shared, x.shape[1:], num_classes, where, changes)
        ensemble = Ensemble.fit(
            x,
            y,
            chosen.partition(partitions),
            trainer,
            against=chosen.against,
            preprocessing=preprocess,
            folder=out,
            source=source,
            on=on,
            progress=progress_bars(out, json),
        )
    _say_trained(out, ensemble.manifest, data, json)


@app.command()
@example(
    "vauban poison certify --ensemble ens/ --data mnist:split=test --aggregate plurality --out runs/dpa",
    "vauban poison certify --ensemble ens/ --data mnist:split=test --aggregate runoff --every 10 --out runs/runoff",
)
def certify(
    out: OutRunOption,
    ensemble: Annotated[Path, typer.Option("--ensemble", "-e", help="folder that vauban poison train wrote")],
    data: common.DataOption = "mnist",
    aggregate: AggregateOption = "plurality",
    k: common.KOption = 1,
    label: Annotated[
        str | None, typer.Option(help="votes: certify the answer; given: the true label [votes; for k > 1 given]")
    ] = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    radii: Annotated[str | None, typer.Option(help="radii of the table, separated by commas")] = None,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Let the base classifiers vote on a data set, keep the votes, and print what they prove; exact, no probability.

    After Ctrl-C or a kill the same command goes on where it stopped. `vauban verify` proves the run again from its votes,
    without the ensemble.
    """
    from vauban.cli.poison_parts import kept_classes, load_ensemble, show
    from vauban.data import load_some
    from vauban.data.registry import with_split
    from vauban.poisoning.votes.certificates import derive
    from vauban.poisoning.votes.checkpoint import VotesCheckpoint
    from vauban.poisoning.votes.run_folder import compose, refuse_other, write_run
    from vauban.report.summary import parse_radii

    wanted = parse_radii(radii)
    where = common.pick_device(device)
    made = load_ensemble(ensemble, where)
    selected, index = load_some(with_split(data, "test"), every, limit)
    x, y, index, _ = kept_classes(selected, index, made.manifest["data"].get("classes"), labels_needed=False)
    total = (made.partition.models - len(made.manifest["partition"]["empty"])) * made.rounds(aggregate)
    described = {
        "spec": selected.name,
        "sha256": selected.fingerprint(),
        "index": index.tolist(),
        "label": None if y is None else y.tolist(),
    }
    training = {**made.manifest, "weights_sha256": made.weights_sha256, "voted_on": where}
    refuse_other(out, {"data": described, "training": training, "aggregate": aggregate, "k": k})
    groups = [list(group.numbers) for group in getattr(made, "groups", [])]
    checkpoint = VotesCheckpoint(
        out, {"data": described, "training": training, "aggregate": aggregate, "groups": groups}
    )
    try:
        with common.progress("voting", total, "models", json) as on_progress:
            votes = made.tally(x, aggregate, on_progress, checkpoint)
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped before all models had voted: {out} keeps the votes so far; the same command goes on", err=True
        )
        raise typer.Exit(common.INTERRUPTED) from None
    derive(votes, y, aggregate=aggregate, k=k, label=label)
    manifest = compose(
        votes, str(made.partition), aggregate=aggregate, training=training, data=described, k=k, label=label
    )
    run = write_run(out, manifest, votes)
    checkpoint.remove()
    show(run.certificates(), f"{selected.name}, {made.partition}", wanted, json, {"run": str(out)})


@app.command("import")
@example("vauban poison import votes.npz --data mnist:split=test --aggregate runoff --out runs/dpa")
def import_votes(
    votes: Annotated[
        Path, typer.Argument(help=".npz: votes or counts, labels, num_classes, …, and how they were trained")
    ],
    out: OutRunOption,
    aggregate: AggregateOption = "plurality",
    data: Annotated[str | None, typer.Option("--data", "-d", help="the test set, to check the labels by")] = None,
    defense: Annotated[
        str | None, typer.Option("--defense", "--defence", help="how the votes were trained, if the file does not say")
    ] = None,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="the same")] = None,
    k: common.KOption = 1,
    label: Annotated[str | None, typer.Option(help="votes or given, as in certify")] = None,
    radii: Annotated[str | None, typer.Option(help="radii of the table, separated by commas")] = None,
    json: common.JsonOption = False,
) -> None:
    """Make a run folder of votes that were cast elsewhere, so that `vauban verify` proves its claims."""
    from vauban.cli.poison_parts import described_data, show
    from vauban.poisoning.votes.run_folder import compose, write_run
    from vauban.poisoning.votes.votes_file import read_votes_file
    from vauban.report.summary import parse_radii

    wanted = parse_radii(radii)
    given = read_votes_file(votes, defense=defense, partitions=partitions)
    about = described_data(data, given)
    manifest = compose(
        given.votes, given.partition, aggregate=aggregate, training=given.training, data=about, k=k, label=label
    )
    run = write_run(out, manifest, given.votes)
    show(run.certificates(), f"{about['spec']}, {given.partition}", wanted, json, {"run": str(out)})


def progress_bars(out: Path, quiet: bool) -> Progress:
    """Progress bars for work on the folder `out`; a resumed training says how much it found there."""

    @contextmanager
    def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[ProgressCallback]:
        if done and not quiet:
            typer.echo(f"{out} holds {done:,} of {total:,} base classifiers; going on", err=True)
        with common.progress(label, total - done, unit, quiet) as on_progress:
            yield on_progress

    return progress


@contextmanager
def notes() -> Iterator[None]:
    """Say warnings as notes, once each."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("once")
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"note: {message}", err=True)
        yield


def _say_trained(out: Path, manifest: dict[str, Any], data: str, json: bool) -> None:
    split = manifest["partition"]
    if json:
        common.print_json(
            {"out": str(out), "partition": split["spec"], "models": split["models"], "empty": split["empty"]}
        )
        return
    sizes = f", {split['smallest']} to {split['largest']} samples each" if "smallest" in split else ""
    typer.echo(f"{out}: {split['models']:,} base classifiers on {split['spec']}{sizes}")
    spec = Spec.parse(data)
    test = Spec(spec.name, {**spec.params, "split": "test"})
    typer.echo(f"next: vauban poison certify --ensemble {out} --data {test} --out RUN")
