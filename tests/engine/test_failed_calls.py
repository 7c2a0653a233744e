"""A base classifier that raises, or tries to end the process: one sentence that says what, in which call, and what to do."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.errors import BadInput, ModelFailed

PICTURES = torch.zeros(2, 1, 6, 6, dtype=torch.uint8)

CONVOLUTION = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(32, 2))
DENSE = nn.Sequential(nn.Flatten(), nn.Linear(49, 2))
DOUBLE = nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).double()
LATER = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(31, 2))


def raising(problem: BaseException) -> Callable[[torch.Tensor], torch.Tensor]:
    def model(views: torch.Tensor) -> torch.Tensor:
        raise problem

    return model


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            CONVOLUTION,
            r"; views have 1 channels, the first layer \(0, Conv2d\) wants 3 "
            r"\(pictures in files: give channels=3 in --data\)\. A model that takes such views",
        ),
        (DENSE, r"; views have 36 numbers, the first layer \(1, Linear\) wants 49\."),
        (DOUBLE, r"; views are float32, the first layer \(1, Linear\) wants float64\."),
        (LATER, r"RuntimeError: mat1 and mat2 shapes cannot be multiplied \(5x32 and 31x2\)\. A model"),
        (raising(ValueError("line one\nline two")), r"ValueError: line one\. A model"),
        (raising(StopIteration()), r"StopIteration\. A model"),
        (raising(KeyError("x" * 1_000)), r"KeyError: 'x{299}…\. A model"),
        (raising(SystemExit(0)), r"it tried to end the process, sys\.exit\(0\), where it must return"),
    ],
)
def test_what_a_model_raises_is_said_with_its_call(model: Any, says: str) -> None:
    smoothed = vb.SmoothedClassifier(model, "gaussian:sigma=0.5", num_classes=2, rows=5)
    with pytest.raises(ModelFailed, match=rf"views of shape \(5, 1, 6, 6\), float32, on cpu: .*{says}") as caught:
        smoothed.certify(PICTURES, [0, 1], n=100, alpha=0.01)
    assert caught.value.__cause__ is not None
    assert "try it on torch.zeros(5, 1, 6, 6)" in str(caught.value)


def test_what_is_no_failure_of_the_model_passes() -> None:
    for problem in (KeyboardInterrupt(), BadInput("said by the model"), torch.cuda.OutOfMemoryError("full")):
        smoothed = vb.SmoothedClassifier(raising(problem), "gaussian:sigma=0.5", num_classes=2)
        with pytest.raises(type(problem)) as caught:
            smoothed.predict(PICTURES, n=100)
        assert caught.value is problem


MODELS = """
import sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 10, 28)
        self.requires_grad_(False).conv1.weight.fill_(1)
        self.conv1.bias.fill_(0)
    def forward(self, views):
        return self.conv1(views).flatten(1)
def leaves():
    return lambda views: sys.exit(0)
def exits():
    sys.exit(0)
def breaks():
    return {}["weights"]
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "failing_models.py").write_text(MODELS)
    (tmp_path / "exits_on_import.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "failing_models"
    sys.modules.pop("failing_models", None)


def said(*before: str, model: str, **env: str) -> tuple[int, str]:
    options = ["--limit", "2", "-n", "100", "--rows", "5", "--smoothing", "gaussian:sigma=0.5", "--out", "run"]
    done = CliRunner().invoke(app, [*before, "certify", "--model", model, *options], env=env)
    return done.exit_code, done.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("failing_models:Net", "views have 1 channels, the first layer (conv1, Conv2d) wants 3"),
        ("failing_models:leaves", "the model failed in a call with views of shape (5, 1, 28, 28), float32, on cpu"),
        ("failing_models:exits", "failing_models:exits failed when the model was built: it tried to end the process"),
        ("failing_models:breaks", "failing_models:breaks failed when the model was built: KeyError: 'weights'"),
        ("exits_on_import:make", "exits_on_import:make failed when the model was built: it tried to end the process"),
    ],
)
def test_the_command_line_says_it_in_a_line_and_exits_with_two(models: str, name: str, sentence: str) -> None:
    code, printed = said(model=name)
    assert code == 2
    assert sentence in printed
    assert "Traceback" not in printed
    assert len(printed.splitlines()) == 2
    assert "--debug" in printed.splitlines()[1]


@pytest.mark.parametrize("how", [{"before": ["--debug"]}, {"VAUBAN_DEBUG": "1"}])
def test_debug_shows_the_traceback(models: str, how: dict[str, Any]) -> None:
    code, printed = said(*how.pop("before", []), model=f"{models}:Net", **how)
    assert code == 2
    assert "return self.conv1(views).flatten(1)" in printed
    assert printed.splitlines()[-1].startswith("error: the model failed in a call")


def test_a_data_set_that_ends_the_process_is_no_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vauban.data.load_some", lambda *_, **__: sys.exit(0))
    done = CliRunner().invoke(app, ["certify", "--smoothing", "gaussian:sigma=0.5", "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert "tried to end the process, sys.exit(0): the work is not done" in done.stderr
