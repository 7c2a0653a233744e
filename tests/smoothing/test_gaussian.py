"""Gaussian views: the right law, in integers on the grid, a pure function of the words."""

import numpy as np
import pytest
import torch
from scipy import stats

from vauban.certificates import law
from vauban.certificates.rounding import BITS
from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothing import Gaussian, build
from vauban.smoothing.grid import GridNoise
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")


def words(count: int, size: int) -> torch.Tensor:
    return Stream(Seed.of(5), "count", 0).words(0, count, size, CPU)


@pytest.mark.parametrize("sigma", [0.01, 0.25, 3.0, 20.0])
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


@pytest.mark.parametrize("levels", [255, None])
def test_views_have_mean_x_and_the_right_spread(levels: int | None) -> None:
    x = torch.tensor([[0, 51, 255]], dtype=torch.uint8) if levels else torch.tensor([[0.0, 0.2, 1.0]])
    views = Gaussian(0.25).views(x, words(40_000, 3), levels).numpy()
    assert views.dtype == np.float32
    assert np.allclose(views.mean(axis=0), [0, 0.2, 1], atol=0.006)
    assert np.allclose(views.std(axis=0), 0.25, atol=0.005)


def test_views_on_the_grid_are_integers_divided_once() -> None:
    x = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    views = Gaussian(0.5).views(x, words(100, 48), 255)
    steps = (views.double() * 255).round()
    assert torch.equal((steps.float() / 255), views)
    assert views.min() < 0
    assert views.max() > 1


def test_one_view_of_each_is_the_view_of_each_alone() -> None:
    x = torch.randint(0, 256, (10, 7), dtype=torch.uint8)
    drawn = words(10, 7)
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
