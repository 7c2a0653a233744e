"""Builds a network from its spec: one of Vauban's own, or what a named function returns."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vauban.engine.adapters.estimators import Estimator, is_estimator
from vauban.engine.adapters.wrapping import adapted
from vauban.engine.content import content_sha256
from vauban.errors import BadInput
from vauban.models.composition import Composed, Ensembled, composed
from vauban.models.denoised import Denoised
from vauban.models.ensembles import Ensemble
from vauban.models.normalise import normalised
from vauban.models.registry import ARCHITECTURES, Imported, canonical, imported, read
from vauban.specs import Spec


def build(spec: str | Spec, *, seed: int | None = None) -> nn.Module:
    """Return the network of `spec` with fresh weights, from [batch, channels, height, width] with values around [0, 1] to scores.

    With `seed` the weights depend only on it, and torch's random state is unchanged. Denoisers return pictures; a composed model
    (`A + B`, `D > A`) is built of its parts, which get different weights.
    """
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        return _built(canonical(spec))


def _built(spec: str) -> nn.Module:
    if whole := composed(spec):
        return assembled(whole, [_built(part) for part in whole.parts])
    foreign = imported(spec)
    return build_imported(foreign) if foreign else normalise_as(spec, build_bare(spec))


def assembled(whole: Composed, parts: Sequence[nn.Module]) -> nn.Module:
    """Return the module of a composition of these modules."""
    return Ensemble(parts, whole.consensus) if isinstance(whole, Ensembled) else Denoised(*parts)


def build_bare(spec: str | Spec) -> nn.Module:
    """Return one of Vauban's networks without its normalisation: its tensors have the names of public weights."""
    parsed, values = read(spec)
    module, _, function = ARCHITECTURES[parsed.name].builder.partition(":")
    network = {key: value for key, value in values.items() if key not in ("mean", "std")}
    built: nn.Module = getattr(import_module(module), function)(**network)
    return built


def normalise_as(spec: str | Spec, net: nn.Module) -> nn.Module:
    """Return `net` behind the normalisation that `spec` gives."""
    _, values = read(spec)
    return normalised(net, values.get("mean"), values.get("std"), flat="features" in values)


class Foreign(nn.Module):
    """Wraps a callable that is not a torch module as one."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def build_imported(spec: Imported) -> nn.Module:
    """Return what `package.module:callable` returns when called with the spec's parameters."""
    factory = _find(spec)
    arguments = {key: _value(text) for key, text in spec.params.items()}
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as problem:
        given = ", ".join(arguments) or "nothing"
        raise BadInput(f"{spec.module}:{spec.attribute} cannot be called with {given}: {problem}") from None
    except ValueError:
        pass
    built = factory(**arguments)
    if not callable(built) and not is_estimator(built):
        raise BadInput(
            f"{spec.module}:{spec.attribute} returned {type(built).__name__}; it must return a model, a callable "
            "from a batch to scores or a fitted classifier of scikit-learn"
        )
    model = adapted(built)
    return model if isinstance(model, nn.Module) else Foreign(model)


def source_digest(spec: Imported, module: nn.Module) -> str:
    """The sha256 of the source file of the callable's module, so that changed code changes the model's fingerprint, and of what
    classifiers of scikit-learn in it have learned, which is in no tensor.

    Modules that it imports are not included.
    """
    source = getattr(sys.modules.get(spec.module), "__file__", None)
    code = hashlib.sha256(Path(source).read_bytes()).hexdigest() if source and Path(source).is_file() else ""
    fitted = (part.estimator for part in module.modules() if isinstance(part, Estimator))
    return code + "".join(content_sha256(estimator)[0] for estimator in fitted)


def _find(spec: Imported) -> Callable[..., Any]:
    if not all(part.isidentifier() for part in spec.module.split(".")):
        raise BadInput(f"{spec.module!r} is not a module name; write package.module:callable")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(spec.module)
    except ModuleNotFoundError as problem:
        if problem.name and (spec.module == problem.name or spec.module.startswith(f"{problem.name}.")):
            raise BadInput(
                f"{spec} needs the module {problem.name}, which is neither installed nor in {here}; known models are "
                f"{', '.join(ARCHITECTURES.names())}"
            ) from None
        raise BadInput(f"importing {spec.module} failed: {problem}; install what it needs") from problem
    try:
        found = reduce(getattr, spec.attribute.split("."), module)
    except AttributeError:
        public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise BadInput(
            f"{spec.module} has no {spec.attribute!r}; it has {', '.join(public) or 'no callable'}"
        ) from None
    if not callable(found):
        raise BadInput(
            f"{spec.module}:{spec.attribute} is {type(found).__name__}; name a function that returns the model"
        )
    return found


def _value(text: str) -> bool | int | float | str:
    """Read true and false as bool, numbers as int or float, anything else as text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
