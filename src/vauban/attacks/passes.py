"""How a search calls a base classifier: how many views in one pass, and in which precision."""

from __future__ import annotations

from typing import Any

import torch

from vauban.engine.sampler import choose_rows
from vauban.models.layouts import same_scores, trial_scores, trial_views

_NUMBERS = 2**24  # of views in one pass on a GPU, at most


def views_in_a_pass(view: torch.Size, device: torch.device, keeps_gradients: bool) -> int:
    """Views of this shape in one pass of a search: on a GPU as many as fit, since nothing in a search depends on the number.

    Where gradients are kept, each number of a view may take some 8 kB of the GPU's memory.
    """
    if device.type == "cpu":
        return choose_rows(view, device)
    numbers = _NUMBERS
    if keeps_gradients:
        memory = torch.cuda.get_device_properties(device).total_memory
        numbers = max(_NUMBERS // 4, min(_NUMBERS, memory // 2**13))
    return max(1, numbers // view.numel())


def in_16_bits(model: Any, precision: str, view: torch.Size, device: torch.device) -> Any:
    """A base classifier on a GPU in the 16-bit precision in which it votes, so that a search is as fast as votes are; channels
    last where it takes pictures and works so."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    if dtype is None or device.type == "cpu" or not isinstance(model, torch.nn.Module):
        return model
    model.to(dtype)
    own = next((p for p in model.parameters() if p.is_floating_point()), None)
    if len(view) == 3 and own is not None:
        views = trial_views(view, own)
        plain = trial_scores(model, views)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if not same_scores(plain, trial_scores(model, views)):
            model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return model
