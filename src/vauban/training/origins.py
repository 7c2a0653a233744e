"""What a training starts from: its network, initial weights, and every setting that the trained weights depend on."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from vauban.engine.failed_calls import reason
from vauban.engine.network import called, scores_of
from vauban.errors import BadInput
from vauban.files import sha256
from vauban.models import canonical, fitting_views
from vauban.models.files import construct, fill
from vauban.models.weights import fit, read_weights
from vauban.smoothing import Smoothing
from vauban.training.batches import Held, Streamed
from vauban.training.checkpoints import SUFFIX, read_state
from vauban.training.denoising import Frozen, start_from
from vauban.training.encoder import trunk_state
from vauban.training.losses import Loss
from vauban.training.recipe import Recipe
from vauban.training.validation import Validation


def fitted(network: torch.nn.Module | str, view_shape: Sequence[int], classes: int) -> torch.nn.Module | str:
    """A text with the sides of the views filled in where it leaves them out; a module as it is."""
    if isinstance(network, str) and network.split("+")[0].strip().endswith((".safetensors", SUFFIX)):
        raise BadInput(
            f"{network} names weights, and training needs an architecture: give its name, such as resnet18 (--model), and the "
            "weights to start from as init (--init)"
        )
    return canonical(fitting_views(network, view_shape, classes)) if isinstance(network, str) else network


def initial(network: torch.nn.Module | str, seed: int, init: Path | None) -> torch.nn.Module:
    """The network to train: built from its text, or a copy of the caller's; with the weights of a file or a checkpoint."""
    module = construct(network, seed) if isinstance(network, str) else copied(network)
    if init is not None:
        _load_into(module, init)
    return module


def copied(network: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module: training leaves the caller's as it was."""
    try:
        return copy.deepcopy(network)
    except Exception as problem:
        advice = "a module that copy.deepcopy can copy is needed"
        if any(
            type(hook).__name__ == "WeightNorm"
            for part in network.modules()
            for hook in part._forward_pre_hooks.values()
        ):
            advice = (
                "replace torch.nn.utils.weight_norm by torch.nn.utils.parametrizations.weight_norm, which can be copied"
            )
        raise BadInput(
            f"{type(network).__name__} cannot be copied, and what is trained is a copy ({reason(problem)}): {advice}"
        ) from problem


def _load_into(network: torch.nn.Module, path: Path) -> None:
    from_checkpoint = path.name.endswith(SUFFIX)
    found = trunk_state(read_state(path)["network"], network) if from_checkpoint else read_weights(path)[0]
    part, tensors = start_from(network, found)
    if from_checkpoint:
        part.load_state_dict(fit(tensors, part.state_dict(), str(path)))
    else:
        fill(part, tensors, str(path))


def name_of(network: torch.nn.Module | str) -> str:
    """The text of an architecture, or the place of a module's class."""
    if isinstance(network, str):
        return network
    return f"{type(network).__module__}:{type(network).__qualname__.replace('<locals>.', '')}"


def described(
    network: torch.nn.Module | str,
    source: Held | Streamed,
    smoothing: Smoothing,
    recipe: Recipe,
    init: Path | None,
    validation: Validation | None,
    frozen: Frozen | None = None,
) -> dict[str, str]:
    """Everything that the weights depend on, as text. Of a module of the caller's own that is its class, of a torch data set its
    class and size: a training is resumed by whoever makes the same call again."""
    parts = {"model": name_of(network), **source.described(), "smoothing": smoothing.spec, **asdict(recipe)}
    if init is not None:
        parts["init"] = sha256(init.read_bytes())
    if validation is not None:
        parts["validation"] = validation.described()
    parts |= frozen.about() if frozen is not None else {}
    return {key: str(value) for key, value in parts.items()}


def check_recipe(recipe: Recipe, source: Held | Streamed, loss: Loss) -> None:
    """Refuse settings that the data cannot be trained with, and warn of a batch that holds an input more than once."""
    if recipe.cutmix and len(source.shape) != 3:
        raise BadInput(
            f"cutmix={recipe.cutmix:g} cuts parts out of pictures [channels, height, width], and inputs have the shape "
            f"{list(source.shape)}: leave cutmix out; mixup takes any inputs"
        )
    if recipe.batch == 1 and loss.compares_inputs:
        raise BadInput(
            f"batch=1: {recipe.loss} tells the inputs of a batch apart, and one alone teaches nothing: give 2 or more "
            "(--batch-size), better hundreds"
        )
    if recipe.batch > source.size:
        warnings.warn(
            f"batch={recipe.batch} is more than the {source.size} inputs to train on, which are repeated in every batch: give a "
            f"smaller batch, at most {source.size} (--batch-size)",
            stacklevel=3,
        )


def check_network(network: torch.nn.Module, views: torch.Tensor, classes: int, pictures: bool = False) -> None:
    """Refuse a network that fails on views [rows, ...], or returns neither scores of all classes nor, as a denoiser, pictures.

    `classes`: 0 where they are not known. `pictures`: whether nothing but pictures of the views' shape will do.
    """
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            answer = called(network, views)
    finally:
        network.train(was_training)
    same = isinstance(answer, torch.Tensor) and answer.shape == views.shape
    if pictures and not same:
        found = list(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise BadInput(
            f"the network returned {found} for views {list(views.shape)}: a denoiser is needed, which returns a picture of its "
            "shape for each view, such as dncnn or unet"
        )
    if not isinstance(answer, torch.Tensor):
        raise BadInput(
            f"the network returned {type(answer).__name__}: training needs a tensor of scores; vb.wrap(model) returns the one "
            "in it"
        )
    if not pictures and not (same and views.dim() > 2):
        scores_of(lambda _: answer, views, classes or np.shape(answer)[-1])
