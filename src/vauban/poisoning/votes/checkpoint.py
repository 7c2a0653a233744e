"""The votes of a run whose models have not all voted yet, kept in its folder: after Ctrl-C or a kill it goes on from them."""

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

FILE = "ballots.unfinished.npz"
_SECONDS = 30.0  # between two times that votes are kept


class VotesCheckpoint:
    """Votes so far in a run folder. `about`: all that the votes depend on; votes about anything else are refused."""

    def __init__(self, folder: Path, about: Mapping[str, Any]):
        self.path = folder / FILE
        self._about = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode()).hexdigest()
        self._kept = time.monotonic()

    def take_up(self, ballots: VoteCounter, sizes: Sequence[int]) -> None:
        """Put the votes that are kept into empty ballots. `sizes`: how many models each group has, in order."""
        if not self.path.exists():
            return
        try:
            arrays = read_arrays(self.path)
            about, done = str(arrays.pop("about")), int(arrays.pop("groups"))
            if about == self._about:
                ballots.restore(arrays, done, sum(sizes[:done]))
                return
        except (BadInput, KeyError, TypeError, ValueError) as problem:
            raise RunRefused(f"{self.path} is damaged ({problem}): remove it to let all models vote anew") from None
        raise RunRefused(
            f"{self.path} holds votes of another run (other models, inputs, aggregate or device): choose another --out, or "
            "remove it"
        )

    def keep(self, ballots: VoteCounter, *, now: bool = False) -> None:
        """Keep the votes so far, if it is time to, or `now`."""
        if now or time.monotonic() - self._kept >= _SECONDS:
            packed = io.BytesIO()
            np.savez(packed, about=np.array(self._about), groups=np.array(ballots.groups), **ballots.state())  # type: ignore[arg-type]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, packed.getvalue())
            self._kept = time.monotonic()

    def remove(self) -> None:
        """The run is written: its votes are elsewhere now."""
        self.path.unlink(missing_ok=True)
