"""Attacks on standardised tables: distances in standardised units, inputs in those of the table, each standardised once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.attacks.targets import BaseTarget, SmoothedTarget
from vauban.cli import app
from vauban.errors import RunRefused
from vauban.inputs import prepare

SMALL: dict[str, Any] = {"views": 16, "votes": 400, "confirm_votes": 2_000, "seed": 1, "progress": False}
CENTRE, SPREAD = np.array([700.0, -3.0]), np.array([300.0, 0.01])
"""Standardised twice, features of such a table all lie on one side of the class boundary."""


def table(rows: int, seed: int) -> np.ndarray:
    return (CENTRE + SPREAD * np.random.default_rng(seed).normal(size=(rows, 2))).astype(np.float32)


def halves() -> torch.nn.Linear:
    """Class 1 where the standardised features have a sum above 0."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
        model.bias.zero_()
    return model


def world() -> tuple[vb.SmoothedClassifier, np.ndarray, np.ndarray]:
    """A classifier of a table, with eight rows of both classes near their boundary."""
    by = vb.Standardisation.of(table(200, seed=0))
    model, x = halves(), table(200, seed=1)
    scaled = by.applied(x).sum(axis=1)
    x = np.concatenate([x[(scaled > 0.3) & (scaled < 1)][:4], x[(scaled < -0.3) & (scaled > -1)][:4]])
    smoothed = vb.SmoothedClassifier(
        model, "gaussian:sigma=0.25", num_classes=2, input_range=None, standardise=by, arithmetic="float"
    )
    return smoothed, x, (by.applied(x).sum(axis=1) > 0).astype(np.int64)


def exact(smoothed: vb.SmoothedClassifier, x: np.ndarray) -> np.ndarray:
    """The distance of every row to the boundary, in standardised units."""
    assert smoothed.standardise is not None
    return np.asarray(np.abs(smoothed.standardise.applied(x).sum(axis=1)) / np.sqrt(2))


def test_candidates_are_standardised_once_and_saved_in_units_of_the_table(tmp_path: Path) -> None:
    smoothed, x, y = world()
    certs = smoothed.certify(x, y, n=5_000, seed=1, progress=False)
    found = vb.attack(smoothed, x, y, certificates=certs, attacks="minimal:steps=30", out=tmp_path / "a", **SMALL)
    assert not found.alarms
    assert np.isfinite(found.distance).all()  # of both classes
    assert (found.distance > 0).all()
    assert np.abs(found.distance / exact(smoothed, x) - 1).max() < 0.4
    kept = found.adversarial()
    assert np.array_equal(kept["answer"][:, 0], 1 - y)
    answers = smoothed.predict(kept["images"], n=5_000, seed=9, progress=False)
    assert [labels[0] for labels in answers if labels] == (1 - y).tolist()
    by = smoothed.standardise
    assert by is not None
    assert np.allclose(found.originals, x, rtol=1e-6)
    far = np.linalg.norm(by.applied(kept["images"]).astype(float) - by.applied(x), axis=1)
    assert np.allclose(far, found.distance, rtol=1e-9)
    again = vb.attack(smoothed, x, y, certificates=certs, attacks="minimal:steps=30", out=tmp_path / "a", **SMALL)
    assert np.array_equal(again.adversarial()["images"], kept["images"])


def test_a_folder_without_the_statistics_is_not_continued(tmp_path: Path) -> None:
    smoothed, x, y = world()
    options = SMALL | {"attacks": "minimal:steps=3", "limit": 1, "out": tmp_path}
    vb.attack(smoothed, x, y, **options)
    settings = json.loads((tmp_path / "attack.json").read_text())
    del settings["standardised"]
    (tmp_path / "attack.json").write_text(json.dumps(settings))
    with pytest.raises(RunRefused, match="standardised"):
        vb.attack(smoothed, x, y, **options)


def test_an_alarm_is_seen_again_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smoothed, x, y = world()
    by = smoothed.standardise
    assert by is not None
    np.savez(tmp_path / "train.npz", images=table(200, seed=0), labels=np.arange(200) % 2)
    by = replace(by, source=f"npz:path={tmp_path / 'train.npz'},classes=2")
    smoothed.standardise = by
    (tmp_path / "halves_of_a_table.py").write_text(
        "import torch\n\ndef fitted():\n    model = torch.nn.Linear(2, 2)\n    with torch.no_grad():\n"
        "        model.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))\n        model.bias.zero_()\n    return model\n"
    )
    certs = smoothed.certify(x, y, n=5_000, seed=1, progress=False)
    false = replace(certs, radius=2 * certs.radius)
    options = SMALL | {"attacks": "minimal:steps=30", "out": tmp_path / "a"}
    called = "--model halves_of_a_table:fitted"
    monkeypatch.syspath_prepend(tmp_path)
    found = vb.attack(smoothed, x, y, certificates=false, called=called, **options)
    assert len(found.alarms) == len(x)
    said = json.loads((tmp_path / "a/alarm/alarm.json").read_text())
    assert f"--input-range none --standardise {by.source}" in said["command"]
    words = said["command"].split()
    with np.load(tmp_path / "a/alarm/adversarial.npz") as kept:
        settings: dict[str, Any] = {
            "n": int(words[words.index("-n") + 1]),
            "seed": int(words[words.index("--seed") + 1]),
        }
        again = smoothed.predict(kept["images"], alpha=1e-6, progress=False, **settings)
        assert np.array_equal(again.counts, said["counts"])
    done = CliRunner().invoke(app, [*words[1:], "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output[done.output.index("{") :])["correct"] == 0


def test_a_base_classifier_alone_is_attacked_in_standardised_units() -> None:
    smoothed, x, y = world()
    read: dict[str, Any] = {"input_range": None, "standardise": smoothed.standardise}
    found = vb.attack(
        smoothed.base.module, x, y, num_classes=2, threat="l2", attacks="minimal:steps=30", **read, **SMALL
    )
    assert np.allclose(found.distance, exact(smoothed, x), rtol=0.05)
    assert np.allclose(found.originals, x, rtol=1e-6)


def test_targets_confirm_inputs_in_both_units() -> None:
    smoothed, x, y = world()
    scaled = prepare(x, "float", None, by=smoothed.standardise).values
    base = BaseTarget(smoothed.base.module, 2, levels=None, input_range=None, standardise=smoothed.standardise)
    for target in (SmoothedTarget(smoothed, scaled.shape[1:], levels=None), base):
        for one in (scaled, x):
            assert np.array_equal(target.confirm(one, seed=1)[0][:, 0], y)


def test_the_module_takes_standardised_features() -> None:
    smoothed, x, y = world()
    assert smoothed.standardise is not None
    smoothed.arithmetic = "auto"
    module = smoothed.as_module(samples=200, seed=1)
    assert module.levels is None
    scaled = smoothed.standardise.applied(x)
    assert np.array_equal(module(torch.from_numpy(scaled)).argmax(dim=1).numpy(), y)
    assert np.allclose(smoothed.standardise.undone(scaled), x, rtol=1e-6)
