"""Views that are differentiable in their picture: the values of `views`, and the gradients of what a view shows."""

from collections.abc import Callable

import pytest
import torch

from vauban.errors import BadInput
from vauban.smoothing import Concave, Smoothing, build
from vauban.smoothing.ablation import Ablation
from vauban.smoothing.grid import GridNoise

TEXTS = [
    "gaussian:sigma=0.5",
    "laplace:sigma=0.5",
    "uniform:sigma=0.5",
    "ablation:retained=9",
    "ablation:retained=30,null=mean,mean=0.25",
    "ablation:retained=9,unit=feature,features=72",
    "splitting:sigma=0.3",
    "splitting:sigma=0.3,sampled=true",
    "fractional:p=1/2,scale=9",
    "fractional:p=1/2,scale=9,representation=center",
    "fractional:p=1/2,scale=9,sampled=true",
    "fractional:p=1/2,scale=9,sampled=true,representation=center_error",
    "discrete:keep=0.7",
    "sparse:scale=4",
    "flow:sigma=0.01",
    "flow:sigma=0.01,law=uniform",
    "band:size=2",
    "band:size=2,sampled=true",
    "block:size=3",
    "block:size=3,count=2",
    "block:size=3,sampled=true",
]
SMOOTHINGS = [*map(build, TEXTS), Concave(lambda z: min(8 * z, 1), scale=4, representation="center_center")]
SAMPLED = [s for s in SMOOTHINGS if not s.law.exact and s.spec.name != "discrete"]
SHAPE = (2, 6, 6)


def pictures(count: int = 5, seed: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 256, (count, *SHAPE), dtype=torch.uint8, generator=generator)


def weights(smoothing: Smoothing, count: int) -> torch.Tensor:
    shape = smoothing.view_shape(torch.Size(SHAPE))
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(8))


def gradient(smoothing: Smoothing, x: torch.Tensor, words: torch.Tensor, levels: int | None = 255) -> torch.Tensor:
    """The gradient in x of views times fixed weights."""
    leaf = x.clone().requires_grad_()
    views = smoothing.differentiable(leaf, words, levels)
    (found,) = torch.autograd.grad((views * weights(smoothing, len(words))).sum(), leaf)
    assert torch.equal(leaf, x)
    return found


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=repr)
def test_values_are_those_of_views_on_the_grid(smoothing: Smoothing) -> None:
    x = pictures()
    leaf = (x.float() / 255).requires_grad_()
    words = smoothing.random_words(leaf, torch.Generator().manual_seed(1))
    views = smoothing.differentiable(leaf, words)
    assert torch.equal(views, smoothing.views(x, words, 255))
    assert views.requires_grad
    one = smoothing.differentiable(leaf[:1], words)
    assert torch.equal(one, smoothing.views(x[:1], words, 255))


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=repr)
def test_the_path_of_other_devices_makes_the_same_values_when_traced(
    smoothing: Smoothing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    from vauban.smoothing import ablation

    x = pictures().float() / 255
    words = smoothing.random_words(x, torch.Generator().manual_seed(1))
    plain, slope = smoothing.differentiable(x, words), gradient(smoothing, x, words)
    monkeypatch.setattr(GridNoise, "_on_cpu", lambda self, words: False)
    monkeypatch.setattr(ablation, "first_different", ablation._first_different_on_device)
    monkeypatch.setattr(type(smoothing), "check", lambda self, x: None)
    assert torch.equal(gradient(smoothing, x, words), slope)
    traced = make_fx(lambda x, words: smoothing.differentiable(x, words))(x, words)
    assert torch.equal(traced(x, words), plain)


@pytest.mark.parametrize("smoothing", SAMPLED, ids=repr)
def test_values_of_floats_are_those_of_views(smoothing: Smoothing) -> None:
    x = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(2))
    words = smoothing.random_words(x, torch.Generator().manual_seed(1), None)
    views = smoothing.differentiable(x.requires_grad_(), words, None)
    assert torch.equal(views, smoothing.views(x.detach().clone(), words, None))
    assert views.requires_grad


@pytest.mark.parametrize("smoothing", [s for s in SAMPLED if s.spec.name not in ("splitting", "fractional")], ids=repr)
@pytest.mark.parametrize("levels", [255, None])
def test_gradients_of_continuous_views_are_differences(smoothing: Smoothing, levels: int | None) -> None:
    x = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(2)) * 0.9 + 0.05
    words = smoothing.random_words(x, torch.Generator().manual_seed(1), levels)
    step = torch.randn(x.shape, generator=torch.Generator().manual_seed(4)) / 100
    with torch.no_grad():
        up, down = (smoothing.differentiable(x + sign * step, words, levels) for sign in (1, -1))
    difference = ((up - down) * weights(smoothing, 3)).double().sum()
    assert float((gradient(smoothing, x, words, levels) * 2 * step).double().sum()) == pytest.approx(
        float(difference), rel=2e-3, abs=1e-5
    )


def test_bins_pass_the_gradient_to_what_shows_them() -> None:
    x = pictures().float() / 255
    shown: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "upper_lower": lambda w: w[:, :2] + w[:, 2:],
        "center": lambda w: w,
        "center_center": lambda w: w[:, :2] + w[:, 2:],
        "center_error": lambda w: w[:, :2],
    }
    for representation, expected in shown.items():
        for sampled in ("", ",sampled=true"):
            smoothing = build(f"fractional:p=1/2,scale=9{sampled},representation={representation}")
            words = smoothing.random_words(x)
            assert torch.equal(gradient(smoothing, x, words), expected(weights(smoothing, 5)))
    splitting = build("splitting:sigma=0.3")
    assert torch.equal(gradient(splitting, x, splitting.random_words(x)), weights(splitting, 5))


def test_hidden_pixels_have_no_gradient() -> None:
    x = pictures().float() / 255
    for text in ("ablation:retained=9", "sparse:scale=4", "band:size=2", "block:size=3"):
        smoothing = build(text)
        words = smoothing.random_words(x)
        kept = smoothing.differentiable(x, words)[:, :2] > 0
        w = weights(smoothing, 5)
        assert torch.equal(gradient(smoothing, x, words), (w[:, :2] - w[:, 2:]) * kept)
        assert 0 < kept.float().mean() < 1
    mean = Ablation(9, null="mean", mean=0.0)
    words = mean.random_words(x)
    kept = mean.differentiable(x, words) > 0
    assert torch.equal(gradient(mean, x, words), weights(mean, 5) * kept)
    discrete = build("discrete:keep=0.7")
    words = discrete.random_words(x)
    same = discrete.differentiable(x, words) == x
    assert torch.equal(gradient(discrete, x, words), weights(discrete, 5) * same)
    assert same.float().mean() == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=repr)
def test_samples_are_views_from_the_generator(smoothing: Smoothing) -> None:
    x = pictures().float() / 255
    first, again, other = (smoothing.sample(x, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first.shape == (5, *smoothing.view_shape(torch.Size(SHAPE)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(
        first, smoothing.views(pictures(), smoothing.random_words(x, torch.Generator().manual_seed(1)), 255)
    )


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(BadInput, match="divide 8-bit values by 255"):
        build("gaussian:sigma=0.5").sample(pictures())
    with pytest.raises(BadInput, match="give levels=255"):
        build("splitting:sigma=0.3").sample(torch.rand(2, 3), levels=None)

    class Twice(type(build("gaussian:sigma=0.5"))):  # type: ignore[misc]
        def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
            return torch.cat([x, x], dim=1) / 255

        follow = Smoothing.follow

    with pytest.raises(BadInput, match="Twice.follow is needed"):
        Twice(0.5).sample(torch.rand(2, 3))
