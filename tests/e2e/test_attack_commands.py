"""vauban baseline and vauban poison attack through the command line."""

import csv
import json
from pathlib import Path

import pytest
from commands import vauban
from poison_commands import TINY
from typer.testing import CliRunner

from vauban.cli import app


def test_a_binarised_baseline_is_trained_and_attacked(tmp_path: Path) -> None:
    out = tmp_path / "b.safetensors"
    words = ["--model", "cnn-small", "--limit", "64", "--epochs", "1", "--device", "cpu", "--json"]
    said = json.loads(vauban("baseline", "binarised", "--out", out, *words))
    model = "vauban.attacks.baselines:binarised:network=cnn-small,channels=1,classes=10,size=28"
    assert said["load"] == f"--model {model} --weights {out}"
    options = ["--threat", "l0", "--attack", "pointwise:restarts=1", "--limit", "1", "--device", "cpu", "--json"]
    loaded = ["--model", model, "--weights", out]
    found = vauban("attack", "--smoothing", "none", *loaded, *options, "--out", tmp_path / "attack")
    assert json.loads(found[found.index("{") :])["found"] == 1


def test_a_model_alone_is_attacked_to_the_end_or_not_at_all(tmp_path: Path) -> None:
    words = [
        "attack",
        "--smoothing",
        "none",
        "--threat",
        "linf",
        "--limit",
        "1",
        "--budget",
        "1",
        "--device",
        "cpu",
        "--json",
    ]
    done = CliRunner().invoke(app, [*words, "--whole", "--out", str(tmp_path / "attack")])
    assert json.loads(done.stdout[done.stdout.index("{") :])["attacked"] == 0
    assert (
        "trained on views" not in done.stderr
    )  # there is no smoothing whose views the model could have been trained on


def test_a_baseline_is_refused_in_a_sentence(tmp_path: Path) -> None:
    out = tmp_path / "b.safetensors"
    assert "undefended" in vauban("baseline", "robust", "--out", out, code=2)
    assert "above zero" in vauban("baseline", "undefended", "--out", out, "--lr", "0", code=2)


@pytest.mark.slow
def test_a_training_set_is_poisoned_by_a_command(tmp_path: Path) -> None:
    ensemble, out = tmp_path / "ens", tmp_path / "attack"
    train = ["--data", "mnist", "--limit", "300", "--partitions", "4", "--model", TINY, "--device", "cpu"]
    vauban("poison", "train", *train, "--out", ensemble)
    inputs = ["--data", "mnist:split=test", "--limit", "1", "--device", "cpu", "--most", "16"]
    said = vauban("poison", "attack", "--ensemble", ensemble, *inputs, "--out", out, "--json")
    summary = json.loads(said[said.index("{") :])
    assert summary["inputs"] == 1
    assert summary["contradicted"] == 0
    (line,) = csv.DictReader((out / "table.csv").open())
    assert not line["found"] or int(line["found"]) >= int(line["certified"])
    wrong = ["--train-data", "mnist:split=test"]
    assert "not the training set" in vauban(
        "poison", "attack", "--ensemble", ensemble, *inputs, *wrong, "--out", out, code=2
    )


@pytest.mark.parametrize("change", ["shuffle"])
def test_an_unknown_change_is_refused(change: str, tmp_path: Path) -> None:
    assert vauban("poison", "attack", "--ensemble", tmp_path, "--change", change, "--out", tmp_path / "a", code=2)
