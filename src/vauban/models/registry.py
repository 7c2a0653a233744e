"""The registry of architectures and their parameters; imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vauban.errors import BadInput
from vauban.registry import Registry
from vauban.specs import Parameter, Spec, read_params


@dataclass(frozen=True)
class Architecture:
    """One network: the `module:function` that builds it, its parameters, and its description in listings."""

    builder: str
    parameters: Mapping[str, Parameter]
    builds: str


@dataclass(frozen=True)
class ModelListing:
    """A row of a listing of networks."""

    name: str
    written: str
    builds: str


@dataclass(frozen=True)
class Imported:
    """A model built by code outside Vauban: `package.module:callable:key=value,…`."""

    module: str
    attribute: str
    params: Mapping[str, str]

    def __str__(self) -> str:
        return str(Spec(f"{self.module}:{self.attribute}", self.params))


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise BadInput(f"{text} is not a whole number above zero")
    return count


def _numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(float(piece) for piece in text.split("/"))
    if not all(map(math.isfinite, numbers)):
        raise BadInput(f"{text} must be finite numbers joined by /")
    return numbers


def _spreads(text: str) -> tuple[float, ...]:
    numbers = _numbers(text)
    if min(numbers) <= 0:
        raise BadInput(f"{text} must be above zero")
    return numbers


def _parameters(*, channels: int, classes: int, size: int | None = None) -> dict[str, Parameter]:
    sides = {"size": Parameter(_count, default=size)} if size else {}
    return {
        "channels": Parameter(_count, default=channels),
        "classes": Parameter(_count, default=classes),
        **sides,
        "mean": Parameter(_numbers, example="0.5"),
        "std": Parameter(_spreads, example="0.25"),
    }


class ArchitectureRegistry(Registry[Architecture]):
    """Architectures by name; other packages register theirs in the entry point group vauban.models."""

    group, kind = "vauban.models", "model"


ARCHITECTURES = ArchitectureRegistry()
ARCHITECTURES |= {
    "cnn": Architecture(
        "vauban.models.cnn:cnn",
        _parameters(channels=1, classes=10, size=28),
        "two 4x4 convolutions and three dense layers (thesis, Table A.1)",
    ),
    "cnn-small": Architecture(
        "vauban.models.cnn:cnn_small",
        _parameters(channels=1, classes=10, size=28),
        "two 5x5 convolutions and two dense layers, fast on a CPU",
    ),
    "resnet18": Architecture(
        "vauban.models.resnet:resnet18",
        _parameters(channels=3, classes=10),
        "ResNet-18 for small pictures: 3x3 stem, no max-pool",
    ),
    "resnet50": Architecture(
        "vauban.models.resnet:resnet50",
        _parameters(channels=3, classes=1000),
        "ResNet-50 for ImageNet, 3x224x224; torchvision's names",
    ),
    "resnet110": Architecture(
        "vauban.models.resnet:resnet110",
        _parameters(channels=3, classes=10),
        "ResNet-110 for CIFAR-10, 3x32x32; the names of Cohen et al.",
    ),
    "wideresnet40-2": Architecture(
        "vauban.models.wideresnet:wideresnet40_2",
        _parameters(channels=3, classes=10),
        "Wide ResNet 40-2 for CIFAR-10, 3x32x32",
    ),
}

_PACKAGED = {"mnist": "mnist-gaussian.safetensors"}


def imported(text: str) -> Imported | None:
    """Return the parts of `package.module:callable…`, or None for a network of Vauban's own.

    >>> imported("nets.mine:make:width=3")
    Imported(module='nets.mine', attribute='make', params={'width': '3'})
    >>> imported("cnn:classes=10") is None
    True
    """
    module, _, rest = text.strip().partition(":")
    attribute, colon, params = rest.partition(":")
    if not attribute or "=" in attribute:
        return None
    return Imported(module, attribute, Spec.parse(f"{module}:{params}").params if colon else {})


def read(spec: str | Spec) -> tuple[Spec, dict[str, Any]]:
    """Return the spec of one of Vauban's networks with its defaults filled in, and its parameters as values."""
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    parameters = ARCHITECTURES[parsed.name].parameters
    values = read_params(parsed, parameters)
    for key in ("mean", "std"):
        if values.get(key) is not None and len(values[key]) not in (1, values["channels"]):
            raise BadInput(
                f"{key}={parsed.params[key]} has {len(values[key])} numbers for {values['channels']} channels; give "
                "one, or one per channel joined by /"
            )
    return Spec(parsed.name, {key: _text(value) for key, value in values.items() if value is not None}), values


def canonical(spec: str | Spec) -> str:
    """Return the canonical text of `spec`: defaults filled in, keys in a fixed order.

    >>> canonical("cnn:classes=7")
    'cnn:channels=1,classes=7,size=28'
    """
    foreign = imported(str(spec))
    return str(foreign or read(spec)[0])


def fitting(spec: str, *, channels: int, classes: int | None, size: int) -> str:
    """`spec` with missing parameters set for views of this many channels and this size; refused if it cannot take such views.

    >>> fitting("cnn-small", channels=2, classes=10, size=28)
    'cnn-small:channels=2,classes=10,size=28'
    """
    if imported(spec):
        return spec
    parsed = Spec.parse(spec)
    known = ARCHITECTURES[parsed.name].parameters
    views = {"channels": channels, "classes": classes, "size": size}
    open_ = {key: str(value) for key, value in views.items() if key in known and value is not None}
    text, values = read(Spec(parsed.name, {**open_, **parsed.params}))
    for key in ("channels", "size"):
        if key in values and values[key] != views[key]:
            raise BadInput(f"{key}={values[key]} in {spec}, where views have {views[key]}: leave {key} out")
    return str(text)


def packaged(dataset_name: str) -> Path | None:
    """Return the weights shipped for a data set (`mnist`, or its whole spec), or None where there are none."""
    file = _PACKAGED.get(dataset_name.partition(":")[0])
    path = Path(__file__).parent / "weights" / file if file else None
    return path if path and path.is_file() else None


def describe() -> list[ModelListing]:
    """Return one row for each network, and one for models built by code outside Vauban."""
    rows = [ModelListing(name, canonical(name), ARCHITECTURES[name].builds) for name in ARCHITECTURES.names()]
    own = "any callable from [batch, channels, height, width] to scores, built by your own code"
    return [*rows, ModelListing("package.module:callable", "package.module:callable:key=value", own)]


def _text(value: int | tuple[float, ...]) -> str:
    return "/".join(map(repr, value)) if isinstance(value, tuple) else str(value)
