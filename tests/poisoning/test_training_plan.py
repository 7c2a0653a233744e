"""Time, memory and disk of a training before it begins."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier

import vauban as vb
from vauban.cli.poison_output import note_after
from vauban.poisoning import SklearnTrainer
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer

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


def test_a_plan_multiplies_the_time_of_a_part_not_that_of_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that each part moves by one second, and a hash of the whole set by a thousand."""
    now = [0.0]
    monkeypatch.setattr("vauban.poisoning.training_plan.time.perf_counter", lambda: now[0])
    original = SklearnTrainer.fit

    def timed(self: SklearnTrainer, parts: Any, *rest: Any) -> Any:
        now[0] += len(parts)
        return original(self, parts, *rest)

    def hashed(*given: Any) -> str:
        now[0] += 1000
        return "0" * 64

    monkeypatch.setattr(SklearnTrainer, "fit", timed)
    monkeypatch.setattr("vauban.poisoning.training.fitting.set_sha256", hashed)
    plan = vb.Ensemble.plan(X, Y, partitions=30, learner=DecisionTreeClassifier())
    assert plan.tried == 3
    assert plan.seconds == pytest.approx(plan.models - plan.empty)


def test_a_plan_from_the_command_line_writes_nothing(tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    from vauban.cli import app

    pictures = np.random.default_rng(0).integers(0, 256, (20, 1, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "train.npz", images=pictures, labels=np.arange(20) % 2)
    data = f"npz:path={tmp_path}/train.npz,classes=2"
    options = ["--partitions", "4", "--model", "tiny-cnn:steps=2,views=1,batch=8,group=2", "--device", "cpu", "--plan"]
    command = ["poison", "train", "--data", data, *options]
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert found["models"] == 4
    assert found["weights"] > 0
    assert "disk:" in CliRunner().invoke(app, [*command, "--out", str(tmp_path / "e")]).stdout
    assert sorted(tmp_path.iterdir()) == [tmp_path / "train.npz"]
    missing = CliRunner().invoke(app, [one for one in command if one != "--plan"])
    assert missing.exit_code == 2
    assert "--out is needed" in missing.stderr


def test_a_plan_of_a_recipe_trains_one_group_for_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    original = StackedTrainer._train_group

    def counted(self: StackedTrainer, parts: Any, *rest: Any) -> Any:
        seen.append((self.steps, len(parts)))
        return original(self, parts, *rest)

    monkeypatch.setattr(StackedTrainer, "_train_group", counted)
    trainer = StackedTrainer(
        "dense", 2, steps=100_000, batch=8, group=20, front="none", augment="none", views=1, normalise="fixed"
    )
    x = X.reshape(120, 1, 2, 2)
    plan = vb.Ensemble.plan(x, Y, partitions=60, learner=trainer)
    assert seen == [(steps, plan.tried) for steps in (1, 2, 14)]
    sizes = [len(rows) for rows in vb.Partition(60).members(x, Y)]
    assert plan.tried in {sum(size > 0 for size in sizes[i : i + 20]) for i in (0, 20, 40)}
    assert plan.seconds > 0
    assert plan.weights is not None
    x[0] = np.nan
    assert vb.Ensemble.plan(x, Y, partitions=60, learner=trainer).tried > 1


@pytest.mark.parametrize(("partitions", "group"), [(1, 20), (40, 1)])
def test_a_plan_of_a_recipe_multiplies_the_time_of_a_step(
    partitions: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that each step moves by one second, and the preparation of a group by ten."""
    now = [0.0]
    monkeypatch.setattr("vauban.poisoning.training_plan.time.perf_counter", lambda: now[0])

    def trained(self: StackedTrainer, parts: Any, *rest: Any) -> Any:
        now[0] += 10 + self.steps
        return list(parts), {"w": torch.zeros(len(parts), 3)}

    monkeypatch.setattr(StackedTrainer, "_train_group", trained)
    trainer = StackedTrainer("dense", 2, steps=60, batch=8, group=group, front="none", augment="none", views=1)
    plan = vb.Ensemble.plan(
        np.zeros((120, 1, 2, 2)) + np.arange(120).reshape(120, 1, 1, 1), Y, partitions=partitions, learner=trainer
    )
    used = plan.models - plan.empty
    at_once = torch.get_num_threads()
    assert plan.tried == 1
    assert plan.seconds == pytest.approx(70 * -(-used // at_once))


def test_a_note_appears_once_work_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    with note_after(60, "never"):
        pass
    with note_after(0, "soon"):
        deadline, shown = time.monotonic() + 60, ""
        while "soon" not in shown and time.monotonic() < deadline:
            shown += capsys.readouterr().err
            time.sleep(0.01)
    assert shown == "soon\n"
