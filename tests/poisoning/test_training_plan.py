"""Time, memory and disk of a training before it begins."""

from pathlib import Path

import numpy as np
import torch
from sklearn.tree import DecisionTreeClassifier

import vauban as vb

X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def test_weights_of_a_plan_are_those_of_the_folder(tmp_path: Path) -> None:
    module = torch.nn.Linear(4, 2)
    plan = vb.Ensemble.plan(X, Y, partitions=2, learner=module)
    ensemble = vb.Ensemble.fit(X, Y, partitions=2, learner=module, folder=tmp_path / "ens")
    assert plan.models == 2
    assert plan.weights == sum(t.nbytes for group in ensemble.groups for t in group.weights().values())
    assert plan.seconds > 0
    assert plan.memory is not None
    assert plan.memory > X.nbytes
    split = ensemble.manifest["partition"]
    assert (plan.smallest, plan.largest, plan.empty) == (split["smallest"], split["largest"], len(split["empty"]))


def test_models_of_another_library_have_a_time_but_no_known_size() -> None:
    plan = vb.Ensemble.plan(X, Y, partitions=7, learner=DecisionTreeClassifier())
    assert plan.weights is None
    assert plan.memory is None
    assert plan.seconds > 0
    assert vb.Ensemble.plan(X[:0], Y[:0], partitions=3, learner=DecisionTreeClassifier()).tried == 0


def test_a_plan_from_the_command_line_writes_nothing(tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    from vauban.cli import app

    pictures = np.random.default_rng(0).integers(0, 256, (20, 1, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "train.npz", images=pictures, labels=np.arange(20) % 2)
    data = f"npz:path={tmp_path}/train.npz,classes=2"
    options = ["--partitions", "4", "--model", "tiny-cnn:steps=2,views=1,batch=8,group=2", "--device", "cpu", "--plan"]
    command = ["poison", "train", "--data", data, *options, "--out", str(tmp_path / "e")]
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert found["models"] == 4
    assert found["weights"] > 0
    assert "disk:" in CliRunner().invoke(app, command).stdout
    assert not (tmp_path / "e").exists()
