"""Poisoning by the votes: the cheapest buckets are those of enumeration, and no change is smaller than the certificate allows."""

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from vauban.attacks.poisoning.plans import bucket_gains, cheapest_buckets, needed_gain
from vauban.attacks.poisoning.retraining import Change, near_variants, poison
from vauban.errors import BadInput
from vauban.poisoning import Ensemble, Partition


class Nearest:
    """Trains by keeping the samples; the score of a class is minus the distance to its nearest sample, far if it has none."""

    num_classes = 3

    @property
    def spec(self) -> dict[str, Any]:
        return {"trainer": "nearest"}

    def fit(
        self, parts: Sequence[Any], numbers: Sequence[int], on_progress: Any = None
    ) -> Iterator[tuple[list[int], list[Any]]]:
        for number, part in zip(numbers, parts, strict=True):
            yield [number], [(np.asarray(part[0]), np.asarray(part[1]))]

    def scores(self, weights: Any, x: np.ndarray) -> torch.Tensor:
        out = []
        for samples, labels in weights:
            far = (
                ((samples[None].astype(float) - x[:, None].astype(float)) ** 2).reshape(len(x), len(samples), -1).sum(2)
            )
            out.append([[-min(far[i][labels == c], default=1e9) for c in range(3)] for i in range(len(x))])
        return torch.tensor(out)


def world(partition: Partition, seed: int = 0) -> tuple[Ensemble, np.ndarray, np.ndarray, np.ndarray]:
    """60 samples on a line of bytes, in three overlapping classes, and 5 inputs."""
    random = np.random.default_rng(seed)
    y = random.integers(3, size=60)
    x = np.clip(60 * y[:, None] + random.normal(60, 25, size=(60, 2)), 0, 255).astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ensemble = Ensemble.fit(x, y, partition, Nearest(), against=None)
    return ensemble, x, y, np.array([[70, 60], [120, 110], [180, 190], [90, 90], [150, 140]], dtype=np.uint8)


def retrained(ensemble: Ensemble, x: np.ndarray, y: np.ndarray, change: Change, asked: np.ndarray) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = Ensemble.fit(*change.applied(x, y), ensemble.partition, ensemble.trainer, against=ensemble.against)
    return int(np.bincount(again.votes(asked)[0], minlength=3).argmax())


@pytest.mark.parametrize("kind", ["flip", "add", "remove"])
@pytest.mark.parametrize("partition", [Partition(7), Partition(3, spread=2)])
def test_changes_move_the_answer_and_are_no_smaller_than_certified(kind: str, partition: Partition) -> None:
    ensemble, x, y, asked = world(partition)
    certified = ensemble.certify(asked)
    found = poison(ensemble, x, y, asked, change=kind, most=4)
    assert [one.certified for one in found] == (certified.radius + 1).tolist()
    hits = [i for i, one in enumerate(found) if one.change is not None]
    assert hits
    for i in hits:
        one = found[i]
        assert one.change is not None
        assert one.upper == len(one.change) >= one.certified
        assert retrained(ensemble, x, y, one.change, asked[i : i + 1]) == one.answer != certified.answer[i]


def test_flips_reach_the_certificate_where_each_bucket_needs_one_label() -> None:
    ensemble, x, y, asked = world(Partition(9))
    found = poison(ensemble, x, y, asked, change="flip", most=2)
    assert any(one.upper == one.certified for one in found)


def test_the_cheapest_flips_are_those_of_all_subsets_of_buckets() -> None:
    ensemble, x, y, asked = world(Partition(5), seed=3)
    buckets = ensemble.partition.buckets(x)
    for i, one in enumerate(poison(ensemble, x, y, asked, change="flip", most=1)):
        ballots = ensemble.votes(asked[i : i + 1])[0]
        rival = needed_gain(np.bincount(ballots, minlength=3), one.label)[0]
        best = np.inf
        for count, touched in ((k, t) for k in range(1, 6) for t in itertools.combinations(range(5), k)):
            rows = [_nearest(x, y, np.flatnonzero(buckets == b), asked[i], one.label, rival) for b in touched]
            if all(row is not None for row in rows):
                change = Change(relabelled={int(row): rival for row in rows if row is not None})
                if retrained(ensemble, x, y, change, asked[i : i + 1]) != one.label:
                    best = min(best, count)
        assert one.upper == best


def _nearest(x: np.ndarray, y: np.ndarray, rows: np.ndarray, asked: np.ndarray, label: int, rival: int) -> int | None:
    """The sample to relabel first: of the label before others, then the nearest."""
    left = [row for row in rows if y[row] != rival]
    far = {row: float(((x[row].astype(float) - asked) ** 2).sum()) for row in left}
    return min(left, key=lambda row: (y[row] != label, far[row], row), default=None)


def test_the_cheapest_buckets_are_those_of_enumeration() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        options = [
            [(int(random.integers(1, 5)), int(random.integers(1, 9))) for _ in range(random.integers(1, 4))]
            for _ in range(random.integers(1, 6))
        ]
        need = int(random.integers(1, 12))
        every = itertools.product(*[[(0, 0), *some] for some in options])
        costs = [sum(c for _, c in chosen) for chosen in every if sum(g for g, _ in chosen) >= need]
        chosen = cheapest_buckets(options, need)
        if not costs:
            assert chosen is None
            continue
        assert chosen is not None
        picked = [options[i][j] for i, j in chosen]
        assert len({i for i, _ in chosen}) == len(chosen)
        assert sum(g for g, _ in picked) >= need
        assert sum(c for _, c in picked) == min(costs)


def test_gains_of_buckets_count_the_models_that_share_them() -> None:
    partition = Partition(3, spread=2)
    ballots = np.array([0, 0, 1, 2, 0, 1])
    gains = bucket_gains(ballots, 0, 1, partition)
    worth = {0: 2, 1: 0, 2: 1}
    for bucket in range(6):
        models = [m for m in range(6) if bucket in partition.buckets_of(m)]
        assert gains[bucket] == sum(worth[int(ballots[m])] for m in models)


def test_what_cannot_be_attacked_is_refused() -> None:
    ensemble, x, y, asked = world(Partition(4))
    with pytest.raises(BadInput, match="not the training set"):
        poison(ensemble, x[1:], y[1:], asked)
    with pytest.raises(BadInput, match="at least one"):
        poison(ensemble, x, y, asked, most=0)
    with pytest.raises(BadInput, match="poke"):
        poison(ensemble, x, y, asked, change="poke")
    sorted_ensemble, *_ = world(Partition(4, by="sort"))
    with pytest.raises(BadInput, match="change=flip"):
        poison(sorted_ensemble, x, y, asked, change="add")


def test_sorted_partitions_are_attacked_by_flips() -> None:
    ensemble, x, y, asked = world(Partition(4, by="sort"))
    found = poison(ensemble, x, y, asked[:2], most=8)
    assert all(one.upper >= one.certified for one in found)
    assert any(one.change is not None for one in found)


def test_variants_differ_from_the_sample_and_stay_in_range() -> None:
    x = np.array([0, 255, 128, 3], dtype=np.uint8)
    made = near_variants(x, 50, np.random.default_rng(0))
    assert np.abs(made.astype(int) - x.astype(int)).max() <= 1
    assert (made != x).any(axis=1).all()
