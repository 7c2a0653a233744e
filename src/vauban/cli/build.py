"""Builds a data set and a smoothed classifier from command-line options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vauban.cli.common import pick_device
from vauban.errors import BadInput
from vauban.validation import MOST_IN_FLIGHT

DEFAULT_DATA = "mnist"
_LONGEST = 18  # digits of a number in an option

if TYPE_CHECKING:
    from vauban.data import Dataset
    from vauban.smoothed import SmoothedClassifier
    from vauban.standardise import Standardisation


def classifier_and_data(
    *,
    model: str | None,
    weights: str | None,
    data: str,
    smoothing: str,
    every: int,
    limit: int | None,
    device: str,
    shape: str | None = None,
    allow_random: bool = False,
    shuffle: int | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    stream: bool = False,
    input_range: str | None = None,
    standardise: str | None = None,
    **more: Any,
) -> tuple[SmoothedClassifier, Dataset]:
    """The smoothed classifier and its inputs; `more` are further options of `SmoothedClassifier`.

    `shape`: of grey pictures in place of a data set; `allow_random`: whether an architecture may have no weights.
    `shuffle`, `skip_bad`, `stream`, `workers`: as in `vauban.data.load_some`. `input_range`: none, or two numbers; by default any
    values for tables and [0, 1] otherwise. `standardise`: training data, none, or None for what the model file holds.
    """
    from vauban.data import load_some
    from vauban.data.classes import few, stating
    from vauban.data.registry import parse
    from vauban.models import load as load_model
    from vauban.models import packaged
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing import build

    law, where = build(smoothing), pick_device(device)
    some: dict[str, Any] = {"shuffle": shuffle, "skip_bad": skip_bad, "stream": stream, "workers": workers}
    inputs = load_some(data, every, limit, **some) if shape is None else grey_pictures(shape, limit)
    chosen = model or (packaged(data) if shape is None else None)
    if chosen is None:
        what = parse(data).name if shape is None else f"inputs of shape {shape}"
        raise BadInput(f"no model is packaged for {what}: give --model (see: vauban models)")
    base = load_model(chosen, weights, where, allow_random=allow_random)
    classes = inputs.num_classes or base.num_classes
    if classes is None and shape is not None:
        classes = _stated_classes(data) or _scored_classes(base, law, inputs, where)
    if classes is None:
        raise BadInput(
            f"{data} does not say how many classes there are: give classes= in --data, or in --model where it has that parameter"
        )
    if (check_names := getattr(base.module, "check_names", None)) is not None:
        check_names(inputs)
    if base.num_classes is not None and base.num_classes > classes and not inputs.classes_fixed:
        names = inputs.class_names
        numbers = names == tuple(map(str, range(classes)))
        known = f"labels from 0 to {classes - 1}" if numbers else f"{classes} ({few(names)})"
        raise BadInput(
            f"the model has {base.num_classes} classes, and {data} has {known} and does not say that there are no more: give "
            f"{'' if numbers else 'those of the model in its order, '}{stating(names, base.num_classes, parse(data))}"
        )
    if base.num_classes not in (None, classes):
        assumed = ", which is taken where --data is not given," if data == DEFAULT_DATA else ""
        raise BadInput(
            f"the model has {base.num_classes} classes, and {data}{assumed} has {classes}: give the model's data with --data"
        )
    stats = _standardisation(standardise, getattr(base, "metadata", {}))
    more["input_range"] = read_range(input_range, any_value=inputs.features is not None or stats is not None)
    if inputs.features is not None and inputs.images.dtype != "uint8" and not law.law.exact:
        more["arithmetic"] = "float" if more.get("arithmetic", "auto") == "auto" else more["arithmetic"]
    return SmoothedClassifier(base, law, num_classes=classes, device=where, standardise=stats, **more), inputs


def law_and_shape(
    shape: str, limit: int | None, smoothing: str, data: str, k: int, input_range: str | None
) -> tuple[SmoothedClassifier, Dataset]:
    """What can be planned without a model: a smoothing of inputs of this shape. The classifier is never called."""
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing import build

    inputs, classes = grey_pictures(shape, limit), _stated_classes(data) or max(10, k + 1)
    limits = read_range(input_range, any_value=False)
    return SmoothedClassifier(lambda views: views, build(smoothing), num_classes=classes, input_range=limits), inputs


def _stated_classes(data: str) -> int | None:
    """The number of classes in the text of a data set; None where it has none."""
    from vauban.data.registry import parse

    said = parse(data).params.get("classes", "")
    return int(said) if said.isdecimal() and len(said) <= _LONGEST else None


def _scored_classes(base: Any, law: Any, inputs: Dataset, where: Any) -> int:
    """How many scores the model gives to a view of the first input."""
    import torch

    from vauban.engine.network import called

    view = torch.zeros(1, *law.view_shape(torch.Size(inputs.images.shape[1:])), device=where)
    with torch.no_grad():
        scores = called(base.module, view)
    if not isinstance(scores, torch.Tensor) or scores.dim() != 2 or len(scores) != 1:
        raise BadInput(
            f"how many classes {base.spec} has cannot be read from what it returns for a view of shape {tuple(view.shape)}: "
            "scores [1, classes] are needed; give classes= in --data"
        )
    return int(scores.shape[1])


def _standardisation(given: str | None, metadata: Mapping[str, str]) -> Standardisation | None:
    """The statistics of the training data that are named, or those that a model file holds."""
    from vauban.data import load
    from vauban.standardise import METADATA, Standardisation

    if given == "none":
        return None
    if given is not None:
        return Standardisation.of(load(given))
    try:
        return Standardisation.from_json(metadata[METADATA]) if METADATA in metadata else None
    except (ValueError, LookupError, TypeError) as problem:
        raise BadInput(
            f"the model file holds a standardisation that cannot be read: {problem}; give --standardise"
        ) from None


def read_range(text: str | None, any_value: bool = False) -> tuple[float, float] | None:
    """--input-range: none, or two numbers; where it is not given, [0, 1] unless any value is allowed."""
    if text is None:
        return None if any_value else (0.0, 1.0)
    if text == "none":
        return None
    try:
        low, high = (float(piece) for piece in text.split(","))
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BadInput(f"--input-range {text}: none, or two finite numbers LOW,HIGH with LOW below HIGH, are needed")
    return low, high


def data_of(source: str | None, data: str | None) -> str:
    """The data set of a command that takes a file or --data; mnist if neither is given."""
    if source is not None and data is not None:
        raise BadInput(f"{source} and --data {data}: give one of them")
    if source is not None and not Path(source).expanduser().exists():
        raise BadInput(f"{source} does not exist: give a picture, a folder or a table, or a data set with --data")
    return source or data or DEFAULT_DATA


def grey_pictures(shape: str, count: int | None) -> Dataset:
    """Pictures of one grey and of this shape, such as 3x32x32, which stand for inputs whose content does not matter."""
    import numpy as np

    from vauban.cli.claim import read_shape
    from vauban.data import Dataset

    pictures = np.full((count or 1, *read_shape(shape)), 128, dtype=np.uint8)
    return Dataset(pictures, None, 0, (), f"grey pictures of shape {shape}")


def read_in_flight(text: str) -> int | None:
    """--batch: auto (None), or how many compute shapes are prepared ahead."""
    if text == "auto":
        return None
    if not text.isdecimal() or len(text) > _LONGEST or not 1 <= int(text) <= MOST_IN_FLIGHT:
        raise BadInput(f"--batch {text}: auto or a whole number from 1 to {MOST_IN_FLIGHT} is needed")
    return int(text)


def check_out(path: Path) -> Path:
    """Refuse an output file whose folder does not exist, before any work is done."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BadInput(f"{path} cannot be written: its folder must exist and it must not be a folder itself")
    return path
