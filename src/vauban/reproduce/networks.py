"""Trained networks that entries share: one that was trained alike, by whichever entry, is taken in place of training it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vauban.files import in_turn, replace_file, sha256
from vauban.reproduce import steps as doing
from vauban.reproduce.steps import Step


def key(step: Step, printed: bool) -> str:
    """What tells the training of a step apart: network, recipe, seed, views, training inputs, and what it starts from."""
    return sha256(json.dumps(_depends_on(step, printed), sort_keys=True).encode())[:32]


def _depends_on(step: Step, printed: bool) -> dict[str, Any]:
    from vauban.smoothing.several import read

    recipe, model = doing.recipe_of(step, printed)
    inputs, held = doing.training_inputs(step, printed)
    return {
        "model": model,
        "recipe": asdict(recipe),
        "smoothing": str(read(step.trained_smoothing).spec),
        "inputs": inputs.fingerprint(),
        "validate": held,
        "begin": None if step.first is None else _depends_on(step.first, printed),
    }


@contextmanager
def shared(step: Step, printed: bool, folder: Path | None) -> Iterator[bool]:
    """Whether the weights of a step were taken from the folder; if not, they are kept there once the context has made them.

    Other processes that need the same network wait.
    """
    if folder is None or step.weights.exists():
        yield False
        return
    folder.mkdir(parents=True, exist_ok=True)
    there = folder / f"{key(step, printed)}.safetensors"
    with in_turn(there):
        if there.exists():
            replace_file(step.weights, there.read_bytes())
            yield True
            return
        yield False
        if step.weights.exists():
            replace_file(there, step.weights.read_bytes())
