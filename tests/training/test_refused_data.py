"""Training reads inputs as certify does, and refuses those that could never be certified, before the first step."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from squares import convolution, pictures, same
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.data import Dataset
from vauban.errors import BadInput
from vauban.smoothing import Gaussian, build
from vauban.training import Recipe, Trained, Validation, train, trainer

DATA = pictures()
RECIPE = Recipe(epochs=1, batch=20, lr=0.01)
COLOURS = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
LABELS = np.arange(20) % 2
TABLE = np.random.default_rng(1).random((20, 5), dtype=np.float32)
EXACT = ("splitting:sigma=0.5", "fractional:p=1/2,scale=18", "sparse:scale=25,unit=feature")


class Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Items that a function makes of their numbers."""

    def __init__(self, item: Callable[[int], Any], size: int = 20):
        self.item, self.size = item, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        return self.item(number)


@pytest.fixture
def no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where a step of training is made."""

    def update(*_: object) -> None:
        raise AssertionError("a step was made")

    monkeypatch.setattr(trainer.Recorded, "update", update)


def colour(number: int) -> Image.Image:
    return Image.fromarray(COLOURS[number].transpose(1, 2, 0))


def quick(network: Any, data: Any, smoothing: Any = "gaussian:sigma=0.25", **more: Any) -> Trained:
    return vb.train(network, data, smoothing, **{"epochs": 1, "batch": 10, "workers": 0, **more})


@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_of_pillow_train_the_same_weights_as_their_arrays(workers: int) -> None:
    held = train(convolution(), DATA, Gaussian(0.25), RECIPE).network
    assert DATA.labels is not None
    labels = DATA.labels
    grey = Items(lambda i: (Image.fromarray(DATA.images[i, 0]), int(labels[i])), len(DATA))
    assert same(train(convolution(), grey, Gaussian(0.25), RECIPE, classes=3, workers=workers).network, held)
    arrays = quick("resnet18:width=4", (COLOURS, LABELS)).network
    for make in (lambda i: (colour(i), i % 2), lambda i: {"image": colour(i), "label": i % 2}):
        assert same(quick("resnet18:width=4", Items(make), classes=2, workers=workers).network, arrays)


def test_training_and_certify_read_the_same_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    original = trainer.Recorded.update

    def watched(self: Any, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append(x)
        return original(self, x, *rest)

    monkeypatch.setattr(trainer.Recorded, "update", watched)
    data = Items(lambda i: (colour(i), i % 2))
    quick("resnet18:width=4", data, classes=2, batch=20)
    smoothed = vb.SmoothedClassifier(lambda views: views.flatten(1)[:, :2], "gaussian:sigma=0.25", num_classes=2)
    read = smoothed.collect(data).inputs.values.clone()
    assert sorted(map(bytes, seen[0].numpy())) == sorted(map(bytes, read.numpy()))


@pytest.mark.usefixtures("no_step")
@pytest.mark.parametrize("kind", [np.uint16, np.int64, np.int32, bool])
def test_pictures_of_other_types_are_refused(kind: type) -> None:
    x: np.ndarray = COLOURS.astype(kind)
    some: list[Any] = [(x, LABELS), (torch.from_numpy(x), LABELS), Items(lambda i: (x[i], i % 2))]
    for data in some:
        with pytest.raises(BadInput, match="inputs of type .*: uint8 pictures, or floats"):
            quick("resnet18:width=4", data, classes=2)
    with pytest.raises(BadInput, match="inputs of type"):
        quick("resnet18:width=4", x, None, loss="simsiam:width=8")


@pytest.mark.usefixtures("no_step")
def test_floats_above_one_are_refused(tmp_path: Path) -> None:
    x = COLOURS.astype(np.float32)
    words = r"input 0 has values outside \[0, 1\]: divide 8-bit values by 255"
    whole = Dataset(x, LABELS, 2, ("a", "b"), "made")
    some: list[Any] = [(x, LABELS), (torch.from_numpy(x), LABELS), whole, Items(lambda i: (x[i], i % 2))]
    for data in some:
        with pytest.raises(BadInput, match=words):
            quick("resnet18:width=4", data, classes=2)
    with pytest.raises(BadInput, match=words):
        quick("resnet18:width=4", (x / 255, LABELS), validation=Validation(whole))
    np.savez(tmp_path / "made.npz", images=x, labels=LABELS)
    asked = ["train", "--data", f"npz:path={tmp_path / 'made.npz'}", "-s", "gaussian:sigma=0.25"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "m.safetensors")])
    assert done.exit_code == 2
    assert "outside [0, 1]" in done.output


@pytest.mark.parametrize("workers", [0, 2])
def test_a_streamed_picture_that_is_refused_is_named(workers: int) -> None:
    unit = COLOURS / np.float32(255)
    with pytest.raises(BadInput, match=r"^input 7 has values outside \[0, 1\]"):
        quick("resnet18:width=4", Items(lambda i: (unit[i] * (3 if i == 7 else 1), i % 2)), classes=2, workers=workers)
    with pytest.raises(BadInput, match=r"^input 7 is \[3, 4, 8\] of uint8, and the first is \[3, 8, 8\] of uint8"):
        quick("resnet18:width=4", Items(lambda i: (COLOURS[i][:, 4 * (i == 7) :], 0)), classes=2, workers=workers)


def test_tables_of_any_numbers_are_trained_on() -> None:
    for table in (100 * TABLE - 50, (100 * TABLE).astype(np.int64)):
        quick("mlp:width=4", (table, LABELS))
        quick("mlp:width=4", Items(lambda i, t=table: (t[i], i % 2)), classes=2)  # type: ignore[misc]


@pytest.mark.usefixtures("no_step")
@pytest.mark.parametrize("smoothing", EXACT)
def test_exact_smoothings_refuse_what_certify_refuses_in_its_words(smoothing: str) -> None:
    for table in (TABLE, 4 * TABLE - 2):
        certified = vb.SmoothedClassifier(
            lambda views: views.flatten(1)[:, :2], smoothing, num_classes=2, input_range=None
        )
        with pytest.raises(BadInput) as problem:
            certified.certify(table)
        some: list[Any] = [(table, LABELS), Items(lambda i, t=table: (t[i], i % 2))]  # type: ignore[misc]
        for data in some:
            with pytest.raises(BadInput) as refused:
                quick("mlp:width=4", data, smoothing, classes=2)
            assert str(refused.value) == str(problem.value)
    with pytest.raises(BadInput, match="not on the 8-bit grid"):
        quick("resnet18:width=4", (COLOURS / np.float32(256), LABELS), smoothing)


def test_streamed_floats_on_the_grid_train_with_exact_smoothings() -> None:
    unit, smoothing = COLOURS / np.float32(255), "band:size=2"
    held = quick("resnet18:width=4", (COLOURS, LABELS), smoothing).network
    assert same(quick("resnet18:width=4", Items(lambda i: (unit[i], i % 2)), smoothing, classes=2).network, held)


@pytest.mark.usefixtures("no_step")
def test_pictures_without_views_are_refused() -> None:
    x = COLOURS.copy()
    x[4] = 0
    some: list[Any] = [(x, LABELS), Items(lambda i: (x[i], i % 2))]
    with pytest.raises(BadInput, match="input 4 is all black"):
        quick("resnet18:width=4", some[0], "flow:sigma=0.01")
    with pytest.raises(BadInput, match="input 4: the input is all black"):
        quick("resnet18:width=4", some[1], "flow:sigma=0.01", classes=2, batch=20)


def test_features_are_learned_without_labels_by_a_named_architecture(tmp_path: Path) -> None:
    trained = quick("resnet18:width=4", COLOURS, None, loss="simsiam:width=8")
    assert trained.finished
    np.savez(tmp_path / "nolab.npz", images=COLOURS)
    asked = ["train", "--data", f"npz:path={tmp_path / 'nolab.npz'}", "--epochs", "1", "--batch-size", "10"]
    asked += ["--model", "resnet18:width=4", "--loss", "simsiam:width=8", "--out", str(tmp_path / "m.safetensors")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output


@pytest.mark.usefixtures("no_step")
def test_data_without_labels_are_refused_by_losses_that_need_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "nolab.npz", images=COLOURS)
    asked = ["train", "--data", f"npz:path={tmp_path / 'nolab.npz'}", "-s", "gaussian:sigma=0.25"]
    asked += ["--model", "resnet18:width=4", "--out", str(tmp_path / "m.safetensors")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 2
    assert "has no labels to train on" in done.output
    with pytest.raises(BadInput, match="has no labels to train on"):
        quick("resnet18:width=4", COLOURS)
    with pytest.raises(BadInput, match="a denoiser is needed"):
        quick("resnet18:width=4", COLOURS, loss="mse")
    done = CliRunner().invoke(app, [*asked, "--loss", "mse"])
    assert done.exit_code == 2
    assert "a denoiser is needed" in done.output


@pytest.mark.usefixtures("no_step")
def test_one_class_is_refused() -> None:
    some: list[Any] = [(COLOURS, 0 * LABELS), (COLOURS, 0 * LABELS + 3), Dataset(COLOURS, 0 * LABELS, 1, ("a",), "one")]
    for data in some:
        with pytest.raises(BadInput, match="one class only: two or more are needed"):
            quick("resnet18:width=4", data)
    with pytest.raises(BadInput, match="one class only: two or more are needed"):
        quick("resnet18:width=4", Items(lambda i: (COLOURS[i], 0)), classes=1)


@pytest.mark.usefixtures("no_step")
def test_cutmix_of_tables_is_refused() -> None:
    with pytest.raises(BadInput, match=r"cutmix=1 cuts parts out of pictures .* the shape \[5\]: leave cutmix out"):
        quick("mlp:width=4", (TABLE, LABELS), cutmix=1.0)


def test_a_batch_larger_than_the_data_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="batch=50 is more than the 20 inputs to train on.* give a smaller batch"):
        quick("mlp:width=4", (TABLE, LABELS), batch=50)


@pytest.mark.parametrize("radius", [-1.0, math.nan, math.inf])
def test_a_radius_of_validation_is_finite_and_not_negative(radius: float) -> None:
    with pytest.raises(BadInput, match="a finite number of at least 0 is needed"):
        Validation(DATA, radius=radius)


@pytest.mark.parametrize(("smoothing", "radius"), [("gaussian:sigma=0.25", 0.8), ("band:size=2", 4.0)])
def test_a_radius_that_the_votes_cannot_certify_is_warned_about(smoothing: str, radius: float) -> None:
    with pytest.warns(UserWarning, match=f"radius={radius:g}: .* that agree certify at most"):
        train("cnn-small", DATA, smoothing, RECIPE, validation=Validation(DATA, radius=radius, votes=50, times=1))


@pytest.mark.parametrize("smoothing", ["band:size=1", "band:size=3", "block:size=2", "sparse:scale=20"])
def test_default_radii_of_counts_are_whole(smoothing: str) -> None:
    made = build(smoothing)
    assert made.threat.integer
    radius = Validation(DATA).radius_for(made)
    assert radius == int(radius)
    assert radius >= 1


def test_pictures_of_another_range_are_trained_on_where_it_is_named() -> None:
    pictures = 2 * torch.rand(20, 1, 4, 4) - 1
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    with pytest.raises(BadInput, match=r"outside \[0, 1\]"):
        quick(network, (pictures, LABELS))
    for allowed in (None, (-1.0, 1.0)):
        assert quick(network, (pictures, LABELS), input_range=allowed).finished
    with pytest.raises(BadInput, match="input_range"):
        quick(network, (pictures, LABELS), input_range=(1, 0))
