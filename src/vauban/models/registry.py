"""The registry of architectures and their parameters; imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vauban.errors import BadInput
from vauban.models.composition import Denoised, Ensembled, composed
from vauban.registry import Registry
from vauban.specs import Parameter, Spec, choose, read_params


@dataclass(frozen=True)
class Architecture:
    """One network: the `module:function` that builds it, its parameters, and its description in listings.

    `denoises`: its output is a picture of its input's shape, in place of scores.
    """

    builder: str
    parameters: Mapping[str, Parameter]
    builds: str
    denoises: bool = False


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


def _at_least(least: int) -> Callable[[str], int]:
    def read_number(text: str) -> int:
        if (number := int(text)) < least:
            raise BadInput(f"the least is {least}")
        return number

    return read_number


def _other_than(usual: int) -> Parameter:
    """A count that has no part in the canonical text where it is the usual one: fingerprints hash that text, and models that
    were made before the parameter existed keep theirs."""
    return Parameter(lambda text: None if _count(text) == usual else _count(text), example=str(usual))


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


_AXIS = Parameter(lambda text: choose("axis", text, ("column", "row")), default="column")
_SCALE = {"mean": Parameter(_numbers, example="0.5"), "std": Parameter(_spreads, example="0.25")}


def _counts(**parameters: int | Parameter) -> dict[str, Parameter]:
    """Parameters in this order; a number stands for a count with that default."""
    return {
        key: Parameter(_count, default=value) if isinstance(value, int) else value for key, value in parameters.items()
    }


def _parameters(**parameters: int | Parameter) -> dict[str, Parameter]:
    """Parameters of a classifier, which may also say how its inputs are normalised."""
    return {**_counts(**parameters), **_SCALE}


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
        _parameters(channels=3, classes=10, width=_other_than(64)),
        "ResNet-18 for small pictures: 3x3 stem, no max-pool; also Wong et al.'s CIFAR-10 network (thesis, D.2)",
    ),
    "resnet50-cifar": Architecture(
        "vauban.models.resnet:resnet50_cifar",
        _parameters(channels=3, classes=10, width=64),
        "ResNet-50 for small pictures: 3x3 stem, no max-pool",
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
    "wideresnet-silu": Architecture(
        "vauban.models.wideresnet:wideresnet_silu",
        _parameters(channels=3, classes=10, width=128, blocks=3),
        "pre-activation wide ResNet with SiLU for CIFAR-10, 3x32x32, made for bf16 on GPUs",
    ),
    "vit": Architecture(
        "vauban.models.vit:vit",
        _parameters(channels=3, classes=10, size=32, patch=4, width=384, depth=12, heads=6),
        "vision transformer, patches of 4x4 (patch=16 for ImageNet), attention by SDPA",
    ),
    "wong-mnist": Architecture(
        "vauban.models.cnn:wong_mnist",
        _parameters(channels=1, classes=10, size=28),
        "Wong et al.'s MNIST network: two 4x4 convolutions and two dense layers (thesis, D.2)",
    ),
    "band-cnn": Architecture(
        "vauban.models.kept:band_cnn",
        _parameters(channels=2, classes=10, size=28, band=2, width=32, axis=_AXIS),
        "convolutions along the kept columns (axis=row: rows) of views of smoothing band:size=BAND; sees nothing else",
    ),
    "band-resnet": Architecture(
        "vauban.models.kept:band_resnet",
        _parameters(channels=6, classes=10, size=32, band=4, width=64, axis=_AXIS),
        "ResNet-18 on the kept columns (axis=row: rows) of views of smoothing band:size=BAND; sees nothing else",
    ),
    "mlp": Architecture(
        "vauban.models.mlp:mlp",
        _parameters(features=784, classes=10, width=256, depth=2),
        "dense layers for tables of features; pictures are flattened",
    ),
    "dncnn": Architecture(
        "vauban.models.denoisers:dncnn",
        _counts(channels=3, depth=Parameter(_at_least(2), default=17), width=64),
        "denoiser: convolutions that predict the noise; dncnn > resnet18 puts it in front of a classifier",
        denoises=True,
    ),
    "unet": Architecture(
        "vauban.models.denoisers:unet",
        _counts(channels=3, depth=2, width=32),
        "denoiser: a small U-Net that predicts the noise",
        denoises=True,
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
    if composed(text):
        return None
    module, _, rest = text.strip().partition(":")
    attribute, colon, params = rest.partition(":")
    if not attribute or "=" in attribute:
        return None
    return Imported(module, attribute, Spec.parse(f"{module}:{params}").params if colon else {})


def _architecture(name: str) -> Architecture:
    """The network of this name; a file of other people's code is refused, which is named by its module."""
    path = Path(name)
    if path.suffix == ".py" and name not in ARCHITECTURES.names():
        raise BadInput(
            f"{name!r} is not a known model: code in a Python file is written module:callable, {path.stem}:build for the "
            f"function build in {path.name}, and found in the current folder"
        )
    return ARCHITECTURES[name]


def read(spec: str | Spec) -> tuple[Spec, dict[str, Any]]:
    """Return the spec of one of Vauban's networks with its defaults filled in, and its parameters as values."""
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    parameters = _architecture(parsed.name).parameters
    values = read_params(parsed, parameters)
    for key in ("mean", "std"):
        sides = "channels" if "channels" in values else "features"
        if values.get(key) is not None and len(values[key]) not in (1, values[sides]):
            raise BadInput(
                f"{key}={parsed.params[key]} has {len(values[key])} numbers for {values[sides]} {sides}; give "
                f"one, or one per {sides[:-1]} joined by /"
            )
    return Spec(parsed.name, {key: _text(value) for key, value in values.items() if value is not None}), values


def canonical(spec: str | Spec) -> str:
    """Return the canonical text of `spec`: defaults filled in, keys in a fixed order.

    >>> canonical("cnn:classes=7")
    'cnn:channels=1,classes=7,size=28'
    >>> canonical("wong-mnist+cnn")
    'ensemble:consensus=0 + wong-mnist:channels=1,classes=10,size=28 + cnn:channels=1,classes=10,size=28'
    """
    if whole := composed(str(spec)):
        return str(checked(replace(whole, parts=tuple(map(canonical, whole.parts)))))
    foreign = imported(str(spec))
    return str(foreign or read(spec)[0])


_INSTEAD = {
    Denoised: "put the denoiser in front of each of its members, 'D > A + D > B', which averages the same scores",
    Ensembled: "join all members in one ensemble",
}


def checked(whole: Ensembled | Denoised) -> Ensembled | Denoised:
    """Refuse a composition of canonical parts in which a denoiser stands where a classifier is needed, or the reverse, and one
    whose text would be read as another model."""
    for part in whole.parts:
        inner = composed(part)
        if isinstance(inner, Ensembled):
            raise BadInput(f"{part} is an ensemble and cannot be part of another model: {_INSTEAD[type(whole)]}")
        if inner and isinstance(whole, Denoised):
            raise BadInput(f"{part} has a denoiser: one denoiser in front of one classifier is possible")
    front = [isinstance(whole, Denoised) and i == 0 for i in range(len(whole.parts))]
    for part, is_front in zip(whole.parts, front, strict=True):
        if denoises(part) == (not is_front):
            wanted = "a denoiser (dncnn, unet)" if is_front else "a classifier"
            raise BadInput(f"{part} in {whole}: {wanted} is needed there; a denoiser stands before > and nowhere else")
    return whole


def denoises(spec: str) -> bool | None:
    """Whether the model of a canonical text returns pictures (True) or scores (False); None for other people's code."""
    if composed(spec):
        return False
    return None if imported(spec) else ARCHITECTURES[Spec.parse(spec).name].denoises


def fitting(spec: str, *, channels: int, classes: int | None, size: int) -> str:
    """`spec` with missing parameters set for views of this many channels and this size; refused if it cannot take such views.

    >>> fitting("cnn-small", channels=2, classes=10, size=28)
    'cnn-small:channels=2,classes=10,size=28'
    """
    return fitting_views(spec, (channels, size, size), classes)


def fitting_views(spec: str, view_shape: Sequence[int], classes: int | None) -> str:
    """`spec` with missing parameters set for views [...] of this shape; refused if it cannot take such views.

    `classes`: None or 0 where their number is not known; the architecture's own default is then used.

    >>> fitting_views("mlp:width=32", (30,), 2)
    'mlp:features=30,classes=2,width=32,depth=2'
    """
    if whole := composed(spec):
        return str(replace(whole, parts=tuple(fitting_views(part, view_shape, classes) for part in whole.parts)))
    if imported(spec):
        return spec
    parsed = Spec.parse(spec)
    known = _architecture(parsed.name).parameters
    if "channels" in known and len(view_shape) != 3:
        raise BadInput(f"{spec} takes pictures, and views have the shape {list(view_shape)}: use mlp, or your own")
    if "size" in known and view_shape[-1] != view_shape[-2]:
        raise BadInput(f"{spec} takes square pictures, and views are {view_shape[-2]}x{view_shape[-1]}: use resnet18")
    views = {"features": math.prod(view_shape), "classes": classes or None}
    if len(view_shape) == 3:
        views |= {"channels": view_shape[0], "size": view_shape[-1]}
    open_ = {key: str(value) for key, value in views.items() if key in known and value is not None}
    text, values = read(Spec(parsed.name, {**open_, **parsed.params}))
    for key in ("channels", "size", "features"):
        if key in values and values[key] != views[key]:
            raise BadInput(f"{key}={values[key]} in {spec}, where views have {views[key]}: leave {key} out")
    return str(text)


def default_for(view_shape: Sequence[int], classes: int | None) -> str:
    """Return the text of the network that is trained on views [...] of this shape where none is named.

    mlp for features, cnn-small for square pictures of one channel or two (one, and its complement), resnet18 for the rest.

    >>> default_for((13,), 3)
    'mlp:features=13,classes=3,width=256,depth=2'
    >>> default_for((3, 32, 32), 10)
    'resnet18:channels=3,classes=10'
    """
    if len(view_shape) != 3:
        return fitting_views("mlp", view_shape, classes)
    grey = view_shape[0] <= 2 and view_shape[1] == view_shape[2]
    return fitting_views("cnn-small" if grey else "resnet18", view_shape, classes)


def packaged(dataset_name: str) -> Path | None:
    """Return the weights shipped for a data set (`mnist`, or its whole spec), or None where there are none."""
    file = _PACKAGED.get(dataset_name.partition(":")[0])
    path = Path(__file__).parent / "weights" / file if file else None
    return path if path and path.is_file() else None


def all_packaged() -> list[Path]:
    """Return the files of all weights that are shipped."""
    return [path for path in map(packaged, _PACKAGED) if path is not None]


def describe() -> list[ModelListing]:
    """Return one row for each network, for models built by code outside Vauban, for files, and for models made of models."""
    rows = [ModelListing(name, canonical(name), ARCHITECTURES[name].builds) for name in ARCHITECTURES.names()]
    own = "any callable from [batch, channels, height, width] to scores, or a scikit-learn classifier, built by your own code"
    several = (
        "an ensemble: scores are averaged; the rest is asked only where the first K disagree (consensus=0 asks all)"
    )
    front = "a denoiser in front of a classifier"
    return [
        *rows,
        ModelListing("package.module:callable", "package.module:callable:key=value", own),
        ModelListing("FILE.onnx", "net.onnx:output=scores", "an ONNX file, run by --backend onnxruntime or openvino"),
        ModelListing("FILE.skops", "pipeline.skops:method=predict_proba", "a classifier or pipeline of scikit-learn"),
        ModelListing("MODEL+MODEL+…", "ensemble:consensus=K+a.safetensors+b.safetensors+…", several),
        ModelListing("DENOISER>MODEL", "'denoiser.safetensors > model.safetensors'", front),
    ]


def _text(value: int | tuple[float, ...]) -> str:
    return "/".join(map(repr, value)) if isinstance(value, tuple) else str(value)
