"""Votes of a model that changes while it votes are never sealed: not by asking again, nor after an interrupt."""

from pathlib import Path

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.engine import network
from vauban.errors import BadInput, Incomplete, RunRefused
from vauban.runs.verify import verify_run

X = torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
Y = [0, 1] * 20
SETTINGS = {"sampled": ("gaussian:sigma=0.5", {"n": 100, "alpha": 0.01, "seed": 1}), "exact": ("band:size=2", {})}


@pytest.fixture(autouse=True)
def as_many_calls_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_PROBE_SECONDS", 0.0)


class Later:
    """Answers class 0, and after so many calls of its process class 1."""

    def __init__(self, calls: int):
        self.left = calls

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        sign = 1.0 if self.left >= 0 else -1.0
        return sign * torch.tensor([[1.0, 0.0]]).repeat(len(views), 1)


def certified(model: Later, kind: str, folder: Path) -> vb.Certificates:
    """A call of `certify` in a process of its own: the model begins anew."""
    smoothing, settings = SETTINGS[kind]
    smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=2, rows=25, in_flight=1)
    smoothed.identity = lambda: ("later", "0" * 64)  # type: ignore[method-assign]
    return smoothed.certify(X, Y, out=folder, progress=False, **settings)


def probing(kind: str) -> int:
    """The calls that the checks before a run take."""
    smoothing, settings = SETTINGS[kind]
    model = Later(10**9)
    smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=2, rows=25, in_flight=1)
    voted: list[int] = []

    def here(job: object) -> object:
        voted.append(10**9 - model.left)
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        smoothed.certify(X, Y, progress=False, on=here, **settings)  # type: ignore[arg-type]
    return voted[0]


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_refused_run_is_not_sealed_by_asking_again(kind: str, tmp_path: Path) -> None:
    calls = probing(kind) + 1
    for _ in range(2):
        with pytest.raises(BadInput, match="two answers to the same views"):
            certified(Later(calls), kind, tmp_path / "run")
        with pytest.raises(Incomplete):
            verify_run(tmp_path / "run")
    done = certified(Later(10**9), kind, tmp_path / "run")
    assert (done.counts[:, 1] == 0).all()
    verify_run(tmp_path / "run")


class Interrupted(Later):
    """Is interrupted some calls after it changed."""

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        if self.left < -3:
            raise KeyboardInterrupt
        return super().__call__(views)


@pytest.mark.parametrize("kind", SETTINGS)
def test_votes_from_before_an_interrupt_are_cast_again_in_part(kind: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        certified(Interrupted(probing(kind) + 1), kind, tmp_path / "run")
    with pytest.raises(RunRefused, match=r"are not those of this model.*stays as it is is needed, and another --out"):
        certified(Later(10**9), kind, tmp_path / "run")


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_steady_model_goes_on_after_an_interrupt(kind: str, tmp_path: Path) -> None:
    last = 10**9 - probing(kind) - 3

    class Stopped(Later):
        def __call__(self, views: torch.Tensor) -> torch.Tensor:
            if self.left < last:
                raise KeyboardInterrupt
            return super().__call__(views)

    with pytest.raises(KeyboardInterrupt):
        certified(Stopped(10**9), kind, tmp_path / "run")
    done, whole = certified(Later(10**9), kind, tmp_path / "run"), certified(Later(10**9), kind, tmp_path / "whole")
    assert np.array_equal(done.counts, whole.counts)
    assert (tmp_path / "run" / "claims.csv").read_text() == (tmp_path / "whole" / "claims.csv").read_text()


class StaysTraining(torch.nn.Module):
    """A normalisation layer that keeps training whatever mode is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)

    def train(self, mode: bool = True) -> "StaysTraining":
        return super().train(True)

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(views)).mean(dim=(2, 3))


class SetUpByItsFirstBatch(torch.nn.Module):
    """As layers of flows do: mean and scale are those of the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.shift, self.known = torch.nn.Conv2d(1, 2, 3), torch.nn.Parameter(torch.zeros(2)), False

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        found = self.conv(views).mean(dim=(2, 3))
        if not self.known:
            self.shift.data.copy_(-found.mean(dim=0).detach())
            self.known = True
        return found + self.shift


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_model_that_its_first_call_changes_is_refused(precision: str) -> None:
    """It was called once to choose a layout, before anything was compared, and certified with what that call had made of it."""
    pictures = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    options = {"num_classes": 2, "precision": precision, "backend": "torch"}
    with pytest.raises(BadInput, match="a call changes the model's parameter shift"):
        vb.SmoothedClassifier(SetUpByItsFirstBatch(), "gaussian:sigma=0.5", **options).certify(pictures, [0, 1], n=100)
    torch.manual_seed(0)
    model = StaysTraining()
    before = model.norm.running_mean.clone()
    certs = vb.SmoothedClassifier(model, "gaussian:sigma=0.5", **options).certify(pictures, [0, 1], n=100, seed=1)
    assert torch.equal(before, model.norm.running_mean)
    for part in model.modules():
        part.training = False
    again = vb.SmoothedClassifier(lambda views: model(views), "gaussian:sigma=0.5", num_classes=2)
    if precision == "fp32":
        assert np.array_equal(again.certify(pictures, [0, 1], n=100, seed=1).counts, certs.counts)
