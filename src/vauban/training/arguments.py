"""Checks of the arguments of `train`, before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from vauban.columns import metadata_of
from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput
from vauban.models.files import SPEC_KEY
from vauban.specs import choose
from vauban.training.losses import Loss
from vauban.training.recipe import Recipe
from vauban.training.validation import Validation
from vauban.validation import check_at_least_one, is_whole
from vauban.validation import path_of as any_path_of


def recipe_of(recipe: Any, settings: Mapping[str, Any], keywords: Iterable[str]) -> Recipe:
    """The recipe with these settings in place of its own; `keywords`: the other arguments of `train`, which may be meant."""
    for key in settings:
        choose("setting of train", key, {*keywords, *(field.name for field in fields(Recipe))})
    if recipe is not None and not isinstance(recipe, Recipe):
        raise BadInput(
            f"recipe={recipe!r}: a vb.Recipe is needed, or its settings as keywords such as epochs=10; the one of a name is "
            "vauban.training.recipes.named(name, smoothing=…, data=…).recipe"
        )
    return Recipe.from_options(recipe or Recipe(), dict(settings))


def check_network_kind(network: Any) -> None:
    """Refuse a network that is neither a torch module nor the text of an architecture."""
    if isinstance(network, str | torch.nn.Module):
        return
    if isinstance(network, BaseClassifier) and isinstance(network.module, torch.nn.Module):
        raise BadInput(
            f"network is a {type(network).__name__}, a model that votes and whose weights are fixed: to train it, give its "
            "torch module, model.module.requires_grad_(True)"
        )
    if isinstance(network, type) and issubclass(network, torch.nn.Module):
        raise BadInput(f"network is the class {network.__name__}: give a module of it, such as {network.__name__}(…)")
    raise BadInput(
        f"network is {network!r}: a torch.nn.Module is needed, or the text of an architecture such as 'cnn-small'"
    )


def callbacks_of(callbacks: Any) -> list[Callable[..., Any]]:
    """The callbacks as a list."""
    listed = [callbacks] if callable(callbacks) else list(callbacks) if isinstance(callbacks, Iterable) else None
    if listed is None or not all(map(callable, listed)):
        raise BadInput(f"callbacks={callbacks!r}: a function of the progress is needed, or a list of such functions")
    return listed


def path_of(name: str, path: Any) -> Path:
    """The path of a file of weights, with ~ as the home folder."""
    return any_path_of(name, path, "the path of a .safetensors file is needed")


def check_counts(stop_after: Any, workers: Any) -> None:
    """Refuse numbers of steps and of processes that cannot be."""
    check_at_least_one("stop_after", stop_after, "the number of steps to train for is needed, 1 or more")
    if not is_whole(workers) or workers < 0:
        raise BadInput(f"workers={workers!r}: a whole number of processes is needed, 0 or more; 0 reads in this one")


def entries_of(metadata: Any, data: Any) -> dict[str, str]:
    """What the file of weights holds besides: the names of the columns of a training table, and the caller's own entries; those
    that a file cannot hold are refused."""
    if metadata is None:
        return metadata_of(data)
    if not isinstance(metadata, Mapping) or not all(
        isinstance(text, str) for pair in metadata.items() for text in pair
    ):
        raise BadInput(f"metadata={metadata!r}: a mapping from text to text is needed, such as {{'author': 'me'}}")
    if SPEC_KEY in metadata:
        raise BadInput(
            f"metadata has the entry {SPEC_KEY!r}, in which the file names its network: give it another name"
        )
    return {**metadata_of(data), **metadata}


def check_validation(validation: Any, loss: Loss, text: str, denoises: bool) -> None:
    """Refuse a validation that is none, or that a loss leaves no classifier for; `denoises`: a frozen classifier is given."""
    if validation is None:
        return
    if not isinstance(validation, Validation):
        raise BadInput(
            f"validation={validation!r}: a vauban.training.Validation(held) is needed; kept, held = "
            "vauban.training.split(data, 200, seed=0) holds pictures out"
        )
    if loss.learns_features:
        raise BadInput(
            f"loss={text} learns features, which certify nothing by themselves: leave validation out (--validate)"
        )
    if not denoises and not loss.classifies:
        raise BadInput(
            f"loss={text} trains no classifier that held-out pictures could be certified with: leave validation out "
            "(--validate), or give the classifier behind the denoiser, classifier= (--classifier)"
        )
