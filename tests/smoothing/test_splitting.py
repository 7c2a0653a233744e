"""Splitting views: the thesis' formula on every level, the right law, a pure function of the words."""

from collections.abc import Callable
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
import torch
from scipy import stats

from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import Concave, Fractional, Smoothing, Splitting, build
from vauban.smoothing.grid import GridNoise
from vauban.smoothing.random import Stream
from vauban.smoothing.splitting import float_bins, grid_bins

CPU = torch.device("cpu")
WIDE, NARROW = 0.5, 0.05  # of [0, 1], the bins span more than all, and a sixth


def words(count: int, size: int) -> torch.Tensor:
    return Stream(Seed.of(5), "count", 0).words(0, count, size, CPU)


def smoothing(sigma: float) -> Splitting:
    return Splitting(sigma, sampled=True)


@pytest.mark.parametrize("levels", [1, 4, 9])
@pytest.mark.parametrize("period", [1, 2, 3, 4, 5, 9, 13])
def test_bins_are_those_of_the_thesis_at_every_level_and_place(levels: int, period: int) -> None:
    """Corollary 3.1 (general case), Eq. B.18 and B.19, in exact rationals."""
    x, place = torch.meshgrid(torch.arange(levels + 1), torch.arange(period + 1), indexing="ij")
    lower, upper = grid_bins(x, place, period, levels)
    for a in range(levels + 1):
        for j in range(period):
            s, width, value = Fraction(2 * j + 1, 2 * levels), Fraction(period, levels), Fraction(a, levels)
            top = min(width * ceil((value - s) / width) + s, 1)
            bottom = max(width * ceil((value - s) / width - 1) + s, 0)
            assert (Fraction(int(lower[a, j]), 2 * levels), Fraction(int(upper[a, j]), 2 * levels)) == (bottom, top)
            assert bottom <= value <= top
        assert (int(lower[a, period]), int(upper[a, period])) == (0, 2 * levels)
    everywhere = grid_bins(x, place, torch.full_like(x, period), levels)
    assert torch.equal(everywhere[0].int(), lower)
    assert torch.equal(everywhere[1].int(), upper)


@pytest.mark.parametrize("sigma", [WIDE, NARROW])
def test_views_on_the_grid_have_the_right_law(sigma: float) -> None:
    """The middle of the bin is one of a known set; the dividers are equally likely."""
    level, levels, period = 9, 20, smoothing(sigma).law.period(20)
    views = smoothing(sigma).views(torch.full((1, 1000), level), words(1000, 1000), levels)
    place = torch.arange(period)
    lower, upper = grid_bins(torch.full_like(place, level), place, period, levels)
    middles, chances = np.unique((lower + upper).numpy(), return_counts=True)
    quarters = (views.double() * 4 * levels).round()
    assert torch.equal(quarters.float() / (4 * levels), views)
    found, observed = np.unique(quarters.numpy(), return_counts=True)
    assert np.array_equal(found, middles)
    assert stats.chisquare(observed, chances / period * views.numel()).pvalue > 1e-6


@pytest.mark.parametrize("sigma", [WIDE, NARROW])
def test_views_off_the_grid_are_the_middles_of_bins(sigma: float) -> None:
    x = torch.rand(1, 50)
    width = 2 * np.sqrt(3) * sigma
    drawn = words(400, 50)
    u = ((drawn.numpy() >> 11) + 0.5) * 2.0**-52
    s = u * width
    count = np.ceil((x.double().numpy() - s) / width)
    top, bottom = np.minimum(width * count + s, 1), np.maximum(width * (count - 1) + s, 0)
    views = smoothing(sigma).views(x, drawn, None)
    assert views.dtype == torch.float32
    assert np.allclose(views.numpy(), (top + bottom) / 2, atol=1e-6)
    apart = (views != smoothing(sigma).views(x + 0.04, drawn, None)).float().mean()
    assert apart == pytest.approx(min(0.04 / width, 1), abs=0.02)


def test_values_in_one_bin_give_the_same_bits() -> None:
    """Off the grid: for every u, the views of a sorted line of numbers change as often as dividers are crossed."""
    x = torch.linspace(0, 1, 2001)
    for width in (0.0137, 0.2, 1.5):
        for u in (1e-9, 0.3, 1 - 1e-9):
            lower, upper = float_bins(x, torch.tensor(u, dtype=torch.float64), width)
            crossed = sum(1 for n in range(200) if 0 <= (u + n) * width < 1)
            assert len(torch.unique(lower + upper)) == crossed + 1
            assert (lower <= x + 1e-12).all()
            assert (x <= upper + 1e-12).all()
    lower, upper = float_bins(x, torch.tensor(0.4, dtype=torch.float64), float("inf"))
    assert (lower == 0).all()
    assert (upper == 1).all()


@pytest.mark.parametrize("levels", [255, None])
@pytest.mark.parametrize("sigma", [WIDE, NARROW])
def test_views_are_a_function_of_the_words(sigma: float, levels: int | None) -> None:
    x = torch.randint(0, 256, (10, 2, 3), dtype=torch.uint8) if levels else torch.rand(10, 2, 3)
    drawn = words(10, 6)
    kept, inputs = drawn.clone(), x.clone()
    together = smoothing(sigma).views(x, drawn, levels)
    assert torch.equal(drawn, kept)
    assert torch.equal(x, inputs)
    assert together.shape == (10, 2, 3)
    for i in range(10):
        assert torch.equal(together[i], smoothing(sigma).views(x[i : i + 1], drawn[i : i + 1], levels)[0])


@pytest.mark.parametrize("sigma", [WIDE, NARROW, 100.0])
def test_the_fast_path_and_the_search_agree(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 256, (1, 50), dtype=torch.uint8)
    edges = torch.tensor(
        [0, 2**63 - 1, *(t + d for t in smoothing(sigma).law.rounded(255).thresholds[-24:] for d in (-1, 0))]
    )
    drawn = torch.cat([words(2000, 50), edges[:50].expand(1, 50)])
    fast = smoothing(sigma).views(x, drawn, 255)

    def searched(self: GridNoise, drawn: torch.Tensor) -> torch.Tensor:
        thresholds = torch.from_numpy(self.law.thresholds)
        return torch.searchsorted(thresholds, drawn.contiguous(), right=True, out_int32=True).sub_(self.law.offset)

    monkeypatch.setattr(GridNoise, "draw", searched)
    assert torch.equal(fast, smoothing(sigma).views(x, drawn, 255))


def test_text_form_builds_the_same_and_wrong_ones_are_answered() -> None:
    assert build("splitting:sigma=0.5,sampled=true") == Splitting(0.5, sampled=True)
    assert repr(build("splitting:sigma=0.5,sampled=true")) == "Splitting(sigma=0.5, sampled=true)"
    for wrong, answer in [
        ("spliting:sigma=0.5", "splitting"),
        ("splitting:sigma=0.5,smapled=true", "did you mean"),
        ("splitting:sigma=0,sampled=true", "above zero"),
    ]:
        with pytest.raises(BadInput, match=answer):
            build(wrong)
    assert Splitting(0.5).law.exact


@pytest.mark.parametrize("arithmetic", ["grid", "float"])
def test_a_smoothed_classifier_certifies(arithmetic: str) -> None:
    def bright(views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)

    smoothed = SmoothedClassifier(bright, "splitting:sigma=0.4,sampled=true", num_classes=2, arithmetic=arithmetic)
    x = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 1, 3, 3)
    certs = smoothed.certify(x, y=[0, 1], n=500, seed=1)
    assert not certs.abstained.any()
    assert (certs.radius > 0.05).all()
    assert certs.law.threat == smoothed.smoothing.threat


@pytest.mark.parametrize(
    "make",
    [
        lambda: Splitting(0.5, sampled=True, layout="lattice"),
        lambda: Splitting(0.5, sampled=True, offsets=5),
        lambda: Fractional("1/2", 9, sampled=True, layout="grid"),
        lambda: Fractional("1/2", 9, sampled=True, coupling="global"),
    ],
)
def test_settings_of_the_exact_form_are_refused_by_the_sampled_one(make: Callable[[], Smoothing]) -> None:
    with pytest.raises(BadInput, match="the sampled form has none|not a known layout"):
        make()


def test_a_g_for_every_feature_has_no_lattice() -> None:
    with pytest.raises(BadInput, match="has random offsets"):
        Concave([lambda z: z, lambda z: min(3 * z, 1)], budget=30, levels=6, layout="lattice")
    assert Concave(lambda z: z, budget=30, levels=6, layout="lattice").law.views == 30
