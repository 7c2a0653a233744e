"""Views of one kept band or block: the right pixels, the NULL encoding, every position as likely as every other."""

import numpy as np
import pytest
import torch
from scipy import stats

from vauban import SmoothedClassifier
from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothing import Band, Block, build
from vauban.smoothing.patches import ablated, positions
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")
KINDS = [
    Band(2, sampled=True),
    Band(3, "row", sampled=True, stride=2),
    Block(2, sampled=True),
    Block(3, sampled=True, stride=3),
]


def words(count: int, seed: int = 5) -> torch.Tensor:
    return Stream(Seed.of(seed), "count", 0).words(0, count, 1, CPU)


def slow_view(x: np.ndarray, top: int, left: int, rows: int, columns: int, levels: int | None) -> np.ndarray:
    channels, height, width = x.shape
    view = np.zeros((2 * channels, height, width), dtype=np.float32)
    one = np.float32(levels or 1)
    for i in range(rows):
        for j in range(columns):
            a, b = (top + i) % height, (left + j) % width
            view[:channels, a, b] = x[:, a, b].astype(np.float32) / one
            view[channels:, a, b] = (one - x[:, a, b].astype(np.float32)) / one
    return view


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("levels", [255, None])
def test_views_keep_one_region_and_hide_the_rest(kind, levels) -> None:
    x = torch.randint(0, 256, (1, 2, 4, 5), dtype=torch.uint8) if levels else torch.rand(1, 2, 4, 5)
    regions = kind.law.for_shape(x.shape[1:]).regions
    where = torch.from_numpy(regions.positions)
    assert torch.equal(positions(torch.arange(regions.count), regions), where)
    views = ablated(x, where, regions, levels)
    assert views.dtype == torch.float32
    assert views.shape == (regions.count, *kind.view_shape(x.shape[1:]))
    for view, (top, left) in zip(views.numpy(), regions.positions, strict=True):
        assert np.array_equal(view, slow_view(x[0].numpy(), top, left, regions.rows, regions.columns, levels))
    if levels:
        steps = (views.double() * levels).round()
        assert torch.equal(steps.float() / levels, views)
    kept = (views.view(regions.count, 2, 2, 4, 5) != 0).any(dim=1).any(dim=1)
    assert (kept.flatten(1).sum(dim=1) == regions.rows * regions.columns).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_position_is_as_likely_as_every_other(kind) -> None:
    regions = kind.law.for_shape((1, 6, 7)).regions
    x = torch.full((1, 1, 6, 7), 255, dtype=torch.uint8)
    drawn = words(1_000_000)
    where = positions(drawn[:, 0] % regions.count, regions).numpy()
    _, first, counts = np.unique(where @ [100, 1], return_index=True, return_counts=True)
    assert np.array_equal(where[first], regions.positions)
    assert stats.chisquare(counts).pvalue > 1e-6
    expected = ablated(x, torch.from_numpy(where[:300]), regions, 255)
    assert torch.equal(kind.views(x, drawn[:300], 255), expected)


def test_views_are_a_function_of_the_words_alone() -> None:
    smoothing = Block(3, sampled=True)
    x = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8)
    drawn = words(20)
    together = smoothing.views(x, drawn, 255)
    assert torch.equal(together, smoothing.views(x, drawn, 255))
    assert not torch.equal(together, smoothing.views(x, words(20, seed=6), 255))
    for i in range(20):
        assert torch.equal(together[i], smoothing.views(x[i : i + 1], drawn[i : i + 1], 255)[0])
    assert smoothing.words(x.shape[1:]) == 1
    last = torch.tensor([[2**63 - 1], [0]])
    assert smoothing.views(x[:1], last, 255).isfinite().all()


def test_null_is_no_value() -> None:
    x = torch.tensor([0.0, 1.0, 0.5, 1e-30, 1 - 2**-24]).view(1, 1, 1, 5)
    regions = Band(5, sampled=True).law.for_shape((1, 1, 5)).regions
    view = ablated(x, torch.zeros(1, 2, dtype=torch.int64), regions, None)
    assert (view != 0).any(dim=1).all()


def test_a_picture_is_certified_from_end_to_end() -> None:
    def model(views: torch.Tensor) -> torch.Tensor:
        white, black = views[:, 0].flatten(1).sum(dim=1), views[:, 1].flatten(1).sum(dim=1)
        return torch.stack([black, white], dim=1)

    smoothed = SmoothedClassifier(model, "band:size=2,sampled=true", num_classes=2)
    certs = smoothed.certify(torch.zeros(2, 1, 12, 12), y=[0, 1], n=1_000, seed=1)
    assert certs.radius[0] == 4  # (m + 1) / 12 < p - 1/2, p = 0.001^(1/1000)
    assert certs.abstained.tolist() == [False, True]


def test_text_form_builds_the_same() -> None:
    assert build("band:size=4,sampled=true") == Band(4, sampled=True)
    assert build("band:size=4,axis=row,sampled=true") == Band(4, "row", sampled=True)
    assert build("block:size=4,stride=2,sampled=true") == Block(4, sampled=True, stride=2)
    assert repr(Block(4, sampled=True)) == "Block(size=4, sampled=true)"
    for wrong in ({"count": 2}, {"threshold": 0.3}, {"bound": "margin"}):
        with pytest.raises(BadInput, match="belongs to the exact form"):
            Band(4, sampled=True, **wrong)
        with pytest.raises(BadInput, match="belongs to the exact form"):
            Block(4, sampled=True, **wrong)
