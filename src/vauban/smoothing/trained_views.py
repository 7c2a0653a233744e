"""Which views a network was trained on, and the warning where it is to vote on others."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from vauban.errors import VaubanError
from vauban.laws import law as law_of
from vauban.laws.law import AnyLaw
from vauban.laws.patches.exact import ExactPatchLaw
from vauban.smoothing.base import SMOOTHINGS
from vauban.specs import JOINT, Spec

_TRAINED: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
_INNER = ("model", "_orig_mod")  # the network in what `vb.wrap` and torch.compile make of it


def remember(network: nn.Module, smoothing: str) -> None:
    """Remember the text of the smoothing whose views a network was trained on, as long as there is this network."""
    _TRAINED[network] = smoothing


def trained_views(model: Any) -> str | None:
    """The smoothing that `remember` was told for a model or for the network that it wraps; None where it was told nothing."""
    networks = (model, *(getattr(model, name, None) for name in _INNER))
    return next((_TRAINED[one] for one in networks if isinstance(one, nn.Module) and one in _TRAINED), None)


def warn_of_other_views(trained_on: str | None, law: AnyLaw, stacklevel: int) -> None:
    """Warn if `trained_on`, the text of a smoothing or None where it is not known, makes other views than this law."""
    if trained_on is None:
        return
    texts = trained_on.split(JOINT)
    if not any(_same_views(text, law) for text in texts):
        views = trained_on if len(texts) < 4 else f"{len(texts)} smoothings from {texts[0]} to {texts[-1]}"
        warnings.warn(
            f"the model was trained on views of {views}, and {law.spec} makes others: what is claimed holds, but is "
            f"often less than for a model trained with {law.spec}",
            stacklevel=stacklevel + 1,
        )


def _same_views(trained_on: str, law: AnyLaw) -> bool:
    """Whether the smoothing of this text makes the same views as a law."""
    try:
        spec = Spec.parse(trained_on)
        return _views_alone(law).same_views(_views_alone(SMOOTHINGS[spec.name].from_spec(spec).law))
    except VaubanError:  # a smoothing without a text form, or of a package that is not installed here
        return trained_on == str(law.spec)


def _views_alone(law: AnyLaw) -> AnyLaw:
    """The law of these views alone: a threshold decides how a view votes and not what it shows, and views that keep one region of
    a list are those of the sampled form."""
    if not isinstance(law, ExactPatchLaw):
        return law
    if law.count > 1:
        return replace(law, threshold=None)
    shown = {key: value for key, value in law.spec.params.items() if key not in ("threshold", "bound", "levels")}
    return law_of(Spec(law.name, shown | {"sampled": "true"}))
