"""vauban claim for votes of base classifiers: a .npz that anybody wrote, or a run folder of vauban poison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from vauban.errors import BadInput
from vauban.specs import Parameter, Spec, choose, read_params


def is_poisoning(votes: Path) -> bool:
    """Whether the votes are those of base classifiers trained on parts of a training set."""
    from vauban.poisoning.manifest_file import kind_of
    from vauban.poisoning.votes.run_folder import KIND

    kind = kind_of(votes) if votes.is_dir() else None
    if kind not in (None, KIND):
        raise BadInput(
            f"{votes} is an {kind}, not a run: let it vote first, vauban poison certify --ensemble {votes} …"
        )
    return votes.suffix == ".npz" or kind == KIND


def claim_votes(
    votes: Path,
    smoothing: str | None,
    k: int | None,
    radii: list[float] | None,
    out: Path | None,
    json: bool,
    unused: dict[str, Any],
) -> None:
    """Derive and print claims; `unused` are options that make no sense here, by name."""
    from vauban.cli.poison_parts import show
    from vauban.files import replace_file
    from vauban.poisoning.votes.certificates import derive
    from vauban.poisoning.votes.run_folder import claims_csv, read_run
    from vauban.poisoning.votes.votes_file import read_votes_file

    given = [name for name, value in unused.items() if value is not None]
    if given:
        raise BadInput(f"{', '.join(given)}: votes on partitions are exact and about the training set; leave it out")
    if votes.is_dir():
        if smoothing is not None:
            raise BadInput(f"{votes} says itself how its votes were cast: leave --smoothing out")
        run = read_run(votes)
        certs, index, title = run.certificates(k=k), run.index, f"{votes}, {run.manifest['partition']}"
    else:
        asked = _read(votes, smoothing)
        file = read_votes_file(votes, spread=asked["spread"], against=asked["threat"])
        certs = derive(file.votes, file.labels, aggregate=asked["aggregate"], k=1 if k is None else k)
        index, title = file.index, f"{votes}, {file.votes.models:,} models"
    if out:
        replace_file(out, claims_csv(certs, index).encode())
    claims = [
        {"index": int(i), "label": int(label), "radius": None if gone else int(r), "abstained": bool(gone)}
        for i, label, r, gone in zip(index, certs.label, certs.radius, certs.abstained, strict=True)
    ]
    show(certs, title, radii, json, {"claims": claims})
    if out and not json:
        typer.echo(f"claims: {out}")


def _read(votes: Path, smoothing: str | None) -> dict[str, Any]:
    from vauban.poisoning.votes.ensemble_votes import AGGREGATES, THREATS

    if smoothing is None:
        raise BadInput(f"{votes} holds votes of base classifiers: say so with --smoothing partition")
    spec = Spec.parse(smoothing)
    if spec.name != "partition":
        raise BadInput(f"--smoothing {smoothing}: a .npz of votes is about partitions, --smoothing partition")
    return read_params(
        spec,
        {
            "aggregate": Parameter(lambda text: choose("aggregate", text, AGGREGATES), default="plurality"),
            "spread": Parameter(_spread, example="16"),
            "threat": Parameter(lambda text: choose("threat", text, THREATS), example="labels"),
        },
    )


def _spread(text: str) -> int:
    value = int(text)
    if value < 1:
        raise BadInput("a spread is a whole number from 1")
    return value
