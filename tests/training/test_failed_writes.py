"""A write that fails, as on a full disk, ends no training, and loses none that is finished."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from squares import convolution, pictures, same

from vauban.errors import BadInput, CannotWrite, NotSaved
from vauban.models import read_metadata
from vauban.smoothing import Gaussian
from vauban.training import Recipe, Trained, TrainingProgress, Validation, checkpoints, train, trainer

DATA = pictures()
RECIPE = Recipe(epochs=10, batch=20, lr=0.01)  # 30 steps


class Disk:
    """A disk on which files of some endings cannot be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: tuple[str, ...] = ()
        for place in ("vauban.models.files.replace_file", "vauban.training.checkpoints.replace_file"):
            monkeypatch.setattr(place, self.replace)
        self.real_append = checkpoints.Files.append_log
        monkeypatch.setattr(checkpoints.Files, "append_log", lambda files, record: self.append(files, record))

    def replace(self, path: Path, content: bytes) -> None:
        self._check(path)
        path.write_bytes(content)

    def append(self, files: checkpoints.Files, record: dict[str, Any]) -> None:
        if files.log.name.endswith(self.refused):
            with files.log.open("a") as file:
                file.write('{"step": ')  # a line that was cut off
        self._check(files.log)
        self.real_append(files, record)

    def _check(self, path: Path) -> None:
        if path.name.endswith(self.refused):
            raise CannotWrite(f"{path} cannot be written: No space left on device")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def trained(out: Path | None = None, **settings: Any) -> Trained:
    return train(convolution(), DATA, Gaussian(0.25), RECIPE, out=out, **settings)


def when(step: int, do: Callable[[], None]) -> Callable[[TrainingProgress], None]:
    return lambda progress: do() if progress.step == step else None


def test_a_checkpoint_or_log_that_cannot_be_written_is_tried_again(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", -1.0)  # after every step
    out, seen = tmp_path / "m.safetensors", []

    def full() -> None:
        disk.refused = (".checkpoint", ".jsonl")

    def free() -> None:
        seen.append(torch.load(tmp_path / "m.safetensors.checkpoint", weights_only=True)["step"])
        disk.refused = ()

    with pytest.warns(UserWarning, match=r"training goes on, and tries to write it again later") as told:
        whole = trained(out, callbacks=[when(10, full), when(20, free)])
    assert seen == [9]
    assert sorted(str(w.message).split()[0].rpartition("m.")[2] for w in told) == [
        "safetensors.checkpoint",
        "train.jsonl",
    ]
    records = [json.loads(line) for line in (tmp_path / "m.train.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 20, 30]
    assert whole.finished
    assert same(whole.network, trained().network)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("validation", [None, Validation(DATA, votes=3, times=3)])
def test_finished_weights_that_cannot_be_written_are_in_the_checkpoint(
    tmp_path: Path, disk: Disk, ends: bool, validation: Validation | None
) -> None:
    settings: Any = {"validation": validation, "callbacks": [lambda progress: ends and progress.step == 20]}
    whole = trained(tmp_path / "whole.safetensors", **settings)
    disk.refused, out = (".safetensors",), tmp_path / "m.safetensors"
    step = 20 if ends else 30
    said = (
        rf"training is finished, but .*No space left on device\. .*checkpoint holds the state after step {step} of 30"
    )
    with pytest.raises(NotSaved, match=said) as lost:
        trained(out, **settings)
    result = lost.value.result
    assert isinstance(result, Trained)
    assert same(result.network, whole.network)
    assert (result.finished, result.step) == (True, whole.step)
    disk.refused = ()
    again = trained(out, validation=validation)  # without the callback that ended it
    assert same(again.network, whole.network)
    assert again.history == whole.history
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert not (tmp_path / "m.safetensors.checkpoint").exists()


def test_weights_are_written_from_the_checkpoint_where_the_log_is_lost(tmp_path: Path, disk: Disk) -> None:
    disk.refused, out = (".safetensors",), tmp_path / "m.safetensors"
    with pytest.raises(NotSaved):
        trained(out)
    disk.refused = ()
    (tmp_path / "m.train.jsonl").unlink()
    assert trained(out).history == []
    assert read_metadata(out)["step"] == "30 of 30"


def test_an_interruption_that_cannot_be_kept_says_so(tmp_path: Path, disk: Disk) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    disk.refused, out = (".checkpoint",), tmp_path / "m.safetensors"
    said = "training was stopped after step 10 of 30, but .*[Nn]o checkpoint could be written: .* from the beginning"
    with pytest.raises(NotSaved, match=said) as lost:
        trained(out, callbacks=when(10, stop))
    assert isinstance(lost.value.result, Trained)
    assert not lost.value.result.finished
    with pytest.raises(NotSaved, match="after step 7 of 30"):
        trained(out, stop_after=7)

    def fails() -> None:
        raise RuntimeError("a callback's own")

    with pytest.raises(RuntimeError, match="own"), pytest.warns(UserWarning, match="[Nn]o checkpoint could be written"):
        trained(out, callbacks=when(10, fails))


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The write itself fails here: the system refuses files as large as the weights."""
    code = f"""
        import resource, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import vauban as vb
        from squares import convolution, pictures
        from vauban.errors import NotSaved
        from vauban.training import trainer
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
        trainer.CHECKPOINT_EVERY = -1.0
        try:
            vb.train(convolution(), pictures(), "gaussian:sigma=0.25", epochs=1, batch=20, out="m.safetensors")
        except NotSaved as problem:
            print(problem)
            print(type(problem.result.network).__name__, problem.result.finished)
    """
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "m.safetensors cannot be written: File too large. No checkpoint could be written" in done.stdout
    assert "Sequential True" in done.stdout
    assert done.stderr.count("training goes on") == 1
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == ["m.train.jsonl"]


def test_what_no_file_can_hold_is_refused_before_the_training(tmp_path: Path) -> None:
    def called(progress: TrainingProgress) -> None:
        raise AssertionError("the training began")

    for metadata in ({"runs": 3}, {"vauban_model": "resnet18"}, "me"):
        with pytest.raises(BadInput, match="metadata"):
            trained(tmp_path / "m.safetensors", callbacks=called, metadata=metadata)


def test_weights_of_a_class_inside_a_function_are_written(tmp_path: Path) -> None:
    class Own(torch.nn.Sequential):
        pass

    out = tmp_path / "m.safetensors"
    train(Own(convolution()), DATA, Gaussian(0.25), RECIPE, out=out)
    assert "Own" in read_metadata(out)["trained"]
