"""Checkpoints of a training, and the log beside its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from vauban.errors import BadInput, RunRefused
from vauban.files import replace_file

SUFFIX = ".checkpoint"


@dataclass(frozen=True)
class Files:
    """Where a training keeps its weights, its checkpoint and its log."""

    weights: Path

    @property
    def checkpoint(self) -> Path:
        return self.weights.with_name(self.weights.name + SUFFIX)

    @property
    def log(self) -> Path:
        return self.weights.with_suffix(".train.jsonl")

    def refuse_existing(self, overwrite: bool) -> None:
        """Refuse to replace finished weights unless `overwrite`; a checkpoint is resumed."""
        if self.weights.exists() and not self.checkpoint.exists() and not overwrite:
            raise BadInput(
                f"{self.weights} exists: give another name, or overwrite it with --overwrite (overwrite=True)"
            )
        self.weights.parent.mkdir(parents=True, exist_ok=True)

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        content = BytesIO()
        torch.save(state, content)
        replace_file(self.checkpoint, content.getvalue())

    def read_checkpoint(self, made_by: str) -> dict[str, Any] | None:
        """The state to resume from, or None; a checkpoint of another training is refused."""
        if not self.checkpoint.exists():
            return None
        state = read_state(self.checkpoint)
        if state.get("made_by") != made_by:
            before, now = (dict(_pairs(text)) for text in (str(state.get("made_by")), made_by))
            changed = [f"{key}={before.get(key)}, now {now.get(key)}" for key in now if before.get(key) != now[key]]
            raise RunRefused(
                f"{self.checkpoint} was written by a training with other settings ({'; '.join(changed)}): give those settings to "
                "resume it, or remove it to start again"
            )
        return state

    def start_log(self, step: int) -> None:
        """Keep the lines of the log up to a step: those of a training that went on after its checkpoint are written again."""
        kept = []
        if step and self.log.exists():
            kept = [line for line in self.log.read_text().splitlines() if line and json.loads(line)["step"] <= step]
        replace_file(self.log, "".join(f"{line}\n" for line in kept).encode())

    def write_log(self, record: dict[str, Any]) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps(record) + "\n")


def read_state(path: Path) -> dict[str, Any]:
    """The content of a checkpoint; nothing in it is executed."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:
        raise BadInput(
            f"{path} is no readable checkpoint ({type(problem).__name__}): remove it to start again"
        ) from None
    if not isinstance(state, dict) or "network" not in state:
        raise BadInput(f"{path} is no checkpoint of a training: remove it to start again")
    return state


def _pairs(text: str) -> list[tuple[str, str]]:
    """The settings in `made_by`, one a line."""
    return [(key, value) for key, _, value in (line.partition("=") for line in text.split("\n"))]
