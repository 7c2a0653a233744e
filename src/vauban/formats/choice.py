"""Which layouts there are, which one a path has, and reading and writing by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vauban.errors import BadInput
from vauban.formats import arrays, cohen, counts_text, dpa, tables
from vauban.formats.results import Results, of_claims, of_counts, units
from vauban.laws import law as law_of
from vauban.laws.exact import ExactLaw
from vauban.runs.manifest import has_manifest
from vauban.specs import choose
from vauban.validation import path_of


@dataclass(frozen=True)
class Layout:
    """A layout of result files. `suffix`: the ending by which a target is known, if any; `about`: what it holds.

    `options`: what reading it takes: "threat", "smoothing".
    """

    about: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Results] | None
    write: Callable[[Path, Results], Any]
    suffix: str = ""
    options: tuple[str, ...] = ()


LAYOUTS: dict[str, Layout] = {
    "csv": Layout("claims, Vauban's own table", tables.is_csv, tables.read_csv, tables.write_csv, ".csv"),
    "parquet": Layout("the same as Parquet", tables.is_parquet, tables.read_parquet, tables.write_parquet, ".parquet"),
    "cohen": Layout(
        "idx, label, predict, radius, correct, time (locuslab/smoothing)",
        *(cohen.recognises, cohen.read, cohen.write, ".tsv", ("threat",)),
    ),
    "topk": Layout(
        "counts per class and the label (Certify_Topk); vauban claim reads it",
        *(counts_text.recognises, counts_text.read, counts_text.write, ".txt"),
    ),
    "dssn": Layout(
        "a folder of arrays, shares of all views' votes (smoothingSplittingNoise)",
        *(arrays.is_dssn, arrays.read_dssn, arrays.write_dssn, "", ("smoothing",)),
    ),
    "rs4a": Layout(
        "a folder of arrays, radii in l1, l2, linf (rs4a)",
        *(arrays.is_rs4a, arrays.read_rs4a, arrays.write_rs4a, "", ("threat",)),
    ),
    "dpa": Layout("scores of base classifiers, saved by torch (DPA)", dpa.recognises, dpa.read, dpa.write, ".pth"),
    "votes": Layout(
        "votes of base classifiers, .npz; vauban claim reads it", lambda path: False, None, dpa.write_votes, ".npz"
    ),
}


def read(
    path: str | Path, layout: str | None = None, *, threat: str | None = None, smoothing: str | None = None
) -> Results:
    """Read a file or folder of results; its layout is recognised unless given.

    `threat`: what radii are distances in, where a layout does not say. `smoothing`: the exact smoothing of a DSSN folder, whose
    number of views gives the counts.
    """
    place = path_of("path", path)
    if not place.exists():
        raise BadInput(f"{path} does not exist: a run folder, or a file of results, is needed")
    name = layout or recognised(place)
    found = LAYOUTS[choose("layout", name, LAYOUTS)]
    if found.read is None:
        raise BadInput(f"{path}: {name} is written here and read by vauban claim and vauban poison import")
    given = {key: value for key, value in (("threat", threat), ("smoothing", smoothing)) if value is not None}
    for key in given:
        if key not in found.options:
            raise BadInput(
                f"--{key} is not for the layout {name}, which says it itself or does not need it: leave it out"
            )
    if smoothing is not None:
        law = law_of(smoothing)
        if not isinstance(law, ExactLaw):
            raise BadInput(
                f"--smoothing {smoothing} is sampled: the exact smoothing of the views is needed, splitting:sigma=0.5"
            )
        return found.read(place, law)
    return found.read(place, **given)


def write(path: str | Path, results: Results, layout: str | None = None) -> tuple[str, ...]:
    """Write results; the layout is that of the path's ending unless given. Returns what a reader must know besides."""
    place = path_of("path", path)
    name = choose("layout", layout or by_suffix(place), LAYOUTS)
    if name in ("rs4a", "dssn"):
        if place.is_file():
            raise BadInput(f"{path} is a file, and {name} is a folder of arrays: give another name")
    elif has_manifest(place.absolute().parent):
        raise BadInput(f"{path} lies in a run folder, whose files are not written here: give a name outside of it")
    elif place.is_dir() or not place.absolute().parent.is_dir():
        raise BadInput(f"{path} cannot be written: its folder must exist and it must not be a folder itself")
    return LAYOUTS[name].write(place, results) or ()


def recognised(path: Path) -> str:
    """The layout that a file or folder has."""
    found = [name for name, layout in LAYOUTS.items() if layout.recognises(path)]
    if not found:
        raise BadInput(
            f"{path} is no run folder, and its layout is not recognised: say it with --from, one of {', '.join(LAYOUTS)}"
        )
    return found[0]


def results_of_run(path: str | Path, to: str) -> Results:
    """The results of a run folder, of either kind, for a layout: its claims, or only counts and labels."""
    from vauban.runs.run import Run

    run = Run.open(path)
    of_models = hasattr(run.votes, "against")
    if to in ("dpa", "votes") and not of_models:
        raise BadInput(f"{path} holds votes on views, and {to} those of base classifiers: a poisoning run is needed")
    certs = run.certificates()
    if to == "topk":
        notes, counted = _counted(run, path, of_models), of_counts(certs)
        label, said = _last_column(run, counted)
        return replace(counted, label=label, notes=(*notes, *said))
    if to == "dssn" and (of_models or not certs.exact or certs.law.name != "splitting"):
        raise BadInput(f"{path} is no run with exact splitting, for which {to} is: use --to csv")
    if to in ("dpa", "votes"):
        ballots = run.votes.ballots
        return replace(of_counts(certs), ballots=None if ballots is None else ballots.astype(np.int64), run=run)
    return of_claims(certs)


def _counted(run: Any, path: str | Path, of_models: bool) -> tuple[str, ...]:
    """Refuse a run whose bare counts would prove too much, and say what bare counts leave out."""
    if of_models:
        raise BadInput(
            f"{path} holds votes of base classifiers: write a votes file (--to votes), which vauban claim reads"
        )
    if run.manifest.settings.stop not in (None, "fixed"):
        raise BadInput(
            f"{path} stopped by {run.manifest.settings.stop}: counts at a look that was chosen by looking prove less than "
            "those of a fixed number of votes, and a file of counts cannot say so; write its claims (--to csv)"
        )
    notes = list(units(run.certificates()))
    if not run.manifest.deterministic:
        notes.append("the base classifier does not give a view always the same answer, which bare counts cannot say")
    if run.manifest.inputs.deviation_per_view:
        notes.append("claims from bare counts take the noise for exact; the run's own claims allow for its rounding")
    return tuple(notes)


def _last_column(run: Any, counted: Results) -> tuple[Any, tuple[str, ...]]:
    """The label of each line of a file of counts, the true one where there is one, and what a reader must know of it."""
    if run.manifest.settings.label == "given":
        return counted.label, ()
    if counted.truth is None:
        said = "this run has no true labels: the last column holds the labels that votes chose, and no accuracy follows from it"
        return counted.label, (said,)
    return counted.truth, (
        "the last column holds the true labels, as readers of this layout take it; the run's own claims are about the labels "
        "that votes chose, so that what these counts prove is a second claim",
    )


def by_suffix(path: Path) -> str:
    """The layout that the ending of a target names."""
    for name, layout in LAYOUTS.items():
        if layout.suffix and path.suffix == layout.suffix:
            return name
    raise BadInput(f"{path}: say what it is to be, --to {', '.join(LAYOUTS)}")
