"""Features learned without labels by the trainer: augmented copies, losses from their formulas, labels that are never read."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban import models
from vauban.cli import app
from vauban.data import Dataset
from vauban.errors import BadInput, ModelFailed
from vauban.models.weights import read_weights
from vauban.training.augment import WORDS as CROP_WORDS
from vauban.training.augment import resized_crop
from vauban.training.augmented_views import WORDS, augmented, recoloured
from vauban.training.encoder import Encoder

NETWORK = "resnet18:channels=3,classes=10,width=4"
QUICK = {"epochs": 1, "batch": 16, "optimizer": "sgd", "lr": 0.05}


def pictures(count: int = 48, seed: int = 0, side: int = 8) -> Dataset:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 10, count)
    x = draw.integers(0, 256, (count, 3, side, side), dtype=np.uint8)
    return Dataset(x, labels, 10, tuple(map(str, range(10))), "made")


def words(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 2**63 - 1, (count, WORDS)))


def slow_simclr(points: np.ndarray, temperature: float) -> float:
    """The formula of [Chen2020], copy by copy."""
    flat = points.reshape(-1, points.shape[-1])
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    b, each = points.shape[1], []
    for i in range(2 * b):
        partner = (i + b) % (2 * b)
        terms = [math.exp(unit[i] @ unit[j] / temperature) for j in range(2 * b) if j != i]
        each.append(-math.log(math.exp(unit[i] @ unit[partner] / temperature) / sum(terms)))
    return float(np.mean(each))


def test_simclr_is_its_formula() -> None:
    points = np.random.default_rng(0).normal(size=(2, 5, 7))
    for temperature in (0.5, 0.1):
        got = float(vb.losses.simclr(torch.from_numpy(points), temperature))
        assert got == pytest.approx(slow_simclr(points, temperature), rel=1e-5)
    with pytest.raises(BadInput, match="compares two copies"):
        vb.losses.simclr(torch.rand(3, 5, 7))


def test_simsiam_is_its_formula_and_no_gradient_passes_the_points() -> None:
    draw = np.random.default_rng(0)
    z, p = draw.normal(size=(3, 4, 6)), draw.normal(size=(3, 4, 6))
    cosines = []
    for i in range(3):
        others = np.mean([z[j] for j in range(3) if j != i], axis=0)
        for a, b in zip(p[i], others, strict=True):
            cosines.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    points, predictions = torch.tensor(z, requires_grad=True), torch.tensor(p, requires_grad=True)
    loss = vb.losses.simsiam(points, predictions)
    assert float(loss.detach()) == pytest.approx(-np.mean(cosines), rel=1e-5)
    loss.backward()
    assert points.grad is None
    assert predictions.grad is not None
    with pytest.raises(BadInput, match="two copies or more"):
        vb.losses.simsiam(torch.rand(1, 4, 6), torch.rand(1, 4, 6))


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 9, 4)])
def test_the_coding_rate_is_its_formula_gradients_included(shape: tuple[int, int, int]) -> None:
    """Both ways to write the determinant: fewer pictures than numbers, and more."""

    def slow(z: np.ndarray) -> float:
        _, b, width = shape
        unit = z / np.linalg.norm(z, axis=2, keepdims=True)
        middle = unit.mean(0) / np.linalg.norm(unit.mean(0), axis=1, keepdims=True)
        rates = [np.linalg.slogdet(np.eye(width) + width / (b * 0.3) * one.T @ one)[1] / 2 for one in unit]
        return -np.mean(rates) - 20 * np.mean([one[i] @ middle[i] for one in unit for i in range(b)])

    z = np.random.default_rng(0).normal(size=shape)
    points = torch.tensor(z, requires_grad=True)
    loss = vb.losses.coding_rate(points, 20.0, 0.3)
    assert float(loss.detach()) == pytest.approx(slow(z), rel=1e-12)
    loss.backward()
    assert points.grad is not None
    for place in ((0, 0, 0), (1, 2, 3), (1, 4, 1)):
        step = np.zeros(shape)
        step[place] = 1e-6
        assert float(points.grad[place]) == pytest.approx((slow(z + step) - slow(z - step)) / 2e-6, rel=1e-5)
    same = torch.ones(2, 4, 3)
    assert vb.losses.coding_rate(same) > vb.losses.coding_rate(
        torch.eye(4)[:, :3].expand(2, 4, 3) + 0.1
    )  # one point for all
    with pytest.raises(BadInput, match="two copies or more"):
        vb.losses.coding_rate(torch.rand(1, 4, 6))


def test_parts_have_the_share_of_the_area_that_is_asked_for() -> None:
    """A ramp from left to right: the span that a part shows is its width."""
    ramp = torch.linspace(0, 1, 64).expand(200, 1, 64, 64)
    for least, most in ((0.25, 0.25), (0.2, 1.0)):
        crops = resized_crop(ramp, words(200)[:, :CROP_WORDS], least, None, False, most)
        widths = crops[:, 0, 0, -1] - crops[:, 0, 0, 0]
        assert (widths**2).min() > 0.7 * least
        assert (widths**2).max() < 1.4 * most


@pytest.mark.parametrize("channels", [1, 3])
def test_copies_have_the_size_asked_for_and_depend_on_their_own_words(channels: int) -> None:
    x = torch.rand(6, channels, 12, 12)
    copies = augmented(x, words(6), side=8)
    assert copies.shape == (6, channels, 8, 8)
    assert copies.min() >= 0
    assert copies.max() <= 1
    assert torch.equal(augmented(x[2:4], words(6)[2:4], side=8), copies[2:4])
    assert not torch.equal(augmented(x, words(6, 1), side=8), copies)
    assert augmented(x, words(6)).shape == x.shape


def test_colours_stay_or_become_the_grey_of_their_brightness() -> None:
    x = torch.rand(4, 3, 8, 8) * 0.5 + 0.25
    still = torch.full((4, 6), 0.9)  # above both shares: colours as they are, not grey
    assert torch.allclose(recoloured(x, still), x, atol=1e-6)
    grey = still.clone()
    grey[:, 5] = 0.1
    shown = recoloured(x, grey)
    assert torch.allclose(shown[:, 0], shown[:, 1])
    assert torch.allclose(shown[:, 0], shown[:, 2])
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    assert torch.allclose(shown[:, :1], (x * weights).sum(1, keepdim=True), atol=1e-6)


def test_brightness_contrast_and_hue_are_what_they_are_called() -> None:
    x = torch.rand(2, 3, 8, 8) * 0.2 + 0.4
    middle = torch.full((2, 6), 0.5)
    middle[:, 5] = 0.9
    brighter, flatter, turned = middle.clone(), middle.clone(), middle.clone()
    brighter[:, 1], flatter[:, 2], turned[:, 4] = 0.75, 0.0, 1.0
    assert torch.allclose(recoloured(x, brighter), 1.2 * x, atol=1e-5)
    assert torch.allclose(recoloured(x, flatter).std((2, 3)), 0.6 * x.std((2, 3)), atol=1e-5)
    moved = recoloured(x, turned)
    assert not torch.allclose(moved, x, atol=1e-2)
    assert torch.allclose(moved.mean(1), x.mean(1), atol=1e-5)  # the hue turns about the grey axis
    lengths = [(some - some.mean(1, keepdim=True)).norm(dim=1) for some in (moved, x)]
    assert torch.allclose(*lengths, atol=1e-5)


@pytest.mark.parametrize("loss", ["simclr:width=8", "simsiam:width=8,views=3,side=6", "coding-rate:width=8,views=3"])
def test_labels_are_never_read(loss: str) -> None:
    """The same weights, bit for bit, for permuted labels and for none."""
    data = pictures()
    assert data.labels is not None
    permuted = Dataset(data.images, data.labels[::-1].copy(), 10, data.class_names, "made")
    states = []
    for given in (data, permuted, data.images):
        trained = vb.train(NETWORK, given, loss=loss, **QUICK)
        states.append({name: tensor.numpy().tobytes() for name, tensor in trained.network.state_dict().items()})
    assert states[0] == states[1] == states[2]
    assert isinstance(trained.network, Encoder)
    assert trained.network(torch.rand(2, 3, 8, 8)).shape == (2, 32)


def test_a_stopped_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    settings = {**QUICK, "loss": "simsiam:width=8,views=2"}
    whole = vb.train(NETWORK, pictures(), **settings)
    out = tmp_path / "features.safetensors"
    assert not vb.train(NETWORK, pictures(), out=out, stop_after=1, **settings).finished
    assert not out.exists()
    vb.train(NETWORK, pictures(), out=out, **settings)
    tensors, about = read_weights(out)
    assert "trained_smoothing" not in about
    trunk = whole.network.trunk.state_dict()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in trunk.items())
    assert not tensors["fc.weight"].any()
    loaded = models.load(str(out))
    assert loaded.module(torch.rand(2, 3, 8, 8)).shape == (2, 10)


@pytest.mark.slow
def test_features_tell_bars_apart_that_were_never_labelled() -> None:
    """Nearest neighbours by what simclr learned agree on the class of a picture far more often than by random weights."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 256)
    x = draw.integers(0, 120, (256, 3, 8, 8), dtype=np.uint8)
    for i, label in enumerate(labels):
        x[i, label % 3] //= 4
        x[i, :, label // 2 * 4 : label // 2 * 4 + 4] += 100
    data = Dataset(x, labels, 4, tuple("abcd"), "bars")

    def agreement(network: torch.nn.Module) -> float:
        with torch.no_grad():
            points = torch.nn.functional.normalize(network.eval()(torch.from_numpy(x).float() / 255), dim=1)
        near = (points @ points.T).fill_diagonal_(-2).argmax(1).numpy()
        return float((labels[near] == labels).mean())

    trained = vb.train(NETWORK, data, loss="simclr:least=0.6,mirror=false", epochs=12, batch=64, lr=3e-3)
    random = Encoder(models.build(NETWORK, seed=0), 8, predicts=False, seed=0)
    assert trained.history[-1].loss < trained.history[0].loss
    assert agreement(trained.network) > max(0.8, agreement(random))


class Backwards(torch.nn.Module):
    """Assigns its last layer first."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = torch.nn.Linear(192, 10), torch.nn.Linear(192, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x.flatten(1)))


def test_what_cannot_be_learned_from_is_refused() -> None:
    data = pictures()
    with pytest.raises(BadInput, match="leave the smoothing out"):
        vb.train(NETWORK, data, "gaussian:sigma=0.5", loss="simclr")
    with pytest.raises(BadInput, match="a smoothing is missing"):
        vb.train(NETWORK, data)
    with pytest.raises(BadInput, match="does not end with a linear layer"):
        vb.train(torch.nn.Flatten(), data, loss="simclr")
    with pytest.raises(BadInput, match="assign the layer last that is computed last"):
        vb.train(Backwards(), data, loss="simclr")
    with pytest.raises(BadInput, match="one channel or three"):
        vb.train("mlp", np.zeros((4, 5), np.float32), loss="simclr")
    with pytest.raises(BadInput, match="mixup and cutmix"):
        vb.train(NETWORK, data, loss="simsiam", mixup=0.2)
    with pytest.raises(BadInput, match="leave classifier out"):
        vb.train(NETWORK, data, loss="simclr", classifier=torch.nn.Flatten())
    for loss in ("simclr", "coding-rate"):
        with pytest.raises(BadInput, match="batch=1: .* tells the inputs of a batch apart"):
            vb.train(NETWORK, data, loss=loss, batch=1)
    with pytest.raises(ModelFailed, match=r"must take views of shape \(4, 3, 3, 3\)"):
        vb.train("cnn-small", data, loss="simclr:side=3,width=8", batch=4)
    with pytest.raises(BadInput, match="m.safetensors names weights, and training needs an architecture: .*--init"):
        vb.train("m.safetensors", data, loss="simclr")
    for text in (
        "simclr:temperature=0",
        "simsiam:views=1",
        "simclr:least=0",
        "simclr:most=0.1",
        "coding-rate:epsilon=0",
        "simclr:width=0",
        "simsiam:width=0",
        "simclr:temperature=nan",
    ):
        with pytest.raises(BadInput, match=f"^{text}"):
            vb.train(NETWORK, data, loss=text)
    with pytest.raises(BadInput, match="^simclr:least=0.3[+]consistency: .* not added to others"):
        vb.train(NETWORK, data, loss="simclr:least=0.3+consistency")


def test_the_command_trains_features_without_a_smoothing(tmp_path: Path) -> None:
    data = pictures()
    np.savez(tmp_path / "made.npz", images=data.images)
    out = tmp_path / "features.safetensors"
    asked = ["train", "--data", f"npz:path={tmp_path / 'made.npz'}", "--model", NETWORK, "--loss", "simclr:width=8"]
    done = CliRunner().invoke(app, [*asked, "--epochs", "1", "--batch-size", "16", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert f"linear:learned={out}" in done.output
    assert out.exists()
    started = ["--epochs", "1", "--batch-size", "16", "--init", str(tmp_path / "labelled.safetensors")]
    models.save(tmp_path / "labelled.safetensors", models.build(NETWORK), NETWORK, {})
    done = CliRunner().invoke(app, [*asked, *started, "--out", str(tmp_path / "v.safetensors")])
    assert done.exit_code == 0, done.output
    assert "--init" in done.output
    assert "learned=" not in done.output  # poison train refuses weights that began with labels


def test_a_checkpoint_of_features_is_a_start(tmp_path: Path) -> None:
    data, out = pictures(), tmp_path / "features.safetensors"
    settings: Any = {"loss": "simclr:width=8", "epochs": 4, "batch": 16}
    vb.train(NETWORK, data, out=out, stop_after=3, **settings)
    stopped = torch.load(f"{out}.checkpoint", weights_only=True)["network"]
    begun = vb.train(NETWORK, data, init=f"{out}.checkpoint", stop_after=1, lr=1e-30, weight_decay=0.0, **settings)
    trunk = {name.removeprefix("trunk."): tensor for name, tensor in stopped.items() if name.startswith("trunk.")}
    weights = [name for name in trunk if name.endswith(("weight", "bias"))]
    found = begun.network.trunk.state_dict()
    assert weights
    assert all(torch.equal(found[name], trunk[name]) for name in weights)


def test_certifying_features_alone_is_warned_about(tmp_path: Path) -> None:
    out = tmp_path / "f.safetensors"
    vb.train(NETWORK, pictures(32), loss="simsiam:width=8", out=out, **QUICK)
    with pytest.warns(UserWarning, match="its last layer is zeros"):
        vb.SmoothedClassifier(models.load(out), "gaussian:sigma=0.5").certify(
            pictures(1), n=20, alpha=0.1, progress=False
        )
