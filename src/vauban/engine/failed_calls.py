"""Says in one sentence what a base classifier raised, in which call, and which of its layers does not fit the views."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from vauban.engine.adapters.estimators import other_features
from vauban.errors import BadInput, ModelFailed

_LONGEST = 300  # characters of an error's text that are repeated

_FEATURES = re.compile(r"X has (\d+) features, but \w+ is expecting (\d+) features")
"""What estimators of scikit-learn say of inputs that they were not fitted on."""

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def failed_call(model: Any, views: torch.Tensor, problem: BaseException) -> ModelFailed:
    """The error for a call of `model` with `views` [rows, ...] that raised `problem`."""
    shape = tuple(views.shape)
    mismatch = _mismatch(model, views) if isinstance(model, nn.Module) else ""
    if (features := _FEATURES.search(str(problem))) is not None:
        mismatch = f"; {other_features(int(features[1]), int(features[2]))}"
    return ModelFailed(
        f"the model failed in a call with views of shape {shape}, {_name(views.dtype)}, on {views.device}: {reason(problem)}"
        f"{mismatch}. A model that takes such views is needed: try it on torch.zeros{shape}"
    )


def reason(problem: BaseException) -> str:
    """The type of an error and the first line of its text; an attempt to end the process is said to be one."""
    if isinstance(problem, SystemExit):
        return f"it tried to end the process, sys.exit({problem.code!r}), where it must return"
    line = next((line.strip() for line in str(problem).splitlines() if line.strip()), "")
    text = line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
    return f"{type(problem).__name__}: {text}".rstrip(": .")


def _mismatch(model: nn.Module, views: torch.Tensor) -> str:
    """How the first layer with weights, in the order of definition, does not fit the views; empty if it seems to."""
    named = model.named_modules()
    name, layer = next(((n, one) for n, one in named if isinstance(one, (*_CONVOLUTIONS, nn.Linear))), ("", None))
    if layer is None:
        return ""
    first = f"the first layer ({name or 'the model'}, {type(layer).__name__}) wants"
    if layer.weight.dtype != views.dtype:
        return f"; views are {_name(views.dtype)}, {first} {_name(layer.weight.dtype)}"
    if isinstance(layer, nn.Linear):
        sizes = {views.shape[-1], views[0].numel()}
        fits = layer.in_features in sizes
        twice = _twice(views[0].numel(), layer.in_features)
        return "" if fits else f"; views have {views[0].numel()} numbers, {first} {layer.in_features}{twice}"
    if views.dim() == layer.weight.dim() and views.shape[1] != layer.in_channels:
        found, wanted = views.shape[1], layer.in_channels
        return f"; views have {found} channels, {first} {wanted}{_twice(found, wanted) or _colours(found, wanted)}"
    return ""


def _colours(found: int, wanted: int) -> str:
    """What to do where a model of grey pictures is given colours, or the other way round."""
    return f" (pictures in files: give channels={wanted} in --data)" if {found, wanted} == {1, 3} else ""


def _twice(found: int, wanted: int) -> str:
    """What to do where views are twice as large as the model takes: smoothings that hide pixels show v as v and 1 - v."""
    advice = (
        "this smoothing shows each number v as v and 1 - v: train the model on such views, or give ablation null=mean"
    )
    return f" ({advice})" if found == 2 * wanted else ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def not_comparable(views: int) -> BadInput:
    """The error for views whose scores are NaN."""
    return BadInput(
        f"the model returned NaN on {views} views: a vote needs scores that can be compared; "
        "check its weights and its normalisation"
    )
