"""Checkpoints of a training, and the log beside its weights."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import torch

from vauban.errors import BadInput, CannotWrite, RunRefused
from vauban.files import replace_file

T = TypeVar("T")

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
        try:
            self.weights.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise CannotWrite(f"{self.weights} cannot be written: {problem.strerror}; give another --out") from problem

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        content = BytesIO()
        torch.save(state, content)
        replace_file(self.checkpoint, content.getvalue())

    def read_checkpoint(
        self, made_by: dict[str, str], differences: Callable[[Mapping[str, Any]], str], overwrite: bool = False
    ) -> dict[str, Any] | None:
        """The state to resume from, or None. A checkpoint of another training is refused, or with `overwrite` left alone and None
        returned. `differences`: how the network in it differs from the one to be trained, as text."""
        if not self.checkpoint.exists():
            return None
        try:
            return self._own_state(made_by, differences)
        except (BadInput, RunRefused):
            if overwrite:
                return None
            raise

    def _own_state(self, made_by: dict[str, str], differences: Callable[[Mapping[str, Any]], str]) -> dict[str, Any]:
        state = read_state(self.checkpoint)
        before = state["made_by"]
        if before != made_by:
            keys = [key for key in {**before, **made_by} if before.get(key) != made_by.get(key)]
            changed = "; ".join(f"{key}: {before.get(key)}, now {made_by.get(key)}" for key in keys)
            raise RunRefused(
                f"{self.checkpoint} was written by a training with other settings ({changed}): give those settings to resume it, "
                "or start again with --overwrite (overwrite=True), which removes it"
            )
        if changed := differences(state):
            raise RunRefused(
                f"{self.checkpoint} was written by a training of another network ({changed}): give the network as it was to "
                "resume it, or start again with --overwrite (overwrite=True), which removes it"
            )
        return state

    def start_log(self, step: int, parse: Callable[[dict[str, Any]], T]) -> list[T]:
        """Keep the lines of the log up to a step, and return them, parsed; later ones will be written again. The log of finished
        weights that are replaced is kept beside it, and so is one with lines that cannot be read."""
        if not step and self.weights.exists() and self.log.exists() and not self.log_before.exists():
            self.log.rename(self.log_before)
        content = self.log.read_bytes() if step and self.log.exists() else b""
        kept, found, bad = [], [], 0
        for line in content.splitlines(keepends=True):
            try:
                record = json.loads(line)
                entry = parse(record)
                within = record["step"] <= step
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                bad += line.endswith(b"\n")  # a last line without its newline was cut off by a kill
                continue
            if within:
                kept.append(record)
                found.append(entry)
        if bad:
            damaged = self.log.with_name(self.log.name + ".damaged")
            self.log.replace(damaged)
            warnings.warn(
                f"{self.log} has {bad} lines that cannot be read: training goes on from the checkpoint, the others are kept, and "
                f"the log as it was is now {damaged}",
                stacklevel=2,
            )
        self.write_log(kept)
        return found

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
