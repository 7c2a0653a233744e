"""Ensembles of scikit-learn classifiers: each part's own, kept in memory, resumed by nobody else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from vauban.data import load
from vauban.errors import BadInput, RunRefused
from vauban.poisoning import Ensemble, Partition, SklearnTrainer
from vauban.runs.verify import verify_run

DIGITS = load("mnist:split=test")
X, Y = DIGITS.images[:400, :, ::4, ::4].copy(), DIGITS.labels[:400]
TEST_X, TEST_Y = DIGITS.images[400:460, :, ::4, ::4].copy(), DIGITS.labels[400:460]


@pytest.mark.parametrize(
    "estimator",
    [KNeighborsClassifier(1), DecisionTreeClassifier(max_depth=4), RidgeClassifier()],
    ids=lambda e: type(e).__name__,
)
def test_any_scikit_learn_classifier(estimator: Any, tmp_path: Path) -> None:
    trainer = SklearnTrainer(estimator, 10)
    ensemble = Ensemble.fit(X, Y, Partition(7), trainer)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = Ensemble.fit(X[order], Y[order], Partition(7), trainer)
    votes = ensemble.votes(TEST_X)
    assert np.array_equal(votes, shuffled.votes(TEST_X))
    members = Partition(7).members(X, Y)
    from sklearn.base import clone

    own = clone(estimator)
    if "random_state" in own.get_params():
        own.set_params(random_state=3)
    own.fit(X[members[3]].reshape(len(members[3]), -1), Y[members[3]])
    assert np.array_equal(votes[:, 3], own.predict(TEST_X.reshape(60, -1)))
    assert ensemble.certify(TEST_X, TEST_Y).clean_accuracy > 0.3
    with pytest.raises(BadInput, match=r"ensemble\.save\(folder\) afterwards"):
        Ensemble.fit(X, Y, Partition(7), trainer, folder=tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
def test_scikit_learn_through_joblib_is_the_same() -> None:
    one = Ensemble.fit(X, Y, Partition(6), SklearnTrainer(DecisionTreeClassifier(), 10))
    two = Ensemble.fit(X, Y, Partition(6), SklearnTrainer(DecisionTreeClassifier(), 10, jobs=2))
    assert np.array_equal(one.votes(TEST_X), two.votes(TEST_X))


def test_a_part_of_one_class_votes_for_it() -> None:
    x, y = X[Y == 4][:12], np.full(12, 4)
    ensemble = Ensemble.fit(x, y, Partition(3), SklearnTrainer(RidgeClassifier(), 10))
    assert (ensemble.votes(TEST_X) == 4).all()
    for empty in (TEST_X[:0], []):
        with pytest.raises(BadInput, match="inputs are empty, of shape .*: one input or more is needed"):
            ensemble.certify(empty)


def test_votes_of_models_that_nobody_can_name_are_resumed_by_their_own_ensemble_alone(tmp_path: Path) -> None:
    trainer = SklearnTrainer(RidgeClassifier(), 10)
    first, second = (Ensemble.fit(X, Y, Partition(4), trainer) for _ in range(2))
    assert first.weights_sha256 == "unknown"
    plain, calls = SklearnTrainer.scores, []

    def stopping(self: SklearnTrainer, weights: list[Any], x: np.ndarray) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(self, weights, x)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SklearnTrainer, "scores", stopping)
        with pytest.raises(KeyboardInterrupt):
            first.certify(TEST_X, TEST_Y, out=tmp_path)
    with pytest.raises(RunRefused, match="votes of another run"):
        second.certify(TEST_X, TEST_Y, out=tmp_path)
    certs = first.certify(TEST_X, TEST_Y, out=tmp_path)
    assert np.array_equal(certs.radius, first.certify(TEST_X, TEST_Y).radius)
    assert verify_run(tmp_path).inputs == 60


def test_an_ensemble_exists_when_samples_are_taken_away() -> None:
    """Five neighbours are too many for four samples: that part votes for class 0, and no other vote changes."""
    trainer, partition = SklearnTrainer(KNeighborsClassifier(5), 10), Partition(3)
    rows = [members[:5] for members in partition.members(X, Y)]
    chosen = np.concatenate(rows)
    whole = Ensemble.fit(X[chosen], Y[chosen], partition, trainer).votes(TEST_X)
    fewer = np.setdiff1d(chosen, rows[1][:1])
    with pytest.warns(UserWarning, match="base classifier 1 cannot be trained .*n_neighbors.*votes for class 0"):
        poisoned = Ensemble.fit(X[fewer], Y[fewer], partition, trainer).votes(TEST_X)
    assert np.array_equal(poisoned[:, [0, 2]], whole[:, [0, 2]])
    assert (poisoned[:, 1] == 0).all()
    assert (whole[:, 1] != 0).any()


def test_wrong_parameters_are_nobodys_samples() -> None:
    with pytest.raises(ValueError, match="n_neighbors"):
        Ensemble.fit(X, Y, Partition(3), SklearnTrainer(KNeighborsClassifier(-1), 10))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="not a known way to seed"):
        SklearnTrainer(RidgeClassifier(), 10, seeds="odd")
