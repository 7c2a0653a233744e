"""vauban poison: train an ensemble on parts of a training set, and certify how much of the set may be poisoned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vauban.cli import common, poison_attack, poison_collective
from vauban.cli.common import example
from vauban.errors import BadInput

app = typer.Typer(
    help="Defend the training set: how many samples must an attacker add, remove or relabel to change an answer?",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DefenseOption = Annotated[
    str,
    typer.Option(
        "--defense",
        "--defence",
        help="dpa, finite:spread=16 or ss-dpa:features=spectral,by=stratified (also rotnet; hash, sort, …)",
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(help="keep only these classes, for example 1,7; they become 0, 1, … [all]", show_default=False),
]
AggregateOption = Annotated[str, typer.Option(help="plurality, or runoff: a second round between the two most voted")]
KeepVotesOption = Annotated[
    bool, typer.Option("--keep-votes", help="keep the vote of every base classifier, for vauban poison collective")
]
TrustOption = poison_attack.TrustOption
OutRunOption = Annotated[Path, common.folder_option("run folder")]


@app.command()
@example(
    "vauban poison train --data mnist --partitions 1200 --defense dpa --model tiny-cnn --out ens/",
    "vauban poison train --data mnist --partitions 1200 --defense ss-dpa:features=spectral,by=stratified --out ens/",
    "vauban poison train --data mnist --defense ss-dpa:features=clusters --classes 1,7 --out ens/",
)
def train(
    out: Annotated[
        Path | None,
        common.folder_option("folder of the ensemble; an interrupted training is resumed [needed without --plan]"),
    ] = None,
    data: common.DataOption = "mnist",
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="how many parts", min=1)] = None,
    defense: DefenseOption = "dpa",
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="network and recipe, for example tiny-cnn:steps=300,lr=0.002 [by data]"),
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
    on: Annotated[str, typer.Option(help="here, or ray[:address=host:port]: train groups on a Ray cluster")] = "here",
    plan: Annotated[
        bool, typer.Option("--plan", help="train a few, print time, memory and disk of all, and write nothing")
    ] = False,
    json: common.JsonOption = False,
) -> None:
    """Train one base classifier on each part of a training set (its train split unless another is named).

    Trained base classifiers are saved at once: after Ctrl-C or a kill the same command continues where it stopped.
    """
    from vauban.cli.poison_output import note_after, progress_bars, show_plan, show_trained, warnings_as_notes
    from vauban.poisoning.ensemble_training import plan_parts
    from vauban.poisoning.ensemble_training import train as train_ensemble

    settings: dict[str, Any] = {
        "model": model,
        "seeds": seeds,
        "seed": seed,
        "normalise": normalise,
        "preprocessing": preprocess,
        "classes": classes,
        "every": every,
        "limit": limit,
        "device": common.pick_device(device),
    }
    if plan:
        if partitions is None:
            raise BadInput("--plan needs --partitions: how many parts, for example --partitions 1200")
        with note_after(2, "timing some steps of a few base classifiers …"):
            planned = plan_parts(data, defense, partitions, **settings)
        show_plan(planned, json)
        return
    if out is None:
        raise BadInput("--out is needed: the folder in which base classifiers are saved, for example --out ens")
    with warnings_as_notes():
        ensemble = train_ensemble(
            data, defense, partitions, out=out, on=on, progress=progress_bars(out, json), **settings
        )
    show_trained(out, ensemble.manifest, data, json)


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
    keep_votes: KeepVotesOption = False,
    trust: TrustOption = None,
    on: Annotated[str, typer.Option(help="here, or ray[:address=host:port]: groups vote on a Ray cluster")] = "here",
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Let the base classifiers vote on a data set, keep the votes, and print what they prove; exact, no probability.

    After Ctrl-C or a kill the same command continues where it stopped; of a finished run it takes the stored votes. `vauban
    verify` checks the run from its votes, without the ensemble.
    """
    from vauban.cli.poison_output import progress_bars, show_certificates
    from vauban.poisoning.ensemble_training import load_ensemble
    from vauban.poisoning.votes import poisoning_manifest
    from vauban.report.summary import parse_radii

    shown_radii = parse_radii(radii)
    voters = load_ensemble(ensemble, common.pick_device(device), trust or ())
    try:
        certs = voters.certify_data(
            data,
            aggregate,
            every=every,
            limit=limit,
            k=k,
            label=label,
            out=out,
            keep_votes=keep_votes,
            on=on,
            progress=progress_bars(out, json),
        )
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped before all models had voted: {out} keeps the votes so far; run the same command again", err=True
        )
        raise typer.Exit(common.INTERRUPTED) from None
    title = f"{poisoning_manifest.read(out).data.spec}, {voters.partition}"
    show_certificates(certs, title, shown_radii, json, {"run": str(out)})


@app.command("import")
@example("vauban poison import votes.npz --data mnist:split=test --aggregate runoff --out runs/dpa")
def import_votes(
    votes: Annotated[
        Path,
        typer.Argument(
            help=".npz: votes or counts, labels, num_classes, and spread, threat, partition (Ensemble.export)"
        ),
    ],
    out: OutRunOption,
    aggregate: AggregateOption = "plurality",
    data: Annotated[str | None, typer.Option("--data", "-d", help="the test set, to check the labels against")] = None,
    defense: Annotated[
        str | None,
        typer.Option("--defense", "--defence", help="the defense behind the votes; needed if the file does not say it"),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="its number of parts, if the file does not say")
    ] = None,
    k: common.KOption = 1,
    label: Annotated[str | None, typer.Option(help="votes or given, as in certify")] = None,
    keep_votes: KeepVotesOption = False,
    radii: Annotated[str | None, typer.Option(help="radii of the table, separated by commas")] = None,
    json: common.JsonOption = False,
) -> None:
    """Make a run folder from votes that were cast elsewhere, so that `vauban verify` can check its claims."""
    from vauban.cli.poison_output import show_certificates
    from vauban.poisoning.votes.importing import import_votes as import_file
    from vauban.report.summary import parse_radii

    shown_radii = parse_radii(radii)
    run = import_file(
        votes,
        out,
        aggregate,
        data=data,
        defense=defense,
        partitions=partitions,
        k=k,
        label=label,
        keep_votes=keep_votes,
    )
    show_certificates(run.certificates(), run.title, shown_radii, json, {"run": str(out)})


app.command()(poison_attack.attack)
app.command()(poison_collective.collective)
