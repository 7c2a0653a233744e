"""Builds the trainer that a model spec such as tiny-cnn:steps=300 names, from Vauban's recipe for the inputs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

from vauban.errors import BadInput
from vauban.poisoning.training.kernel_machines import KernelTrainer
from vauban.poisoning.training.stacked.feature_heads import HeadTrainer
from vauban.poisoning.training.stacked.stacked_networks import network_name
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
from vauban.specs import Spec, choose, flag

_KERNEL = "kernel"
_FILE = "learned"  # the parameter of --model that names a file of features
_GIVEN_ELSEWHERE = {
    "trunk_sha256",
    "shared",
    "network",
    "num_classes",
    "device",
    "features",
    "seed",
    "seeds",
    "normalise",
}


def build_trainer(
    shape: Sequence[int],
    num_classes: int,
    *,
    model: str | None = None,
    features: str | None = None,
    device: str = "cpu",
    **settings: Any,
) -> StackedTrainer | KernelTrainer:
    """The trainer for inputs of this shape [c, h, w]: Vauban's recipe, changed by `model` and by `settings` that are not None.

    `features`: features that base classifiers share; they are heads then, else networks. `model` may then name a file of features
    as in linear:learned=FILE.
    """
    changes = {key: value for key, value in settings.items() if value is not None}
    if model is not None and Spec.parse(model).name == _KERNEL:
        return _kernel_machines(shape, num_classes, Spec.parse(model), features, device, changes)
    kind: type[StackedTrainer] = StackedTrainer
    if features is not None:
        kind = HeadTrainer
        changes["features"] = features
    if model is not None:
        spec = Spec.parse(model)
        if features is None or network_name(spec.name) != "tiny-cnn":
            changes["network"] = spec.name
        else:
            warnings.warn(
                f"base classifiers are heads on {features} features: --model {spec.name} is not used", stacklevel=2
            )
        params = dict(spec.params)
        if features is not None and _FILE in params:
            changes[_FILE] = params.pop(_FILE)
        changes |= _read_fields(kind, Spec(spec.name, params))
    return kind.recipe(shape, num_classes, device, **changes)


def _kernel_machines(
    shape: Sequence[int], num_classes: int, spec: Spec, features: str | None, device: str, changes: dict[str, Any]
) -> KernelTrainer:
    unused = [key for key in ("seeds", "normalise") if key in changes]
    if features is not None or unused:
        raise BadInput(
            f"--model kernel with {' and '.join(unused) or f'{features} features'}: kernel machines use fixed descriptors and no "
            "random numbers, so leave these out (of ss-dpa take features=none)"
        )
    return KernelTrainer.recipe(shape, num_classes, device, **_read_fields(KernelTrainer, spec))


def _settable(kind: type[StackedTrainer | KernelTrainer]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a trainer that --model may set, by name."""
    return {
        f.name: f for f in dataclasses.fields(kind) if f.init and f.name[0] != "_" and f.name not in _GIVEN_ELSEWHERE
    }


def _read_fields(kind: type[StackedTrainer | KernelTrainer], spec: Spec) -> dict[str, Any]:
    """The parameters of `spec` as values of the dataclass's fields, read by the type of their defaults."""
    fields = _settable(kind)
    values = {}
    for key, text in spec.params.items():
        if kind is StackedTrainer and key not in fields and (key == _FILE or key in _settable(HeadTrainer)):
            raise BadInput(
                f"--model {spec.name}:{key}={text}: {key} is a setting of heads on features that all base classifiers share; "
                "take --defense ss-dpa with features, or leave it out"
            )
        choose("setting of the recipe", key, fields)
        default = fields[key].default
        read: Any = flag if isinstance(default, bool) else type(default) if isinstance(default, int | float) else str
        try:
            values[key] = read(text)
        except ValueError:
            raise BadInput(f"{key}={text} in --model cannot be read: its default is {default}") from None
    return values
