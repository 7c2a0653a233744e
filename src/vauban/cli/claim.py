"""vauban claim: derives claims again from votes that were cast before, without the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vauban.certificates import Certificates


@example(
    "vauban claim runs/mnist -k 3 --bounds simuem --out claims.csv",
    "vauban claim runs/mnist --threat l0",
    "vauban claim runs/mnist -k 3 --label given",
    "vauban claim runs/mnist --all-looks",
    "vauban claim runs/band --patch 28x2 --out standing.csv",
    "vauban claim counts.txt --smoothing gaussian:sigma=0.5 -k 3 --alpha 0.001 --bounds simuem",
    "vauban claim votes.npz --smoothing partition:spread=1,threat=samples,aggregate=runoff",
)
def claim(
    votes: Annotated[
        Path,
        typer.Argument(help="a run folder, a text file (counts per class, label last, a row per input), or a .npz"),
    ],
    smoothing: Annotated[
        str | None,
        typer.Option(
            "--smoothing",
            "-s",
            help="law of the noise (of a .npz: partition:spread=1,threat=samples); needed where the file does not say",
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="certify the label among the top k [the run's, or 1]")] = None,
    alpha: Annotated[float | None, typer.Option(help="failure probability per input [the run's, or 0.001]")] = None,
    bounds: common.BoundsOption = None,
    n: Annotated[int | None, typer.Option("-n", help="use only the first n votes, at one of the run's looks")] = None,
    label: Annotated[
        str | None,
        typer.Option(help="given: certify the true labels, where the run's own claim is about labels that votes chose"),
    ] = None,
    all_looks: Annotated[
        bool,
        typer.Option(
            "--all-looks",
            help="the claim that holds at all looks of the run at once: alpha shared by them, the best for each",
        ),
    ] = False,
    threat: Annotated[
        str | None, typer.Option(help="convert the claims to another threat: l1, linf, l0, l0-features, patch, …")
    ] = None,
    mass: Annotated[
        str | None,
        typer.Option(
            help="with --threat wasserstein or wasserstein-l2 of an L1 run: what the numbers of a picture add up to at most (1 "
            "if pictures were normalised), or the run's data set, whose own masses are taken [the largest possible]"
        ),
    ] = None,
    shape: Annotated[str | None, typer.Option(help="shape of the inputs of a text file, for example 3x32x32")] = None,
    patch: Annotated[
        str | None,
        typer.Option(help="exact band or block runs: certify against patches HEIGHTxWIDTH, for example 5x12"),
    ] = None,
    radii: Annotated[str | None, typer.Option(help="radii of the table, separated by commas")] = None,
    rho: Annotated[float, typer.Option(help="failure probability of the claim about the whole data set")] = 0.001,
    dataset_claim: Annotated[
        str,
        typer.Option(help="bound on the certified accuracy: binomial (all radii at once), or bernstein (Lemma 11)"),
    ] = "binomial",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="write CSV (or .parquet): index,label,radius,abstained,truth")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Derive claims again, for another k, alpha or bound, from a run or from counts in a file.

    Choose -n, -k, --alpha and --bounds before you look: with other settings than the run's this is a second claim, and a note
    says with what probability both fail together.
    """
    from vauban.certificates import COLUMNS, derive
    from vauban.cli.build import check_out
    from vauban.cli.poison_claim import claim_votes, is_poisoning
    from vauban.cli.show import print_notes
    from vauban.errors import BadInput
    from vauban.files import replace_file
    from vauban.formats.results import of_counts
    from vauban.formats.tables import write_parquet
    from vauban.laws import law
    from vauban.report.numbers import percent_up, radius_text
    from vauban.report.summary import headers, nice_radii, parse_radii, rows
    from vauban.report.wording import LABELS_FIXED
    from vauban.runs.foreign_counts import read_counts
    from vauban.runs.masses import with_mass
    from vauban.runs.run import Run
    from vauban.validation import refuse_sampled_settings

    shown_radii = parse_radii(radii)
    if out:
        check_out(out)
    if is_poisoning(votes):
        unused = {"--alpha": alpha, "--bounds": bounds, "-n": n, "--threat": threat, "--shape": shape, "--patch": patch}
        unused |= {"--all-looks": all_looks or None, "--label": label}
        claim_votes(votes, smoothing, k, shown_radii, out, json, unused)
        return
    sides: Sequence[int] | None
    if votes.is_dir():
        run = Run.open(votes)
        certs, sides = (
            run.certificates(
                k=k, alpha=alpha, bounds=bounds, n=n, label=label, smoothing=smoothing, all_looks=all_looks
            ),
            run.manifest.data.shape,
        )
        if n is None and len(certs) < len(run):
            typer.echo(f"{votes} is not finished: claims for {len(certs)} of its {len(run)} inputs", err=True)
    else:
        if not votes.exists():
            raise BadInput(f"{votes} does not exist: a run folder or a text file of counts is needed")
        if smoothing is None:
            raise BadInput(
                f"{votes} holds bare counts: say which noise they were cast under, --smoothing gaussian:sigma=0.5"
            )
        if n is not None or all_looks:
            raise BadInput(
                "-n and --all-looks speak of looks of a run; a text file of counts has only its full number of votes"
            )
        if label is not None:
            raise BadInput(
                f"--label {label} belongs to a run folder; a text file has the label of each row: leave it out"
            )
        sides = None if shape is None else read_shape(shape)
        noise = law(smoothing).without_determinism()  # counts do not say whether a view always has the same vote
        if noise.exact:
            refuse_sampled_settings(smoothing, alpha=alpha, bounds=bounds)
        counts, labels = read_counts(votes)
        level = 0.001 if alpha is None else alpha
        certs = derive(counts, labels, noise, k=1 if k is None else k, alpha=level, bounds=bounds, shape=sides)
        fixed = () if certs.exact else (f"presupposed: {LABELS_FIXED}",)
        certs = replace(
            certs, notes=(*fixed, "the label of each line is taken for the true one: accuracies count it so")
        )
    if patch is not None:
        if threat is not None:
            raise BadInput("--patch is about patches, not about another threat: leave --threat out")
        _claim_patch(certs, patch, out, json)
        return
    if mass is not None and (threat is None or not votes.is_dir()):
        raise BadInput(f"--mass {mass} belongs to --threat wasserstein or wasserstein-l2 of a run folder: give both")
    if threat is not None and mass is not None:
        certs = with_mass(certs, threat, run.manifest.data, _read_mass(mass))
    elif threat is not None:
        certs = certs.in_threat(threat, read_shape(shape) if sides is None else sides)
    if out and out.suffix == ".parquet":
        write_parquet(out, replace(of_counts(certs), radius=certs.radius, threat=certs.threat.name))
    elif out:
        replace_file(out, certs.to_csv((*COLUMNS, *(() if certs.look is None else ("look",)))).encode())
    if certs.truth is None:
        summary: dict[str, object] = {
            "inputs": len(certs),
            "undecided": certs.undecided,
            "notes": list(certs.notes),
        }
        lines = [["undecided", percent_up(certs.undecided)]]
    else:
        summary = certs.summary(nice_radii(certs) if shown_radii is None else shown_radii, rho, dataset_claim)
        lines = rows(summary)
    if json:
        claims = [
            {
                "index": i,
                "label": int(label),
                "radius": None if abstained else float(radius_text(float(r), certs.threat)),
                "abstained": bool(abstained),
                **({} if certs.look is None else {"look": None if abstained else int(certs.look[row])}),
            }
            for row, (i, label, r, abstained) in enumerate(
                zip(certs.index.tolist(), certs.label, certs.radius, certs.abstained, strict=True)
            )
        ]
        common.print_json(summary | {"claims": claims})
        return
    statistics = "exact" if certs.exact else f"alpha {certs.alpha}, {certs.bounds}"
    title = f"{certs.law.spec}, {certs.votes_per_input:,.0f} votes per input, {statistics}"
    title += "" if certs.look is None else ", at all looks at once"
    if threat is not None:
        values = "" if threat == "linf" else " (values in [0,1] before and after)"
        title += f", as radii in {certs.threat.name}{values}"
    columns = headers({"certified": [], "k": certs.k, "exact": certs.exact, "rho": rho} | summary)
    common.print_table(columns[: len(lines[0])], lines, title=title)
    print_notes(certs.notes)
    if out:
        typer.echo(f"claims: {out}")


def _claim_patch(certs: Certificates, patch: str, out: Path | None, json: bool) -> None:
    """Print or write which labels stay in the top k under every patch of this height and width."""
    from vauban.errors import BadInput
    from vauban.files import replace_file
    from vauban.report.numbers import percent

    sides = [int(side) for side in patch.split("x") if side.isascii() and side.isdigit()]
    if len(sides) != 2 or min(sides) < 1 or patch.count("x") != 1:
        raise BadInput(f"--patch {patch}: a height and a width in pixels are needed, for example --patch 5x5")
    standing = certs.stands((sides[0], sides[1]))
    shape = None if certs.record is None else certs.record.manifest.data.shape[-2:]
    if shape is not None and (sides[0] > shape[0] or sides[1] > shape[1]):
        raise BadInput(
            f"--patch {patch}: the pictures of this run are {shape[0]}x{shape[1]} pixels; give a height of at most {shape[0]} "
            f"and a width of at most {shape[1]}"
        )
    rows = list(zip(certs.index.tolist(), certs.label.tolist(), standing.tolist(), strict=True))
    if out:
        lines = [f"{i},{label},{str(yes).lower()}" for i, label, yes in rows]
        replace_file(out, "\n".join(["index,label,stands", *lines, ""]).encode())
    right = standing if certs.truth is None else standing & (certs.label == certs.truth)
    if json:
        claims = [{"index": i, "label": label, "stands": yes} for i, label, yes in rows]
        common.print_json({"patch": [*sides], "k": certs.k, "certified": float(right.mean()), "claims": claims})
        return
    typer.echo(
        f"{int(right.sum())} of {len(certs)} inputs ({percent(float(right.mean()))}) keep their label in the top {certs.k} under "
        f"every change inside one {sides[0]} x {sides[1]} rectangle ({certs.law.spec}, exact)"
    )
    if out:
        typer.echo(f"claims: {out}")


def _read_mass(text: str) -> Any:
    """A number, or the data set that is named."""
    try:
        return float(text)
    except ValueError:
        from vauban.data import load

        return load(text)


def read_shape(text: str | None) -> tuple[int, ...]:
    """Read a shape such as 3x32x32."""
    from vauban.errors import BadInput

    parts = (text or "").split("x")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        given = "nothing" if text is None else text
        raise BadInput(f"--shape is {given}: the shape of the inputs is needed here, for example --shape 3x32x32")
    return tuple(int(part) for part in parts)
