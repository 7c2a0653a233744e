"""Named training recipes: those of the papers, Vauban's own, and how one is chosen."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Any

from vauban.errors import BadInput
from vauban.specs import Spec
from vauban.training.printed import PRINTED, NamedRecipe
from vauban.training.recipe import Recipe

__all__ = ["RECIPES", "NamedRecipe", "RecipeListing", "listing", "named"]

_SUFFIXES = {"mnist": ("mnist",), "cifar10": ("cifar", "cifar10"), "imagenet": ("imagenet",)}
_RELATED = {"laplace": "gaussian", "uniform": "gaussian", "block": "band"}  # a best recipe is taken from the second

_CONSISTENCY = "consistency:weight=10,entropy=0.5"
_LOSSES = {
    "gaussian": "consistency:weight=20,entropy=0.5",
    "splitting": "stability:weight=6",
    "fractional": "stability:weight=6",
    "ablation": "consistency:weight=5,entropy=0.5",
    "band": "consistency:weight=5,entropy=0.5",
}
_OWN = Recipe(
    epochs=90,
    batch=256,
    lr=0.2,
    weight_decay=5e-4,
    optimizer="sgd",
    momentum=0.9,
    nesterov=True,
    schedule="cosine",
    warmup=5.0,
    augment="crop-flip",
    ema=0.999,
    precision="bf16",
)
_UNTUNED = "First values, not yet tuned on a validation split."
_RATE = "lr is 0.2 for each 512 rows, that is batch times views of the loss."
_VALIDATED = (
    "Chosen at sigma 0.25 on 1,000 of 5,000 training pictures that were held out: two such networks together certify 59.2 to "
    "59.8 % of them at 0.5, for three pairs (results/training)."
)
_CHANGES: dict[str, dict[str, Any]] = {"gaussian": {"epochs": 95, "weight_decay": 3e-4, "warmup": 2.0}}
_BEST = [
    NamedRecipe(
        name=f"best-{family}-cifar10",
        source="Vauban",
        data="cifar10",
        model="resnet18",
        smoothing=None,
        recipe=replace(_OWN, loss=loss, **_CHANGES.get(family, {})),
        note=f"{_VALIDATED if family in _CHANGES else _UNTUNED} {_RATE}",
    )
    for family, loss in _LOSSES.items()
]
_BEST.append(
    NamedRecipe(
        name="best-gaussian-mnist",
        source="Vauban",
        data="mnist",
        model="cnn",
        smoothing=None,
        recipe=replace(_OWN, lr=0.02, augment="shift", loss=_CONSISTENCY),
        note=f"{_UNTUNED} A tenth of the rate for CIFAR-10, because this network has no batch norm.",
    )
)

RECIPES: dict[str, NamedRecipe] = {one.name: one for one in [*PRINTED, *_BEST]}


@dataclass(frozen=True)
class RecipeListing:
    """A row of `vauban train --list-recipes`."""

    name: str
    data: str
    model: str
    smoothing: str
    training: str
    source: str


def named(name: str, *, smoothing: str | None = None, data: str | None = None) -> NamedRecipe:
    """Return the recipe of this name; `data` chooses the column of a table that has several, and with `smoothing` the "best" one.

    >>> named("table-E.10", data="mnist").name, named("best", smoothing="gaussian:sigma=0.5", data="cifar10").name
    ('table-E.10-mnist', 'best-gaussian-cifar10')
    """
    if name in RECIPES:
        return RECIPES[name]
    data_name = Spec.parse(data).name if data else None
    if name == "best":
        return _best(Spec.parse(smoothing).name if smoothing else None, data_name)
    columns = [f"{name}-{end}" for ends in _SUFFIXES.values() for end in ends if f"{name}-{end}" in RECIPES]
    fitting = [column for column in columns if RECIPES[column].data == data_name]
    if fitting or len(columns) == 1:
        return RECIPES[(fitting or columns)[0]]
    if columns:
        raise BadInput(
            f"recipe {name!r} has a column for each of several data sets, and {data or 'no data set'} is given: "
            f"name one of {', '.join(columns)}"
        )
    near = difflib.get_close_matches(name, RECIPES, 3)
    meant = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    raise BadInput(f"{name!r} is not a named recipe{meant}: vauban train --list-recipes lists all {len(RECIPES)}")


def listing() -> list[RecipeListing]:
    """Return one row for each recipe, those of one paper together."""
    return [
        RecipeListing(one.name, one.data, one.model, one.smoothing or "yours", _in_words(one), one.source)
        for one in RECIPES.values()
    ]


def _best(smoothing: str | None, data: str | None) -> NamedRecipe:
    there = ", ".join(name for name in RECIPES if name.startswith("best-"))
    if smoothing is None or data is None:
        raise BadInput(f"recipe 'best' is chosen by smoothing and data: give both, or name one of {there}")
    name = f"best-{_RELATED.get(smoothing, smoothing)}-{data}"
    if name not in RECIPES:
        raise BadInput(
            f"there is no best recipe for smoothing {smoothing} on {data}: name one of {there}, or give the settings yourself"
        )
    return RECIPES[name]


def _in_words(one: NamedRecipe) -> str:
    if one.missing:
        return f"cannot be run: train lacks {one.missing}"
    recipe = one.recipe
    return f"{recipe.epochs:g} epochs, batch {recipe.batch}, {recipe.optimizer} {recipe.lr:g}, {recipe.schedule}, {recipe.loss}"
