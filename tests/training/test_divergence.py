"""Weights that are no numbers are never returned or written, wherever a training ends."""

from pathlib import Path

import pytest
import torch
from squares import convolution, pictures

from vauban.errors import VaubanError
from vauban.smoothing import Gaussian
from vauban.training import Recipe, Validation, train, trainer

DATA = pictures()
RECIPE = Recipe(epochs=10, batch=20, lr=0.01)  # 30 steps


class Diverges(torch.nn.Module):
    """A network whose loss is always finite, and whose gradient is NaN in one step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.inner, self.step, self.calls = convolution(), step, 0
        self.bias = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        scores = self.inner(x) + self.bias
        return scores + (self.bias * 0).abs().sqrt().sum() if self.training and self.calls == self.step else scores


@pytest.mark.parametrize(
    ("step", "ends"),
    [
        (10, {"callbacks": lambda progress: progress.step >= 10}),
        (13, {"stop_after": 13}),  # between two reports
        (10, {"stop_after": 10}),
        (30, {}),
    ],
)
@pytest.mark.parametrize("validated", [False, True])
def test_weights_that_are_no_numbers_are_not_returned(tmp_path: Path, step: int, ends: dict, validated: bool) -> None:
    out = tmp_path / "m.safetensors"
    validation = Validation(DATA, votes=3, times=3) if validated else None
    with pytest.raises(VaubanError, match=f"weights became infinite or NaN at step {step} of 30"):
        train(Diverges(step), DATA, Gaussian(0.25), RECIPE, out=out, validation=validation, **ends)
    assert not out.exists()
    assert not (tmp_path / "m.safetensors.checkpoint").exists()


def test_the_checkpoint_stays_the_last_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", -1.0)  # after every step
    out = tmp_path / "m.safetensors"
    with pytest.raises(VaubanError, match="holds the last good weights"):
        train(Diverges(10), DATA, Gaussian(0.25), RECIPE, out=out, callbacks=lambda progress: progress.step >= 10)
    state = torch.load(tmp_path / "m.safetensors.checkpoint", weights_only=True)
    assert state["step"] == 9
    assert all(tensor.isfinite().all() for tensor in state["network"].values())


def test_without_a_file_they_are_refused_too() -> None:
    with pytest.raises(VaubanError, match="no checkpoint was written before"):
        train(Diverges(7), DATA, Gaussian(0.25), RECIPE, stop_after=7)


class Overflows(torch.nn.Module):
    """A network whose batch norm sees a variance that no float holds, while its loss and its weights stay finite."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = convolution(), torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.norm(self.inner(x).detach() * 1e30)


def test_statistics_that_are_no_numbers_are_not_returned() -> None:
    with pytest.raises(VaubanError, match="weights became infinite or NaN at step 10 of 30"):
        train(Overflows(), DATA, Gaussian(0.25), RECIPE)


def test_a_buffer_may_hold_infinity_from_the_start() -> None:
    network = convolution()
    network.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    assert train(network, DATA, Gaussian(0.25), RECIPE, stop_after=10).step == 10
