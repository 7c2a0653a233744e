"""Builds a data set and a smoothed classifier from command-line options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vauban.cli.common import pick_device
from vauban.errors import BadInput
from vauban.specs import Spec
from vauban.validation import MOST_IN_FLIGHT

_LONGEST = 18  # digits of a number in an option

if TYPE_CHECKING:
    from vauban.data import Dataset
    from vauban.smoothed import SmoothedClassifier


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
    **more: Any,
) -> tuple[SmoothedClassifier, Dataset]:
    """The smoothed classifier and its inputs; `more` are further options of `SmoothedClassifier`.

    `shape`: of grey pictures in place of a data set; `allow_random`: whether an architecture may have no weights.
    """
    from vauban.data import load_some
    from vauban.models import load as load_model
    from vauban.models import packaged
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing import build

    law, where = build(smoothing), pick_device(device)
    inputs = load_some(data, every, limit) if shape is None else grey_pictures(shape, limit)
    chosen = model or (packaged(data) if shape is None else None)
    if chosen is None:
        what = Spec.parse(data).name if shape is None else f"inputs of shape {shape}"
        raise BadInput(f"no model is packaged for {what}: give --model (see: vauban models)")
    base = load_model(chosen, weights, where, allow_random=allow_random)
    classes = inputs.num_classes or base.num_classes
    if classes is None:
        raise BadInput(f"{data} does not say how many classes there are: give classes= in --data or in --model")
    if base.num_classes not in (None, classes) and not inputs.classes_fixed:
        raise BadInput(
            f"the model has {base.num_classes} classes, and {data} has labels from 0 to {classes - 1} and does not say that "
            f"there are no more: give classes={base.num_classes} in --data"
        )
    return SmoothedClassifier(base, law, num_classes=classes, device=where, **more), inputs


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
