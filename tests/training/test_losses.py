"""Losses against slow ones written from the formulas with NumPy, and what they do with every smoothing."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import norm

import vauban as vb
from vauban.errors import BadInput
from vauban.projections import into_l1_ball
from vauban.smoothing import Smoothing, build
from vauban.training.losses import LOSSES, Batch, Loss, Sum

VIEWS, PICTURES, CLASSES = 3, 4, 5
SHAPE = (1, 4, 4)
LABELS = [0, 3, 2, 4]
SOFT = np.random.default_rng(5).dirichlet(np.ones(CLASSES), PICTURES)
SMOOTHINGS = [
    "gaussian:sigma=0.25",
    "laplace:sigma=0.25",
    "uniform:sigma=0.25",
    "ablation:retained=8",
    "ablation:retained=8,null=mean",
    "splitting:sigma=0.3",
    "splitting:sigma=0.3,sampled=true",
    "fractional:p=1/2,scale=9",
    "fractional:p=1/2,scale=9,sampled=true,representation=center",
    "discrete:keep=0.8",
    "sparse:scale=2",
    "flow:sigma=0.01",
    "band:size=2",
    "block:size=2,sampled=true",
]


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))


def targets(labels: object) -> np.ndarray:
    given = np.asarray(labels)
    return np.eye(CLASSES)[given] if given.ndim == 1 else given


def slow_noise(scores: np.ndarray, labels: object) -> float:
    each = [
        -sum(t * np.log(p) for t, p in zip(target, softmax(row), strict=True))
        for view in scores
        for target, row in zip(targets(labels), view, strict=True)
    ]
    return float(np.mean(each))


def slow_stability(scores: np.ndarray, labels: object, weight: float = 6.0) -> float:
    apart = [kl(softmax(scores[0, i]), softmax(view[i])) for view in scores[1:] for i in range(PICTURES)]
    return slow_noise(scores[:1], labels) + weight * float(np.mean(apart))


def slow_consistency(scores: np.ndarray, labels: object, weight: float = 10.0, entropy: float = 0.5) -> float:
    total = 0.0
    for i in range(PICTURES):
        each = [softmax(view[i]) for view in scores]
        mean = np.mean(each, axis=0)
        total += weight * np.mean([kl(mean, p) for p in each]) - entropy * sum(p * np.log(p) for p in mean)
    return slow_noise(scores, labels) + total / PICTURES


def slow_macer(
    scores: np.ndarray,
    labels: object,
    sigma: float = 0.5,
    beta: float = 16.0,
    gamma: float = 8.0,
    weight: float = 12.0,
) -> float:
    total = 0.0
    for i, label in enumerate(np.asarray(labels)):
        total -= np.log(np.mean([softmax(view[i])[label] for view in scores]))
        soft = np.mean([softmax(beta * view[i]) for view in scores], axis=0)
        if soft.argmax() == label:
            margin = norm.ppf(soft[label]) - norm.ppf(np.delete(soft, label).max())
            total += weight * sigma / 2 * max(gamma - margin, 0)
    return total / PICTURES


def differences(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient by central differences of the fourth order."""
    slope = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        moved = []
        for times in (-2, -1, 1, 2):
            other = at.copy()
            other[index] += times * step
            moved.append(function(other))
        slope[index] = (moved[0] - 8 * moved[1] + 8 * moved[2] - moved[3]) / (12 * step)
    return slope


FORMULAS = {
    "noise": (vb.losses.noise, slow_noise, {}),
    "stability": (vb.losses.stability, slow_stability, {"weight": 2.5}),
    "consistency": (vb.losses.consistency, slow_consistency, {"weight": 3.0, "entropy": 0.7}),
    "macer": (vb.losses.macer, slow_macer, {"sigma": 0.5, "beta": 1.5, "gamma": 4.0, "weight": 3.0}),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("labels", [LABELS, SOFT], ids=["labels", "probabilities"])
def test_values_and_gradients_are_those_of_the_formula(name: str, labels: object) -> None:
    fast, slow, settings = FORMULAS[name]
    if name == "macer" and labels is SOFT:
        with pytest.raises(BadInput, match="leave mixup and cutmix out"):
            fast(torch.zeros(2, PICTURES, CLASSES), torch.from_numpy(SOFT), 0.5)
        return
    scores = np.random.default_rng(1).normal(size=(VIEWS, PICTURES, CLASSES))
    scores[:, 0, 0] += 2  # classified correctly, so that macer has a radius
    leaf, truth = torch.from_numpy(scores.copy()).requires_grad_(), torch.as_tensor(labels)
    loss = fast(leaf, truth, **settings)
    assert loss.item() == pytest.approx(slow(scores, labels, **settings), abs=1e-10)
    (slope,) = torch.autograd.grad(loss, leaf)
    assert np.allclose(slope.numpy(), differences(lambda s: slow(s, labels, **settings), scores), atol=1e-8)
    assert fast(list(leaf), truth, **settings).item() == loss.item()
    truth = truth.float() if truth.is_floating_point() else truth
    assert fast(leaf.bfloat16(), truth, **settings).dtype == torch.float32


def test_macer_at_its_defaults_and_where_votes_are_certain() -> None:
    scores = np.random.default_rng(1).normal(size=(VIEWS, PICTURES, CLASSES)) / 10
    expected = slow_macer(scores, LABELS)
    assert vb.losses.macer(torch.from_numpy(scores), torch.tensor(LABELS), 0.5).item() == pytest.approx(expected)
    certain = (100 * torch.eye(CLASSES)[LABELS]).expand(2, -1, -1).clone().requires_grad_()
    loss = vb.losses.macer(certain, torch.tensor(LABELS), 0.5)
    loss.backward()
    assert loss.item() == 0
    assert certain.grad is not None
    assert torch.isfinite(certain.grad).all()


class Linear(torch.nn.Module):
    """Scores W v + b of a view v, in float64."""

    def __init__(self, size: int, seed: int = 0):
        super().__init__()
        random = np.random.default_rng(seed)
        self.weight = torch.nn.Parameter(torch.from_numpy(random.normal(size=(CLASSES, size))))
        self.bias = torch.nn.Parameter(torch.from_numpy(random.normal(size=CLASSES)))

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        return views.flatten(1).double() @ self.weight.T + self.bias


def batch_of(
    smoothing: Smoothing, *, levels: int | None = 255, labels: object = LABELS, done: float = 1.0, seed: int = 2
) -> Batch:
    x = torch.randint(1, 256, (PICTURES, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))
    x = x if levels else x.float() / 255
    generator = torch.Generator().manual_seed(seed)
    network = Linear(smoothing.view_shape(torch.Size(SHAPE)).numel())

    def words(count: int) -> torch.Tensor:
        return torch.stack([smoothing.random_words(x, generator, levels) for _ in range(count)])

    return Batch(network, x, torch.as_tensor(labels), smoothing, levels, words, done)


def slow_slope(network: Linear, views: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The gradient in the picture of the cross-entropy of the mean softmax over views [m, numbers] = picture + noise."""
    weight, bias = (p.detach().numpy() for p in (network.weight, network.bias))
    each = np.stack([softmax(weight @ view + bias) for view in views])
    mean = each.mean(axis=0)
    slope = np.zeros(views.shape[1])
    for p in each:
        jacobian = (np.diag(p) - np.outer(p, p)) @ weight
        slope -= (target / mean) @ jacobian / len(each)
    return slope


def slow_l1_projection(change: np.ndarray, epsilon: float) -> np.ndarray:
    """By bisection on the threshold."""
    if np.abs(change).sum() <= epsilon:
        return change
    low, high = 0.0, np.abs(change).max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(np.abs(change) - middle, 0).sum() > epsilon else (low, middle)
    return np.sign(change) * np.maximum(np.abs(change) - high, 0)


@pytest.mark.parametrize("attack", ["l2", "l1"])
@pytest.mark.parametrize("labels", [LABELS, SOFT], ids=["labels", "probabilities"])
def test_adversarial_pictures_are_those_of_the_formula(attack: str, labels: object) -> None:
    smoothing, epsilon, steps = build("gaussian:sigma=0.25"), 0.8, 3
    batch = batch_of(smoothing, labels=labels)
    words = batch.words(2)
    x = batch.pictures.double()
    found = vb.losses.adversarial(
        batch.network, smoothing, x, batch.labels, epsilon=epsilon, steps=steps, norm=attack, words=words
    )
    noise = (smoothing.differentiable(batch.pictures.repeat(2, 1, 1, 1), words.flatten(0, 1)).double()).view(
        2, PICTURES, -1
    ) - x.flatten(1)
    for i in range(PICTURES):
        start = x[i].flatten().numpy()
        moved = start.copy()
        for _ in range(steps):
            slope = slow_slope(batch.network, moved + noise[:, i].numpy(), targets(labels)[i])
            if attack == "l2":
                change = moved - start + 2 * epsilon / steps * slope / np.sqrt((slope**2).sum())
                change *= min(1, epsilon / np.sqrt((change**2).sum()))
            else:
                free = [j for j in range(16) if not (moved[j] <= 0 > slope[j] or (moved[j] >= 1 and slope[j] > 0))]
                best = max(free, key=lambda j: abs(slope[j]))
                change = moved - start
                change[best] += 2 * epsilon / steps * np.sign(slope[best])
                change = slow_l1_projection(change, epsilon)
            moved = np.clip(start + change, 0, 1)
        assert np.allclose(found[i].flatten().numpy(), moved, atol=1e-6)
        assert np.abs(moved - start).max() > 0.05


def test_l1_projection_is_the_nearest_point() -> None:
    for seed in range(20):
        change = np.random.default_rng(seed).normal(size=(3, 12))
        for epsilon in (0.1, 2.0, 30.0):
            expected = [slow_l1_projection(row, epsilon) for row in change]
            assert np.allclose(into_l1_ball(torch.from_numpy(change), epsilon).numpy(), expected, atol=1e-9)


def test_type2_adds_a_step_of_the_sign_of_the_gradient() -> None:
    smoothing = build("laplace:sigma=0.25")
    batch = batch_of(smoothing)
    words = batch.words(2)
    views = vb.losses.type2(batch.network, smoothing, batch.pictures, batch.labels, step=0.1, words=words)
    plain = batch.made(words)
    for view, noisy, label in zip(views, plain, LABELS * 2, strict=True):
        slope = slow_slope(batch.network, noisy.flatten().double().numpy()[None], np.eye(CLASSES)[label])
        assert np.allclose(view.flatten().numpy(), noisy.flatten().numpy() + 0.1 * np.sign(slope), atol=1e-6)
    hidden = build("ablation:retained=8")
    batch = batch_of(hidden)
    words = batch.words(1)
    views = vb.losses.type2(batch.network, hidden, batch.pictures, batch.labels, step=0.1, words=words)
    assert torch.equal((views == 0).sum(1) == 2, (batch.made(words) == 0).sum(1) == 2)
    assert not torch.equal(views, batch.made(words))


@pytest.mark.parametrize("name", ["noise", "stability", "consistency", "type2", "adversarial", "adversarial:norm=l1"])
@pytest.mark.parametrize("text", SMOOTHINGS)
def test_every_loss_trains_with_every_smoothing(name: str, text: str) -> None:
    loss = vb.losses.build(name)
    batch = batch_of(build(text))
    value, scores = loss(batch)
    assert scores.shape == (loss.views, PICTURES, CLASSES)
    value.backward()
    assert torch.isfinite(value)
    assert batch.network.weight.grad.abs().max() > 0
    repeat, _ = loss(batch_of(build(text)))
    assert repeat.item() == value.item()


@pytest.mark.parametrize("text", ["gaussian:sigma=0.25", "splitting:sigma=0.3,sampled=true"])
def test_attacks_raise_the_loss_of_the_same_noise(text: str) -> None:
    for levels in (255, None):
        plain = vb.losses.build("noise:views=2")(batch_of(build(text), levels=levels))[0]
        for name in ("type2:views=2", "adversarial:views=2", "adversarial:norm=l1,epsilon=2,steps=4"):
            assert vb.losses.build(name)(batch_of(build(text), levels=levels))[0] > plain


def test_each_class_is_its_function() -> None:
    for name, text in {
        "noise": "noise:views=3",
        "stability": "stability:weight=2.5",
        "consistency": "consistency:weight=3,entropy=0.7",
        "macer": "macer:views=4,beta=1.5,gamma=4,weight=3",
    }.items():
        fast, _, settings = FORMULAS[name]
        value, scores = vb.losses.build(text)(batch_of(build("gaussian:sigma=0.5")))
        assert value.item() == pytest.approx(fast(scores, torch.tensor(LABELS), **settings).item(), abs=1e-12)


def test_label_smoothing_is_a_mixture_with_all_classes() -> None:
    mixed = 0.9 * np.eye(CLASSES)[LABELS] + 0.1 / CLASSES
    for text in ("noise:views=2", "stability", "consistency", "adversarial"):
        smooth = batch_of(build("gaussian:sigma=0.5"))
        smooth = Batch(**{**vars(smooth), "label_smoothing": 0.1})
        value, scores = vb.losses.build(text)(smooth)
        kept = scores[:1] if text == "stability" else scores
        penalty = vb.losses.build(text).penalty(scores, smooth)
        expected = slow_noise(kept.detach().numpy(), mixed) + (0 if penalty is None else penalty.item())
        assert value.item() == pytest.approx(expected)


def test_a_sum_takes_views_from_one_and_penalties_from_all() -> None:
    both = vb.losses.build("adversarial:epsilon=0.5,steps=2,views=2+consistency:weight=5,views=3+stability:weight=1e+1")
    assert isinstance(both, Sum)
    assert both.views == 3
    assert both.losses[2] == vb.losses.build("stability:weight=10")
    batch = batch_of(build("gaussian:sigma=0.25"))
    value, scores = both(batch)
    penalties = [loss.penalty(scores, batch) for loss in both.losses[1:]]
    expected = vb.losses.noise(scores, batch.labels) + sum(penalties)
    assert value.item() == pytest.approx(expected.item())
    attacked, _ = vb.losses.build("adversarial:views=3")(batch_of(build("gaussian:sigma=0.25")))
    assert attacked.shape == ()
    # the classification term is that of the first
    first = vb.losses.build("stability:weight=0+consistency:weight=0,entropy=0")
    value, scores = first(batch_of(build("gaussian:sigma=0.25")))
    assert value.item() == pytest.approx(vb.losses.noise(scores[:1], batch.labels).item())
    with pytest.raises(BadInput, match="both make views of their own"):
        vb.losses.build("adversarial+type2")


def test_the_attack_grows_over_the_warm_up() -> None:
    loss = vb.losses.build("adversarial:warmup=0.5")
    smoothing = build("gaussian:sigma=0.25")
    values = [loss(batch_of(smoothing, done=done))[0].item() for done in (0.0, 0.25, 0.5, 1.0)]
    assert values[0] == pytest.approx(vb.losses.build("noise:views=2")(batch_of(smoothing))[0].item())
    assert values[0] < values[1] < values[2] == values[3]


@pytest.mark.parametrize("name", ["type2", "adversarial"])
def test_attacks_leave_batch_statistics_and_gradients_alone(name: str) -> None:
    network = torch.nn.Sequential(torch.nn.BatchNorm2d(1), torch.nn.Flatten(), torch.nn.Linear(16, CLASSES)).train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    smoothing, x = build("gaussian:sigma=0.25"), torch.rand(PICTURES, *SHAPE)
    attack = getattr(vb.losses, name)
    attack(network, smoothing, x, torch.tensor(LABELS), generator=torch.Generator().manual_seed(1))
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert network.training


def test_what_has_no_meaning_is_refused() -> None:
    macer = vb.losses.build("macer")
    with pytest.raises(BadInput, match="macer maximizes the radius of gaussian, not of laplace:sigma=0.25"):
        macer(batch_of(build("laplace:sigma=0.25")))
    with pytest.raises(BadInput, match="leave mixup and cutmix out"):
        vb.losses.build("noise+macer")(batch_of(build("gaussian:sigma=0.25"), labels=SOFT))
    for text, why in {
        "nois": "did you mean 'noise'",
        "stability:wieght=3": "did you mean 'weight'",
        "adversarial:norm=l3": "not a known norm",
        "adversarial:epsilon=0": "adversarial:epsilon=0: epsilon must be a finite number above 0",
        "adversarial:epsilon=inf": "epsilon must be a finite number above 0",
        "adversarial:warmup=2": "warmup must be a finite number of at least 0 and at most 1",
        "stability:weight=nan": "stability:weight=nan: weight must be a finite number of at least 0",
        "stability:weight=-1": "weight must be a finite number of at least 0",
        "consistency:weight=-1": "weight must be a finite number of at least 0",
        "consistency:entropy=nan": "entropy must be a finite number of at least 0",
        "macer:weight=-2": "weight must be a finite number of at least 0",
        "type2:step=inf": "step must be a finite number above 0",
        "adversarial:steps=1.5": "steps=1.5 cannot be read",
        "consistency:views=1": "views must be a whole number of at least 2",
        "noise:views=0": "views must be a whole number of at least 1",
        "type2:step=-1": "step must be a finite number above 0",
        "macer:beta=0": "beta must be a finite number above 0",
    }.items():
        with pytest.raises(BadInput, match=why):
            vb.losses.build(text)
    for function in (vb.losses.stability, vb.losses.consistency):
        with pytest.raises(BadInput, match="two views or more"):
            function(torch.zeros(1, PICTURES, CLASSES), torch.tensor(LABELS))
    with pytest.raises(BadInput, match=r"\[views, batch, classes\]"):
        vb.losses.noise(torch.zeros(CLASSES), torch.tensor(LABELS))


def test_a_sum_is_written_as_it_is_typed() -> None:
    build = vb.losses.build
    assert build("stability:weight=1e+1 +  consistency").losses == build("stability:weight=10+consistency").losses
    assert str(build("stability:weight=1e+1 + macer:views=3+type2")) == "stability:weight=10+macer:views=3+type2"
    for text, side in (("noise+", "after"), ("noise + ", "after"), ("+noise", "before"), ("noise++type2", "before")):
        with pytest.raises(BadInput, match=f"a loss is missing {side} the [+]"):
            build(text)
    with pytest.raises(BadInput, match="no loss is named"):
        build("")
    with pytest.raises(BadInput, match="^adversarial:steps=3 and type2 both make views of their own"):
        build("adversarial:steps=3+type2")


def test_a_sum_checks_the_shape_for_all_its_parts() -> None:
    both = vb.losses.build("noise+patch-margin:side=5")
    with pytest.raises(BadInput, match="side=5 is larger than pictures of 4 x 4"):
        both.check_shape(build("band:size=2"), torch.Size(SHAPE))


def test_a_loss_of_another_package_is_a_dataclass() -> None:
    @dataclass(frozen=True)
    class Theirs(Loss):
        weight: float = 1.0

    assert LOSSES.accept(Theirs) is Theirs
    with pytest.raises(BadInput, match="is no loss"):
        LOSSES.accept(lambda batch: None)


@pytest.mark.parametrize("name", ["consistency", "type2", "adversarial"])
def test_losses_are_float32_under_autocast_and_train_every_parameter(name: str) -> None:
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, CLASSES)
    )
    batch = Batch(**{**vars(batch_of(build("gaussian:sigma=0.25"))), "network": network})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, scores = vb.losses.build(name)(batch)
    loss.backward()
    assert loss.dtype == scores.dtype == torch.float32
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in network.parameters())


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("shape", [(8,), (2, 2, 2)])
def test_attacks_stay_within_epsilon_of_inputs_outside_0_to_1(norm: str, shape: tuple[int, ...]) -> None:
    """Moved into [0, 1], rows of a table would be far from where they were."""
    x = 3 * torch.randn(6, *shape, generator=torch.Generator().manual_seed(0))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3))
    labels = torch.arange(6) % 3
    moved = vb.losses.adversarial(network, vb.Gaussian(sigma=0.3), x, labels, epsilon=0.1, norm=norm, levels=None)
    distances = (moved - x).flatten(1).norm(p=1 if norm == "l1" else 2, dim=1)
    assert distances.max() <= 0.1 + 1e-5
    assert distances.max() > 0.05
