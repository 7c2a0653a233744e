"""ensemble and denoise: models of any kind as one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput
from vauban.models.building import Foreign, assembled
from vauban.models.composition import Denoised, Ensembled
from vauban.models.files import LoadedModel, compose, load, one_of


def ensemble(models: Sequence[Any], consensus: int = 0) -> BaseClassifier:
    """Return the ensemble of `models` as one model: their scores are averaged (see `vauban.models.ensembles.Ensemble`).

    A model is a torch module from views to scores, what `models.load` returns, or a text that it takes. `consensus`: the first so
    many are asked, and the others only for views on which these disagree; 0 asks all. Where all are loaded models, so is the
    result: `models.save` writes it.
    """
    members = [as_model(model) for model in models]
    return _joined(Ensembled(tuple("" for _ in members), consensus), members)


def denoise(denoiser: Any, classifier: Any) -> BaseClassifier:
    """Return `denoiser` in front of `classifier` as one model. [Salman2020]

    The denoiser takes views and returns pictures of the same shape. Both are torch modules, what `models.load` returns, or texts
    that it takes.
    """
    return _joined(Denoised(("", "")), [as_model(denoiser), as_model(classifier)])


def as_model(model: Any) -> BaseClassifier:
    """A part of a composed model: a torch module, what `models.load` returns, or a text that it takes."""
    if isinstance(model, str):
        return load(model)
    base = model if isinstance(model, BaseClassifier) else BaseClassifier(model)
    if not isinstance(base.module, nn.Module):
        raise BadInput(
            f"{model!r} is not a torch module: a part of a composed model must be one, so that its code and tensors have a "
            "fingerprint; write it as a class with forward"
        )
    return base


def _joined(whole: Ensembled | Denoised, parts: Sequence[BaseClassifier]) -> BaseClassifier:
    """The composition as a loaded model where all parts are; else as a module, whose code and tensors a run hashes."""
    loaded = [part for part in parts if isinstance(part, LoadedModel)]
    if len(loaded) == len(parts):
        return compose(whole, loaded)
    module = assembled(whole, [part.module for part in parts if isinstance(part.module, nn.Module)])
    if any(isinstance(part, Foreign) for part in module.modules()):
        raise BadInput("a callable that is no torch module cannot be joined with modules: load every part by its text")
    kind = "an ensemble" if isinstance(whole, Ensembled) else "a denoiser and a classifier"
    classes, channels = (
        one_of(what, [getattr(part, field) for part in parts], kind)
        for what, field in (("classes", "num_classes"), ("channels", "channels"))
    )
    return BaseClassifier(module, num_classes=classes, channels=channels)
