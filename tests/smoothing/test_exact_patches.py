"""Every band and block by its number: the right pixels, once each, and the views that a patch changes are those counted."""

import itertools

import numpy as np
import pytest
import torch

from vauban.errors import BadInput
from vauban.smoothing import Band, Block, build

KINDS = [
    Band(2),
    Band(3, "row", stride=2),
    Band(2, stride=3, threshold=0.3),
    Block(2),
    Block(3, stride=3),
    Band(2, count=2),
    Band(2, "row", count=3),
    Block(2, count=2),
    Block(3, count=3),
    Block(2, count=1, bound="margin"),
]
SHAPE = (2, 5, 7)


def slow_list(kind) -> list[np.ndarray]:
    """Masks [h, w] of all views, in order, pixel by pixel from the definition."""
    height, width = SHAPE[1:]
    size, stride, count = kind.law.size, kind.law.stride, kind.law.count
    step = size if count > 1 else stride
    tops, lefts, rows, columns = range(0, height, step), range(0, width, step), size, size
    if isinstance(kind, Band) and kind.law.axis == "column":
        tops, rows = range(1), height
    elif isinstance(kind, Band):
        lefts, columns = range(1), width
    regions = []
    for top, left in itertools.product(tops, lefts):
        mask = np.zeros((height, width), dtype=bool)
        for i, j in itertools.product(range(top, top + rows), range(left, left + columns)):
            if count == 1 or (i < height and j < width):
                mask[i % height, j % width] = True
        regions.append(mask)
    return [np.logical_or.reduce(some) for some in itertools.combinations(regions, count)]


def every_view(kind, x: torch.Tensor, levels: int | None = 255) -> torch.Tensor:
    return kind.views(x, torch.arange(kind.law.for_shape(x.shape[1:]).views)[:, None], levels)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("levels", [255, None])
def test_view_j_keeps_what_is_number_j_of_the_list(kind, levels) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 256, (1, *SHAPE), dtype=torch.uint8) if levels else torch.rand(1, *SHAPE)
    masks = slow_list(kind)
    views = every_view(kind, x, levels)
    assert views.dtype == torch.float32
    assert views.shape == (len(masks), *kind.view_shape(x.shape[1:]))
    unit = x[0].numpy().astype(np.float32) / np.float32(levels or 1)
    rest = (np.float32(levels or 1) - x[0].numpy().astype(np.float32)) / np.float32(levels or 1)
    for view, mask in zip(views.numpy(), masks, strict=True):
        assert np.array_equal(view, np.concatenate([unit, rest]) * mask)
    assert not torch.signbit(views).any()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_words_name_views_by_their_remainder(kind) -> None:
    x = torch.randint(0, 256, (9, *SHAPE), dtype=torch.uint8)
    count = kind.law.for_shape(SHAPE).views
    words = torch.tensor([0, 1, count - 1, count, 5 * count + 1, 2**63 - 1, 2**62, 7, 8])[:, None]
    together = kind.views(x, words, 255)
    assert kind.words(x.shape[1:]) == 1
    for i, word in enumerate(words[:, 0].tolist()):
        listed = every_view(kind, x[i : i + 1])[word % count]
        assert torch.equal(together[i], listed)
        assert torch.equal(kind.views(x[i : i + 1], words[i : i + 1], 255)[0], listed)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_views_a_patch_changes_are_those_the_law_counts(kind) -> None:
    law = kind.law.for_shape(SHAPE)
    torch.manual_seed(1)
    x = torch.randint(0, 128, (1, *SHAPE), dtype=torch.uint8)
    before = every_view(kind, x)
    for h, w in itertools.product((1, 2, 4, 5), (1, 3, 7)):
        changed = []
        for top, left in itertools.product(range(SHAPE[1] - h + 1), range(SHAPE[2] - w + 1)):
            attacked = x.clone()
            attacked[:, :, top : top + h, left : left + w] += 128
            changed.append((every_view(kind, attacked) != before).flatten(1).any(dim=1).tolist())
        assert law.touched((h, w)).tolist() == changed


def test_exact_and_sampled_forms_share_their_views() -> None:
    x = torch.randint(0, 256, (1, *SHAPE), dtype=torch.uint8)
    words = torch.randint(0, 2**62, (50, 1))
    for exact, sampled in [(Band(2, stride=2), Band(2, stride=2, sampled=True)), (Block(3), Block(3, sampled=True))]:
        assert torch.equal(exact.views(x, words, 255), sampled.views(x, words, 255))


def test_text_form_builds_the_same() -> None:
    assert build("band:size=4") == Band(4)
    assert build("band:size=4,axis=row,stride=2") == Band(4, "row", stride=2)
    assert build("block:size=4,count=2,threshold=0.3") == Block(4, count=2, threshold=0.3)
    assert repr(Block(4, bound="margin")) == "Block(size=4, bound=margin)"
    assert Band(4) != Band(4, sampled=True)
    with pytest.raises(BadInput, match="leave the stride out"):
        Band(4, stride=2, count=2)
    with pytest.raises(BadInput, match="must fit"):
        Band(8).views(torch.zeros(1, *SHAPE), torch.zeros(1, 1, dtype=torch.int64), 255)
