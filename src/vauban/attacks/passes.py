"""How a search calls a base classifier: by what, how many views in one pass, and in which precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vauban.engine.backends.onnx_network import OnnxNetwork
from vauban.engine.network import Network
from vauban.engine.sampler import choose_rows
from vauban.errors import NoGradients
from vauban.models.layouts import same_scores, trial_scores, trial_views

_NUMBERS = 2**24  # of views in one pass on a GPU, at most


class RunByBackend(nn.Module):
    """The network of an ONNX file as a search calls it: with any number of views [n, ...], without gradients.

    The backend of the network runs it, in its precision. Every pass has `rows` views, since some files take one number of views
    only; the last pass is filled up. `rows`: None takes the file's number, or one chosen by size.
    """

    def __init__(self, network: Network, rows: int | None = None):
        super().__init__()
        network.prepare(())  # a backend that cannot run the file is refused here, whatever the views
        self.network, self.rows = network, rows

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Scores [n, classes] of views [n, ...]."""
        source, shape = self.network.source, views.shape[1:]
        assert isinstance(source, OnnxNetwork)
        if views.requires_grad:
            raise NoGradients(f"no gradients pass through {source.name}, an ONNX file: use an attack that needs none")
        rows = self.rows or source.takes[0] or choose_rows(shape, views.device)
        self.network.fit((rows, *shape))
        missing = -len(views) % rows
        full = torch.cat([views, views[-1:].expand(missing, *shape)]) if missing else views
        return torch.cat([self.network.model(part) for part in full.split(rows)])[: len(views)]


def searched(model: Any, network: Network, rows: int, view: torch.Size) -> Any:
    """The base classifier that a search calls: `model`, a copy of the network's own, or the backend of an ONNX file."""
    if isinstance(network.source, OnnxNetwork):
        return RunByBackend(network, rows)
    return in_16_bits(model, network.precision, view, network.device)


def views_in_a_pass(model: Any, view: torch.Size, device: torch.device, keeps_gradients: bool) -> int:
    """Views of this shape in one pass of a search: on a GPU as many as fit, since nothing in a search depends on the number.

    Where gradients are kept, each number of a view may take some 8 kB of the GPU's memory.
    """
    if isinstance(model, RunByBackend) and model.rows:
        return model.rows
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
