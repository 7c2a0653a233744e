"""Made pictures in the layout of CIFAR-10's binary batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def binary_batches(folder: Path, count: int = 40) -> None:
    """Five training batches and a test batch of `count` pictures of noise each, with labels 0, 1, … 9, 0, …"""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    labels = np.arange(count, dtype=np.uint8)[:, None] % 10
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        pixels = draw.integers(0, 256, (count, 3072), dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(np.hstack([labels, pixels]).tobytes())
