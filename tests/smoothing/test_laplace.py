"""Laplace views: the right law, in integers on the grid, a pure function of the words."""

import numpy as np
import pytest
import torch
from scipy import stats

from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import Laplace, build
from vauban.smoothing.grid import GridNoise
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")


def words(count: int, size: int) -> torch.Tensor:
    return Stream(Seed.of(5), "count", 0).words(0, count, size, CPU)


def test_noise_on_the_grid_has_the_rounded_law() -> None:
    sigma, levels = 0.02, 255
    views = Laplace(sigma).views(torch.zeros(1, 1000, dtype=torch.uint8), words(1000, 1000), levels)
    drawn = (views.double() * levels).round().numpy().ravel()
    values = np.arange(-25, 26)
    edges = np.append(values - 0.5, values[-1] + 0.5) / levels
    cells = np.diff(stats.laplace.cdf(edges, scale=sigma / np.sqrt(2)))
    observed = np.array([(drawn == v).sum() for v in values])
    assert observed.sum() > 0.995 * drawn.size
    assert stats.chisquare(observed, cells / cells.sum() * observed.sum()).pvalue > 1e-6
    assert (np.abs(drawn) > 25).mean() == pytest.approx(1 - cells.sum(), rel=0.1)


def test_noise_off_the_grid_has_the_law() -> None:
    views = Laplace(0.5).views(torch.full((1, 100), 0.25), words(2000, 100), None).double().numpy().ravel()
    assert stats.kstest(views, stats.laplace(loc=0.25, scale=0.5 / np.sqrt(2)).cdf).pvalue > 1e-6


def test_views_on_the_grid_are_integers_divided_once() -> None:
    x = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    views = Laplace(0.5).views(x, words(100, 48), 255)
    assert views.dtype == torch.float32
    assert torch.equal((views.double() * 255).round().float() / 255, views)
    assert views.min() < 0
    assert views.max() > 1


@pytest.mark.parametrize("levels", [255, None])
def test_views_are_a_function_of_the_words(levels: int | None) -> None:
    x = torch.randint(0, 256, (10, 7), dtype=torch.uint8) if levels else torch.rand(10, 7)
    drawn = words(10, 7)
    kept = drawn.clone()
    together = Laplace(0.5).views(x, drawn, levels)
    assert torch.equal(drawn, kept)
    for i in range(10):
        assert torch.equal(together[i], Laplace(0.5).views(x[i : i + 1], drawn[i : i + 1], levels)[0])


def test_the_fast_path_and_the_search_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    x, drawn = torch.randint(0, 256, (1, 50), dtype=torch.uint8), words(2000, 50)
    fast = Laplace(0.3).views(x, drawn, 255)

    def searched(self: GridNoise, drawn: torch.Tensor) -> torch.Tensor:
        thresholds = torch.from_numpy(self.law.thresholds)
        return torch.searchsorted(thresholds, drawn.contiguous(), right=True, out_int32=True).sub_(self.law.offset)

    monkeypatch.setattr(GridNoise, "draw", searched)
    assert torch.equal(fast, Laplace(0.3).views(x, drawn, 255))


def test_deviation_at_imagenet_size_is_under_a_billionth() -> None:
    for sigma in (0.12, 0.25, 0.5, 1.0):
        assert 0 < Laplace(sigma).law.deviation((3, 224, 224), 255) < 1e-9


def test_the_bound_changes_the_claim_and_not_the_views() -> None:
    x, drawn = torch.randint(0, 256, (1, 9), dtype=torch.uint8), words(20, 9)
    weaker = build("laplace:sigma=0.5,bound=lecuyer")
    assert torch.equal(weaker.views(x, drawn, 255), Laplace(0.5).views(x, drawn, 255))
    assert weaker != Laplace(0.5)
    assert repr(weaker) == "Laplace(sigma=0.5, bound=lecuyer)"
    assert build(str(weaker.spec)) == weaker
    with pytest.raises(BadInput, match="theorem1"):
        Laplace(0.5, bound="best")
    with pytest.raises(BadInput, match="laplace:sigma=0.5"):
        build("laplace:b=0.5")


@pytest.mark.parametrize("arithmetic", ["grid", "float"])
def test_a_smoothed_classifier_certifies(arithmetic: str) -> None:
    def bright(views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)

    smoothed = SmoothedClassifier(bright, "laplace:sigma=0.2", num_classes=2, arithmetic=arithmetic)
    x = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 1, 3, 3)
    certs = smoothed.certify(x, y=[0, 1], n=500, seed=1)
    assert not certs.abstained.any()
    assert (certs.radius > 0.05).all()
    assert certs.law.threat == smoothed.smoothing.threat
