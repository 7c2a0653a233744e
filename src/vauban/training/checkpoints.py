"""Checkpoints of a training, and the log beside its weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from vauban.errors import BadInput, CannotWrite, RunRefused
from vauban.files import read_lines, replace_file

SUFFIX = ".checkpoint"


@dataclass(frozen=True)
class Files:
    """Where a training keeps its weights, its checkpoint and its log."""

    weights: Path

    def __post_init__(self) -> None:
        if self.weights.suffix != ".safetensors":
            raise BadInput(
                f"{self.weights}: weights are written as safetensors, so give a name that ends in .safetensors"
            )

    @property
    def checkpoint(self) -> Path:
        return self.weights.with_name(self.weights.name + SUFFIX)

    @property
    def log(self) -> Path:
        return self.weights.with_suffix(".train.jsonl")

    @property
    def log_before(self) -> Path:
        """The log of the weights that are being replaced, until they are."""
        return self.log.with_name(self.log.name + ".before")

    @property
    def finished(self) -> bool:
        """Whether the weights are there, and no training is to be resumed."""
        return self.weights.exists() and not self.checkpoint.exists()

    def refuse_existing(self, overwrite: bool) -> None:
        """Refuse to replace finished weights unless `overwrite`; a checkpoint is resumed."""
        if self.finished and not overwrite:
            raise BadInput(
                f"{self.weights} exists: give another name, or overwrite it with --overwrite (overwrite=True)"
            )
        self.weights.parent.mkdir(parents=True, exist_ok=True)

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        content = BytesIO()
        torch.save(state, content)
        replace_file(self.checkpoint, content.getvalue())

    def read_checkpoint(
        self, made_by: dict[str, str], differences: Callable[[Mapping[str, Any]], str]
    ) -> dict[str, Any] | None:
        """The state to resume from, or None; a checkpoint of another training is refused. `differences`: how the network in it
        differs from the one to be trained, as text."""
        if not self.checkpoint.exists():
            return None
        state = read_state(self.checkpoint)
        before = state["made_by"]
        if before != made_by:
            keys = [key for key in {**before, **made_by} if before.get(key) != made_by.get(key)]
            changed = "; ".join(f"{key}: {before.get(key)}, now {made_by.get(key)}" for key in keys)
            raise RunRefused(
                f"{self.checkpoint} was written by a training with other settings ({changed}): give those settings to resume it, "
                "or remove it to start again"
            )
        if changed := differences(state):
            raise RunRefused(
                f"{self.checkpoint} was written by a training of another network ({changed}): give the network as it was to "
                "resume it, or remove it to start again"
            )
        return state

    def start_log(self, step: int) -> list[dict[str, Any]]:
        """Keep the lines of the log up to a step, and return them; later ones will be written again. The log of finished weights
        that are replaced is kept beside it."""
        if not step and self.weights.exists() and self.log.exists() and not self.log_before.exists():
            self.log.rename(self.log_before)
        kept = [record for record in read_lines(self.log, json.loads)[0] if record["step"] <= step] if step else []
        self.write_log(kept)
        return kept

    def append_log(self, record: dict[str, Any]) -> None:
        """Add a line to the log; where that fails, a part of the line may be there."""
        try:
            with self.log.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as problem:
            raise CannotWrite(f"{self.log} cannot be written: {problem.strerror or problem}") from problem

    def write_log(self, records: list[dict[str, Any]]) -> None:
        """Write the whole log."""
        replace_file(self.log, "".join(json.dumps(record) + "\n" for record in records).encode())


def read_state(path: Path) -> dict[str, Any]:
    """The content of a checkpoint; nothing in it is executed."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:
        raise BadInput(
            f"{path} is no readable checkpoint ({type(problem).__name__}): remove it to start again"
        ) from None
    if not isinstance(state, dict) or not {"network", "made_by", "step", "optimizer"} <= set(state):
        raise BadInput(f"{path} is no checkpoint of a training: remove it to start again")
    return state
