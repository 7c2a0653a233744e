"""Ensembles exist for every changed training set: what cannot be trained has a constant vote, and the manifest lists it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from vauban.errors import BadInput
from vauban.poisoning import ClusterEnsemble, Ensemble, ModuleTrainer, Partition, SklearnTrainer
from vauban.poisoning.training.failures import RULE
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
from vauban.runs.verify import verify_run

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(60, 1, 2, 3)).astype(np.float32), RNG.integers(0, 3, 60)
ASKED = RNG.normal(size=(9, 1, 2, 3)).astype(np.float32)
PARTITION = Partition(6)


def module() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3))


TRAINERS = {
    "neighbours": SklearnTrainer(KNeighborsClassifier(3), 3),
    "module": ModuleTrainer(module, 3, steps=3),
    "stacked": StackedTrainer("dense", 3, steps=4, batch=8, group=4, front="none", augment="none", views=1),
}


def with_sample(x: Any, y: float) -> tuple[np.ndarray, np.ndarray]:
    """The training set with one more sample, whatever its label makes of the type of the labels."""
    return np.concatenate([X, np.full((1, 1, 2, 3), x, dtype=np.float32)]), np.append(Y, y)


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize(("value", "label"), [(np.nan, 1), (np.inf, 0), (0.5, 3), (0.5, -1), (0.5, np.nan), (0.5, 0.5)])
def test_an_added_sample_that_makes_no_sense_fails_its_own_part_alone(name: str, value: float, label: float) -> None:
    trainer = TRAINERS[name]
    clean = Ensemble.fit(X, Y, PARTITION, trainer)
    x, y = with_sample(value, label)
    own = int(PARTITION.buckets(x[-1:])[0])
    with pytest.warns(UserWarning, match=f"base classifier {own} cannot be trained on its samples .*votes for class 0"):
        poisoned = Ensemble.fit(x, y, PARTITION, trainer)
    others = [i for i in range(6) if i != own]
    assert clean.failed == []
    assert poisoned.failed == poisoned.constant == poisoned.manifest["partition"]["failed"] == [own]
    assert poisoned.manifest["failure_rule"] == RULE
    assert np.array_equal(poisoned.scores(ASKED)[:, others], clean.scores(ASKED)[:, others])
    assert (poisoned.scores(ASKED)[:, own] == 0).all()
    assert (poisoned.votes(ASKED)[:, own] == 0).all()
    assert poisoned.fingerprints[own] == "failed"
    if name != "neighbours":
        assert [clean.fingerprints[i] for i in others] == [poisoned.fingerprints[i] for i in others]


def test_five_neighbours_of_three_samples() -> None:
    x, y = X[:3], np.array([0, 1, 2])
    with pytest.warns(UserWarning, match="n_neighbors"):
        ensemble = Ensemble.fit(x, y, Partition(1), SklearnTrainer(KNeighborsClassifier(5), 3))
    assert ensemble.failed == [0]
    assert (ensemble.certify(ASKED).answer == 0).all()


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.filterwarnings("ignore:.*base classifiers? ")
def test_training_sets_smaller_than_their_partition(name: str) -> None:
    whole = Ensemble.fit(X[:6], Y[:6], PARTITION, TRAINERS[name])
    gone = int(PARTITION.buckets(X[5:6])[0])
    fewer = Ensemble.fit(X[:5], Y[:5], PARTITION, TRAINERS[name])
    others = [i for i in range(6) if i != gone]
    assert np.array_equal(whole.scores(ASKED)[:, others], fewer.scores(ASKED)[:, others])
    nothing = Ensemble.fit(X[:0], Y[:0], PARTITION, TRAINERS[name])
    assert nothing.empty == list(range(6))
    assert (nothing.votes(ASKED) == 0).all()
    for by in ("sort", "pixel-sum"):
        eight_bit = np.zeros((0, 1, 2, 3), dtype=np.uint8)
        bare = Ensemble.fit(eight_bit, [], Partition(2, by=by), TRAINERS[name], preprocessing="equalise")
        assert bare.empty == [0, 1]


@pytest.mark.parametrize("spread", [1, 2])
def test_failed_parts_are_kept_in_the_folder_and_in_runs(spread: int, tmp_path: Path) -> None:
    trained: list[int] = []

    class Counting(ModuleTrainer):
        def _train(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            trained.append(len(x))
            if len(x) == size:
                raise ArithmeticError(f"{size} samples")
            return super()._train(x, y)

    partition, trainer = Partition(6 // spread, spread=spread), Counting(module, 3, steps=2)
    x, y = with_sample(np.nan, 0)
    sizes = [len(rows) for rows in partition.members(x, y)]
    bad = [i for i, rows in enumerate(partition.members(x, y)) if 60 in rows]
    size = next(size for i, size in enumerate(sizes) if i not in bad)
    failed = sorted({i for i in range(6) if sizes[i] == size} | set(bad))
    with pytest.warns(UserWarning, match="cannot be trained on their samples"):
        first = Ensemble.fit(x, y, partition, trainer, folder=tmp_path / "ens")
    assert first.failed == failed
    assert list(json.loads((tmp_path / "ens" / "failed.json").read_text())["failed"]) == [
        str(i) for i in failed if i not in bad
    ]
    before = len(trained)
    with pytest.warns(UserWarning, match="cannot be trained"):
        again = Ensemble.fit(x, y, partition, trainer, folder=tmp_path / "ens")
    assert len(trained) == before
    loaded = Ensemble.load(tmp_path / "ens", trainer=trainer)
    saved = Ensemble.load(tmp_path / "ens", trainer=trainer).save(tmp_path / "copy")
    assert first.manifest == again.manifest == loaded.manifest == saved.manifest
    assert Ensemble.load(tmp_path / "copy", trainer=trainer).manifest == first.manifest
    assert first.fingerprints == loaded.fingerprints == saved.fingerprints
    with pytest.warns(UserWarning, match="cannot be trained"):
        in_memory = Ensemble.fit(x, y, partition, trainer)
    for aggregate in ("plurality", "runoff"):
        certs = loaded.certify(ASKED, aggregate=aggregate, out=tmp_path / aggregate)
        assert np.array_equal(certs.radius, in_memory.certify(ASKED, aggregate=aggregate).radius, equal_nan=True)
        verify_run(tmp_path / aggregate)
        training = json.loads((tmp_path / aggregate / "manifest.json").read_text())["training"]
        assert training["partition"]["failed"] == failed
        assert training["failure_rule"] == RULE
    (tmp_path / "ens" / "failed.json").write_text("{")
    with pytest.warns(UserWarning, match="cannot be trained"):
        assert Ensemble.fit(x, y, partition, trainer, folder=tmp_path / "ens").manifest == first.manifest


def test_a_failure_on_an_input_is_a_constant_vote_for_it() -> None:
    """Neighbours refuse NaN in inputs too: every base classifier then votes 0 on that input, and on no other."""
    ensemble = Ensemble.fit(X, Y, PARTITION, TRAINERS["neighbours"])
    asked = ASKED.copy()
    asked[4, 0, 0, 0] = np.nan
    votes, clean = ensemble.votes(asked), ensemble.votes(ASKED)
    assert (votes[4] == 0).all()
    rest = [i for i in range(9) if i != 4]
    assert np.array_equal(votes[rest], clean[rest])


def test_settings_are_refused_whatever_the_samples_are() -> None:
    with pytest.raises(ValueError, match="n_neighbors"):
        SklearnTrainer(KNeighborsClassifier(-1), 3)
    with pytest.raises(ValueError, match="'C' parameter"):
        SklearnTrainer(LogisticRegression(C=-1.0), 3)
    for wrong in (lambda: torch.nn.Linear(5, 3), module):
        with pytest.raises(BadInput, match="the module"):
            Ensemble.fit(X, Y, PARTITION, ModuleTrainer(wrong, 4))


@pytest.mark.parametrize("problem", [MemoryError, OSError, KeyboardInterrupt])
def test_the_machine_stops_training(problem: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr(DecisionTreeClassifier, "fit", failing)
    with pytest.raises(problem):
        Ensemble.fit(X, Y, PARTITION, SklearnTrainer(DecisionTreeClassifier(), 3))


def test_a_label_that_is_no_class_costs_clusters_one_vote() -> None:
    x = RNG.integers(0, 256, size=(30, 1, 2, 2)).astype(np.uint8)
    y = (x.reshape(30, -1).mean(axis=1) > 128).astype(np.int64)
    clean = ClusterEnsemble.fit(x, y).certify(x)
    for label in (2, -1, np.nan):
        changed = y.astype(float)
        changed[7] = label
        with pytest.warns(UserWarning, match="1 of 30 base classifiers cannot be trained"):
            poisoned = ClusterEnsemble.fit(x, changed)
        assert len(poisoned.failed) == 1
        certs = poisoned.certify(x)
        assert (certs.counts.sum(axis=1) == 30).all()
        assert (np.abs(certs.counts - clean.counts) <= 1).all()
        assert (certs.answer == clean.answer)[clean.radius >= 1].all()
