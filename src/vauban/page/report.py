"""Writes the report page of one run, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vauban.errors import BadInput, RunRefused
from vauban.files import make_folder_of, replace_file
from vauban.page.contents import contents
from vauban.page.document import document
from vauban.page.inputs import MOST_VIEWS, VIEWS, attacked, pictured
from vauban.runs.opened import OpenedRun
from vauban.validation import path_of


def write_report(
    runs: Sequence[OpenedRun],
    out: str | Path,
    *,
    title: str | None = None,
    data: Any = None,
    attacks: Sequence[str | Path] = (),
    views: int = VIEWS,
) -> Path:
    """Write one HTML file about these runs and return its path.

    `data`: the data set of the inputs, or its text, in place of the one that each manifest names. `attacks`: folders of attacks
    on these runs. `views`: how many views of an input are shown, 16 at most, for at most 50
    inputs of a run.
    """
    if not runs:
        raise BadInput("a report needs a run: name one folder or more")
    if not 0 <= views <= MOST_VIEWS:
        raise BadInput(f"views={views}: how many views of an input are shown is needed, from 0 to {MOST_VIEWS}")
    places = [run.path.resolve() for run in runs]
    for run, place in zip(runs, places, strict=True):
        if places.count(place) > 1:
            raise BadInput(f"{run.path} is given twice: a report shows each run once, so name it once")
    known = {run.manifest.identity for run in runs}
    folders = {_attacked_run(folder, known): folder for folder in attacks}
    shown = []
    for run in runs:
        one = contents(run)
        one["pictures"] = pictured(run, data, views)
        folder = folders.get(run.manifest.identity)
        one["attack"] = None if folder is None else attacked(run, folder)
        shown.append(one)
    called = title or (runs[0].title if len(runs) == 1 else f"{len(runs)} runs compared")
    path = path_of("path", out)
    make_folder_of(path)
    replace_file(path, document({"title": title, "runs": shown}, called).encode())
    return path


def _attacked_run(folder: str | Path, known: set[str]) -> str:
    """The identity of the run that an attack was on, which must be one of those `known`."""
    from vauban.attacks.folder import SETTINGS
    from vauban.files import read_json

    path = Path(folder)
    if not (path / SETTINGS).is_file():
        raise BadInput(f"{path} is no attack: the folder that vauban attack --out wrote is needed")
    run = read_json(path / SETTINGS).get("run")
    if run not in known:
        raise RunRefused(
            f"the attack in {path} is on none of these runs: give the run that it attacked, or leave it out"
        )
    return str(run)
