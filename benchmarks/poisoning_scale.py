"""Peak memory and time of an ensemble over many partitions of a large table, with a cheap learner.

The table is made: two classes, normal columns of float32. Peaks are those of the whole process, as the system counts them; the
imports and the table are measured before anything is trained, so that what an ensemble needs beside them can be read off.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.naive_bayes import GaussianNB

from vauban.files import write_json
from vauban.poisoning.ensemble import Ensemble


def peak() -> float:
    """MiB that this process has held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two normal classes half a deviation apart in each column."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, rows)
    x = random.standard_normal((rows, columns), dtype=np.float32)
    x += np.float32(0.5) * y[:, None].astype(np.float32)
    return x, y


def main() -> None:
    """Train, vote, and print what was measured after each."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--rows", type=int, default=1_000_000)
    read.add_argument("--columns", type=int, default=16)
    read.add_argument("--partitions", type=int, default=10_000)
    read.add_argument("--inputs", type=int, default=1_000)
    read.add_argument("--out", type=Path)
    given = read.parse_args()
    found: dict[str, float] = {"imports_mib": peak()}
    x, y = table(given.rows, given.columns, 0)
    found |= {"table_mib": x.nbytes / 2**20, "with_table_mib": peak()}
    began = time.perf_counter()
    ensemble = Ensemble.fit(x, y, partitions=given.partitions, learner=GaussianNB(), num_classes=2, progress=False)
    found |= {"fit_seconds": time.perf_counter() - began, "after_fit_mib": peak()}
    began = time.perf_counter()
    certs = ensemble.certify(*table(given.inputs, given.columns, 1), progress=False)
    found |= {"vote_seconds": time.perf_counter() - began, "after_vote_mib": peak()}
    found |= {"clean": certs.clean_accuracy, "median_radius": certs.median_radius}
    shown = {**vars(given), "out": None, **{key: round(value, 3) for key, value in found.items()}}
    print(json.dumps(shown, indent=1))
    if given.out is not None:
        write_json(given.out, shown)


if __name__ == "__main__":
    main()
