"""Exact splitting views, against the definition worked out one number at a time."""

from fractions import Fraction

import pytest
import torch

from vauban.smoothing import Splitting, build


def middle(x: int, place: int, period: int, levels: int) -> Fraction:
    """The middle of the bin of level x with dividers at place + 1/2 + n period, cut off at 0 and levels, as a share of levels."""
    dividers = [Fraction(2 * (place + n * period) + 1, 2) for n in range(-2 - levels // period, 3 + levels // period)]
    lower = max([d for d in dividers if d < x], default=Fraction(0))
    upper = min(d for d in dividers if d > x)
    return (max(lower, Fraction(0)) + min(upper, Fraction(levels))) / 2 / levels


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.6])
def test_views_are_middles_of_bins(sigma: float) -> None:
    levels, smoothing = 12, build(f"splitting:sigma={sigma},levels=12,offsets=3")
    law = smoothing.law
    x = torch.randint(0, levels + 1, (1, 1, 3, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    places = law.first_dividers((1, 3, 3))
    views = smoothing.views(x, torch.arange(law.views)[:, None], levels)
    assert views.shape == (law.views, 1, 3, 3)
    assert views.dtype == torch.float32
    for j in range(law.views):
        for at in torch.ones(1, 3, 3).nonzero().tolist():
            expected = middle(int(x[0][tuple(at)]), (int(places[tuple(at)]) + j) % law.views, law.views, levels)
            assert views[j][tuple(at)].item() == pytest.approx(float(expected), abs=1e-7)


def test_a_word_and_its_rest_make_the_same_view() -> None:
    smoothing = Splitting(sigma=0.5)
    x = torch.randint(0, 256, (1, 1, 4, 4), dtype=torch.uint8)
    words = torch.tensor([[5], [5 + 441], [5 + 441 * 10**15]])
    a, b, c = smoothing.views(x, words, 255)
    assert torch.equal(a, b)
    assert torch.equal(a, c)


def test_many_inputs_at_once_are_each_alone() -> None:
    for spec in ("splitting:sigma=0.7", "sparse:scale=6", "sparse:scale=6,unit=feature"):
        smoothing = build(spec)
        x = torch.randint(0, 256, (5, 2, 4, 4), dtype=torch.uint8)
        words = torch.tensor([[3], [0], [7], [100], [5]])
        together = smoothing.views(x, words, 255)
        alone = [smoothing.views(x[i : i + 1], words[i : i + 1], 255)[0] for i in range(5)]
        assert torch.equal(together, torch.stack(alone))
        assert together.shape[1:] == smoothing.view_shape(torch.Size([2, 4, 4]))


def test_sparse_shows_every_pixel_once_and_nothing_else() -> None:
    smoothing = build("sparse:scale=6")
    x = torch.randint(0, 256, (1, 3, 5, 5), dtype=torch.uint8)
    views = smoothing.views(x, torch.arange(6)[:, None], 255)
    shown, inverse = views[:, :3], views[:, 3:]
    assert torch.equal((shown.sum(dim=0) * 255).round(), x[0].float())
    kept = (shown + inverse) > 0
    assert torch.equal(kept.sum(dim=0), torch.ones(3, 5, 5, dtype=torch.int64))
    assert torch.allclose((shown + inverse)[kept], torch.tensor(1.0))
