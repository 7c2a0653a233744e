"""Tiny worlds in which every poisoning can be tried: a few inputs on a line, exact learners, all changed training sets."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes

Sample = tuple[int, int]
Samples = tuple[Sample, ...]
POINTS = tuple(range(0, 60, 5))
ASKED = POINTS[::3]
CLASSES = 3


@cache
def scores_of(learner: str, part: Samples) -> NDArray[np.float64]:
    """Scores [asked, classes] of a base classifier trained on `part`, samples in the order of their content."""
    out = np.zeros((len(ASKED), CLASSES))
    if not part:
        return out
    for row, point in enumerate(ASKED):
        if learner == "majority":
            out[row] = [sum(y == c for _, y in part) for c in range(CLASSES)]
        elif learner == "nearest":
            out[row] = [-min((abs(x - point) for x, y in part if y == c), default=999) for c in range(CLASSES)]
        else:
            out[row] = _stump(part, point)
    return out


def _stump(part: Samples, point: int) -> list[int]:
    """Label counts on the point's side of the cut with the fewest errors; of equal cuts the smallest."""
    best: tuple[int, list[int]] | None = None
    for cut in range(-3, 60, 10):
        sides = [
            [sum(y == c for x, y in part if (x > cut) == above) for c in range(CLASSES)] for above in (False, True)
        ]
        errors = sum(sum(side) - max(side) for side in sides)
        if best is None or errors < best[0]:
            best = (errors, sides[point > cut])
    assert best is not None
    return best[1]


@cache
def ensemble_scores(samples: Samples, partition: Partition, learner: str) -> NDArray[np.float64]:
    """Scores [asked, models, classes] of the ensemble trained on `samples`."""
    x = np.array([[x] for x, _ in samples], dtype=np.uint8)
    y = np.array([y for _, y in samples])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members = partition.members(x, y)
    parts = [tuple(samples[i] for i in part) for part in members]
    return np.stack([scores_of(learner, part) for part in parts], axis=1)


def voted(sets: Sequence[Samples], partition: Partition, learner: str) -> EnsembleVotes:
    """The votes on every asked point of the ensembles trained on each of `sets`, [sets * asked] inputs."""
    scores = np.concatenate([ensemble_scores(samples, partition, learner) for samples in sets])
    return EnsembleVotes.from_arrays({"scores": scores}, CLASSES, spread=partition.spread, against=partition.against)


def answers(sets: Sequence[Samples], partition: Partition, learner: str, aggregate: str) -> NDArray[np.int64]:
    """The answers [sets, asked] of the ensembles trained on each of `sets`."""
    return voted(sets, partition, learner).answer(aggregate).reshape(len(sets), len(ASKED))


def certified(samples: Samples, partition: Partition, learner: str, aggregate: str) -> PoisoningCertificates:
    """Claims about every asked point."""
    return derive(voted([samples], partition, learner), aggregate=aggregate)


def one_change(samples: Samples) -> Iterator[Samples]:
    """Every training set with one sample added, removed or relabelled; as sorted tuples, so equal sets are equal."""
    for i, (x, y) in enumerate(samples):
        rest = samples[:i] + samples[i + 1 :]
        yield rest
        for label in range(CLASSES):
            if label != y:
                yield tuple(sorted((*rest, (x, label))))
    for new in itertools.product(POINTS, range(CLASSES)):
        yield tuple(sorted((*samples, new)))


def one_flip(samples: Samples) -> Iterator[Samples]:
    """Every training set with the labels of all copies of one input set anew."""
    for point in sorted({x for x, _ in samples}):
        rest = [sample for sample in samples if sample[0] != point]
        copies = len(samples) - len(rest)
        for labels in itertools.combinations_with_replacement(range(CLASSES), copies):
            yield tuple(sorted([*rest, *((point, label) for label in labels)]))


def within(samples: Samples, changes: int, step: object) -> Iterator[tuple[int, Samples]]:
    """Every training set that `changes` steps or fewer lead to, once, with the fewest that do."""
    seen, ring = {samples}, [samples]
    for size in range(1, changes + 1):
        after = []
        for old in ring:
            for new in step(old):  # type: ignore[operator]
                if new not in seen:
                    seen.add(new)
                    after.append(new)
                    yield size, new
        ring = after


def training_sets(count: int, size: int, seed: int) -> list[Samples]:
    """Random training sets with a lean towards one label, so that there is something to certify; some inputs may repeat."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        lean = np.full(CLASSES, 0.1)
        lean[(i + 1) % CLASSES] = 1 - 0.1 * (CLASSES - 1)
        points = np.concatenate([rng.permutation(POINTS), rng.choice(POINTS, size)])[:size]
        made.append(tuple(sorted((int(x), int(rng.choice(CLASSES, p=lean))) for x in points)))
    return made
