"""What certify and its neighbours answer to mistakes, and that nothing is left behind."""

from pathlib import Path

import pytest
from commands import vauban

SIGMA = "gaussian:sigma=0.5"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--smoothing", "gausian:sigma=1"], "did you mean 'gaussian'"),
        (["--smoothing", "gaussian:sigm=1"], "gaussian:sigma=0.5"),
        (["--smoothing", SIGMA, "--data", "minst"], "did you mean 'mnist'"),
        (["--smoothing", SIGMA, "--data", "mnist:split=tset"], "split"),
        (["--smoothing", SIGMA, "-n", "9"], "the least is 10"),
        (["--smoothing", SIGMA, "-k", "10"], "k=10 of 10 classes"),
        (["--smoothing", SIGMA, "--alpha", "0"], "alpha=0"),
        (["--smoothing", SIGMA, "--alpha", "1.5"], "alpha=1.5"),
        (["--smoothing", SIGMA, "--bounds", "simu"], "simuem"),
        (["--smoothing", SIGMA, "--model", "cnn"], "weights"),
        (["--smoothing", SIGMA, "--model", "nothing.safetensors"], "nothing.safetensors"),
        (["--smoothing", SIGMA, "--batch", "0"], "--batch 0"),
        (["--smoothing", SIGMA, "--batch", "9" * 23], "a whole number from 1 to 1000"),
        (["--smoothing", SIGMA, "--batch", "9" * 5000], "a whole number from 1 to 1000"),
        (["--smoothing", SIGMA, "--batch", "²"], "--batch ²"),
        (["--smoothing", SIGMA, "--rows", "99999999999999"], "rows=99999999999999: at most 1,000,000"),
        (["--smoothing", SIGMA, "--radii", "a,b"], "--radii a,b"),
        (["--smoothing", SIGMA, "--device", "tpu"], "device='tpu'"),
    ],
)
def test_mistakes_are_answered_and_leave_nothing(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    errors = vauban("certify", *arguments, "--limit", "2", "--out", tmp_path / "run", code=2)
    assert complaint in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_too_little_memory_is_answered_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 5.86 GiB")

    monkeypatch.setattr("vauban.smoothed.SmoothedClassifier.certify", full)
    errors = vauban("certify", "--smoothing", SIGMA, "--limit", "6", "--out", tmp_path / "run", code=1)
    assert "too little memory (Unable to allocate 5.86 GiB): give smaller --rows" in errors


@pytest.mark.parametrize(
    "command",
    [
        ["certify", "--smoothing", SIGMA, "--limit", "1", "-n", "100"],
        ["demo"],
        ["attack", "RUN"],
        ["poison", "train", "--partitions", "2", "--limit", "10"],
        ["rl", "train", "--algo", "ddpg", "--env", "ContinuousSeek-v0"],
    ],
)
def test_an_empty_folder_name_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "the name is empty" in vauban(*command, "--out", "", code=2)
    assert list(tmp_path.iterdir()) == []


def test_train_refuses_a_folder_that_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "missing" / "m.safetensors"
    assert "its folder must exist" in vauban("train", "--smoothing", SIGMA, "--limit", "4", "--out", out, code=2)
    assert not out.parent.exists()
