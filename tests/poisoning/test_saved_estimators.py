"""Saved ensembles of scikit-learn classifiers vote as those in memory do; altered and untrusted files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from vauban.errors import BadInput, Incomplete, Lie
from vauban.files import read_json, sha256, write_json
from vauban.poisoning import Ensemble
from vauban.poisoning.part_replay import replay_parts

TREE = "sklearn.tree._tree.Tree"


def samples(number: int = 120, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, number)
    return rng.normal(size=(number, 4)) + y[:, None], y


X, Y = samples()
INPUTS, LABELS = samples(30, 1)


def fitted(learner: Any, partitions: int = 6) -> Ensemble:
    return Ensemble.fit(X, Y, partitions=partitions, learner=learner, num_classes=3, progress=False)


@pytest.mark.parametrize("learner", [make_pipeline(StandardScaler(), LogisticRegression(C=0.5)), GaussianNB()])
def test_a_saved_ensemble_votes_as_the_one_in_memory(learner: Any, tmp_path: Path) -> None:
    ensemble = fitted(learner)
    saved = ensemble.save(tmp_path / "ens")
    loaded = Ensemble.load(tmp_path / "ens")
    assert (loaded.scores(INPUTS) == ensemble.scores(INPUTS)).all()
    assert loaded.trainer.spec == ensemble.trainer.spec
    assert loaded.weights_sha256 == saved.weights_sha256 != "unknown"
    assert not list((tmp_path / "ens").glob("*.pkl"))


def test_parts_of_one_class_and_constant_votes_are_kept(tmp_path: Path) -> None:
    x, y = X.copy(), np.where(np.arange(len(Y)) % 20 == 0, Y, 0)
    x[3] = np.nan
    with pytest.warns(UserWarning, match="cannot be trained"):
        ensemble = Ensemble.fit(x, y, partitions=30, learner=GaussianNB(), num_classes=3, progress=False)
    assert any(isinstance(model, int) for group in ensemble.groups for model in group.weights())
    ensemble.save(tmp_path / "ens")
    loaded = Ensemble.load(tmp_path / "ens")
    assert loaded.failed == ensemble.failed != []
    assert (loaded.votes(INPUTS) == ensemble.votes(INPUTS)).all()


def test_types_that_skops_does_not_trust_are_refused_until_they_are_named(tmp_path: Path) -> None:
    ensemble = fitted(DecisionTreeClassifier())
    with pytest.warns(UserWarning, match=rf"trust=\['{TREE}'\]"):
        saved = ensemble.save(tmp_path / "ens")
    assert (saved.votes(INPUTS) == ensemble.votes(INPUTS)).all()
    with pytest.raises(BadInput, match=r"Ensemble\.load\(folder, trust="):
        Ensemble.load(tmp_path / "ens").votes(INPUTS)
    assert (Ensemble.load(tmp_path / "ens", trust=[TREE]).votes(INPUTS) == ensemble.votes(INPUTS)).all()


def test_commands_trust_the_types_that_they_are_given(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from vauban.cli import app

    def run(*words: object) -> Any:
        return CliRunner().invoke(app, [str(word) for word in words])

    np.savez(tmp_path / "test.npz", images=INPUTS.astype(np.float32), labels=LABELS)
    np.savez(tmp_path / "train.npz", images=X.astype(np.float32), labels=Y)
    with pytest.warns(UserWarning, match=TREE):
        Ensemble.fit(
            X.astype(np.float32), Y, partitions=6, learner=DecisionTreeClassifier(), num_classes=3, progress=False
        ).save(tmp_path / "ens")
    data = ("--ensemble", tmp_path / "ens", "--data", f"npz:path={tmp_path}/test.npz,classes=3", "--limit", "2")
    certify = ("poison", "certify", *data, "--device", "cpu", "--out", tmp_path / "run")
    assert f"--trust {TREE} to the command" in run(*certify).stderr
    assert run(*certify, "--trust", TREE).exit_code == 0
    training = f"npz:path={tmp_path}/train.npz,classes=3"
    attack = ("poison", "attack", *data, "--train-data", training, "--most", "2", "--out", tmp_path / "attack")
    assert run(*attack).exit_code == 2
    assert run(*attack, "--trust", TREE).exit_code == 0
    replay = ("verify", tmp_path / "run", "--replay", "--ensemble", tmp_path / "ens", "--training", training)
    assert run(*replay).exit_code == 2
    assert run(*replay, "--trust", TREE).exit_code == 0


def test_altered_files_are_refused(tmp_path: Path) -> None:
    ensemble = fitted(GaussianNB()).save(tmp_path / "ens")
    first = tmp_path / "ens" / "models-000000.skops"
    content = first.read_bytes()
    first.write_bytes((tmp_path / "ens" / "models-000001.skops").read_bytes())
    with pytest.raises(Lie, match="sha256 differs"):
        ensemble.votes(INPUTS)
    with pytest.raises(Incomplete, match="lacks 1 of its 6"):
        Ensemble.load(tmp_path / "ens")
    first.write_bytes(content)
    Ensemble.load(tmp_path / "ens")


def test_another_learner_beside_the_models_is_refused(tmp_path: Path) -> None:
    fitted(GaussianNB()).save(tmp_path / "ens")
    other = Ensemble.fit(X, Y, partitions=6, learner=GaussianNB(var_smoothing=1.0), num_classes=3, progress=False)
    other.save(tmp_path / "other")
    content = (tmp_path / "other" / "learner.skops").read_bytes()
    (tmp_path / "ens" / "learner.skops").write_bytes(content)
    with pytest.raises(Lie, match="sha256 differs"):
        Ensemble.load(tmp_path / "ens")
    note = tmp_path / "ens" / "learner.json"
    write_json(note, {**read_json(note), "sha256": sha256(content)})
    with pytest.raises(Lie, match="not the learner that the manifest describes"):
        Ensemble.load(tmp_path / "ens")


def test_a_run_of_a_saved_ensemble_is_replayed(tmp_path: Path) -> None:
    learner = make_pipeline(StandardScaler(), LogisticRegression())
    in_memory = fitted(clone(learner))
    in_memory.certify(INPUTS, LABELS, out=tmp_path / "before", progress=False)
    in_memory.save(tmp_path / "ens")
    loaded = Ensemble.load(tmp_path / "ens")
    loaded.certify(INPUTS, LABELS, out=tmp_path / "after", progress=False)
    for run in ("before", "after"):
        found = replay_parts(tmp_path / run, ensemble=tmp_path / "ens", data=(INPUTS, LABELS), training=(X, Y))
        assert found.replayed == list(range(6))


class Foreign:
    """A trainer of another library, whose models are neither weights nor scikit-learn's."""

    num_classes, spec = 3, {"trainer": "foreign"}

    def fit(self, parts: Any, numbers: Any, on_progress: Any = None) -> Any:
        yield list(numbers), [object() for _ in numbers]

    def scores(self, weights: Any, x: Any) -> Any:
        return torch.zeros(len(weights), len(x), 3)


def test_models_of_other_libraries_stay_in_memory(tmp_path: Path) -> None:
    ensemble = Ensemble.fit(X, Y, partitions=6, learner=Foreign(), progress=False)
    with pytest.raises(BadInput, match="another library"):
        ensemble.save(tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_folder_while_fitting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ensemble\.save\(folder\) afterwards"):
        Ensemble.fit(X, Y, partitions=6, learner=GaussianNB(), num_classes=3, folder=tmp_path / "ens", progress=False)
