"""A training that was stopped, wherever that was, gives the weights of one that was not: bit for bit on a CPU."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from squares import convolution, pictures, same

from vauban.errors import BadInput, ModelFailed, RunRefused, VaubanError
from vauban.interrupts import InterruptedAtTheEnd
from vauban.models.files import read_metadata
from vauban.smoothing import Gaussian
from vauban.training import Recipe, TrainingProgress, Validation, split, train, trainer

DATA = pictures()
SMOOTHING = Gaussian(0.25)
COMMON = {"epochs": 3, "batch": 20, "augment": "shift", "lr": 0.01}  # 9 steps
RECIPES = {
    "sgd": Recipe(**COMMON, optimizer="sgd", schedule="onecycle"),
    "adamw with an average": Recipe(**COMMON, ema=0.9),
    "sgd in parts": Recipe(**COMMON, optimizer="sgd", accumulate=2, clip=0.5, ema=0.5),
    "mixup and cutmix": Recipe(**COMMON, mixup=0.4, cutmix=1.0),
    "stability": Recipe(**COMMON, loss="stability:weight=3", label_smoothing=0.1),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_stopped_at_any_step_it_gives_the_same_weights(tmp_path: Path, recipe: Recipe) -> None:
    network, kept = convolution(dropout=0.3), split(DATA, 12, seed=1)
    kwargs = {"validation": Validation(kept[1], votes=5, times=3)}
    whole = train(network, kept[0], SMOOTHING, recipe, out=tmp_path / "whole.safetensors", **kwargs)
    assert whole.finished
    for stop in range(1, 7):
        out = tmp_path / f"{stop}.safetensors"
        first = train(network, kept[0], SMOOTHING, recipe, out=out, stop_after=stop, **kwargs)
        assert not first.finished
        assert not out.exists()
        torch.rand(stop)  # the state of torch's generator does not matter
        again = train(network, kept[0], SMOOTHING, recipe, out=out, **kwargs)
        assert same(again.network, whole.network)
        assert again.step == whole.step
        assert again.history == whole.history
        assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
        assert not out.with_name(out.name + ".checkpoint").exists()


def test_the_best_weights_are_kept_across_a_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.2, 0.9, 0.9, 0.1, 0.3])
    real = trainer.validate

    def judged(*arguments: object) -> trainer.Validated:
        found = real(*arguments)  # type: ignore[arg-type]
        return trainer.Validated(found.radius, 0.5, 0.5, next(scores))

    monkeypatch.setattr(trainer, "validate", judged)
    recipe = Recipe(epochs=5, batch=60, lr=0.01)
    kwargs = {"out": tmp_path / "m.safetensors", "validation": Validation(DATA, votes=3, times=5)}
    stopped = train(convolution(), DATA, SMOOTHING, recipe, stop_after=3, **kwargs)
    assert stopped.step == 3  # of equal ones the later
    resumed = train(convolution(), DATA, SMOOTHING, recipe, **kwargs)
    assert resumed.step == 3
    assert resumed.validated is not None
    assert resumed.validated.certified == 0.9
    assert same(resumed.network, stopped.network)
    assert read_metadata(tmp_path / "m.safetensors")["step"] == "3 of 5"


class Interrupts(torch.nn.Module):
    """Gets Ctrl-C in the middle of a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.inner, self.step, self.calls = convolution(), step, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        if self.training and self.calls == self.step:
            signal.raise_signal(signal.SIGINT)
        return self.inner(x)


def test_ctrl_c_waits_for_the_end_of_a_step(tmp_path: Path) -> None:
    out, before = tmp_path / "m.safetensors", signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(Interrupts(4), DATA, SMOOTHING, RECIPES["sgd"], out=out)
    state = torch.load(tmp_path / "m.safetensors.checkpoint", weights_only=True)
    assert state["step"] == 4
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_in_the_last_step_waits_for_the_weights(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    with pytest.raises(InterruptedAtTheEnd) as late:
        train(Interrupts(9), DATA, SMOOTHING, RECIPES["sgd"], out=out)
    assert late.value.result.finished
    assert read_metadata(out)["step"] == "9 of 9"
    assert not (tmp_path / "m.safetensors.checkpoint").exists()


class InterruptsValidation:
    """A callback that gets Ctrl-C when the first held-out pictures of the given validation have voted."""

    def __init__(self, number: int) -> None:
        self.left, self.told = number, [0]

    def __call__(self, progress: TrainingProgress) -> None:
        pass

    def validating(self, done: int, total: int) -> None:
        self.left -= done <= self.told[-1] or self.told == [0]
        self.told.append(done)
        assert 0 < done <= total == 12
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [1, 2, 3])  # the last is after the last step
def test_ctrl_c_in_a_validation_ends_it_and_it_is_made_again(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vauban.training.validation.ROWS", 5)  # a picture at a time
    kept = split(DATA, 12, seed=1)
    about = (convolution(), kept[0], SMOOTHING, RECIPES["sgd"])
    validation = Validation(kept[1], votes=5, times=3)
    whole = train(*about, out=tmp_path / "whole.safetensors", validation=validation)
    out, callback = tmp_path / "m.safetensors", InterruptsValidation(number)
    with pytest.raises(KeyboardInterrupt):
        train(*about, out=out, validation=validation, callbacks=callback)
    assert callback.told[-1] == 1  # the rest of its pictures did not vote
    again = train(*about, out=out, validation=validation)
    assert again.history == whole.history
    assert again.step == whole.step
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_validation_that_is_made_again_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(progress: TrainingProgress) -> None:
        raise RuntimeError("as if the process were killed")

    kept = split(DATA, 12, seed=1)
    about = (convolution(), kept[0], SMOOTHING, RECIPES["sgd"])
    validation = Validation(kept[1], votes=5, times=3)
    common: Any = {"out": tmp_path / "m.safetensors", "validation": validation}
    whole = train(*about, validation=validation)
    monkeypatch.setattr("vauban.training.validation.ROWS", 5)
    with pytest.raises(KeyboardInterrupt):
        train(*about, **common, callbacks=InterruptsValidation(1))
    with pytest.raises(RuntimeError, match="killed"):
        train(*about, **common, callbacks=dies)  # after its line is in the log
    again = train(*about, **common)
    assert again.history == whole.history


def test_progress_says_from_which_step_it_was_resumed(tmp_path: Path) -> None:
    seen: list[TrainingProgress] = []
    train(convolution(), DATA, SMOOTHING, RECIPES["sgd"], out=tmp_path / "m.safetensors", stop_after=4)
    train(convolution(), DATA, SMOOTHING, RECIPES["sgd"], out=tmp_path / "m.safetensors", callbacks=seen.append)
    assert {(progress.first, progress.steps) for progress in seen} == {(4, 9)}


def test_the_log_of_finished_weights_outlasts_a_training_that_fails_to_replace_them(tmp_path: Path) -> None:
    out, before = tmp_path / "m.safetensors", tmp_path / "m.train.jsonl.before"
    train(convolution(), DATA, SMOOTHING, RECIPES["sgd"], out=out)
    log = (tmp_path / "m.train.jsonl").read_bytes()
    with pytest.raises(VaubanError, match="the loss became|weights became"):
        train(convolution(), DATA, SMOOTHING, Recipe(epochs=3, batch=20, lr=1e30), out=out, overwrite=True)
    assert before.read_bytes() == log
    (tmp_path / "m.safetensors.checkpoint").unlink(missing_ok=True)
    train(convolution(), DATA, SMOOTHING, RECIPES["sgd"], out=out, overwrite=True)
    assert not before.exists()
    assert (tmp_path / "m.train.jsonl").read_bytes() == log


def test_two_trainings_do_not_write_the_same_file(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"

    def begin_another(progress: TrainingProgress) -> None:
        train(convolution(), DATA, SMOOTHING, Recipe(**COMMON, seed=3), out=out)

    with pytest.raises(RunRefused, match="is being written by another process"):
        train(convolution(), DATA, SMOOTHING, RECIPES["sgd"], out=out, callbacks=begin_another)


def test_a_step_that_fails_half_way_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(torch.optim.SGD):
        steps = 0

        def step(self, closure: None = None) -> None:
            super().step(closure)
            self.steps += 1
            if self.steps == 7:
                raise RuntimeError("half way")

    monkeypatch.setattr(Recipe, "optimizer_for", lambda self, parameters, device: Fails(parameters, lr=self.lr))
    out = tmp_path / "m.safetensors"
    with pytest.raises(ModelFailed, match="step 7 of training failed: RuntimeError: half way"):
        train(convolution(), DATA, SMOOTHING, Recipe(**COMMON), out=out)
    assert not (tmp_path / "m.safetensors.checkpoint").exists()


def test_other_settings_are_named_and_refused(tmp_path: Path) -> None:
    out, recipe = tmp_path / "m.safetensors", RECIPES["sgd"]
    train(convolution(), DATA, SMOOTHING, recipe, out=out, stop_after=2)
    with pytest.raises(RunRefused, match=r"other settings \(smoothing: gaussian:sigma=0.25, now gaussian:sigma=0.5\)"):
        train(convolution(), DATA, Gaussian(0.5), recipe, out=out)
    with pytest.raises(RunRefused, match="data_sha256"):
        train(convolution(), pictures(seed=1), SMOOTHING, recipe, out=out)
    with pytest.raises(RunRefused, match="validation: None, now 60 of squares"):
        train(convolution(), DATA, SMOOTHING, recipe, out=out, validation=Validation(DATA))
    (tmp_path / "m.safetensors.checkpoint").write_bytes(b"torn")
    with pytest.raises(BadInput, match="no readable checkpoint"):
        train(convolution(), DATA, SMOOTHING, recipe, out=out)


def test_another_network_of_the_same_class_is_named_and_refused(tmp_path: Path) -> None:
    out, recipe = tmp_path / "m.safetensors", RECIPES["adamw with an average"]
    frozen = convolution()
    frozen[0].requires_grad_(False)
    train(frozen, DATA, SMOOTHING, recipe, out=out, stop_after=2)
    said = r"another network \(fixed in it and trained now: 0\.weight, 0\.bias\): give the network as it was"
    with pytest.raises(RunRefused, match=said):
        train(convolution(), DATA, SMOOTHING, recipe, out=out)
    swapped = convolution()
    swapped[1].requires_grad_(False)  # as many as before, and of other shapes
    with pytest.raises(
        RunRefused, match=r"trained in it and fixed now: 1\.weight, 1\.bias; fixed in it and trained now: 0"
    ):
        train(swapped, DATA, SMOOTHING, recipe, out=out)
    wider = convolution()
    wider[0], wider[1], wider[5] = torch.nn.Conv2d(1, 8, 3, 2), torch.nn.BatchNorm2d(8), torch.nn.Linear(72, 3)
    wider[0].requires_grad_(False)
    said = r"0\.weight is float32 \[4, 1, 3, 3\] in it and float32 \[8, 1, 3, 3\] now"
    with pytest.raises(RunRefused, match=said):
        train(wider, DATA, SMOOTHING, recipe, out=out)
    deeper = torch.nn.Sequential(*frozen, torch.nn.Linear(3, 3))
    with pytest.raises(RunRefused, match=r"another network \(it lacks 6\.weight, 6\.bias\)"):
        train(deeper, DATA, SMOOTHING, recipe, out=out)
    checkpoint = tmp_path / "m.safetensors.checkpoint"
    old = torch.load(checkpoint, weights_only=True)
    del old["trained"]  # as versions before wrote it
    torch.save(old, checkpoint)
    with pytest.raises(RunRefused, match="4 of its parameters were trained, now 6 are"):
        train(convolution(), DATA, SMOOTHING, recipe, out=out)
    assert train(frozen, DATA, SMOOTHING, recipe, out=out).finished


def test_the_log_has_every_report_once(tmp_path: Path) -> None:
    recipe = Recipe(epochs=10, batch=20, lr=0.01)  # 30 steps
    for stop in (13, 4, None):
        trained = train(
            convolution(), DATA, SMOOTHING, recipe, out=tmp_path / "m.safetensors", stop_after=stop,
            validation=Validation(DATA, votes=3, times=2),
        )  # fmt: skip
    records = [json.loads(line) for line in (tmp_path / "m.train.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 15, 20, 30]
    assert [TrainingProgress.from_json(record) for record in records] == trained.history
    assert ["validated" in record for record in records] == [False, True, False, True]
    assert records[-1]["epoch"] == 10


def test_a_log_that_cannot_be_read_stops_no_resumption(tmp_path: Path) -> None:
    recipe, out, log = Recipe(epochs=10, batch=20, lr=0.01), tmp_path / "m.safetensors", tmp_path / "m.train.jsonl"
    whole = train(convolution(), DATA, SMOOTHING, recipe, out=tmp_path / "whole.safetensors")
    train(convolution(), DATA, SMOOTHING, recipe, out=out, stop_after=25)
    damaged = (
        b"\xff garbage\n{}\n[1]\n" + log.read_bytes() + b'{"step": "x"}\n{"step": 2'
    )  # the last was cut off by a kill
    log.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"m\.train\.jsonl has 4 lines that cannot be read.* is now .*\.damaged"):
        again = train(convolution(), DATA, SMOOTHING, recipe, out=out)
    assert (tmp_path / "m.train.jsonl.damaged").read_bytes() == damaged
    assert again.history == whole.history
    assert same(again.network, whole.network)
    assert log.read_bytes() == (tmp_path / "whole.train.jsonl").read_bytes()


def test_overwriting_an_unfinished_training_of_other_settings_starts_anew(tmp_path: Path) -> None:
    out, recipe = tmp_path / "m.safetensors", RECIPES["sgd"]
    checkpoint = tmp_path / "m.safetensors.checkpoint"
    other = train(convolution(), DATA, Gaussian(0.5), recipe)
    train(convolution(), DATA, SMOOTHING, recipe, out=out, stop_after=2)
    with pytest.raises(RunRefused, match=r"start again with --overwrite \(overwrite=True\), which removes it"):
        train(convolution(), DATA, Gaussian(0.5), recipe, out=out)
    anew = train(convolution(), DATA, Gaussian(0.5), recipe, out=out, overwrite=True)
    assert same(anew.network, other.network)
    assert anew.history == other.history
    assert not checkpoint.exists()
    checkpoint.write_bytes(b"torn")
    assert same(train(convolution(), DATA, Gaussian(0.5), recipe, out=out, overwrite=True).network, other.network)
    train(convolution(), DATA, SMOOTHING, recipe, out=out, overwrite=True, stop_after=2)
    seen: list[TrainingProgress] = []  # of the same settings it is resumed
    train(convolution(), DATA, SMOOTHING, recipe, out=out, overwrite=True, callbacks=seen.append)
    assert seen[0].first == 2
