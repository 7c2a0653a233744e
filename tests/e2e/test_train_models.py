"""Models of one's own, tables of features and composed models, from training to an answer, through the command line."""

import shlex
from pathlib import Path
from typing import Any

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
    return out.rpartition("certify with ")[2].splitlines()[0]


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


def make_data() -> None:
    """A file of pictures, a table, a second table of the same features, and a folder of pictures."""
    from PIL import Image

    draw = np.random.default_rng(0)
    pictures, y = draw.integers(0, 256, (40, 1, 8, 8), dtype=np.uint8), np.arange(40) % 2
    np.savez("pictures.npz", images=pictures, labels=y)
    for name in ("table", "others"):
        rows = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}" for a, b in draw.normal(size=(40, 2))]
        Path(f"{name}.csv").write_text("\n".join(["a,b,answer", *rows, ""]))
    for i, (picture, label) in enumerate(zip(pictures[:, 0], y, strict=True)):
        Path(f"folder/class{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.stack([picture] * 3, axis=2)).save(f"folder/class{label}/{i}.png")


def slow(*values: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ("mnist", "--model mlp:width=4", "--data mnist:split=test"),
        slow("mnist:split=train", "--model 'mlp:width=4 + mlp:width=6'", "--data mnist:split=test"),
        slow("npz:path=pictures.npz", "", "(these are the inputs of the training"),
        slow("table:path=table.csv,label=answer", "", "(these are the inputs of the training"),
        ("table:path=table.csv,label=answer", "--standardise", "--data DATA"),
        (
            "table:path=table.csv,label=answer,split=train",
            "--standardise",
            "--data table:path=table.csv,label=answer,split=test",
        ),
        slow("images:path=folder", "--model resnet18:width=2", "(these are the inputs of the training"),
    ],
)
def test_the_next_command_that_training_prints_works(
    data: str, options: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    make_data()
    told = vauban(f"train {options} --data {data} {SMALL} --epochs 1 --validate 0 --out w.safetensors")
    assert said in told
    command = told.rpartition("next: vauban ")[2].splitlines()[0].replace("DATA", "table:path=others.csv,label=answer")
    assert "--smoothing gaussian:sigma=0.25 -n 1000 --limit 100 --out runs/w" in command
    assert "certified" in vauban(f"{command} --limit 2 -n 100")
    vauban("verify runs/w")
