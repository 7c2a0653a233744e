"""From the options of vauban poison to the objects that do the work, and from claims to what is printed."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray

from vauban.cli import common
from vauban.errors import BadInput
from vauban.specs import Spec, choose, flag

if TYPE_CHECKING:
    from vauban.data import Dataset
    from vauban.poisoning.cluster_ensemble import ClusterEnsemble
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.training.trainer import Trainer
    from vauban.poisoning.votes.certificates import PoisoningCertificates
    from vauban.poisoning.votes.votes_file import VotesFile

Ints = NDArray[np.int64]


def kept_classes(
    data: Dataset, index: Ints, classes: str | None, *, labels_needed: bool = True
) -> tuple[NDArray[Any], Any, Ints, int]:
    """Images, labels, places and number of classes, of the classes written as 1,7 (None: all), which become 0, 1, …"""
    if data.labels is None:
        if labels_needed or classes is not None:
            raise BadInput(f"{data.name} has no labels: they are needed to train, and to keep some classes only")
        return data.images, None, index, data.num_classes
    if classes is None:
        return data.images, data.labels, index, data.num_classes
    parts = classes.split(",")
    if (
        not all(part.isascii() and part.isdigit() for part in parts)
        or len(set(parts)) < 2
        or len(set(parts)) < len(parts)
    ):
        raise BadInput(f"--classes {classes}: two or more different numbers are needed, for example 1,7")
    wanted = [int(part) for part in parts]
    if max(wanted) >= data.num_classes:
        raise BadInput(f"--classes {classes}: {data.name} has the classes 0 to {data.num_classes - 1}")
    places = np.flatnonzero(np.isin(data.labels, wanted))
    if not len(places):
        raise BadInput(f"--classes {classes}: none of the samples chosen from {data.name} is of these classes")
    renamed = np.array([wanted.index(label) for label in data.labels[places]], dtype=np.int64)
    return data.images[places], renamed, index[places], len(wanted)


def check_fixed_classes(data: str) -> None:
    """Refuse a data set whose labels say how many classes there are: then one poisoned label would change every network."""
    spec = Spec.parse(data)
    if spec.name not in ("mnist", "cifar10") and "classes" not in spec.params:
        said = f"say it: {spec}{',' if spec.params else ':'}classes=10"
        if spec.name == "images":
            said = "write the pictures to a .npz and say there, npz:path=…,classes=10"
        raise BadInput(
            f"{data}: how many classes there are would be read off the training labels, and one poisoned label could change "
            f"every base classifier; {said}"
        )


def trainer_for(
    model: str | None, shared: str | None, shape: tuple[int, ...], num_classes: int, device: str, asked: dict[str, Any]
) -> Trainer:
    """The trainer that --model asks for: the shipped recipe for such inputs, with changes written as cnn:steps=300."""
    changes = {key: value for key, value in asked.items() if value is not None}
    if shared is not None:
        from vauban.poisoning.training.stacked.feature_heads import HeadTrainer

        kind: Any = HeadTrainer
        changes["features"] = shared
    else:
        from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer

        kind = StackedTrainer
    if model is not None:
        spec = Spec.parse(model)
        if shared is None or spec.name != "cnn":
            changes["network"] = spec.name
        else:
            warnings.warn(f"base classifiers are heads on {shared} features: --model cnn is not used", stacklevel=2)
        changes |= _read_fields(kind, spec)
    made: Trainer = kind.recipe(shape, num_classes, device, **changes)
    return made


def _read_fields(kind: Any, spec: Spec) -> dict[str, Any]:
    """The parameters of `spec` as values for the fields of a dataclass, read by the type of their defaults."""
    elsewhere = {"network", "num_classes", "device", "features", "seed", "seeds", "normalise"}  # said by other options
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init and f.name[0] != "_" and f.name not in elsewhere}
    values = {}
    for key, text in spec.params.items():
        choose("setting of the recipe", key, fields)
        default = fields[key].default
        read: Any = flag if isinstance(default, bool) else type(default) if isinstance(default, int | float) else str
        try:
            values[key] = read(text)
        except ValueError:
            raise BadInput(f"{key}={text} in --model cannot be read: its default is {default}") from None
    return values


def load_ensemble(folder: Path, device: str) -> Ensemble | ClusterEnsemble:
    """The ensemble in a folder, of whatever kind."""
    from vauban.poisoning.cluster_ensemble import ClusterEnsemble
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.manifest_file import read_manifest

    trainer = read_manifest(folder, "ensemble")["trainer"]
    if trainer.get("trainer") == "clusters":
        return ClusterEnsemble.load(folder)
    return Ensemble.load(folder, device=device)


def described_data(spec: str | None, given: VotesFile) -> dict[str, Any]:
    """What a manifest says of the inputs that imported votes are about; labels are checked where the data set is named."""
    told = {"spec": "not said", "sha256": None}
    if spec is not None:
        from vauban.data import load
        from vauban.data.registry import with_split

        data = load(with_split(spec, "test"))
        if given.index.min() < 0 or given.index.max() >= len(data):
            raise BadInput(f"{spec} has {len(data)} inputs, and the votes are about input {given.index.max()}")
        if given.labels is not None and data.labels is not None and (data.labels[given.index] != given.labels).any():
            raise BadInput(f"the labels beside the votes are not those of {spec}")
        told = {"spec": data.name, "sha256": data.fingerprint()}
    labels = None if given.labels is None else given.labels.tolist()
    return {**told, "index": given.index.tolist(), "label": labels}


def show(
    certs: PoisoningCertificates, title: str, radii: list[float] | None, json: bool, more: dict[str, Any] | None = None
) -> None:
    """Print what an ensemble's votes prove."""
    from vauban.report.summary import percent

    summary = certs.summary(_nice_radii(certs) if radii is None else radii)
    if json:
        common.print_json({**(more or {}), **summary})
        return
    if certs.truth is None:
        lines = [["abstained", percent(summary["abstained"])]]
    else:
        median = summary["median_radius"]
        lines = [
            ["base classifiers, one by one", percent(summary["base_accuracy"])],
            ["clean accuracy", percent(summary["clean_accuracy"])],
            *([f"certified at radius {row['radius']:,}", percent(row["accuracy"])] for row in summary["certified"]),
            ["median radius", "none" if median is None else f"{median:,}"],
        ]
    head = f"top {certs.k} of {len(certs)} inputs, {summary['models']:,} models, {certs.aggregate}"
    common.print_table([head, "exact"], lines, title=title)
    typer.echo(f"radius: {certs.threat.metric} ({certs.threat.unit})")


def _nice_radii(certs: PoisoningCertificates, most: int = 8) -> list[int]:
    farthest = int(np.nanmax(certs.radius, initial=0))
    steps = (digit * 10**power for power in range(10) for digit in (1, 2, 5))
    step = next(s for s in steps if farthest // s <= most)
    return list(range(0, farthest + 1, step))
