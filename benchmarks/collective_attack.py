"""How many answers of an ensemble a search finds that one poisoning of b samples changes: what no proof from its votes can keep.

    python benchmarks/collective_attack.py results/poisoning/collective/dpa-1200 --budget 100,200,400,550 --seconds 40

The b buckets with the largest scores are changed first; then one of them and one of the others are exchanged, at random, as long
as no fewer answers change.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

import vauban as vb
from vauban.laws.poisoning.collective import best_weights, collective_scores

Ints = NDArray[np.int64]


def changes(counts: Ints, taken: Ints, labels: Ints, budget: int) -> int:
    """How many labels [m] lose if `budget` buckets, whose votes `taken` [m, c] are of `counts` [m, c], vote for a rival."""
    rows = np.arange(len(labels))
    rivals = counts - taken + budget
    own = (counts - taken)[rows, labels][:, None]
    rivals[rows, labels] = -1
    first = np.arange(counts.shape[1]) < labels[:, None]
    return int(((rivals > own) | ((rivals == own) & first)).any(axis=1).sum())


def search(ballots: Ints, labels: Ints, classes: int, budget: int, seconds: float) -> int:
    """How many of the right answers [m, models] a poisoning of `budget` buckets leaves, at most, by the best one found."""
    scores = collective_scores(ballots, classes, 1, labels, budget)
    order = np.argsort(-(scores.table * best_weights(scores)[:, None]).sum(axis=0))
    inside = np.isin(np.arange(ballots.shape[1]), order[:budget])
    votes, y = ballots[scores.rows], labels[scores.rows]
    counts, taken = (
        np.stack([(some == c).sum(axis=1) for c in range(classes)], axis=1) for some in (votes, votes[:, inside])
    )
    rows, random, most = np.arange(len(y)), np.random.default_rng(0), changes(counts, taken, y, budget)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        out, into = (random.choice(np.flatnonzero(some)) for some in (inside, ~inside))
        tried = taken.copy()
        tried[rows, votes[:, out]] -= 1
        tried[rows, votes[:, into]] += 1
        found = changes(counts, tried, y, budget)
        if found >= most:
            most, taken, inside[[out, into]] = found, tried, [False, True]
    return len(labels) - scores.certain - most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run of DPA that keeps every vote, and whose inputs have labels")
    parser.add_argument("--budget", default="100,200,400,550")
    parser.add_argument("--seconds", type=float, default=40.0, help="for each budget")
    asked = parser.parse_args()
    run = vb.Run.open(asked.run)
    ballots, classes = np.asarray(run.votes.ballots, dtype=np.int64), run.manifest.data.num_classes
    truth, certs = np.asarray(run.manifest.data.label), run.certificates()
    right = certs.label == truth
    for budget in map(int, asked.budget.split(",")):
        kept = search(ballots[right], truth[right], classes, budget, asked.seconds)
        print(f"budget {budget}: of {int(right.sum()):,} right answers no more than {kept:,} are kept", flush=True)


if __name__ == "__main__":
    main()
