"""Ensembles: a function of a set, resumed to the same bits, with any trainer; one sample changes one base classifier."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from vauban.data import load
from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.files import locked
from vauban.poisoning import Ensemble, EnsembleVotes, ModuleTrainer, Partition, SklearnTrainer, derive
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
from vauban.poisoning.votes.run_folder import InputSource
from vauban.runs.verify import verify_run

DIGITS = load("mnist:split=test")
X, Y = DIGITS.images[:400, :, ::4, ::4].copy(), DIGITS.labels[:400]
TEST_X, TEST_Y = DIGITS.images[400:460, :, ::4, ::4].copy(), DIGITS.labels[400:460]


class Means:
    """A tiny trainer after the protocol, in groups of 4: the mean picture of each class, scored by distance."""

    num_classes = 10

    def __init__(self, stop_after: int | None = None):
        self.stop_after, self.trained = stop_after, 0

    @property
    def spec(self) -> dict[str, Any]:
        return {"trainer": "means"}

    def fit(
        self, parts: Sequence[tuple[np.ndarray, np.ndarray]], numbers: Sequence[int], on_progress: Any = None
    ) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        for some in (
            itertools.batched(range(len(numbers)), 4) if hasattr(itertools, "batched") else batched(len(numbers))
        ):
            means = [self._mean(*parts[i]) for i in some]
            yield [numbers[i] for i in some], {"means": torch.stack(means)}
            self.trained += len(some)
            if on_progress:
                on_progress(len(some))
            if self.stop_after is not None and self.trained >= self.stop_after:
                raise KeyboardInterrupt

    def _mean(self, x: np.ndarray, y: np.ndarray) -> torch.Tensor:
        flat = torch.from_numpy(x.reshape(len(x), -1)).float()
        return torch.stack(
            [flat[y == c].mean(dim=0) if (y == c).any() else torch.full((flat.shape[1],), 1e4) for c in range(10)]
        )

    def scores(self, weights: dict[str, torch.Tensor], x: np.ndarray) -> torch.Tensor:
        flat = torch.from_numpy(x.reshape(len(x), -1)).float()
        return -torch.cdist(flat.expand(len(weights["means"]), -1, -1), weights["means"])


def batched(n: int) -> Iterator[range]:
    return (range(i, min(i + 4, n)) for i in range(0, n, 4))


def small_net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(49, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))


TRAINERS = {
    "means": Means(),
    "module": ModuleTrainer(small_net, 10, steps=15, lr=0.01),
    "stacked": StackedTrainer(
        "dense", 10, steps=12, batch=32, group=4, front="none", augment="shift", views=1, normalise="partition"
    ),
    "normalised": ModuleTrainer(small_net, 10, steps=5, normalise="partition", seeds="shared"),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_shuffling_the_training_data_changes_no_bit(name: str) -> None:
    trainer, partition = TRAINERS[name], Partition(11)
    one = Ensemble.fit(X, Y, partition, trainer)
    order = np.random.default_rng(0).permutation(len(X))
    other = Ensemble.fit(X[order], Y[order], partition, trainer)
    assert one.fingerprints == other.fingerprints
    assert one.manifest == other.manifest
    assert np.array_equal(one.scores(TEST_X), other.scores(TEST_X))
    assert len(set(one.fingerprints)) == 11


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("spread", [1, 3])
def test_one_poisoned_sample_changes_the_weights_of_as_many_base_classifiers_as_the_spread(
    name: str, spread: int
) -> None:
    trainer, partition = TRAINERS[name], Partition(4 if spread > 1 else 9, spread=spread)
    clean = Ensemble.fit(X, Y, partition, trainer).fingerprints
    other_label = Y.copy()
    other_label[5] = (Y[5] + 1) % 10
    poisonings = {
        "removed": (np.delete(X, 5, axis=0), np.delete(Y, 5)),
        "added": (np.concatenate([X, TEST_X[:1]]), np.concatenate([Y, [3]])),
        "relabelled": (X, other_label),
    }
    for x, y in poisonings.values():
        poisoned = Ensemble.fit(x, y, partition, trainer).fingerprints
        changed = [i for i, (a, b) in enumerate(zip(clean, poisoned, strict=True)) if a != b]
        assert len(changed) == spread


def test_sorted_partitions_change_one_base_classifier_for_a_label() -> None:
    partition = Partition(9, by="sort")
    clean = Ensemble.fit(X, Y, partition, Means())
    other = Y.copy()
    other[7] = (Y[7] + 1) % 10
    poisoned = Ensemble.fit(X, other, partition, Means())
    assert clean.against == "labels"
    assert sum(a != b for a, b in zip(clean.fingerprints, poisoned.fingerprints, strict=True)) == 1
    assert clean.certify(TEST_X, TEST_Y).threat.name == "label-flips"
    with pytest.raises(BadInput, match="labels only"):
        Ensemble.fit(X, Y, partition, Means(), against="samples")


@pytest.mark.parametrize("partition", [Partition(23), Partition(5, spread=3)], ids=str)
def test_stopped_and_resumed_is_the_same(partition: Partition, tmp_path: Path) -> None:
    whole = Ensemble.fit(X, Y, partition, Means(), folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        Ensemble.fit(X, Y, partition, Means(stop_after=8), folder=tmp_path / "stopped")
    with pytest.raises(Incomplete, match="train command again"):
        Ensemble.load(tmp_path / "stopped", trainer=Means())
    again = Means()
    told: list[int] = []
    started: list[tuple[int, int]] = []

    @contextmanager
    def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[Any]:
        started.append((done, total))
        yield told.append if label == "training" else lambda _: None

    resumed = Ensemble.fit(X, Y, partition, again, folder=tmp_path / "stopped", progress=progress)
    left = partition.models - 8
    checked = 2 if left >= 10 else 1  # trained again at the end, each after a made-up part
    assert sum(told) == left
    assert again.trained == left + 2 * (checked + 1)  # also one of those that the stopped call trained
    assert started == [(8, partition.models), (0, checked), (0, 1)]
    assert resumed.fingerprints == whole.fingerprints
    for name in (p.name for p in (tmp_path / "whole").glob("*")):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    third = Means()
    Ensemble.fit(X, Y, partition, third, folder=tmp_path / "stopped")
    assert third.trained == 0


def test_side_by_side_training_is_taken_up_to_the_same_bits(tmp_path: Path) -> None:
    trainer, partition = TRAINERS["stacked"], Partition(11)
    whole = Ensemble.fit(X, Y, partition, trainer, folder=tmp_path)
    paths = sorted(tmp_path.glob("models-*"))
    bits = [path.read_bytes() for path in paths]
    assert len(paths) == 3
    paths[1].unlink()
    again = Ensemble.fit(X, Y, partition, trainer, folder=tmp_path)
    assert again.fingerprints == whole.fingerprints
    assert [path.read_bytes() for path in paths] == bits
    assert np.array_equal(Ensemble.load(tmp_path).votes(TEST_X), whole.votes(TEST_X))


def test_an_ensemble_that_names_its_network_as_earlier_is_loaded_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = DIGITS.images[:60], DIGITS.labels[:60]
    trainer = StackedTrainer("cnn", 10, steps=2, batch=4, views=1, group=3)
    assert trainer == StackedTrainer("tiny-cnn", 10, steps=2, batch=4, views=1, group=3)
    spec = StackedTrainer.spec.fget
    with monkeypatch.context() as patched:
        patched.setattr(StackedTrainer, "spec", property(lambda self: spec(self) | {"network": "cnn"}))
        earlier = Ensemble.fit(x, y, Partition(6), trainer, folder=tmp_path)
    assert earlier.manifest["trainer"]["network"] == "cnn"
    sorted(tmp_path.glob("models-*"))[0].unlink()
    resumed = Ensemble.fit(x, y, Partition(6), trainer, folder=tmp_path)
    assert resumed.manifest == earlier.manifest
    assert (
        resumed.fingerprints
        == Ensemble.load(tmp_path).fingerprints
        == Ensemble.fit(x, y, Partition(6), trainer).fingerprints
    )
    assert np.array_equal(Ensemble.load(tmp_path).votes(x), resumed.votes(x))


def test_saved_and_loaded_votes_the_same(tmp_path: Path) -> None:
    trained = Ensemble.fit(X, Y, Partition(9), TRAINERS["module"])
    kept = trained.save(tmp_path / "ens")
    loaded = Ensemble.load(tmp_path / "ens", trainer=TRAINERS["module"])
    assert trained.fingerprints == kept.fingerprints == loaded.fingerprints
    assert np.array_equal(trained.votes(TEST_X), loaded.votes(TEST_X))
    assert trained.weights_sha256 == loaded.weights_sha256


def test_a_damaged_group_is_trained_again_and_never_voted_with(tmp_path: Path) -> None:
    first = Ensemble.fit(X, Y, Partition(8), Means(), folder=tmp_path)
    path = sorted(tmp_path.glob("models-*"))[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + b"\0\1\2")
    with pytest.raises(Incomplete, match="lacks 4 of its 8"):
        Ensemble.load(tmp_path, trainer=Means())
    again = Means()
    assert Ensemble.fit(X, Y, Partition(8), again, folder=tmp_path).fingerprints == first.fingerprints
    assert again.trained == 4 + 2 * 2  # one of them and one of the others again, each after a made-up part
    assert path.read_bytes() == whole


def test_another_ensemble_in_the_folder_is_refused(tmp_path: Path) -> None:
    Ensemble.fit(X, Y, Partition(8), Means(), folder=tmp_path)
    with pytest.raises(RunRefused, match="partitions=9"):
        Ensemble.fit(X, Y, Partition(9), Means(), folder=tmp_path)
    other = Y.copy()
    other[0] = (Y[0] + 1) % 10
    with pytest.raises(RunRefused, match="sha256"):
        Ensemble.fit(X, other, Partition(8), Means(), folder=tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(Lie, match="cannot be read"):
        Ensemble.load(tmp_path, trainer=Means())


def test_empty_parts_vote_for_class_0_and_it_is_said() -> None:
    x = np.zeros((4, 1, 2, 2), dtype=np.uint8)
    x[:, 0, 0, 0] = [1, 1, 1, 2]
    with pytest.warns(UserWarning, match="base classifiers have no training samples: by rule they vote for class 0"):
        ensemble = Ensemble.fit(
            x, np.array([1, 1, 1, 1]), Partition(4, by="pixel-sum"), SklearnTrainer(KNeighborsClassifier(1), 3)
        )
    assert ensemble.empty == [0, 3]
    assert ensemble.votes(x[:1]).tolist() == [[0, 1, 1, 0]]
    assert ensemble.scores(x[:1])[0, 0].tolist() == [0, 0, 0]
    assert ensemble.fingerprints[0] == "empty"
    certs = ensemble.certify(x[:1], aggregate="runoff")
    assert certs.answer.tolist() == [0]


@pytest.mark.parametrize("partition", [Partition(15), Partition(5, spread=3)], ids=str)
@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
def test_certify_is_what_scores_say(partition: Partition, aggregate: str) -> None:
    ensemble = Ensemble.fit(X, Y, partition, TRAINERS["module"])
    certs = ensemble.certify(TEST_X, TEST_Y, aggregate)
    slow = derive(
        EnsembleVotes.from_arrays({"scores": ensemble.scores(TEST_X)}, 10, spread=partition.spread),
        TEST_Y,
        aggregate=aggregate,
    )
    assert np.array_equal(certs.radius, slow.radius)
    assert np.array_equal(certs.answer, slow.answer)
    assert np.array_equal(certs.counts, slow.counts)
    assert certs.clean_accuracy == (certs.answer == TEST_Y).mean()
    assert "counts twice" in certs.claim


def test_an_ensemble_exists_when_samples_are_taken_away(tmp_path: Path) -> None:
    """Batch normalisation cannot be trained on one sample: that part votes for class 0, and no other weights change."""

    def normalising() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(49), torch.nn.Linear(49, 10))

    trainer, partition = ModuleTrainer(normalising, 10, steps=3, lr=0.1), Partition(3)
    rows = [members[:size] for members, size in zip(partition.members(X, Y), (5, 2, 5), strict=True)]
    whole = Ensemble.fit(X[np.concatenate(rows)], Y[np.concatenate(rows)], partition, trainer)
    fewer = np.concatenate([rows[0], rows[1][:1], rows[2]])
    with pytest.warns(UserWarning, match="base classifier 1 cannot be trained .*more than 1 value.*votes for class 0"):
        poisoned = Ensemble.fit(X[fewer], Y[fewer], partition, trainer, folder=tmp_path)
    assert [a == b for a, b in zip(whole.fingerprints, poisoned.fingerprints, strict=True)] == [True, False, True]
    votes = Ensemble.load(tmp_path, trainer=trainer).votes(TEST_X)
    assert np.array_equal(votes[:, [0, 2]], whole.votes(TEST_X)[:, [0, 2]])
    assert (votes[:, 1] == 0).all()
    assert (whole.votes(TEST_X)[:, 1] != 0).any()


def test_votes_do_not_depend_on_the_other_inputs() -> None:
    ensemble = Ensemble.fit(X, Y, Partition(5), TRAINERS["module"])
    alone = np.concatenate([ensemble.scores(TEST_X[i : i + 1]) for i in range(3)])
    assert np.array_equal(alone[0], ensemble.scores(TEST_X)[0])


def test_the_number_of_threads_is_the_callers(tmp_path: Path) -> None:
    """Training and voting use the threads that the manifest names, and leave those of the caller alone."""
    seen: list[int] = []

    class Watching(Means):
        def scores(self, weights: dict[str, torch.Tensor], x: np.ndarray) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return super().scores(weights, x)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        Ensemble.fit(X, Y, Partition(5), Means(), folder=tmp_path)
        torch.set_num_threads(2)
        Ensemble.fit(X, Y, Partition(5), Means(), folder=tmp_path)
        Ensemble.load(tmp_path, trainer=Watching()).votes(TEST_X)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {3}


def test_two_writers_of_one_run_are_refused(tmp_path: Path) -> None:
    ensemble = Ensemble.fit(X, Y, Partition(4), Means())
    with locked(tmp_path), pytest.raises(RunRefused, match="written by another process"):
        ensemble.certify(TEST_X, TEST_Y, out=tmp_path)
    ensemble.certify(TEST_X, TEST_Y, out=tmp_path)
    assert verify_run(tmp_path).inputs == 60


def test_stored_votes_are_used_only_where_it_is_known_what_voted_on_what(tmp_path: Path) -> None:
    """A trainer of the caller's own votes again, since nobody knows whether it is the same; so it does on inputs that a source
    of the caller's own describes, and others under the same source are refused as before."""
    ensemble = Ensemble.fit(X, Y, Partition(4), TRAINERS["stacked"])
    asked: list[int] = []

    def tally(self: Ensemble, *given: Any, **more: Any) -> Any:
        asked.append(1)
        return original(self, *given, **more)

    original = Ensemble.tally
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ensemble, "tally", tally)
        first = ensemble.certify(TEST_X, TEST_Y, out=tmp_path / "own")
        again = ensemble.certify(TEST_X, TEST_Y, out=tmp_path / "own")
        assert len(asked) == 1
        assert np.array_equal(first.radius, again.radius, equal_nan=True)
        said = InputSource("digits", "0" * 64, np.arange(len(TEST_X)))
        ensemble.certify(TEST_X, TEST_Y, out=tmp_path / "said", source=said)
        ensemble.certify(TEST_X, TEST_Y, out=tmp_path / "said", source=said)
        assert len(asked) == 3
        with pytest.raises(RunRefused, match="other votes under the same settings"):
            ensemble.certify(TEST_X[::-1].copy(), TEST_Y, out=tmp_path / "said", source=said)
        callers = Ensemble.fit(X, Y, Partition(4), Means())
        callers.certify(TEST_X, TEST_Y, out=tmp_path / "callers")
        callers.certify(TEST_X, TEST_Y, out=tmp_path / "callers")
        assert len(asked) == 6


def test_the_given_label_in_the_top_k() -> None:
    ensemble = Ensemble.fit(X, Y, Partition(15), Means())
    third = ensemble.certify(TEST_X, TEST_Y, k=3)
    first = ensemble.certify(TEST_X, TEST_Y)
    assert (third.label == TEST_Y).all()
    assert third.accuracy() >= first.accuracy()
    assert third.clean_accuracy == third.accuracy()
    assert first.base_accuracy < first.clean_accuracy
    assert first.accuracy(0) == first.clean_accuracy


def test_preprocessing_is_part_of_the_ensemble() -> None:
    plain = Ensemble.fit(X, Y, Partition(5), Means())
    equalised = Ensemble.fit(X, Y, Partition(5), Means(), preprocessing="equalize")
    assert equalised.manifest["preprocessing"] == "equalise"
    assert plain.fingerprints != equalised.fingerprints
    assert plain.manifest["partition"] == equalised.manifest["partition"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ensemble.fit(X, None, Partition(5), Means()), "no labels"),
        (lambda: Ensemble.fit(X, Y, Partition(5), Means()).votes(X[:, :, :3]), "trained on"),
        (lambda: Ensemble.fit(X, Y, Partition(5), Means()).votes(X.astype(np.float32)), "uint8"),
        (lambda: Ensemble.fit(X, Y, Partition(5), Means()).certify(TEST_X, TEST_Y, "median"), "not a known aggregate"),
        (lambda: Ensemble.fit(X, Y, Partition(5), Means()).certify(TEST_X, TEST_Y, "runoff", k=2), "one answer"),
        (lambda: Ensemble.fit(X, Y, Partition(5), Means()).certify(TEST_X, label="given"), "there are none"),
    ],
)
def test_bad_input_is_refused(make: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()
