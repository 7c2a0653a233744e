"""What a call of a base classifier must leave as it is: random generators, buffers and parameters."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from vauban.errors import BadInput

IS_RANDOM = "votes need one that does not change. If it is random by design, say so: stochastic='views' or 'rows' (--stochastic)"


@dataclass(frozen=True)
class State:
    """The random generators of the process, the buffers of a module, and of each parameter its sum and norm."""

    generators: dict[str, Any]
    buffers: dict[str, torch.Tensor]
    parameters: dict[str, tuple[float, ...]]

    @classmethod
    def of(cls, model: Callable[[torch.Tensor], Any]) -> State:
        """The state of the process and of a model, which may be any callable."""
        if not isinstance(model, nn.Module):
            return cls(generator_states(), {}, {})
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        return cls(generator_states(), buffers, {name: _summary(one) for name, one in model.named_parameters()})

    def refuse_change(self, model: Callable[[torch.Tensor], Any]) -> None:
        """Refuse a model of which this was the state before it was called, if it is another now."""
        now = State.of(model)
        for name, before in self.generators.items():
            if not _same_state(before, now.generators[name]):
                raise BadInput(f"the model draws random numbers ({name}'s generator moved): {IS_RANDOM}")
        for name, buffer in self.buffers.items():
            if not torch.equal(buffer, now.buffers[name]):
                raise _changes("buffer", name)
        for name, summary in self.parameters.items():
            if summary != now.parameters[name]:
                raise _changes("parameter", name)


def _changes(kind: str, name: str) -> BadInput:
    return BadInput(
        f"a call changes the model's {kind} {name}: a base classifier that stays as it is is needed (is a normalisation layer "
        "still training, or does one set itself up by its first batch?)"
    )


def _summary(parameter: torch.Tensor) -> tuple[float, ...]:
    """The sum and the sum of squares, which are others after almost any change; -1 in place of NaN, which equals nothing."""
    if parameter.numel() == 0 or parameter.is_meta:
        return ()
    values = parameter.detach()
    both = torch.stack([values.sum(dtype=torch.float64), values.double().square().sum()])
    return tuple(both.cpu().nan_to_num(nan=-1.0).tolist())


def generator_states() -> dict[str, Any]:
    """The states of torch's, NumPy's and Python's generators."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "numpy": np.random.get_state()}
    states["random"] = random.getstate()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["torch.cuda"] = torch.cuda.get_rng_state_all()
    return states


def _same_state(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same_state, one, other))
    return bool(one == other)
