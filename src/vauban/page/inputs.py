"""Finds the inputs of a run, makes a few of their views, and reads what attacks found for them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, RunRefused, VaubanError
from vauban.files import read_json
from vauban.page.pictures import data_urls, is_picture
from vauban.runs.opened import OpenedRun
from vauban.runs.run import Run
from vauban.runs.selection import check_data

PICTURES = 500
VIEWED, VIEWS, MOST_VIEWS = 50, 3, 16
"""How many inputs have a picture at most; how many of these have views, how many each, and how many each at most."""

_INPUT_BYTES, _VIEW_BYTES, _ATTACK_BYTES = 1_500_000, 800_000, 800_000
_VIEW_SEED = 0


def pictured(run: OpenedRun, data: Any = None, views: int = VIEWS) -> dict[str, Any]:
    """Pictures of the first inputs of a run and of a few of their views, by position, and why some are missing.

    `data`: the run's data set or its text; by default the one that the manifest names. Inputs that are not the run's are refused
    where `data` is given, and otherwise left out.
    """
    try:
        images, classes = _images(run, data)
    except (VaubanError, OSError) as problem:
        if data is not None:
            raise
        return {"note": f"Inputs are not shown: {problem}"}
    found: dict[str, Any] = {"classes": classes}
    if not is_picture(images.shape[1:]):
        return found | {"note": f"Inputs are not shown: those of shape {images.shape[1:]} are no pictures."}
    some, limits = images[:PICTURES], _limits(run)
    found["inputs"] = data_urls(some, limits, _INPUT_BYTES)
    if not found["inputs"]:
        return found | {"note": "Inputs are not shown: their pictures would make the page too large."}
    if len(images) > len(some):
        found["note"] = f"The first {len(some)} of {len(images)} inputs are shown with their pictures."
    if views and isinstance(run, Run):
        found |= _views(run, images[:VIEWED], limits, views)
    return found


def _images(run: OpenedRun, data: Any) -> tuple[NDArray[Any], list[str]]:
    """The inputs [m, ...] of a run, and the names of its classes, from a data set that must be the run's."""
    from vauban.data import load

    own = run.manifest.data
    whole = data
    if data is None or isinstance(data, str):  # not in a service: filters of warnings belong to the whole process
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = _selected(own) if data is None else load(data, stream=True)
    if isinstance(run, Run):
        check_data(own, whole)
    elif own.sha256 is None or whole.fingerprint() != own.sha256:
        raise RunRefused(f"{whole.name} is not the data set that the manifest names, {own.spec}")
    where = {int(number): position for position, number in enumerate(whole.index)}
    return np.asarray(whole.images[[where[number] for number in own.index]]), list(whole.class_names)


def _selected(own: Any) -> Any:
    """The data set that a manifest names, or the part of it that its rule selects."""
    from vauban.data import load
    from vauban.data.kinds import KINDS
    from vauban.data.registry import load_some
    from vauban.specs import Spec

    if Spec.parse(own.spec).name not in KINDS:
        raise BadInput(
            f"the run names no data set that can be read again ({own.spec}); give it by --data, in Python data="
        )
    rule = getattr(own, "selection", None)
    if rule is None or rule.every is None:
        return load(own.spec)
    return load_some(own.spec, rule.every, rule.limit, shuffle=rule.shuffle, stream=True)


def _limits(run: OpenedRun) -> tuple[float, float] | None:
    """The values that are black and white in the inputs of a run; None where any value is allowed."""
    return run.manifest.inputs.range if isinstance(run, Run) else (0.0, 1.0)


def _views(run: Run, images: NDArray[Any], limits: tuple[float, float] | None, number: int) -> dict[str, Any]:
    """A few views of each input: of an exact smoothing some that vote, else random ones, which are not those that voted."""
    try:
        import torch
    except ImportError:
        return {"views_note": "Views are not shown: making them needs torch."}
    from vauban.seed import Seed
    from vauban.smoothing import build
    from vauban.smoothing.random import Stream

    noise = build(run.manifest.smoothing)
    levels, seed, made = run.manifest.inputs.levels, Seed.of(_VIEW_SEED), []
    values = images if levels is not None or images.dtype != np.uint8 else images.astype(np.float32) / 255
    for index, image in zip(run.manifest.data.index, values, strict=False):
        x = torch.from_numpy(np.ascontiguousarray(image))[None]
        if noise.law.exact:
            count = noise.law.for_shape(x.shape[1:]).views  # type: ignore[attr-defined]
            words = torch.linspace(0, count - 1, number).long()[:, None]
        else:
            per_view = noise.words(x.shape[1:], levels)
            words = Stream(seed, "surrogate", index).words(0, number, per_view, torch.device("cpu"))
        made.append(_shown(noise.views(x, words, levels).numpy(), image.shape[0]))
    flat = np.concatenate(made)
    urls = data_urls(flat, (0.0, 1.0) if limits is None else limits, _VIEW_BYTES)
    if not urls:
        return {"views_note": "Views are not shown: their pictures would make the page too large."}
    grouped = [urls[i : i + number] for i in range(0, len(urls), number)]
    kind = "some of the views that vote" if noise.law.exact else "random views, not those that voted"
    return {"views": grouped, "views_note": f"The first {len(grouped)} inputs have {kind}."}


def _shown(views: NDArray[Any], channels: int) -> NDArray[Any]:
    """Views [n, channels or twice as many, height, width] as pictures: of views that hide numbers, hidden ones are grey."""
    if views.shape[1] != 2 * channels:
        return views[:, :channels]
    first, second = views[:, :channels], views[:, channels:]
    return np.where(first + second > 0.5, first, 0.5)


def attacked(run: OpenedRun, folder: str | Path) -> dict[str, Any]:
    """What the attack in a folder found for the inputs of a run, by their number; an attack on another run is refused."""
    from vauban.attacks.folder import ADVERSARIAL, SETTINGS, TABLE, read_arrays

    path = Path(folder)
    if not (path / SETTINGS).is_file() or not (path / TABLE).is_file():
        raise BadInput(f"{path} is not a finished attack: the folder that vauban attack --out wrote is needed")
    settings = read_json(path / SETTINGS)
    if settings.get("run") != run.manifest.identity:
        raise RunRefused(f"the attack in {path} is not on {run.path}: give an attack on this run, or leave it out")
    table = _table(path / TABLE)
    arrays = read_arrays(path / ADVERSARIAL) if (path / ADVERSARIAL).is_file() else {}
    pictures = _attack_pictures(run, arrays)
    found = {
        row["index"]: {
            "distance": row["distance"],
            "attack": row["attack"],
            "answer": row["answer"],
            "picture": pictures.get(row["index"]),
        }
        for row in table
        if row["views"]
    }
    return {"threat": settings["threat"], "attacks": settings["attacks"], "inputs": found}


def _table(path: Path) -> list[dict[str, Any]]:
    header, *lines = path.read_text().splitlines()
    rows = (dict(zip(header.split(","), _cells(line), strict=False)) for line in lines)
    return [
        {
            "index": int(row["index"]),
            "distance": float(row["distance"]) if row["distance"] else None,
            "attack": row["attack"],
            "answer": row["answer"],
            "views": row["views"],
        }
        for row in rows
    ]


def _cells(line: str) -> list[str]:
    """The ten cells of a line of an attack's table; the name of an attack, which may have commas, is the sixth."""
    cells = line.split(",")
    return [*cells[:5], ",".join(cells[5:-4]), *cells[-4:]]


def _attack_pictures(run: OpenedRun, arrays: Mapping[str, NDArray[Any]]) -> dict[int, str]:
    if not arrays or not is_picture(arrays["images"].shape[1:]):
        return {}
    urls = data_urls(arrays["images"], _limits(run), _ATTACK_BYTES)
    return dict(zip(arrays["index"].tolist(), urls, strict=False))
