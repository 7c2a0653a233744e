"""Small pictures, every place of a patch and everything touched views may vote: certified if and only if the label stays."""

import itertools
from functools import lru_cache

import numpy as np
import pytest
import torch
from amounts import few_then_all
from numpy.typing import NDArray

from vauban.laws.exact import Ballots
from vauban.laws.patches import positions, regions
from vauban.smoothing import Band, Block

CLASSES = 4
PATCHES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (3, 3), (1, 4), (4, 1), (4, 4)]
MOST_SETS = 9  # touched views whose sets of classes are searched: 10^4 counts
WORLDS = [
    (Band(1), (1, 4, 4)),
    (Band(2), (1, 5, 5)),
    (Band(2, stride=2), (1, 4, 6)),
    (Band(3, stride=2), (1, 5, 5)),
    (Band(2, "row"), (1, 6, 4)),
    (Band(2, count=2), (1, 4, 6)),
    (Band(2, count=2), (1, 4, 5)),
    (Block(1), (1, 4, 4)),
    (Block(2), (1, 4, 4)),
    (Block(3, stride=2), (1, 6, 6)),
    (Block(2, stride=3), (1, 5, 5)),
    (Block(2, count=2), (1, 4, 4)),
    (Block(3, count=2), (1, 5, 5)),
    (Block(2, count=2), (1, 6, 6)),
]


def with_threshold(kind, threshold: float | None):
    more = {"stride": kind.law.stride, "count": kind.law.count, "threshold": threshold}
    return Block(kind.law.size, **more) if isinstance(kind, Block) else Band(kind.law.size, kind.law.axis, **more)


def kept_pixels(kind, shape: tuple[int, int, int]) -> NDArray[np.bool_]:
    """Which pixels the views keep [views, h, w], read off the views of a white picture."""
    white = torch.full((1, *shape), 255, dtype=torch.uint8)
    every = torch.arange(kind.law.for_shape(shape).views)[:, None]
    return (kind.views(white, every, 255) != 0).any(dim=1).numpy()


def places(kept: NDArray[np.bool_], h: int, w: int) -> NDArray[np.bool_]:
    """Which views keep one of a patch's pixels, at every place inside the picture [places, views]."""
    height, width = kept.shape[1:]
    every = itertools.product(range(height - h + 1), range(width - w + 1))
    return np.array([kept[:, top : top + h, left : left + w].any(axis=(1, 2)) for top, left in every])


@lru_cache
def votes_of(views: int, sets: bool) -> NDArray[np.int64]:
    """Every count per class [n, CLASSES] that so many views can reach, each voting for one class, or for any set of them."""
    one = np.array(list(itertools.product((0, 1), repeat=CLASSES))) if sets else np.eye(CLASSES, dtype=np.int64)
    found = np.zeros((1, CLASSES), dtype=np.int64)
    for _ in range(views):
        found = np.unique((found[:, None] + one[None]).reshape(-1, CLASSES), axis=0)
    return found


def ahead(counts: NDArray[np.int64], label: int) -> NDArray[np.int64]:
    """How many rivals are ahead of the label, which wins ties with larger indices only, for counts [..., CLASSES]."""
    rivals = [j for j in range(CLASSES) if j != label]
    return sum((counts[..., j] + (j < label) > counts[..., label]).astype(int) for j in rivals)


def most_ahead(votes: NDArray[np.int64], touched: NDArray[np.bool_], label: int, sets: bool) -> NDArray[np.int64]:
    """For each ballot [n, views, CLASSES]: the most rivals that some place and some votes of its touched views put ahead."""
    most = np.zeros(len(votes), dtype=np.int64)
    for place in np.unique(touched, axis=0):
        anew = votes_of(int(place.sum()), sets)
        untouched = votes[:, ~place].sum(axis=1)
        most = np.maximum(most, ahead(untouched[:, None] + anew, label).max(axis=1))
    return most


def ballots_of(views: int, sets: bool, label: int, rng: np.random.Generator, m: int) -> NDArray[np.int64]:
    """Ballots [m, views, CLASSES] from unanimous to random, rivals' votes side by side or scattered."""
    lean = rng.choice([0.3, 0.6, 0.8, 0.95], size=(m, 1))
    away = np.sort(rng.random((m, views)), axis=1) > lean
    mixed = rng.permuted(away, axis=1)
    away = np.where(rng.random((m, 1)) < 0.5, away, mixed)
    classes = np.where(away, rng.integers(0, CLASSES, (m, views)), label)
    votes = (classes[:, :, None] == np.arange(CLASSES)).astype(np.int64)
    if sets:
        votes ^= (rng.random(votes.shape) < 0.4 * (1 - lean[:, :, None])).astype(np.int64)
    return votes


def play(kind, shape, sets: bool, m: int = 20) -> tuple[int, int, int, int]:
    """Cases (a ballot against a patch at a place, for one k), false claims, claims missed, and claims."""
    law = with_threshold(kind, 0.3 if sets else None).law.for_shape(shape)
    kept, rng = kept_pixels(kind, shape), np.random.default_rng(0)
    tried = false = missed = claims = 0
    for label, (h, w) in itertools.product(range(CLASSES), PATCHES):
        touched = places(kept, h, w)
        if sets and touched.sum(axis=1).max() > MOST_SETS:
            continue
        votes = ballots_of(law.views, sets, label, rng, m)
        ballots = Ballots(votes.astype(bool) if sets else votes.argmax(axis=2), CLASSES)
        labels, most = np.full(m, label), most_ahead(votes, touched, label, sets)
        for k in (1, 2, 3):
            claimed = law.stands(ballots, labels, k, patch=(h, w))
            tried += m * len(touched)
            false += int((claimed & (most >= k)).sum())
            missed += int((~claimed & (most < k)).sum())
            claims += int(claimed.sum())
    return tried, false, missed, claims


@pytest.mark.parametrize("m", few_then_all(20, 60))
@pytest.mark.parametrize("sets", [False, True], ids=["one vote", "sets"])
@pytest.mark.parametrize("world", WORLDS, ids=lambda w: f"{w[0]} on {w[1][1]} x {w[1][2]}")
def test_certified_exactly_where_no_votes_of_touched_views_put_the_label_out(world, sets, m, cases_tried) -> None:
    tried, false, missed, claims = play(*world, sets, m)
    cases_tried(tried)
    assert (false, missed) == (0, 0)
    law = with_threshold(world[0], 0.3 if sets else None).law.for_shape(world[1])
    assert tried > 0
    assert claims > 0 or law.largest_radius(1, CLASSES) == 0


def ignore_wrap(monkeypatch) -> None:
    honest = regions.meets
    monkeypatch.setattr(regions, "meets", lambda *args: honest(*args[:5], False))


def give_ties_to_the_label(monkeypatch) -> None:
    honest = positions.stays

    def stays(untouched, touched, labels, k, sets):
        first = np.argsort(np.arange(CLASSES) != labels[:, None], axis=1, kind="stable")
        return honest(np.take_along_axis(untouched, first[:, None], axis=2), touched, 0 * labels, k, sets)

    monkeypatch.setattr(positions, "stays", stays)


def treat_sets_as_one_vote(monkeypatch) -> None:
    honest = positions.stays
    monkeypatch.setattr(positions, "stays", lambda n, t, labels, k, sets: honest(n, t, labels, k, False))


@pytest.mark.parametrize(
    ("bug", "sets"),
    [
        (ignore_wrap, False),
        (give_ties_to_the_label, False),
        (give_ties_to_the_label, True),
        (treat_sets_as_one_vote, True),
    ],
)
def test_a_bug_is_caught(bug, sets, monkeypatch) -> None:
    positions._worst_positions.cache_clear()
    bug(monkeypatch)
    try:
        assert sum(play(kind, shape, sets)[1] for kind, shape in WORLDS[:5]) > 0
    finally:
        positions._worst_positions.cache_clear()


class Random(torch.nn.Module):
    """A base classifier with no reason to be kind: a random network that leans to one class."""

    def __init__(self, pixels: int, label: int, lean: float, seed: int):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.first = torch.randn(2 * pixels, 24, generator=draw)
        self.shift = torch.randn(24, generator=draw)
        self.second = torch.randn(24, CLASSES, generator=draw)
        self.bias = lean * torch.nn.functional.one_hot(torch.tensor(label), CLASSES)

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        return torch.sin(3 * (views.flatten(1) @ self.first + self.shift)) @ self.second + self.bias


def tallies(kind, model, pictures: torch.Tensor) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """What every view of each picture votes [n, views, CLASSES], and the counts."""
    views, n = kind.law.for_shape(pictures.shape[1:]).views, len(pictures)
    words = torch.arange(views).repeat(n)[:, None]
    scores = model(kind.views(pictures.repeat_interleave(views, dim=0), words, 255))
    if kind.law.threshold is not None:
        votes = torch.softmax(scores, dim=1) >= kind.law.threshold
    else:
        votes = torch.nn.functional.one_hot(scores.argmax(dim=1), CLASSES).bool()
    votes = votes.view(n, views, CLASSES).numpy()
    return votes, votes.sum(axis=1)


REAL = [
    (Band(1), (1, 4, 4)),
    (Band(2, stride=2), (1, 4, 5)),
    (Band(2, "row", threshold=0.3), (1, 5, 4)),
    (Band(1, threshold=0.2), (1, 4, 5)),
    (Band(1, count=2), (1, 4, 6)),
    (Block(1), (1, 4, 4)),
    (Block(2), (1, 4, 4)),
    (Block(2, threshold=0.3), (1, 4, 4)),
    (Block(2, count=2), (1, 5, 6)),
    (Block(2, count=2, threshold=0.3), (1, 4, 6)),
]


@pytest.mark.parametrize("world", REAL, ids=lambda w: f"{w[0]} on {w[1][1]} x {w[1][2]}")
def test_no_patch_of_a_real_picture_takes_a_certified_label(world, cases_tried) -> None:
    """All black and white contents of patches up to 2 x 2, and 1 x 3, at every place of random pictures."""
    kind, shape = world
    law = kind.law.for_shape(shape)
    tried = claims = taken = 0
    for seed, lean in enumerate([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 12.0]):
        rng = np.random.default_rng(seed)
        x = torch.from_numpy(rng.integers(0, 2, (1, *shape)).astype(np.uint8) * 255)
        model = Random(shape[1] * shape[2], seed % CLASSES, lean, seed)
        votes, clean = tallies(kind, model, x)
        label = int(clean[0].argmax())
        ballots = Ballots(votes if law.sets else votes.argmax(axis=2), CLASSES)
        for h, w in ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3)):
            certified = [bool(law.stands(ballots, [label], k, patch=(h, w))[0]) for k in (1, 2, 3)]
            contents = np.array(list(itertools.product((0, 255), repeat=h * w)), dtype=np.uint8).reshape(-1, 1, h, w)
            attacked = []
            for top, left in itertools.product(range(shape[1] - h + 1), range(shape[2] - w + 1)):
                pictures = x.repeat(len(contents), 1, 1, 1)
                pictures[:, :, top : top + h, left : left + w] = torch.from_numpy(contents)
                attacked.append(pictures)
            _, counts = tallies(kind, model, torch.cat(attacked))
            for k, holds in zip((1, 2, 3), certified, strict=True):
                out = ahead(counts, label) >= k
                assert not (holds and out.any())
                taken += int(out.any())
                claims += holds
                tried += len(counts) * holds
    cases_tried(tried)
    assert claims > 0
    assert taken > 0
