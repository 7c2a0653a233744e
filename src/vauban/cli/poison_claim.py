"""vauban claim for votes of base classifiers: a votes file, or a run folder of vauban poison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from vauban.errors import BadInput


def is_poisoning(votes: Path) -> bool:
    """Whether the path holds votes of base classifiers trained on parts of a training set."""
    from vauban.poisoning.votes.importing import holds_votes

    return holds_votes(votes)


def claim_votes(
    votes: Path,
    smoothing: str | None,
    k: int | None,
    radii: list[float] | None,
    out: Path | None,
    json: bool,
    unused: dict[str, Any],
) -> None:
    """Derive and print certificates; `unused` are options that do not apply, by name."""
    from vauban.cli.poison_output import show_certificates
    from vauban.files import replace_file
    from vauban.poisoning.votes.importing import derive_claims

    given = [name for name, value in unused.items() if value is not None]
    if given:
        raise BadInput(f"{', '.join(given)}: votes on partitions are exact and about the training set; leave it out")
    derived = derive_claims(votes, smoothing, k)
    certs = derived.certificates
    if out:
        replace_file(out, certs.to_csv().encode())
    show_certificates(certs, derived.title, radii, json, {"claims": certs.rows()})
    if out and not json:
        typer.echo(f"claims: {out}")
