"""Models of one's own, tables of features and composed models, from training to an answer, through the command line."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vauban.cli import app

SMALL = "--smoothing gaussian:sigma=0.25 --limit 40"


def vauban(command: str) -> str:
    done = CliRunner().invoke(app, shlex.split(command))
    assert done.exit_code == 0, f"exit {done.exit_code}\n{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout


def trained(model: str, data: str) -> str:
    """Train a model for one epoch; return the options by which it says it is loaded."""
    out = vauban(f"train {model} --data {data} {SMALL} --epochs 1 --validate 0 --out w.safetensors")
    return out.rpartition("certify with ")[2].strip()


def test_a_network_of_ones_own_is_trained_and_loaded_as_training_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_nets.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Sequential):\n    def __init__(self, width=8):\n"
        "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(784, width), torch.nn.Linear(width, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = trained("--model own_nets:Net:width=4", "mnist")
    assert options == "--model own_nets:Net:width=4 --weights w.safetensors"
    vauban(f"predict {options} --data mnist {SMALL} -n 100")


def test_a_table_of_features_gets_a_dense_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).random((40, 5), dtype=np.float32)
    np.savez("table.npz", images=x, labels=(x[:, 0] > 0.5).astype(np.int64))
    options = trained("", "npz:path=table.npz,classes=2")
    assert options == "--model w.safetensors"
    vauban(f"predict {options} --data npz:path=table.npz,classes=2 {SMALL} -n 100")


def test_a_denoiser_and_its_classifier_are_trained_and_ensembled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = trained("--model 'dncnn:depth=2,width=2 > wong-mnist'", "mnist")
    assert options == "--model w.safetensors"
    vauban(f"predict {options}+w.safetensors --data mnist {SMALL} -n 100")
