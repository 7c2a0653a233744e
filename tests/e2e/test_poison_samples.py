"""vauban poison on unusual training samples: torn or flipped labels, empty parts, samples nobody can train on."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from poison_commands import TEST, TINY
from typer.testing import CliRunner

from vauban.cli import app
from vauban.data import load
from vauban.poisoning import Ensemble, Partition


@pytest.mark.filterwarnings("ignore:4 training samples")
def test_torn_labels_and_empty_parts_are_said(tmp_path: Path) -> None:
    digits = load("mnist:split=train")
    x = np.concatenate([digits.images[:30], digits.images[:2]])
    y = np.concatenate([digits.labels[:30], (digits.labels[:2] + 1) % 10])
    np.savez(tmp_path / "d.npz", images=x, labels=y)
    command = ["poison", "train", "--data", f"npz:path={tmp_path}/d.npz,classes=10", "-p", "25", "--model", TINY]
    done = CliRunner().invoke(app, [*command, "--device", "cpu", "--out", str(tmp_path / "ens")])
    assert done.exit_code == 0, done.stderr
    assert "note: 4 training samples share their input with others of another label" in done.stderr
    assert "base classifiers have no training samples: by rule they vote for class 0" in done.stderr
    parts = Partition(25).members(x, y)
    empty = [i for i, part in enumerate(parts) if not len(part)]
    assert (Ensemble.load(tmp_path / "ens").votes(x[:3])[:, empty] == 0).all()


@pytest.mark.slow
def test_shared_features_and_one_flipped_label(tmp_path: Path) -> None:
    digits = load("mnist:split=train")
    flipped = digits.labels[:100].copy()
    flipped[17] = (flipped[17] + 1) % 10
    heads = "linear:learning_epochs=1,learning_batch=50,steps=6,group=4,views=1"
    for name, labels in (("clean", digits.labels[:100]), ("flipped", flipped)):
        np.savez(tmp_path / f"{name}.npz", images=digits.images[:100], labels=labels)
        data = f"npz:path={tmp_path}/{name}.npz,classes=10"
        command = ["poison", "train", "--data", data, "-p", "4", "--model", heads, "--device", "cpu"]
        vauban(*command, "--defense", "ss-dpa:features=rotnet", "--out", tmp_path / name)
    clean, other = Ensemble.load(tmp_path / "clean"), Ensemble.load(tmp_path / "flipped")
    assert sum(a != b for a, b in zip(clean.fingerprints, other.fingerprints, strict=True)) == 1
    shared = clean.trainer.shared  # type: ignore[attr-defined]
    assert shared
    assert all((shared[name] == value).all() for name, value in other.trainer.shared.items())  # type: ignore[attr-defined]
    vauban("poison", "certify", "-e", tmp_path / "clean", *TEST, "--out", tmp_path / "run")
    assert "relabelled" in vauban("verify", tmp_path / "run")


def test_samples_that_nobody_can_train_on_are_said(tmp_path: Path) -> None:
    """More parts than samples, NaN and a label that is no class: an ensemble is trained, certified and verified."""
    x = np.random.default_rng(0).random((30, 1, 8, 8), dtype=np.float32)
    y = np.arange(30) % 3
    x[4, 0, 0, 0], y[9] = np.nan, 7
    np.savez(tmp_path / "d.npz", images=x, labels=y)
    np.savez(tmp_path / "t.npz", images=x[10:20], labels=y[10:20])
    command = [
        "poison",
        "train",
        "--data",
        f"npz:path={tmp_path}/d.npz,classes=3",
        "-p",
        "40",
        "--model",
        TINY,
        "--json",
    ]
    done = CliRunner().invoke(app, [*command, "--device", "cpu", "--out", str(tmp_path / "ens")])
    assert done.exit_code == 0, done.stderr
    assert "cannot be trained on their samples" in done.stderr
    failed = sorted({int(Partition(40).buckets(x[i : i + 1])[0]) for i in (4, 9)})
    assert json.loads(done.stdout)["failed"] == failed
    certify = ["poison", "certify", "-e", tmp_path / "ens", "--data", f"npz:path={tmp_path}/t.npz,classes=3"]
    vauban(*certify, "--device", "cpu", "--out", tmp_path / "run")
    assert "all hold" in vauban("verify", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["training"]["partition"]["failed"] == failed
    refused = ["poison", "certify", "-e", tmp_path / "ens", "--data", f"npz:path={tmp_path}/d.npz,classes=3"]
    assert "holds NaN" in vauban(*refused, "--out", tmp_path / "x", code=2)
