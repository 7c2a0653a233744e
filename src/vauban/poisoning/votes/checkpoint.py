"""Saves the votes of a run while its models vote, so that voting resumes after Ctrl-C or a kill."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vauban.errors import BadInput, RunRefused
from vauban.files import replace_file
from vauban.poisoning.votes.counting import VoteCounter
from vauban.poisoning.votes.run_folder import read_arrays

FILE = "ballots.checkpoint.npz"
_SECONDS = 30.0  # between two checkpoints


class VotesCheckpoint:
    """The votes so far, in a run folder. `about` is everything they depend on; a checkpoint about anything else is refused."""

    def __init__(self, folder: Path, about: Mapping[str, Any]):
        self.path = folder / FILE
        self._about = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode()).hexdigest()
        self._saved_at = time.monotonic()

    def restore(self, counter: VoteCounter, sizes: Sequence[int]) -> None:
        """Put the saved votes, if there are any, into an empty counter. `sizes`: the number of models of each group."""
        if not self.path.exists():
            return
        try:
            arrays = read_arrays(self.path)
            about, done = str(arrays.pop("about")), int(arrays.pop("groups"))
            if about == self._about:
                counter.restore(arrays, done, sum(sizes[:done]))
                return
        except (BadInput, KeyError, TypeError, ValueError) as problem:
            raise RunRefused(f"{self.path} is damaged ({problem}): remove it to let all models vote anew") from None
        raise RunRefused(
            f"{self.path} holds votes of another run (other models, inputs, aggregate or device): choose another --out, or "
            "remove it"
        )

    def save(self, counter: VoteCounter, *, now: bool = False) -> None:
        """Save the votes so far if the last checkpoint is old enough, or `now`."""
        if now or time.monotonic() - self._saved_at >= _SECONDS:
            packed = io.BytesIO()
            np.savez(packed, about=np.array(self._about), groups=np.array(counter.groups), **counter.state())  # type: ignore[arg-type]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, packed.getvalue())
            self._saved_at = time.monotonic()

    def remove(self) -> None:
        """Remove the checkpoint, once the run folder holds the votes."""
        self.path.unlink(missing_ok=True)
