"""Models and data of the user's own, from the command line."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from typer.testing import CliRunner

from vauban.cli import app

SIGMA = "gaussian:sigma=0.5"


def test_a_strangers_model_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange.py").write_text(
        "import torch\n"
        "def build(bias=0.0):\n"
        "    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))\n"
        "    torch.nn.init.zeros_(net[1].weight); net[1].bias.data[7] = bias\n"
        "    return net\n"
        "def narrow():\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 3))\n"
        "def broken():\n"
        "    return lambda views: torch.full((len(views), 10), float('nan'))\n"
    )
    common = ["certify", "--smoothing", SIGMA, "--limit", "3", "-n", "100", "--json", "--out"]
    summary = json.loads(vauban(*common, "a", "--model", "strange:build:bias=1.0"))
    assert summary["clean_accuracy"] == pytest.approx(1 / 3)  # the first test digits are 7, 2, 1
    assert "(100, 3)" in vauban(*common, "b", "--model", "strange:narrow", code=2)
    assert "NaN" in vauban(*common, "c", "--model", "strange:broken", code=2)


def test_a_strangers_model_whose_code_changed_is_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import torch\ndef build():\n    return lambda views: torch.eye(10)[torch.full((len(views),), CLASS)]\n"
    common = ["certify", "--smoothing", SIGMA, "--limit", "2", "-n", "100", "--model", "changing:build", "--json"]
    for answer, code_ in (("7", 0), ("3", 2)):
        (tmp_path / "changing.py").write_text(code.replace("CLASS", answer))
        sys.modules.pop("changing", None)
        importlib.invalidate_caches()
        shown = vauban(*common, "--out", "run", code=code_)
        assert code_ == 0 or "model.sha256" in shown


def test_pictures_of_sixteen_bits_are_certified_only_as_rounded_ones(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 65_536, (2, 1, 28, 28)).astype(np.uint16)
    np.savez(tmp_path / "data.npz", images=pixels, labels=np.array([1, 2]))
    data = f"npz:path={tmp_path / 'data.npz'},classes=10"
    model = Path(__file__).parents[2] / "src/vauban/models/weights/mnist-gaussian.safetensors"
    arguments = ["--model", model, "--smoothing", SIGMA, "-n", "100", "--out", tmp_path / "run"]
    assert "give depth=8" in vauban("certify", "--data", data, *arguments, code=2)
    vauban("certify", "--data", f"{data},depth=8", *arguments)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["data"]["spec"].endswith(",depth=8")
    assert "Inputs are 8-bit pictures" in manifest["claim"]
    vauban("verify", tmp_path / "run")


def test_a_selection_of_one_class_is_said_on_a_line(tmp_path: Path) -> None:
    x, y = np.zeros((20, 1, 28, 28), dtype=np.uint8), np.arange(20) // 10
    np.savez(tmp_path / "sorted.npz", images=x, labels=y)
    options = ["--data", f"npz:path={tmp_path}/sorted.npz,classes=10", "--model", "cnn-small", "--smoothing", SIGMA]
    done = CliRunner().invoke(app, ["plan", *options, "--limit", "10", "-n", "100", "--seconds", "0.1"])
    (line,) = [line for line in done.stderr.splitlines() if "of class 0" in line]
    assert line.startswith("warning: all 10 inputs selected from npz:")


def test_npz_data_without_a_grid_says_so_in_the_manifest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", images=rng.random((3, 1, 28, 28)).astype(np.float32), labels=np.array([1, 2, 3]))
    data = f"npz:path={tmp_path / 'data.npz'},classes=10"
    model = Path(__file__).parents[2] / "src/vauban/models/weights/mnist-gaussian.safetensors"
    vauban("certify", "--data", data, "--model", model, "--smoothing", SIGMA, "-n", "100", "--out", tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["inputs"]["arithmetic"] == "float"
    assert "its rounding is not accounted for" in manifest["claim"]
    vauban("verify", tmp_path / "run")
