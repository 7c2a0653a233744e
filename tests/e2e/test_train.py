"""vauban train as a person uses it, and the Python of docs/training.md."""

import json
import re
import signal
from pathlib import Path

import pytest
import torch
from commands import process, vauban, wait_for_bytes
from typer.testing import CliRunner

from vauban.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
QUICK = [
    "train",
    "--data",
    "mnist",
    "--every",
    "100",
    "--smoothing",
    "gaussian:sigma=0.25",
    "--validate",
    "20",
    "--votes",
    "20",
]

OWN = """
import torch

class Net(torch.nn.Module):
    def __init__(self, when):
        super().__init__()
        self.layer, self.when = torch.nn.Linear(784, 10), when

    def forward(self, x):
        if self.when == "called" or self.when == "trained" and self.training:
            raise KeyError("no such key")
        return self.layer(x.flatten(1))

def good(): return Net("never")
def called(): return Net("called")
def trained(): return Net("trained")
def built(): raise OSError("no such file")
"""

WIDTHS = """
import signal
import torch

class Net(torch.nn.Module):
    def __init__(self, width, stops):
        super().__init__()
        self.first, self.last, self.stops = torch.nn.Linear(784, width), torch.nn.Linear(width, 10), stops

    def forward(self, x):
        if self.training and self.stops:
            signal.raise_signal(signal.SIGINT)
        return self.last(self.first(x.flatten(1)).relu())

width, stops = 4, True
def net(): return Net(width, stops)
"""


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "training.md", "exec"), names := {})
    assert (~names["certs"].abstained).sum() >= 4
    assert capsys.readouterr().out.splitlines()[-1].startswith("64 ")


def test_every_loss_is_on_the_page_as_it_is() -> None:
    from vauban.training.losses import LOSSES
    from vauban.training.losses.base import build

    rows = re.findall(r"^\| `([a-z0-9-]+)(:\S+)?` \|", PAGE, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(
        name for name in LOSSES if LOSSES[name].__module__.startswith("vauban.")
    )
    for name, parameters in rows:
        shown, default = build(name + parameters), build(name)
        assert repr(shown) == repr(default) or name == "type2"  # whose step of 8/255 is rounded


def test_a_model_that_fails_is_answered_with_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owned.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for model, words in (
        ("called", "failed in a call with views of shape (2, 1, 28, 28), float32, on cpu: KeyError: 'no such key'"),
        ("trained", "step 1 of training failed: KeyError: 'no such key'"),
        ("built", "owned:built failed when the model was built: OSError: no such file"),
    ):
        told = vauban(*QUICK, "--model", f"owned:{model}", "--out", "m.safetensors", code=2)
        assert words in told
        assert "Traceback" not in told
    out = vauban(*QUICK, "--model", "owned:good", "--epochs", "1", "--out", "m.safetensors")
    assert "certify with --model owned:good --weights m.safetensors" in out


def test_other_views_are_warned_about_when_certifying(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    summary = json.loads(vauban(*QUICK, "--model", "mlp:width=8", "--epochs", "1", "--out", out, "--json"))
    assert summary["validation"]["radius"] > 0
    certify = ["certify", "--model", str(out), "--data", "mnist:split=test", "--limit", "2", "-n", "200"]
    for sigma, warned in (("0.5", True), ("0.25", False)):
        done = CliRunner().invoke(
            app, [*certify, "--smoothing", f"gaussian:sigma={sigma}", "--out", str(tmp_path / sigma)]
        )
        assert done.exit_code == 0
        assert ("warning: the model was trained on views of gaussian:sigma=0.25" in done.stderr) == warned
    assert "exists" in vauban(*QUICK, "--model", "mlp:width=8", "--epochs", "1", "--out", out, code=2)


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_give_the_same_weights(tmp_path: Path) -> None:
    command = [*QUICK, "--model", "mlp:width=32", "--epochs", "60", "--batch-size", "20", "--device", "cpu", "--out"]
    started = process(*command, tmp_path / "a.safetensors")
    wait_for_bytes(started, tmp_path / "a.train.jsonl", 400)
    started.send_signal(signal.SIGINT)
    _, told = started.communicate()
    assert started.returncode == 130
    assert "run the same command again" in told
    assert (tmp_path / "a.safetensors.checkpoint").exists()
    resumed = process(*command, tmp_path / "a.safetensors")
    assert resumed.wait() == 0
    whole = process(*command, tmp_path / "b.safetensors")
    assert whole.wait() == 0
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert (tmp_path / "a.train.jsonl").read_text() == (tmp_path / "b.train.jsonl").read_text()


def test_a_network_that_was_changed_before_it_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "widths.py").write_text(WIDTHS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = [*QUICK, "--model", "widths:net", "--epochs", "1", "--out", "m.safetensors"]
    vauban(*command, code=130)
    import widths

    widths.width, widths.stops = 8, False
    told = vauban(*command, code=2)
    assert told.startswith(
        "error: m.safetensors.checkpoint was written by a training of another network (first.weight is"
    )
    assert "float32 [4, 784] in it and float32 [8, 784] now" in told
    assert "or start again with --overwrite" in told
    assert "Traceback" not in told
    assert "weights in m.safetensors" in vauban(*command, "--overwrite")
