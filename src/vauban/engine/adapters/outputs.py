"""Finds the scores in what a base classifier returned: a tensor, an array, an object with logits, a mapping or a tuple."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vauban.errors import BadInput

_NAMED = "logits"
"""What Hugging Face, torchvision and others call the scores among several outputs."""


def scores_in(returned: Any, views: torch.Tensor, num_classes: int | None) -> torch.Tensor:
    """The scores in what a model returned for `views` [rows, ...], on their device.

    `logits` if there is such a field; of a tuple or mapping the one tensor of shape [rows, num_classes] (None: of any number of
    classes). Two of that shape are refused, since nothing says which one votes.
    """
    named = _named(returned)
    if named is not None:
        return _tensor(named, views)
    parts = _parts(returned)
    if parts is None:
        return _tensor(returned, views)
    fitting = [key for key, part in parts.items() if _fits(part, len(views), num_classes)]
    if len(fitting) > 1:
        raise BadInput(
            f"the model returned {len(parts)} tensors, of which {' and '.join(map(repr, fitting))} have the shape of scores: say "
            f"which one votes, vb.wrap(model, output={fitting[0]!r})"
        )
    return parts[fitting[0]] if fitting else next(iter(parts.values()))


def chosen(returned: Any, output: int | str, views: torch.Tensor) -> torch.Tensor:
    """The output of this position or name."""
    try:
        found = getattr(returned, output) if isinstance(output, str) and hasattr(returned, output) else returned[output]
    except (LookupError, TypeError):
        parts = _parts(returned)
        has = type(returned).__name__ if parts is None else f"outputs {', '.join(map(repr, parts))}"
        raise BadInput(f"output={output!r}: the model returned {has}; give the one that holds its scores") from None
    return _tensor(found, views)


def wrong_shape(scores: torch.Tensor, rows: int, num_classes: int) -> BadInput:
    """The error for scores that are not [rows, num_classes]."""
    single = num_classes == 2 and tuple(scores.shape) in ((rows,), (rows, 1))
    advice = ", one column per class"
    if single:
        advice = (
            ". One score per view needs the score above which it is class 1: vb.wrap(model, threshold=0) for a logit, "
            "vb.wrap(model, threshold=0.5) for a probability"
        )
    return BadInput(
        f"the model returned {tuple(scores.shape)} for {rows} views: scores of shape ({rows}, {num_classes}) are needed{advice}"
    )


def _fits(part: torch.Tensor, rows: int, num_classes: int | None) -> bool:
    return part.dim() == 2 and len(part) == rows and num_classes in (None, part.shape[1])


def _named(returned: Any) -> Any:
    if isinstance(returned, torch.Tensor | np.ndarray):
        return None
    if isinstance(returned, Mapping):
        return returned.get(_NAMED)
    return getattr(returned, _NAMED, None)


def _parts(returned: Any) -> dict[int | str, torch.Tensor] | None:
    """The tensors among several outputs, by position or name; None where there is one output, or none is a tensor."""
    if isinstance(returned, Mapping):
        pairs: Any = returned.items()
    elif isinstance(returned, Sequence) and not isinstance(returned, str | bytes):
        pairs = enumerate(returned)
    else:
        return None
    found = {key: part for key, part in pairs if isinstance(part, torch.Tensor)}
    return found or None


def _tensor(scores: Any, views: torch.Tensor) -> torch.Tensor:
    if isinstance(scores, torch.Tensor):
        return scores
    try:
        return torch.as_tensor(np.asarray(scores), device=views.device)
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(f"the model returned {type(scores).__name__}: a tensor of scores is needed") from None
