"""Gaussian views: the right law, in integers on the grid, a pure function of the words."""

import numpy as np
import pytest
import torch
from scipy import stats

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.rounded_noise import BITS, RoundedNoise
from vauban.seed import Seed
from vauban.smoothing import Gaussian, Laplace, Uniform, build, grid
from vauban.smoothing.grid import GridNoise, to_unit
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")


def words(count: int, size: int) -> torch.Tensor:
    return Stream(Seed.of(5), "count", 0).words(0, count, size, CPU)


@pytest.mark.parametrize("sigma", [0.01, 0.25, 3.0, pytest.param(20.0, marks=pytest.mark.slow)])
def test_the_guide_table_gives_what_the_search_gives(sigma: float) -> None:
    table = law(f"gaussian:sigma={sigma}").rounded(255)
    noise = GridNoise(table)
    edges = np.concatenate([table.thresholds - 1, table.thresholds, [0, 2**BITS - 1]])
    drawn = np.concatenate([edges[edges >= 0], words(500, 100).numpy().ravel()])
    assert np.array_equal(noise.draw(torch.from_numpy(drawn)).numpy(), table(drawn))
    searched = torch.searchsorted(torch.from_numpy(table.thresholds), torch.from_numpy(drawn), right=True)
    assert np.array_equal((searched - table.offset).numpy(), table(drawn))


def test_noise_on_the_grid_has_the_rounded_law() -> None:
    sigma, levels = 0.02, 255  # about five steps: many cells with many draws each
    table = law(f"gaussian:sigma={sigma}").rounded(levels)
    drawn = GridNoise(table).draw(words(1000, 1000)).numpy().ravel()
    values = np.arange(-18, 19)
    observed = np.array([(drawn == v).sum() for v in values])
    cells = stats.norm.cdf((values + 0.5) / (sigma * levels)) - stats.norm.cdf((values - 0.5) / (sigma * levels))
    assert (np.abs(drawn) <= 18).mean() > 0.999
    expected = cells / cells.sum() * observed.sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def unpacked(table: RoundedNoise, row: np.ndarray, size: int) -> list[int]:
    """Packed numbers one after the other, in plain Python."""
    main, more = table.packed_words(size)
    values, opened = [], 0
    for i in range(3 * main):
        piece = int(row[i % main]) >> (47 - 16 * (i // main)) & 0xFFFF
        ends = [int(table(np.array([word]))[0]) for word in (piece << 47, (piece + 1 << 47) - 1)]
        if ends[0] != ends[1]:
            rest = int(row[main + min(opened, more - 1)]) & (1 << 47) - 1
            opened += 1
            ends = [int(table(np.array([piece << 47 | rest]))[0])]
        values.append(ends[0])
    return values[:size]


@pytest.mark.parametrize("sigma", [0.01, 0.5, 5.0, pytest.param(60.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [1, 2, 3, 50, 784, 3072, 5000])
def test_packed_numbers_are_the_same_on_both_paths_and_by_hand(
    sigma: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = GridNoise(law(f"gaussian:sigma={sigma}").rounded(255))
    drawn = words(30, sum(noise.law.packed_words(size)))
    fast = noise.draw_packed(drawn, size)
    assert fast.shape == (30, size)
    for i in range(2):
        assert fast[i].tolist() == unpacked(noise.law, drawn[i].numpy(), size)
    monkeypatch.setattr(GridNoise, "_on_cpu", lambda self, words: False)
    for long in (grid._LONG, 0):
        monkeypatch.setattr(grid, "_LONG", long)
        assert torch.equal(noise.draw_packed(drawn, size).long(), fast.long())


@pytest.mark.parametrize("one", [True, False])
def test_views_on_both_paths_have_the_same_bits(one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 256, (1 if one else 20, 3, 5, 5), dtype=torch.uint8)
    drawn = words(20, Gaussian(0.5).words(x.shape[1:], 255))
    fast = Gaussian(0.5).views(x, drawn, 255)
    monkeypatch.setattr(GridNoise, "_on_cpu", lambda self, words: False)
    assert torch.equal(Gaussian(0.5).views(x, drawn, 255), fast)


@pytest.mark.parametrize("levels", [1, 255, 2 * 255, 4 * 255])
def test_fractions_have_the_same_bits_by_division_and_by_multiplication(levels: int) -> None:
    """How GPUs make them, for every number of steps that noise of any width on the grid can reach."""
    steps = torch.arange(-(2**20), 2**20, dtype=torch.int32)
    assert torch.equal(to_unit(steps, levels), (steps.double() * (1 / levels)).float())
    assert torch.equal(to_unit(steps, levels).double(), (steps.double() / levels).float().double())


def test_packed_numbers_have_the_rounded_law_and_are_independent() -> None:
    table = law("gaussian:sigma=0.5").rounded(255)
    drawn = GridNoise(table).draw_packed(words(4000, sum(table.packed_words(300))), 300).double().numpy()
    values = np.arange(-400, 401, 20)
    observed = np.histogram(drawn, bins=values)[0]
    cells = np.diff(stats.norm.cdf((values - 0.5) / 127.5))
    assert stats.chisquare(observed, cells / cells.sum() * observed.sum()).pvalue > 1e-6
    together = np.corrcoef(drawn[:, [0, 1, 99, 100, 101, 199, 200, 299]].T)
    assert np.abs(together - np.eye(8)).max() < 5 / 4000**0.5


@pytest.mark.parametrize("sigma", [0.01, 0.25, 2.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_packed_words_suffice(sigma: float) -> None:
    """By the exact binomial tail: running out of words is as unlikely as the deviation says."""
    table = law(f"gaussian:sigma={sigma}").rounded(255)
    buckets = np.arange(2**16, dtype=np.int64) << 47
    assert table.undecided_fraction == (table(buckets) != table(buckets + (1 << 47) - 1)).mean()
    for size in (1, 10, 784, 3072, 150_528):
        main, more = table.packed_words(size)
        assert 3 * main >= size
        assert stats.binom.logsf(more, 3 * main, table.undecided_fraction) <= -100 * np.log(2) or more == 3 * main
        assert table.packed_deviation(size) > size * table.deviation


@pytest.mark.parametrize("levels", [255, None])
def test_views_have_mean_x_and_the_right_spread(levels: int | None) -> None:
    x = torch.tensor([[0, 51, 255]], dtype=torch.uint8) if levels else torch.tensor([[0.0, 0.2, 1.0]])
    drawn = words(40_000, Gaussian(0.25).words(x.shape[1:], levels))
    views = Gaussian(0.25).views(x, drawn, levels).numpy()
    assert views.dtype == np.float32
    assert np.allclose(views.mean(axis=0), [0, 0.2, 1], atol=0.006)
    assert np.allclose(views.std(axis=0), 0.25, atol=0.005)


def test_views_on_the_grid_are_integers_divided_once() -> None:
    x = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    views = Gaussian(0.5).views(x, words(100, Gaussian(0.5).words(x.shape[1:], 255)), 255)
    steps = (views.double() * 255).round()
    assert torch.equal((steps.float() / 255), views)
    assert views.min() < 0
    assert views.max() > 1


def test_one_view_of_each_is_the_view_of_each_alone() -> None:
    x = torch.randint(0, 256, (10, 7), dtype=torch.uint8)
    drawn = words(10, Gaussian(0.5).words(x.shape[1:], 255))
    together = Gaussian(0.5).views(x, drawn, 255)
    for i in range(10):
        assert torch.equal(together[i], Gaussian(0.5).views(x[i : i + 1], drawn[i : i + 1], 255)[0])


def test_deviation_at_imagenet_size_is_under_a_billionth() -> None:
    for sigma in (0.12, 0.25, 0.5, 1.0, 2.0):
        assert 0 < Gaussian(sigma).law.deviation((3, 224, 224), 255) < 1e-9


def test_text_form_builds_the_same_and_wrong_ones_are_answered() -> None:
    assert build("gaussian:sigma=0.5") == Gaussian(sigma=0.5)
    assert repr(build("gaussian:sigma=0.5")) == "Gaussian(sigma=0.5)"
    assert str(Gaussian(0.1 + 0.2).spec) == str(build(str(Gaussian(0.1 + 0.2).spec)).spec)
    for wrong, answer in [
        ("gausian:sigma=0.5", "gaussian"),
        ("gaussian:sigm=0.5", "sigma"),
        ("gaussian", "gaussian:sigma=0.5"),
        ("gaussian:sigma=-1", "above zero"),
        ("gaussian:sigma=x", "gaussian:sigma=0.5"),
    ]:
        with pytest.raises(BadInput, match=answer):
            build(wrong)
    with pytest.raises(BadInput):
        Gaussian(float("nan"))


@pytest.mark.parametrize("kind", [Gaussian, Laplace, Uniform])
def test_correlated_noise_is_refused(kind: type) -> None:
    """A covariance has no certificate here; tests/soundness shows what it would break. A sigma for each coordinate is Gaussian's
    alone, where the radius is in scaled units."""
    several = () if kind is Gaussian else (torch.tensor([0.5, 0.25]), [0.5, 0.25])
    for sigma in (np.array([[1.0, 0.5], [0.5, 1.0]]), *several, "correlated"):
        with pytest.raises(BadInput, match="independent and identically distributed in every coordinate"):
            kind(sigma)
    with pytest.raises(BadInput, match="covariance"):
        build("gaussian:sigma=0.5,covariance=full")


def test_a_sigma_for_each_number_is_isotropic_noise_on_scaled_numbers() -> None:
    sigmas, x = np.array([50.0, 0.001, 1.0]), torch.tensor([[900.0, 0.02, -5.0]])
    own = Gaussian(sigma=sigmas)
    drawn = words(1000, 3)
    assert own == build("gaussian:sigma=50.0/0.001/1.0")
    scaled = Gaussian(sigma=1.0).views(torch.zeros(1, 3), drawn, None).double().numpy() * sigmas
    assert np.allclose((own.views(x, drawn, None) - x).double().numpy(), scaled, rtol=1e-3, atol=1e-4 * sigmas)
    p = np.linspace(0.01, 0.99, 9)
    assert np.array_equal(own.law.most(p, 0.7), law("gaussian:sigma=1").most(p, 0.7))
    assert np.array_equal(own.law.least(p, 0.7), law("gaussian:sigma=1").least(p, 0.7))
    assert own.threat.name == "l2-scaled"
    with pytest.raises(BadInput, match="3 sigmas"):
        own.law.for_shape((1, 2, 2))
