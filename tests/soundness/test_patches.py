"""Every ballot and every patch on small pictures: no label is lost within its radius, and the next radius would lose one."""

import itertools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vauban.laws.patches.regions import Regions, touched_by_side
from vauban.laws.patches.sampled import BandLaw, BlockLaw, KeptRegionLaw
from vauban.laws.topk import radius
from vauban.smoothing.patches import ablated

CLASSES = 3
WORLDS: list[tuple[KeptRegionLaw, tuple[int, int, int]]] = [
    (BandLaw(1, True), (1, 2, 6)),
    (BandLaw(2, True), (1, 3, 7)),
    (BandLaw(1, True, axis="row"), (2, 7, 3)),
    (BandLaw(2, True, 2), (1, 2, 13)),
    (BandLaw(3, True, 2), (1, 1, 12)),
    (BlockLaw(1, True), (1, 2, 4)),
    (BlockLaw(2, True, 2), (1, 4, 4)),
    (BlockLaw(2, True, 3), (1, 5, 8)),
]


def untouched_views(regions: Regions, shape: tuple[int, int, int], side: int) -> NDArray[np.bool_]:
    """Which views stay the same at each place of a square of changed pixels [places, views]: made, and compared."""
    height, width = shape[1:]
    where = torch.from_numpy(regions.positions)
    x = torch.randint(0, 128, (1, *shape), dtype=torch.uint8)
    before = ablated(x, where, regions, 255)
    h, w = min(side, height), min(side, width)
    same = []
    for top, left in itertools.product(range(height - h + 1), range(width - w + 1)):
        attacked = x.clone()
        attacked[:, :, top : top + h, left : left + w] += 128
        same.append((ablated(attacked, where, regions, 255) == before).flatten(1).all(dim=1).numpy())
    return np.array(same)


def label_is_lost(ballots: NDArray[np.int64], same: NDArray[np.bool_], label: int, k: int) -> NDArray[np.bool_]:
    """For each ballot: can some place, its touched views voting anything at all, put k rivals level with the label?"""
    lost = np.zeros(len(ballots), dtype=bool)
    for place in np.unique(same, axis=0):
        left = np.stack([(ballots[:, place] == c).sum(axis=1) for c in range(CLASSES)], axis=1)
        free = int((~place).sum())
        lacking = np.maximum(left[:, [label]] - np.delete(left, label, axis=1), 0)
        lost |= np.sort(lacking, axis=1)[:, :k].sum(axis=1) <= free
    return lost


def certified(law: KeptRegionLaw, ballots: NDArray[np.int64], label: int, k: int) -> NDArray[np.float64]:
    """The radius of every ballot from its exact frequencies, -1 where there is none."""
    counts = np.stack([(ballots == c).sum(axis=1) for c in range(CLASSES)], axis=1)
    rivals = np.sort(np.delete(counts, label, axis=1), axis=1)[:, -k:]
    sums = np.minimum(np.cumsum(rivals, axis=1), ballots.shape[1] - counts[:, [label]])
    n = ballots.shape[1]
    return np.nan_to_num(radius(law, counts[:, label] / n, sums / n), nan=-1.0)


def play(kind: KeptRegionLaw, shape: tuple[int, int, int], k: int) -> tuple[int, int, int]:
    """Cases tried, labels lost within their radius, and radii at which the next whole number loses one."""
    law = kind.for_shape(shape)
    regions = law.regions
    ballots = np.array(list(itertools.product(range(CLASSES), repeat=regions.count)))
    radii = certified(law, ballots, 0, k)
    counts = np.stack([(ballots == c).sum(axis=1) for c in range(CLASSES)], axis=1)
    counts[:, 1:] = np.sort(counts[:, 1:], axis=1)
    tried = violations = tight = 0
    for side in range(max(shape[1:]) + 1):
        same = untouched_views(regions, shape, side)
        lost = label_is_lost(ballots, same, 0, k)
        tried += int((radii >= side).sum()) * len(same)
        violations += int((lost & (radii >= side)).sum())
        for votes in np.unique(counts[radii == side - 1], axis=0):
            tight += int(lost[(counts == votes).all(axis=1)].any())
    return tried, violations, tight


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("world", WORLDS, ids=lambda w: str(w[0].spec))
def test_no_patch_takes_a_label_within_its_radius(world, k, cases_tried) -> None:
    tried, violations, tight = play(*world, k)
    cases_tried(tried)
    assert violations == 0
    assert tried > 0
    assert tight > 0


@pytest.mark.parametrize("world", WORLDS[:2] + WORLDS[5:6], ids=lambda w: str(w[0].spec))
def test_one_region_too_few_is_caught(world, monkeypatch) -> None:
    most = Regions.most_touched
    monkeypatch.setattr(Regions, "most_touched", lambda self, patch: max(most(self, patch) - 1, 0))
    touched_by_side.cache_clear()
    try:
        assert play(*world, 1)[1] > 0
    finally:
        touched_by_side.cache_clear()


def test_at_top_one_every_radius_is_the_largest_its_votes_allow() -> None:
    for kind, shape in WORLDS[:4]:
        law = kind.for_shape(shape)
        ballots = np.array(list(itertools.product(range(CLASSES), repeat=law.regions.count)))
        radii = certified(law, ballots, 0, 1)
        counts = np.stack([(ballots == c).sum(axis=1) for c in range(CLASSES)], axis=1)
        counts[:, 1:] = np.sort(counts[:, 1:], axis=1)
        for side in range(1, max(shape[1:]) + 1):
            lost = label_is_lost(ballots, untouched_views(law.regions, shape, side), 0, 1)
            for votes in np.unique(counts[radii == side - 1], axis=0):
                assert lost[(counts == votes).all(axis=1)].any()
