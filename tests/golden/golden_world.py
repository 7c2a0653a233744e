"""A tiny world whose votes are the same on every machine: 8-bit pictures, and a network that computes in whole numbers."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

CLASSES = 4
SEED = 7
INDEX = [0, 3, 4, 10, 11, 500]
_LARGEST = 2**31 - 1


def numbers(count: int, seed: int) -> list[int]:
    """Whole numbers of a linear congruential generator: nothing that a library could change."""
    state, found = seed, []
    for _ in range(count):
        state = 48271 * state % _LARGEST
        found.append(state >> 8)
    return found


def pictures() -> np.ndarray:
    """Six pictures, uint8 [6, 1, 6, 6], from nearly black to nearly white."""
    noise = np.array(numbers(6 * 36, 11)).reshape(6, 1, 6, 6) % 60
    return (noise + np.array([20, 60, 100, 130, 160, 190]).reshape(6, 1, 1, 1)).astype(np.uint8)


def network(views: torch.Tensor) -> torch.Tensor:
    """Scores [rows, 4] in whole numbers of views [rows, ...]: each class adds up its own multiples of the view's values."""
    values = (views.double() * 1020).round().long().flatten(1) - 240
    size = values.shape[1]
    weights = torch.tensor(numbers(CLASSES * size, 5)).view(size, CLASSES) % 41 - 20
    scores = (values[:, :, None] * weights).sum(dim=1)
    middle = scores.sum(dim=1, keepdim=True)
    return (CLASSES * scores - middle).double()


def labels() -> list[int]:
    """The network's own answer to each picture without noise, for views of one channel."""
    return network(torch.from_numpy(pictures()).float() / 255).argmax(dim=1).tolist()


def kept(folder: Path) -> dict[str, Any]:
    """What a run folder holds, read with nothing of Vauban's: every count, every vote, every claim."""
    found: dict[str, Any] = {}
    if (folder / "tallies.jsonl").exists():
        lines = [json.loads(line) for line in (folder / "tallies.jsonl").read_text().splitlines()]
        found["tallies"] = sorted([one["input"], one["stage"], one["votes"], one["counts"]] for one in lines)
    if (folder / "ballots.jsonl").exists():
        ballots: dict[str, list[tuple[int, str]]] = {}
        for line in (folder / "ballots.jsonl").read_text().splitlines():
            one = json.loads(line)
            raw = zlib.decompress(base64.b64decode(one["votes"]))
            ballots.setdefault(str(one["input"]), []).append((one["first"], raw.hex()))
        found["ballots"] = {number: "".join(raw for _, raw in sorted(some)) for number, some in sorted(ballots.items())}
    rows = [line.split(",")[:4] for line in (folder / "claims.csv").read_text().splitlines()]
    found["claims"] = rows[1:]
    return found
