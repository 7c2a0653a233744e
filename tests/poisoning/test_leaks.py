"""Ways in which one poisoned sample once reached other base classifiers than its own, or a claim more than was proven."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput
from vauban.laws.poisoning.finite import spread_offsets
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.votes.certificates import training_scope, wording
from vauban.poisoning.votes.ensemble_votes import THREATS
from vauban.poisoning.votes.votes_file import read_votes_file

RNG = np.random.default_rng(5)
PARTS = [(RNG.normal(size=(30, 4)), RNG.integers(0, 3, 30)) for _ in range(6)]


@pytest.mark.parametrize(
    "estimator",
    [SGDClassifier(), make_pipeline(StandardScaler(), SGDClassifier()), OneVsRestClassifier(SGDClassifier())],
)
def test_a_poisoned_part_changes_no_other_classifier(estimator: object) -> None:
    trainer, x = SklearnTrainer(estimator, 3), RNG.normal(size=(200, 4))

    def votes(parts: list[tuple[np.ndarray, np.ndarray]]) -> list[bytes]:
        fitted = [found for _, [found] in trainer.fit(parts, range(len(parts)))]
        return [trainer.scores([one], x).numpy().tobytes() for one in fitted]

    poisoned = [(np.concatenate([PARTS[0][0]] * 3), np.concatenate([PARTS[0][1]] * 3)[::-1].copy()), *PARTS[1:]]
    state = np.random.get_state()[1].tobytes()
    clean, after = votes(PARTS), votes(poisoned)
    assert clean[1:] == after[1:]
    assert clean == votes(PARTS)
    assert np.random.get_state()[1].tobytes() == state


def test_the_number_of_classes_is_not_read_off_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", images=np.zeros((20, 1, 4, 4), dtype=np.uint8), labels=np.arange(20) % 2)
    command = ["poison", "train", "--partitions", "2", "--model", "dense:steps=2", "--out", str(tmp_path / "ens")]
    data = f"npz:path={tmp_path / 'd.npz'}"
    refused = CliRunner().invoke(app, [*command, "--data", data])
    assert refused.exit_code == 2
    assert "one poisoned label could change every base classifier" in refused.stderr
    assert CliRunner().invoke(app, [*command, "--data", f"{data},classes=2"]).exit_code == 0


def votes_file(path: Path, **arrays: object) -> Path:
    votes = np.array([[0] * 4 + [1] * 2])
    np.savez(path, **{"votes": votes, "labels": np.array([0]), "num_classes": 2, **arrays})
    return path


def test_shared_buckets_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="which buckets each model was trained on"):
        read_votes_file(votes_file(tmp_path / "a.npz", spread=2, threat="samples"))
    with pytest.raises(BadInput, match="spread_offsets"):
        read_votes_file(votes_file(tmp_path / "b.npz", spread=2, threat="samples", offsets=np.array([0, 0])))
    right = read_votes_file(votes_file(tmp_path / "c.npz", spread=2, threat="samples", offsets=spread_offsets(6, 2)))
    assert right.votes.spread == 2


@pytest.mark.parametrize(
    ("inside", "asked"),
    [
        ({"spread": 2, "offsets": spread_offsets(6, 2)}, {"spread": 1}),
        ({"training": json.dumps({"defense": "ss-dpa:features=none"})}, {"against": "samples"}),
        (
            {"training": json.dumps({"defense": "finite:spread=2", "partition": "hash:partitions=3,spread=2"})},
            {"defense": "dpa"},
        ),
        ({"training": json.dumps({"defense": 5})}, {}),
        ({"num_classes": 10**9}, {"defense": "dpa"}),
    ],
)
def test_files_and_options_must_not_contradict_each_other(tmp_path: Path, inside: dict, asked: dict) -> None:
    with pytest.raises(BadInput):
        read_votes_file(votes_file(tmp_path / "v.npz", **inside), **asked)


def test_a_claim_says_which_part_of_a_data_set_it_is_about() -> None:
    threat = THREATS["labels"]
    assert "1,7" in wording(threat, "plurality", 1, training_scope({"data": {"classes": "1,7"}}))
    assert "by position" in wording(threat, "plurality", 1, training_scope({"data": {"every": 2}}))
    for whole in ({"data": {"classes": None, "every": 1, "limit": None}}, {"data": "mnist:split=train"}, {}, None):
        assert training_scope(whole) == ""
