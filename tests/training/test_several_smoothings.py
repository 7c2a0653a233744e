"""One network that is trained on views of several smoothings by turns."""

import warnings
from pathlib import Path

import pytest
import torch
from squares import convolution, pictures, same

import vauban as vb
from vauban.errors import BadInput
from vauban.models import load
from vauban.models.files import TRAINED_SMOOTHING, read_metadata
from vauban.smoothing import Several
from vauban.training import Recipe, Validation, split, train
from vauban.training.views import Step, ViewMaker, Words

DATA = pictures()
SEVERAL = ["gaussian:sigma=0.1", "gaussian:sigma=0.5", "gaussian:sigma=2.5"]


@pytest.mark.parametrize("loss", ["noise", "noise:views=3", "consistency", "adversarial:steps=1"])
def test_stopped_anywhere_it_gives_the_same_weights(tmp_path: Path, loss: str) -> None:
    recipe, network = Recipe(epochs=2, batch=30, accumulate=2, lr=0.01, loss=loss, ema=0.9), convolution()
    kept, held = split(DATA, 12, seed=1)
    kwargs = {"validation": Validation(held, votes=5, times=2)}
    whole = train(network, kept, SEVERAL, recipe, out=tmp_path / "whole.safetensors", **kwargs)
    for stop in (1, 2):
        out = tmp_path / f"{stop}.safetensors"
        assert not train(network, kept, SEVERAL, recipe, out=out, stop_after=stop, **kwargs).finished
        again = train(network, kept, " | ".join(SEVERAL), recipe, out=out, **kwargs)
        assert same(again.network, whole.network)
        assert again.history == whole.history


def test_an_input_keeps_its_smoothing_in_all_of_its_views() -> None:
    """The noise of an input has the same size in every view, that of its turn."""
    maker = ViewMaker(Several(SEVERAL), torch.Size([1, 6, 6]), None, 0, torch.device("cpu"))
    x = torch.zeros(9, 1, 6, 6)
    words = Words(maker, Step(0, torch.tensor(0)), 0, 9, 9)(40)
    spread = maker(x, words).view(40, 9, -1).std(2)
    wanted = torch.tensor([0.1, 0.5, 2.5]).repeat(3)
    assert ((spread / wanted - 1).abs() < 0.6).all()


def test_learning_two_at_once_serves_both() -> None:
    """Points on a line, told apart by their sign alone: trained on small noise only, scores far out were never seen."""
    x = torch.linspace(-1, 1, 200)[:, None]
    y = (x[:, 0] > 0).long()
    network = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    trained = train(network, (x, y), SEVERAL[:2], Recipe(epochs=30, batch=20, lr=0.01))
    for text in SEVERAL[:2]:
        smoothed = vb.SmoothedClassifier(trained.network, text, num_classes=2, input_range=None)
        assert (smoothed.predict(x[::20], n=200, seed=1).labels[:, 0] == y[::20].numpy()).mean() >= 0.9


def test_the_file_of_weights_knows_all_of_them(tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    train("cnn-small", DATA, SEVERAL, Recipe(epochs=1, batch=30), out=out)
    assert read_metadata(out)[TRAINED_SMOOTHING] == " | ".join(SEVERAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in SEVERAL:
            vb.SmoothedClassifier(load(out), text)
    with pytest.warns(
        UserWarning, match="trained on views of gaussian:sigma=0.1 | gaussian:sigma=0.5 | gaussian:sigma=2.5, and"
    ):
        vb.SmoothedClassifier(load(out), "gaussian:sigma=0.25")
    many = [f"gaussian:sigma={sigma}" for sigma in (0.1, 0.2, 0.3, 0.4, 0.5)]
    network = train(convolution(), DATA, many, Recipe(epochs=1, batch=30)).network
    with pytest.warns(UserWarning, match="views of 5 smoothings from gaussian:sigma=0.1 to gaussian:sigma=0.5, and"):
        vb.SmoothedClassifier(network, "gaussian:sigma=1", num_classes=3)


def test_batches_that_cannot_be_shared_and_losses_of_one_law_are_refused() -> None:
    said = "batch=20 on 1 processes with accumulate=1 and 3 smoothings by turns: give a multiple of 3, such as 21"
    with pytest.raises(BadInput, match=said):
        train(convolution(), DATA, SEVERAL, Recipe(epochs=1, batch=20))
    with pytest.raises(BadInput, match="give a multiple of 6, such as 24"):
        train(convolution(), DATA, SEVERAL, Recipe(epochs=1, batch=20, accumulate=2))
    with pytest.raises(BadInput, match="macer maximizes the radius of gaussian, not of gaussian:sigma=0.1 | gaussian"):
        train(convolution(), DATA, SEVERAL, Recipe(epochs=1, batch=30, loss="macer"))
    with pytest.raises(BadInput, match="or a list"):
        train(convolution(), DATA, ["gaussian:sigma=0.1", 3], Recipe(epochs=1, batch=30))
