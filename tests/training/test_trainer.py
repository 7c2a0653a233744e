"""Training: learns on views, and stopping it anywhere changes nothing."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from vauban.data import Dataset, load
from vauban.errors import BadInput, RunRefused
from vauban.models import load as load_model
from vauban.smoothing import Gaussian
from vauban.training import Recipe, train
from vauban.training.augment import augment
from vauban.training.losses import LOSSES, Batch, Loss

MODEL = "cnn-small:channels=1,classes=10,size=28"


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("mnist:split=train").select(every=60, limit=1_000)


def weights(path: Path) -> bytes:
    return path.read_bytes()


def test_stopped_and_resumed_training_gives_the_same_weights(tmp_path: Path, digits: Dataset) -> None:
    recipe = Recipe(epochs=2, batch=250, augment="shift")
    train(MODEL, digits, Gaussian(0.25), recipe, out=tmp_path / "whole.safetensors")
    for _ in range(8):
        train(MODEL, digits, Gaussian(0.25), recipe, out=tmp_path / "parts.safetensors", stop_after=1)
    assert weights(tmp_path / "parts.safetensors") == weights(tmp_path / "whole.safetensors")
    assert not (tmp_path / "parts.safetensors.checkpoint").exists()


def test_an_interruption_keeps_a_checkpoint(tmp_path: Path, digits: Dataset) -> None:
    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    recipe = Recipe(epochs=1, batch=50)
    with pytest.raises(KeyboardInterrupt):
        train(MODEL, digits, Gaussian(0.25), recipe, callbacks=stop, out=tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors.checkpoint").exists()
    assert not (tmp_path / "m.safetensors").exists()
    with pytest.raises(RunRefused, match="other settings"):
        train(MODEL, digits, Gaussian(0.5), recipe, out=tmp_path / "m.safetensors")
    train(MODEL, digits, Gaussian(0.25), recipe, out=tmp_path / "m.safetensors")
    assert load_model(tmp_path / "m.safetensors").num_classes == 10


def test_it_learns_and_says_what_made_the_weights(tmp_path: Path, digits: Dataset) -> None:
    out = tmp_path / "m.safetensors"
    seen: list[float] = []
    recipe = Recipe(epochs=12, batch=50)
    train(MODEL, digits, Gaussian(0.25), recipe, out=out, callbacks=lambda p: seen.append(p.accuracy))
    assert seen[-1] > 0.9 > 0.6 > seen[0]
    loaded = load_model(out)
    assert "gaussian:sigma=0.25" in loaded.metadata["trained"]
    clean = torch.from_numpy(digits.images).float() / 255
    with torch.inference_mode():
        right = (loaded.module(clean).argmax(1).numpy() == digits.labels).mean()
    assert right > 0.9


def test_bad_recipes_and_data(tmp_path: Path, digits: Dataset) -> None:
    with pytest.raises(BadInput, match="epochs"):
        Recipe(epochs=0)
    with pytest.raises(BadInput, match="augmentation"):
        train(MODEL, digits, Gaussian(0.25), Recipe(augment="mixup"), out=tmp_path / "m.safetensors")
    unlabelled = Dataset(digits.images, None, 10, digits.class_names, "digits")
    with pytest.raises(BadInput, match="no labels"):
        train(MODEL, unlabelled, Gaussian(0.25), Recipe(), out=tmp_path / "m.safetensors")


@pytest.mark.parametrize("kind", ["none", "shift", "crop-flip"])
def test_augmentation_moves_pictures_and_nothing_else(kind: str) -> None:
    pictures = torch.zeros(64, 2, 28, 28, dtype=torch.uint8)
    pictures[:, :, 10:14, 12:20] = torch.arange(1, 9, dtype=torch.uint8)
    words = torch.from_numpy(np.random.default_rng(0).integers(0, 2**63 - 1, (64, 3)))
    changed = augment(pictures, kind, words)
    assert changed.shape == pictures.shape
    assert torch.equal(changed.sum(dim=(1, 2, 3)), pictures.sum(dim=(1, 2, 3)))
    kinds = len(torch.unique(changed.flatten(1), dim=0))
    assert kinds == 1 if kind == "none" else kinds > 15
    if kind == "crop-flip":
        assert any(row.nonzero().flatten().tolist() and row[row > 0][0] == 8 for row in changed[:, 0].amax(dim=1))


def test_a_loss_of_ones_own_sees_fresh_views(tmp_path: Path, digits: Dataset) -> None:
    seen: list[torch.Tensor] = []

    @dataclass(frozen=True)
    class Both(Loss):
        def views_of(self, batch: Batch, count: int) -> torch.Tensor:
            seen.extend([batch.made(batch.words(count)), batch.made(batch.words(count))])
            return seen[-1]

    LOSSES.register("both")(Both)
    try:
        train(MODEL, digits, Gaussian(0.25), Recipe(epochs=1, batch=500, loss="both"), out=tmp_path / "m.safetensors")
    finally:
        del LOSSES["both"]
    assert len({view.numpy().tobytes() for view in seen}) == len(seen) == 4
    with pytest.raises(BadInput, match="'nois' is not a known loss .*did you mean 'noise'"):
        Recipe(loss="nois")
