"""What stands in the place of a smoothing where features are learned: views are then the loss's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vauban.errors import BadInput
from vauban.smoothing import Smoothing, several
from vauban.smoothing.grid import to_unit
from vauban.specs import Spec
from vauban.training.losses import Loss


class Unsmoothed(Smoothing):
    """No smoothing, and so no law: the only view of a picture is the picture."""

    def __init__(self) -> None:
        pass

    @property
    def spec(self) -> Spec:
        return Spec("none", {})

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return 1

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        pictures = x.float() if levels is None else to_unit(x, levels)
        return pictures.expand(len(words), *x.shape[1:])


def smoothing_for(loss: Loss, given: Smoothing | str | Sequence[Smoothing | str] | None) -> Smoothing:
    """The smoothing to train with: the one that is given, several by turns, or none for a loss that learns features from views of
    its own."""
    if loss.learns_features:
        if given is not None and not isinstance(given, Unsmoothed):
            text = given.spec if isinstance(given, Smoothing) else given if isinstance(given, str) else list(given)
            raise BadInput(
                f"{loss} learns features from augmented copies, not from views of {text}: leave the smoothing out (--smoothing)"
            )
        return Unsmoothed()
    if given is None:
        raise BadInput(
            "a smoothing is missing: say which views to train on, such as gaussian:sigma=0.5 (--smoothing; in Python smoothing=)"
        )
    listed = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(one, str | Smoothing) for one in listed):
        raise BadInput(
            f"smoothing={given!r}: a smoothing of vauban.smoothing is needed, or its text, 'gaussian:sigma=0.5', or a list"
        )
    return several.read(given)
