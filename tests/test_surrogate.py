"""The smoothed classifier as a module: a function of one picture, its gradients, and that nothing of the caller's changes."""

import copy

import pytest
import torch

import vauban as vb
from vauban.errors import BadInput
from vauban.models import build as network
from vauban.surrogate import log_mean_softmax

SHAPE = (1, 6, 6)


def linear(channels: int = 1, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36 * channels, 3))


def pictures(count: int = 4) -> torch.Tensor:
    return torch.randint(1, 256, (count, *SHAPE), generator=torch.Generator().manual_seed(3)) / 255


def smoothed(text: str = "gaussian:sigma=0.25", **settings: object) -> vb.SmoothedClassifier:
    channels = 2 if text.split(":")[0] in ("ablation", "band", "sparse", "fractional") else 1
    return vb.SmoothedClassifier(linear(channels), text, num_classes=3, **settings)


@pytest.mark.parametrize(
    "text", ["gaussian:sigma=0.25", "ablation:retained=9", "splitting:sigma=0.3", "band:size=2", "flow:sigma=0.01"]
)
def test_probabilities_and_gradients_under_every_kind_of_view(text: str) -> None:
    for hard in (False, True):
        module = smoothed(text).as_module(samples=10, seed=1, hard=hard)
        x = pictures().requires_grad_()
        found = module(x)
        assert found.shape == (4, 3)
        assert torch.allclose(found.exp().sum(1), torch.ones(4))
        assert found.requires_grad is not hard
        if not hard:
            found[:, 0].sum().backward()
            assert x.grad is not None
            assert x.grad.abs().flatten(1).amax(1).min() > 0


def test_with_a_seed_it_is_a_function_of_one_picture() -> None:
    x = pictures()
    module, other = smoothed().as_module(seed=1), smoothed().as_module(seed=2)
    found = module(x)
    assert torch.equal(found, module(x))
    assert torch.allclose(found[[2]], module(x[[2]]), atol=1e-6)
    assert not torch.equal(found, other(x))
    fresh = smoothed().as_module()
    assert not torch.equal(fresh(x), fresh(x))
    assert smoothed()(x).shape == found.shape


def test_it_is_the_mean_over_the_views_of_its_noise() -> None:
    classifier, x = smoothed("laplace:sigma=0.25"), pictures()
    module = classifier.as_module(samples=5, seed=1)
    words = module.words(x)
    scores = torch.stack(
        [
            classifier.base.module(classifier.smoothing.views((x * 255).round().byte(), w.expand(4, -1), 255))
            for w in words
        ]
    )
    assert torch.allclose(module(x), scores.softmax(-1).mean(0).log(), atol=1e-6)
    votes = torch.nn.functional.one_hot(scores.argmax(-1), 3).float().mean(0)
    assert torch.allclose(classifier.as_module(samples=5, seed=1, hard=True)(x).exp(), votes, atol=1e-6)
    assert torch.allclose(module((x * 255).round().byte()), module(x))


def test_all_views_of_an_exact_smoothing() -> None:
    classifier, x = smoothed("band:size=2"), pictures()
    ballots = classifier.ballots(x).votes
    shares = torch.stack([torch.bincount(torch.as_tensor(row), minlength=3) for row in ballots]).float() / 6
    assert torch.allclose(classifier.as_module(samples=None, hard=True)(x).exp(), shares, atol=1e-6)
    assert classifier.as_module(samples=None)(x).shape == (4, 3)
    with pytest.raises(BadInput, match="no list of views"):
        smoothed().as_module(samples=None)
    with pytest.raises(BadInput, match="leave the seed out"):
        classifier.as_module(samples=None, seed=1)
    with pytest.raises(BadInput, match="one view or more"):
        classifier.as_module(samples=0)
    with pytest.raises(BadInput, match="torch.int64"):
        classifier.as_module()(torch.ones(1, *SHAPE, dtype=torch.int64))


@pytest.mark.parametrize(("arithmetic", "step", "error"), [("auto", 1e-6, 1e-5), ("float", 1e-2, 1e-3)])
def test_the_gradient_is_that_of_differences(arithmetic: str, step: float, error: float) -> None:
    base = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    classifier = vb.SmoothedClassifier(base.double(), "gaussian:sigma=0.25", num_classes=3, arithmetic=arithmetic)
    x = pictures(2).double().requires_grad_()
    assert torch.autograd.gradcheck(classifier.as_module(samples=7, seed=1), (x,), eps=step, atol=error)


def test_chunks_of_views_change_neither_values_nor_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = vb.SmoothedClassifier(
        network("cnn-small:channels=1,classes=3,size=6", seed=1), "gaussian:sigma=0.25", num_classes=3
    )
    found = []
    for rows in (1000, 8, 1):
        monkeypatch.setattr("vauban.surrogate.choose_rows", lambda shape, device, rows=rows: rows)
        x = pictures().requires_grad_()
        value = classifier.as_module(samples=9, seed=1)(x)
        found.append((value.detach(), torch.autograd.grad(value[:, 1].sum(), x)[0]))
    for value, slope in found[1:]:
        assert torch.allclose(value, found[0][0], atol=1e-6)
        assert torch.allclose(slope, found[0][1], atol=1e-6)


def test_gradients_pass_through_chunks_of_a_model_of_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vauban.surrogate.choose_rows", lambda shape, device: 2)
    classifier = vb.SmoothedClassifier(torch.nn.Linear(4, 2), "gaussian:sigma=0.25", num_classes=2)
    x = torch.full((2, 4), 0.5, requires_grad=True)
    classifier.as_module(samples=5, seed=1)(x)[:, 0].sum().backward()
    assert x.grad is not None
    assert bool((x.grad != 0).all())


def test_the_callers_module_is_not_changed() -> None:
    base = network("cnn-small:channels=1,classes=3,size=6", seed=1).train()
    before = copy.deepcopy(base.state_dict())
    module = vb.SmoothedClassifier(base, "gaussian:sigma=0.25", num_classes=3).as_module(samples=4)
    module(pictures().requires_grad_()).sum().backward()
    assert base.training
    assert not module.base.training
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in base.parameters())
    assert not any(p.requires_grad for p in module.parameters())

    class Single(torch.nn.Module):
        def __deepcopy__(self, memo: object) -> None:
            raise TypeError("only one")

    with pytest.raises(BadInput, match="cannot be copied .only one."):
        vb.SmoothedClassifier(Single(), "gaussian:sigma=0.25", num_classes=3).as_module()


def test_an_attack_of_ones_own_changes_the_answer() -> None:
    def half(views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(1)
        return 20 * torch.stack([0.5 - mean, mean - 0.5], dim=1)

    classifier = vb.SmoothedClassifier(half, "gaussian:sigma=0.25", num_classes=2)
    x = torch.full((2, *SHAPE), 0.2)
    soft, hard = (classifier.as_module(seed=1, hard=hard) for hard in (False, True))
    assert (
        soft(x).argmax(1).tolist() == hard(x).argmax(1).tolist() == classifier.predict(x, seed=1).labels[:, 0].tolist()
    )
    assert soft(x).argmax(1).tolist() == [0, 0]
    moved = x.clone()
    for _ in range(10):
        moved.requires_grad_()
        loss = torch.nn.functional.nll_loss(soft(moved), torch.zeros(2, dtype=torch.int64))
        (slope,) = torch.autograd.grad(loss, moved)
        moved = (moved + 0.05 * slope.sign()).clamp(0, 1).detach()
    assert soft(moved).argmax(1).tolist() == hard(moved).argmax(1).tolist() == [1, 1]


def test_log_mean_softmax_of_extreme_scores_is_finite() -> None:
    scores = torch.tensor([[[1e4, -1e4]], [[1e4, -1e4]]], requires_grad=True)
    found = log_mean_softmax(scores)
    assert found.tolist() == [[0.0, -2e4]]
    assert torch.isfinite(torch.autograd.grad(found.sum(), scores)[0]).all()
