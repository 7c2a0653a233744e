"""Interval bounds: they contain every score of a box, one affine layer attains them, and no attack contradicts a proof."""

from itertools import pairwise, product

import pytest
import torch
from torch import nn

from vauban.attacks.baselines import BaselineRecipe, ascend_linf, train_baseline
from vauban.attacks.intervals import interval_scores, proven, worst_scores
from vauban.data import load_some
from vauban.errors import BadInput
from vauban.models.building import build


def convolutional() -> nn.Module:
    """A network of every kind of layer that is known, for pictures 1 x 8 x 8."""
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.MaxPool2d(2))
    more = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.AvgPool2d(1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(
        nn.Identity(), features, more, nn.Dropout(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)
    ).eval()


def dense(*widths: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def corners(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """All corners [2^d, d] of a box [d]."""
    choices = torch.tensor(list(product((0.0, 1.0), repeat=len(low))))
    return low + choices * (high - low)


def digits(split: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = load_some(f"mnist:split={split}", 1, count)
    return torch.tensor(data.images), torch.tensor(data.labels)


NETWORKS = {
    "convolutional": (convolutional, (1, 8, 8), 3),
    "wong-mnist": (lambda: build("wong-mnist:channels=1,classes=10", seed=0), (1, 28, 28), 10),
    "normalised": (lambda: build("wong-mnist:channels=1,classes=10,mean=0.3,std=0.2", seed=0), (1, 28, 28), 10),
}


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_bounds_contain_scores_of_the_box(name: str) -> None:
    make, shape, classes = NETWORKS[name]
    network, random = make(), torch.Generator().manual_seed(1)
    x, epsilon = torch.rand(shape, generator=random), 0.02
    low, high = (x - epsilon).clamp(0, 1), (x + epsilon).clamp(0, 1)
    below, above = (bound[0] for bound in interval_scores(network, low[None], high[None]))
    share = torch.rand(2000, *shape, generator=random)
    share[1000:] = share[1000:].round()
    points = [low + share * (high - low)]
    for j, sign in product(range(classes), (1, -1)):
        points.append(
            ascend_linf(lambda moved, j=j, sign=sign: sign * network(moved)[:, j].sum(), x[None], epsilon, 10)
        )
    scores = network(torch.cat(points))
    assert (scores >= below - 1e-5).all()
    assert (scores <= above + 1e-5).all()
    for label in range(classes):
        worst = worst_scores(network, x[None], torch.tensor([label]), epsilon)[0]
        assert (scores - scores[:, [label]] <= worst + 1e-5).all()
        assert (worst <= above - below[label] + 1e-5).all()
        assert worst[label] == 0
    for bound in interval_scores(network.train(), x[None], x[None]):
        torch.testing.assert_close(bound, network.eval()(x[None]))


def test_a_convolution_attains_its_bounds() -> None:
    """The corner of the box along the sign of an output's gradient gives the largest value of that output."""
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)
    x, size = torch.rand(1, 2, 5, 5), 0.2 * torch.rand(1, 2, 5, 5)
    below, above = (bound.flatten() for bound in interval_scores(layer, x - size, x + size))
    slopes = torch.autograd.functional.jacobian(lambda moved: layer(moved).flatten(), x).sign().squeeze(1)
    torch.testing.assert_close(layer(x + slopes * size).flatten(1).diagonal(), above)
    torch.testing.assert_close(layer(x - slopes * size).flatten(1).diagonal(), below)


@torch.no_grad()
def test_bounds_contain_all_corners_and_one_layer_attains_them() -> None:
    for seed in range(20):
        network, random = dense(6, 8, 8, 3, seed=seed), torch.Generator().manual_seed(seed)
        x, epsilon = torch.rand(6, generator=random), 0.3
        low, high = (x - epsilon).clamp(0, 1), (x + epsilon).clamp(0, 1)
        scores = network(corners(low, high))
        below, above = (bound[0] for bound in interval_scores(network, low[None], high[None]))
        assert (scores >= below - 1e-6).all()
        assert (scores <= above + 1e-6).all()
        label = torch.tensor([seed % 3])
        assert (scores - scores[:, label] <= worst_scores(network, x[None], label, epsilon) + 1e-6).all()
        first = network[:1]
        exact = first(corners(low, high))
        below, above = (bound[0] for bound in interval_scores(first, low[None], high[None]))
        torch.testing.assert_close(below, exact.amin(0))
        torch.testing.assert_close(above, exact.amax(0))
        torch.testing.assert_close(worst_scores(first, x[None], label, epsilon)[0], (exact - exact[:, label]).amax(0))


def test_scores_that_end_in_another_layer_have_worst_differences() -> None:
    """Without a dense layer at the end, the worst difference is that of the bounds."""
    x, label = torch.rand(1, 6), torch.tensor([1])
    network = dense(6, 8, 3).append(nn.ReLU())
    low, high = interval_scores(network, (x - 0.1).clamp(0, 1), (x + 0.1).clamp(0, 1))
    worst = worst_scores(network, x, label, 0.1)[0]
    assert worst[1] == 0
    torch.testing.assert_close(worst[[0, 2]], (high[0] - low[0, 1])[[0, 2]])


@pytest.mark.slow
def test_provable_training_proves_more_and_no_attack_contradicts_it() -> None:
    x, labels = digits("train", 600)
    tests, truth = digits("test", 200)
    tests, shares = tests / 255, {}
    for name in ("undefended", "linf-provable"):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
        recipe = BaselineRecipe(epochs=15, batch=50, lr=2e-3, epsilon=0.05)
        model = train_baseline(name, network, x, labels, recipe)
        for epsilon in (0.01, 0.05):
            kept = proven(model, tests, truth, epsilon)
            shares[name, epsilon] = float(kept.float().mean())

            def loss(moved: torch.Tensor, model: nn.Module = model) -> torch.Tensor:
                return nn.functional.cross_entropy(model(moved), truth, reduction="sum")

            attacked = model(ascend_linf(loss, tests, epsilon, 20)).argmax(1) != truth
            assert not (kept & attacked).any()
            assert attacked.any()
    assert shares["linf-provable", 0.05] > shares["undefended", 0.05] + 0.4
    assert shares["linf-provable", 0.01] > shares["undefended", 0.01]


def test_other_layers_and_bad_input_are_refused() -> None:
    x, labels = torch.rand(2, 6), torch.tensor([0, 1])
    with pytest.raises(BadInput, match=r"of Tanh: a Sequential of Linear, Conv2d, .* is needed"):
        interval_scores(nn.Sequential(nn.Linear(6, 2), nn.Tanh()), x, x)
    with pytest.raises(BadInput, match="of ParametrizedLinear"):
        interval_scores(nn.utils.parametrizations.weight_norm(nn.Linear(6, 2)), x, x)
    with pytest.raises(BadInput, match="of Cnn"):
        train_baseline("linf-provable", build("cnn-small:channels=1,classes=10"), torch.rand(2, 1, 28, 28), labels)
    with pytest.raises(BadInput, match="floats in"):
        proven(dense(6, 2), (255 * x).to(torch.uint8), labels, 0.1)
    with pytest.raises(BadInput, match="0 or more"):
        proven(dense(6, 2), x, labels, -0.1)
