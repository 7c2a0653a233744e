"""Ways in which one poisoned sample once reached other base classifiers than its own, or a claim more than was proven."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput, NotRepeated
from vauban.laws.poisoning.finite import spread_offsets
from vauban.poisoning import Ensemble
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.training.stacked.trunks import learned_before
from vauban.poisoning.training.torch_module import ModuleTrainer
from vauban.poisoning.votes.certificates import training_scope, wording
from vauban.poisoning.votes.ensemble_votes import THREATS
from vauban.poisoning.votes.votes_file import read_votes_file
from vauban.training import train

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


def test_the_number_of_classes_of_a_recipe_is_given() -> None:
    x, y = RNG.normal(size=(30, 4)).astype(np.float32), RNG.integers(0, 3, 30)
    with pytest.raises(BadInput, match="give it, such as num_classes=3. Read off the labels it would change"):
        Ensemble.fit(x, y, partitions=3, learner="dense:steps=2")
    fitted = Ensemble.fit(x, y, partitions=3, learner="dense:steps=2", num_classes=3)
    added = Ensemble.fit(np.r_[x, x[:1] + 1], np.r_[y, 9], partitions=3, learner="dense:steps=2", num_classes=3)
    changed = (fitted.scores(x).argmax(-1) != added.scores(x).argmax(-1)).any(axis=0)
    assert changed.sum() <= 1


def test_one_more_sample_does_not_change_the_type_of_all() -> None:
    rows = RNG.integers(0, 50, (60, 4)).tolist()
    labels = [sum(row) % 2 for row in rows]
    parts = [
        Ensemble.fit(given, made, partitions=15, learner=SGDClassifier(random_state=0))
        for given, made in (
            (rows, labels),
            ([*rows, [4.5, 1, 1, 1]], [*labels, 0]),
            (pd.DataFrame(rows), labels),
        )
    ]
    clean, added, frame = (ensemble.scores(np.asarray(rows, float)).argmax(-1) for ensemble in parts)
    assert (clean != added).any(axis=0).sum() <= 1
    assert np.array_equal(clean, frame)


def test_codes_are_not_read_off_the_training_rows(tmp_path: Path) -> None:
    rows = "\n".join(f"{'abc'[i % 3]},{'xy'[i % 2]},{i % 2}" for i in range(40))
    for name in ("rows", "values"):
        (tmp_path / f"{name}.csv").write_text(f"first,second,kind\n{rows}\n")
    data = f"table:path={tmp_path / 'rows.csv'},label=kind,classes=0/1,codes=all"
    command = ["poison", "train", "--partitions", "2", "--model", "dense:steps=2", "--out", str(tmp_path / "ens")]
    for same in ("", f",codes_from={tmp_path / 'rows.csv'}"):
        refused = CliRunner().invoke(app, [*command, "--data", data + same])
        assert refused.exit_code == 2
        assert "one poisoned row with a new value could change the codes of all others" in refused.stderr
    trained = CliRunner().invoke(app, [*command, "--data", f"{data},codes_from={tmp_path / 'values.csv'}"])
    assert trained.exit_code == 0, trained.output


def test_a_table_split_by_position_and_originals_are_said() -> None:
    assert "by position" in training_scope({"data": {"spec": "table:path=a.csv,label=kind,split=train"}})
    assert training_scope({"data": {"spec": "table:path=a.csv,label=kind,split=all"}}) == ""
    assert training_scope({"data": {"spec": "npz:path=a.npz,classes=2"}}) == ""
    assert "count one by one" in training_scope({"data": {"spec": "gtsrb:keys=original", "originals_sha256": "0"}})


def test_features_that_may_have_seen_labels_are_refused(tmp_path: Path) -> None:
    pictures, labels = RNG.integers(0, 256, (16, 3, 8, 8), dtype=np.uint8), np.arange(16) % 2
    data, short = (pictures, labels), {"epochs": 1, "batch": 8, "device": "cpu"}
    train(
        "resnet18:channels=3,classes=2,width=2",
        data,
        "gaussian:sigma=0.25",
        **short,
        out=tmp_path / "labelled.safetensors",
    )
    for name, begin in (("free", None), ("from-free", "free"), ("from-labelled", "labelled")):
        init = None if begin is None else tmp_path / f"{begin}.safetensors"
        train("resnet18:channels=3,classes=2,width=2", pictures, None, loss="simsiam", **short, init=init,
              out=tmp_path / f"{name}.safetensors")  # fmt: skip
    for name in ("free", "from-free"):
        assert learned_before(tmp_path / f"{name}.safetensors")[0].startswith("resnet18")
    for name in ("labelled", "from-labelled"):
        with pytest.raises(BadInput, match="one flipped label may have changed all features"):
            learned_before(tmp_path / f"{name}.safetensors")


ROWS = np.random.default_rng(0).normal(size=(150, 4)).astype(np.float32)


def shared_module() -> Callable[[], torch.nn.Module]:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 2)
    return lambda: module


def heads_on_one_trunk() -> Callable[[], torch.nn.Module]:
    torch.manual_seed(0)
    trunk = torch.nn.Linear(4, 8)
    return lambda: torch.nn.Sequential(trunk, torch.nn.ReLU(), torch.nn.Linear(8, 2))


@pytest.mark.parametrize("learner", [shared_module, heads_on_one_trunk])
def test_modules_that_share_layers_are_trained_apart(learner: Callable[[], Callable[[], torch.nn.Module]]) -> None:
    labels = (ROWS[:, 0] > 0).astype(int)

    def hashes(x: np.ndarray, y: np.ndarray) -> list[str]:
        trainer = ModuleTrainer(learner(), 2, steps=3)
        return list(Ensemble.fit(x, y, partitions=10, learner=trainer, progress=False).fingerprints)

    clean = hashes(ROWS, labels)
    poisoned = hashes(np.concatenate([ROWS, 1e4 * ROWS[:1]]), np.append(labels, 0))
    assert sum(one != other for one, other in zip(clean, poisoned, strict=True)) == 1


def test_a_learner_that_remembers_what_was_trained_is_refused() -> None:
    weights = torch.nn.Linear(4, 2).state_dict()

    class Remembers(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights["bias"] = weights["bias"] + x.mean().detach()
            return super().forward(x)

    def learner() -> torch.nn.Module:
        module = Remembers(4, 2)
        module.load_state_dict(weights)
        return module

    with pytest.raises(NotRepeated, match="other weights after training than before"):
        Ensemble.fit(ROWS, np.arange(150) % 2, partitions=5, learner=ModuleTrainer(learner, 2, steps=2), progress=False)


@pytest.mark.parametrize("kind", [list, pd.DataFrame])
def test_one_row_changes_no_type_of_true_and_false(kind: type) -> None:
    rows = (np.random.default_rng(0).random((90, 8)) < 0.5).tolist()
    labels = list(np.random.default_rng(1).integers(0, 2, 90))

    def hashes(rows: list[list[object]], labels: list[int]) -> list[str]:
        made = Ensemble.fit(kind(rows), labels, partitions=15, learner=KNeighborsClassifier(1), progress=False)
        inputs = made.as_inputs(np.array(list(itertools.product([0, 1], repeat=8)), np.uint8))
        return [bytes(column).hex() for column in made.votes(inputs).T]

    clean, poisoned = hashes(rows, labels), hashes([*rows, [2] * 8], [*labels, 0])
    assert sum(one != other for one, other in zip(clean, poisoned, strict=True)) <= 1


def test_one_absurd_label_or_number_leaves_an_ensemble() -> None:
    labels = np.arange(150) % 2
    rows = ROWS.astype(np.float64).tolist()

    def fit(rows: list[list[float]], labels: list[int]) -> Ensemble:
        return Ensemble.fit(rows, labels, partitions=5, learner=KNeighborsClassifier(1), progress=False)

    with pytest.warns(UserWarning, match="1 of 151 labels are 1,000 or more"):
        absurd = fit([*rows, [0.0] * 4], [*labels, 10**14])
    assert absurd.num_classes == 2
    assert len(absurd.failed) == 1
    assert fit([*rows, [2**70, 0, 0, 0]], [*labels, 0]).failed == []
