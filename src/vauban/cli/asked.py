"""From command-line options to the objects that do the work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vauban.cli.common import pick_device
from vauban.errors import BadInput
from vauban.specs import Spec

if TYPE_CHECKING:
    import numpy as np

    from vauban.data import Dataset
    from vauban.inputs import Inputs
    from vauban.models import LoadedModel
    from vauban.smoothed import SmoothedClassifier


@dataclass(frozen=True)
class Asked:
    """A smoothed classifier and the inputs it is asked about."""

    smoothed: SmoothedClassifier
    loaded: LoadedModel
    data: Dataset
    inputs: Inputs
    index: np.ndarray


def assemble(
    *,
    model: str | None,
    weights: str | None,
    data: str,
    smoothing: str,
    every: int,
    limit: int | None,
    device: str,
    in_flight: int | None = None,
    rows: int | None = None,
    arithmetic: str = "auto",
    block: int | None = None,
    precision: str = "fp32",
    compile: bool | str = False,
) -> Asked:
    """Load data and model and put the smoothing over it; whatever does not fit is said before any vote."""
    import torch

    from vauban.data import load_some
    from vauban.layout import to_fast_layout
    from vauban.models import load as load_model
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing import build
    from vauban.voting.precision import check_precision

    law = build(smoothing)
    where = pick_device(device)
    check_precision(precision, torch.device(where))
    if compile and law.law.exact:
        raise BadInput(f"--compile with {law.spec}, which is exact: only sampled votes are compiled; leave it out")
    selected, index = load_some(data, every, limit)
    if len(index) == 0:
        raise BadInput(f"{data} with --every {every} has no inputs")
    loaded = load_model(model or default_model(data), weights, where)
    classes = selected.num_classes or loaded.num_classes
    if classes is None:
        raise BadInput(f"{data} does not say how many classes there are: give classes= in --data or in --model")
    if loaded.num_classes is not None and loaded.num_classes != classes:
        raise BadInput(f"the model answers {loaded.num_classes} classes; {data} has {selected.num_classes}")
    law.law.for_shape(selected.images.shape[1:])
    views = law.view_shape(torch.Size(selected.images.shape[1:]))
    if loaded.channels is not None and len(views) == 3 and views[0] != loaded.channels:
        raise BadInput(
            f"the model takes {loaded.channels} channels; views of {data} under {law.spec} have {views[0]}: train one on "
            f"them, vauban train --data {data} --smoothing {law.spec} --out model.safetensors"
        )
    smoothed = SmoothedClassifier(
        loaded.module,
        law,
        num_classes=classes,
        device=where,
        rows=rows,
        in_flight=in_flight,
        arithmetic=arithmetic,
        channels_last=to_fast_layout(loaded.module, len(views), where, precision),
        block=block,
        precision=precision,
        compile=compile,
    )
    return Asked(smoothed, loaded, selected, smoothed.prepare(selected.images), index)


def default_model(data: str) -> str:
    """The packaged model of a data set."""
    from vauban.models import packaged

    name = Spec.parse(data).name
    path = packaged(name)
    if path is None:
        raise BadInput(f"no model is packaged for {name}: give --model (see: vauban models)")
    return str(path)


def read_in_flight(text: str) -> int | None:
    """--batch: auto (None), or how many compute shapes are prepared ahead."""
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadInput(f"--batch {text}: auto or a whole number from 1 is needed")
    return int(text)


def check_out(path: Path) -> Path:
    """Refuse an output file whose folder is not there, before any work is done."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BadInput(f"{path} cannot be written: its folder must exist and it must not be a folder itself")
    return path
