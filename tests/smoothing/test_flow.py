"""Views under flow noise: the picture and a divergence, mass kept, the right law, a pure function of the words."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from vauban import SmoothedClassifier
from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothing import Flow, build
from vauban.smoothing.flow import flow, normalised
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")
SHAPES = [(5,), (1, 5), (3, 1, 5), (4, 3), (1, 4, 3), (3, 2, 2)]


def words(count: int, size: int, seed: int = 5) -> torch.Tensor:
    return Stream(Seed.of(seed), "count", 0).words(0, count, size, CPU)


def slow_flow(picture: np.ndarray, vertical: np.ndarray, horizontal: np.ndarray) -> np.ndarray:
    """Definition 5.2, one pixel at a time."""
    moved = picture.copy()
    channels, height, width = picture.shape
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                moved[c, i, j] += vertical[c, i - 1, j] if i > 0 else 0
                moved[c, i, j] -= vertical[c, i, j] if i < height - 1 else 0
                moved[c, i, j] += horizontal[c, i, j - 1] if j > 0 else 0
                moved[c, i, j] -= horizontal[c, i, j] if j < width - 1 else 0
    return moved


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["laplace", "uniform"])
@pytest.mark.parametrize("levels", [255, None])
def test_views_are_the_normalised_picture_and_a_divergence(shape, kind, levels) -> None:
    smoothing = Flow(0.1, kind)
    x = torch.randint(1, 256, (1, *shape), dtype=torch.uint8)
    x = x if levels else x.float() / 255
    size = torch.Size(shape)
    drawn = words(6, smoothing.words(size))
    views = smoothing.views(x, drawn, levels)
    assert views.dtype == torch.float32
    assert views.shape == (6, *shape)
    channels, height, width = (1,) * (3 - len(shape)) + shape
    picture = (x[0].double() / x[0].double().sum()).numpy().reshape(channels, height, width)
    down = channels * (height - 1) * width
    for view, noise in zip(views, smoothing.noise(drawn).numpy(), strict=True):
        vertical = noise[:down].reshape(channels, height - 1, width)
        horizontal = noise[down:].reshape(channels, height, width - 1)
        expected = slow_flow(picture, vertical, horizontal)
        assert np.allclose(view.numpy().reshape(expected.shape), expected, rtol=1e-6, atol=1e-7)
        masses = view.double().view(channels, -1).sum(dim=1).numpy()
        assert np.allclose(masses, picture.sum(axis=(1, 2)), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "cdf"),
    [
        ("laplace", stats.laplace(scale=0.3 / math.sqrt(2)).cdf),
        ("uniform", stats.uniform(loc=-0.3 * math.sqrt(3), scale=0.6 * math.sqrt(3)).cdf),
    ],
)
def test_flows_have_their_law(kind, cdf) -> None:
    noise = Flow(0.3, kind).noise(words(1000, 1000)).numpy().ravel()
    cells = np.minimum((cdf(noise) * 200).astype(int), 199)
    assert stats.chisquare(np.bincount(cells, minlength=200)).pvalue > 1e-6
    assert noise.std() == pytest.approx(0.3, rel=0.01)
    edges = torch.tensor([[0, 2**62 - 2**10, 2**62, 2**63 - 1]])
    extreme = Flow(0.3, kind).noise(edges).numpy()[0]
    assert np.isfinite(extreme).all()
    assert (np.diff(extreme) > 0).all()
    assert np.allclose(extreme, -extreme[::-1])


def test_one_line_written_in_any_way_is_the_same_line() -> None:
    x = torch.randint(1, 256, (1, 7), dtype=torch.uint8)
    drawn = words(20, 6)
    line = Flow(0.1).views(x, drawn, 255)
    for shape in [(1, 7), (1, 1, 7)]:
        assert torch.equal(Flow(0.1).views(x.view(1, *shape), drawn, 255).view(20, 7), line)


def test_views_depend_on_the_words_and_the_normalised_picture_alone() -> None:
    smoothing = Flow(0.02)
    x = torch.randint(1, 100, (10, 1, 3, 4), dtype=torch.uint8)
    drawn = words(10, smoothing.words(x.shape[1:]))
    together = smoothing.views(x, drawn, 255)
    assert torch.equal(together, smoothing.views(x, drawn, 255))
    assert torch.equal(together, smoothing.views(2 * x, drawn, 255))
    for i in range(10):
        assert torch.equal(together[i], smoothing.views(x[i : i + 1], drawn[i : i + 1], 255)[0])
    assert not torch.equal(together, smoothing.views(x, words(10, drawn.shape[1], seed=6), 255))


def test_pictures_without_mass_are_refused_by_name() -> None:
    x = torch.ones(3, 1, 2, 2)
    x[1] = 0
    drawn = words(3, 4)
    with pytest.raises(BadInput, match="input 1 is all black"):
        Flow(0.1).views(x, drawn, None)
    with pytest.raises(BadInput, match="the input is all black"):
        Flow(0.1).views(x[1:2], drawn, None)
    x[2, 0, 0, 0] = -0.1
    x[1] = 1
    with pytest.raises(BadInput, match="input 2 has negative numbers"):
        Flow(0.1).check(x)
    # what other devices, which do not wait to look, make of them
    assert normalised(x).isnan().flatten(1).any(dim=1).tolist() == [False, False, True]
    assert normalised(torch.zeros(1, 4, dtype=torch.uint8)).isnan().all()
    black = SmoothedClassifier(lambda views: views.flatten(1)[:, :2], Flow(0.1), num_classes=2)
    with pytest.raises(BadInput, match="all black"):
        black.certify(torch.zeros(1, 1, 2, 2), y=[0], n=100, seed=1)


def test_divergence_is_additive() -> None:
    x = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    a, b = (torch.rand(2, 3, 3, 5, dtype=torch.float64) for _ in range(2))
    c, d = (torch.rand(2, 3, 4, 4, dtype=torch.float64) for _ in range(2))
    assert torch.allclose(flow(flow(x, a, c), b, d), flow(x, a + b, c + d))


def test_text_form_builds_the_same() -> None:
    for text in ["flow:sigma=0.01", "flow:sigma=0.01,law=uniform,ground=l2", "flow:sigma=0.5,bound=paper"]:
        assert str(build(text).spec) == text
    assert build("flow:sigma=0.01,ground=l2") == Flow(0.01, ground="l2")
    with pytest.raises(BadInput, match="two pixels"):
        Flow(0.1).words(torch.Size([3, 1, 1]))


def test_views_may_have_the_mass_of_their_picture() -> None:
    from vauban.smoothing import build

    one, own = build("flow:sigma=0.01,ground=l2"), build("flow:sigma=0.01,ground=l2,mass=own")
    x = torch.randint(0, 256, (2, 3, 4, 4), generator=torch.Generator().manual_seed(4), dtype=torch.uint8)
    words = torch.randint(0, 2**62, (2, own.words(torch.Size((3, 4, 4)))), generator=torch.Generator().manual_seed(5))
    mass = x.flatten(1).double().sum(dim=1) / 255
    views = own.views(x, words, 255)
    assert torch.allclose(views.flatten(1).sum(dim=1).double(), mass, rtol=1e-5)
    assert torch.allclose(views, one.views(x, words, 255) * mass[:, None, None, None].float(), rtol=1e-5, atol=1e-6)
    assert torch.allclose(own.differentiable(x.float() / 255, words), views, rtol=1e-5, atol=1e-6)
    assert not own.law.same_views(one.law)
    assert own.law.threat.name == one.law.threat.name
    assert "mass in all is not changed" in own.law.threat.unit
    shifted = x.roll(1, dims=3)  # the same mass in every channel, moved by one pixel
    assert torch.equal(
        own.views(shifted, words, 255).flatten(1).sum(dim=1).round(), views.flatten(1).sum(dim=1).round()
    )
