"""Variable-width views: the right joint law of widths and dividers, both ends or the middle, a pure function of the words."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import Fractional, build
from vauban.smoothing.fractional import _GridSplits
from vauban.smoothing.grid import GridNoise
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")


def words(count: int, size: int) -> torch.Tensor:
    return Stream(Seed.of(5), "count", 0).words(0, count, size, CPU)


def smoothing(p: str = "1/2", scale: float = 1.5, representation: str = "upper_lower") -> Fractional:
    return Fractional(p, scale, sampled=True, representation=representation)


@pytest.mark.parametrize(("p", "scale"), [("1/2", 1.0), ("1/3", 2.5), ("1", 1.5)])
def test_widths_and_dividers_on_the_grid_have_the_right_joint_law(p: str, scale: float) -> None:
    """Theorem 4.3-c: Pr(j steps) = -j * second difference of g; dividers equally likely within a width."""
    levels = 8
    place, period = _GridSplits(smoothing(p, scale).law, levels).draw(words(1000, 1000))
    g = (np.arange(levels + 1) / levels) ** float(Fraction(p)) / scale
    chances = {(j, s): 2 * g[j] - g[j - 1] - g[j + 1] for j in range(1, levels) for s in range(j)}
    chances |= {(levels, s): g[levels] - g[levels - 1] for s in range(levels)}
    assert sum(chances.values()) == pytest.approx(1 / scale)
    chances[levels + 1, levels + 1] = 1 - 1 / scale
    possible = {key: chance for key, chance in chances.items() if chance > 1e-12}
    pairs, observed = np.unique((period * 100 + place).numpy(), return_counts=True)
    assert [(int(pair) // 100, int(pair) % 100) for pair in pairs] == sorted(possible)
    expected = np.array([possible[key] for key in sorted(possible)])
    assert stats.chisquare(observed, expected / expected.sum() * observed.sum()).pvalue > 1e-6


@pytest.mark.parametrize(("levels", "p"), [(255, "1/2"), (255, "1/3"), (None, "1/2"), (None, "1/3"), (None, "1")])
def test_views_differ_as_often_as_the_metric_says(levels: int | None, p: str) -> None:
    made = smoothing(p, 1.25)
    drawn = words(1000, 200)
    for a, b in [(0, 1), (30, 34), (100, 200), (0, 255)]:
        values = [torch.full((1, 200), v, dtype=torch.uint8) for v in (a, b)]
        x, y = values if levels else [v.float() / 255 for v in values]
        apart = made.views(x, drawn, levels) != made.views(y, drawn, levels)
        apart = apart[:, :200] | apart[:, 200:]
        chance = ((b - a) / 255) ** float(Fraction(p)) / 1.25
        assert apart.double().mean() == pytest.approx(chance, abs=5 * np.sqrt(chance / drawn.numel()))


def test_views_on_the_grid_show_half_steps_around_the_input() -> None:
    x = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    drawn = words(500, 48)
    both = smoothing().views(x, drawn, 255)
    assert both.shape == (500, 6, 4, 4)
    assert both.shape[1:] == smoothing().view_shape(torch.Size((3, 4, 4)))
    upper, lower = both[:, :3], both[:, 3:]
    halves = (both.double() * 510).round()
    assert torch.equal(halves.float() / 510, both)
    assert (lower <= x / 255).all()
    assert (x / 255 <= upper).all()
    inside = halves[(both > 0) & (both < 1)]
    assert (inside % 2 == 1).all()
    assert ((lower == 0) & (upper == 1)).double().mean() == pytest.approx(1 / 3, abs=0.03)
    middle = smoothing(representation="center").views(x, drawn, 255)
    assert middle.shape == (500, 3, 4, 4)
    assert torch.equal(middle, ((halves[:, :3] + halves[:, 3:]).float() / 1020))
    twice = smoothing(representation="center_center").views(x, drawn, 255)
    assert torch.equal(twice, torch.cat([middle, middle], dim=1))
    around = smoothing(representation="center_error").views(x, drawn, 255)
    assert torch.equal(around, torch.cat([middle, (halves[:, :3] - halves[:, 3:]).float() / 1020], dim=1))


def test_views_off_the_grid_are_bins_around_the_input() -> None:
    x = torch.rand(1, 3, 4, 4)
    drawn = words(500, 48)
    both = smoothing().views(x, drawn, None)
    assert both.dtype == torch.float32
    upper, lower = both[:, :3], both[:, 3:]
    assert (lower <= x + 1e-6).all()
    assert (x <= upper + 1e-6).all()
    assert ((lower == 0) & (upper == 1)).double().mean() == pytest.approx(1 / 3, abs=0.03)
    middle = smoothing(representation="center").views(x, drawn, None)
    assert torch.allclose(middle, (upper + lower) / 2, atol=1e-6)
    around = smoothing(representation="center_error").views(x, drawn, None)
    assert torch.equal(around[:, :3], middle)
    assert torch.allclose(around[:, 3:], (upper - lower) / 2, atol=1e-6)


@pytest.mark.parametrize("levels", [255, None])
@pytest.mark.parametrize("representation", ["upper_lower", "center", "center_center", "center_error"])
def test_views_are_a_function_of_the_words(levels: int | None, representation: str) -> None:
    made = smoothing(representation=representation)
    x = torch.randint(0, 256, (10, 2, 3), dtype=torch.uint8) if levels else torch.rand(10, 2, 3)
    drawn = words(10, 6)
    kept, inputs = drawn.clone(), x.clone()
    together = made.views(x, drawn, levels)
    assert torch.equal(drawn, kept)
    assert torch.equal(x, inputs)
    assert together.shape[1:] == made.view_shape(torch.Size((2, 3)))
    for i in range(10):
        assert torch.equal(together[i], made.views(x[i : i + 1], drawn[i : i + 1], levels)[0])


@pytest.mark.parametrize("scale", [1.0, 18.0])
def test_the_fast_path_and_the_search_agree(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    made = smoothing("1/2", scale)
    x = torch.randint(0, 256, (1, 50), dtype=torch.uint8)
    starts = made.law.table(255).starts
    edges = torch.tensor(sorted({0, 2**63 - 1, *(int(t) + d for t in starts[1:] for d in (-1, 0, 1))})[:750])
    drawn = torch.cat([words(2000, 50), edges.view(15, 50)])
    fast = made.views(x, drawn, 255)

    def searched(self: GridNoise, drawn: torch.Tensor) -> torch.Tensor:
        thresholds = torch.from_numpy(self.law.thresholds)
        return torch.searchsorted(thresholds, drawn.contiguous(), right=True, out_int32=True).sub_(self.law.offset)

    monkeypatch.setattr(GridNoise, "draw", searched)
    assert torch.equal(fast, made.views(x, drawn, 255))


def test_text_form_builds_the_same_and_wrong_ones_are_answered() -> None:
    text = "fractional:p=1/2,scale=9.0,sampled=true"
    assert build(text) == Fractional(Fraction(1, 2), 9, sampled=True) == Fractional(0.5, 9, sampled=True)
    assert str(build(text).spec) == text
    assert repr(build(text)) == "Fractional(p=1/2, scale=9.0, sampled=true)"
    for wrong, answer in [
        ("fractional:p=2,scale=9,sampled=true", "at most 1"),
        ("fractional:p=1/2,scale=0.9,sampled=true", "at least 1"),
        ("fractional:p=1/2,scale=9,sampled=true,representation=both", "upper_lower"),
    ]:
        with pytest.raises(BadInput, match=answer):
            build(wrong)


@pytest.mark.parametrize("arithmetic", ["grid", "float"])
def test_a_smoothed_classifier_certifies(arithmetic: str) -> None:
    def bright(views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)

    smoothed = SmoothedClassifier(
        bright, "fractional:p=1/2,scale=1.5,sampled=true", num_classes=2, arithmetic=arithmetic
    )
    x = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 1, 3, 3)
    certs = smoothed.certify(x, y=[0, 1], n=500, seed=1)
    assert not certs.abstained.any()
    assert (certs.radius > 0.05).all()
    assert certs.law.threat == smoothed.smoothing.threat
