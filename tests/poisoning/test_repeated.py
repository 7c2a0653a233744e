"""Learners that keep something from part to part are refused, and honest ones are not."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vauban as vb
from vauban.errors import Incomplete, NotRepeated, RunRefused
from vauban.poisoning import ModuleTrainer, Partition, SklearnTrainer
from vauban.poisoning.training.fitting import train_base_classifiers
from vauban.poisoning.training.repeated import _decoy

X = np.random.default_rng(0).normal(size=(120, 4))
LARGE = (np.abs(X).sum(axis=1) > 2.5).astype(int)
RIGHT = (X[:, 0] > 0).astype(int)
KEPT: dict[str, Any] = {}


class Cached(ClassifierMixin, BaseEstimator):
    """Votes for the label of the largest sample of all parts so far, which it keeps in a global."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Cached":
        largest = np.abs(x.astype(float)).sum(axis=1)
        if largest.max() > KEPT.get("size", 0):
            KEPT.update(size=largest.max(), label=int(y[largest.argmax()]))
        self.classes_, self.label_ = np.array([0, 1]), KEPT["label"]
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), self.label_)


class Leaky(LogisticRegression):
    """Trains on the samples of all parts so far, which it keeps in its class."""

    seen: list[tuple[np.ndarray, np.ndarray]] = []  # noqa: RUF012 - the leak

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Leaky":
        Leaky.seen.append((x, y))
        return super().fit(*(np.concatenate(some) for some in zip(*Leaky.seen, strict=True)))


class Unseeded(ClassifierMixin, BaseEstimator):
    """Votes by random numbers that no parameter fixes."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Unseeded":
        self.classes_, self.weights_ = np.array([0, 1]), np.random.default_rng().normal(size=x.shape[1])
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return (x @ self.weights_ > 0).astype(int)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    KEPT.clear()
    Leaky.seen.clear()


def fit(learner: Any, y: np.ndarray = RIGHT, x: np.ndarray = X, **more: Any) -> vb.Ensemble:
    return vb.Ensemble.fit(x, y, **{"partitions": 9, "learner": learner, "num_classes": 2, "progress": False, **more})


@pytest.mark.parametrize("partitions", [2, 9, 12])
@pytest.mark.parametrize("spread", [1, 3])
@pytest.mark.parametrize(
    ("learner", "y"), [(Cached(), LARGE), (Leaky(), RIGHT), (Unseeded(), RIGHT)], ids=["cached", "leaky", "unseeded"]
)
def test_parts_that_share_state_are_refused(learner: Any, y: np.ndarray, partitions: int, spread: int) -> None:
    with pytest.raises(NotRepeated, match="votes otherwise when it is trained again .* random_state"):
        fit(learner, y, partitions=partitions, spread=spread)


def test_state_is_found_with_8_bit_samples_and_in_other_processes() -> None:
    pictures = np.random.default_rng(1).integers(0, 256, (120, 4), dtype=np.uint8)
    with pytest.raises(NotRepeated):
        fit(Cached(), (pictures.sum(axis=1, dtype=int) > 450).astype(int), pictures)
    KEPT.clear()
    with pytest.raises(NotRepeated):
        fit(SklearnTrainer(Cached(), 2, jobs=2), LARGE)


@pytest.mark.parametrize("partitions", [1, 2, 12])
@pytest.mark.parametrize(
    "learner",
    [
        GaussianNB(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(5, n_jobs=2),
        RandomForestClassifier(5, random_state=3),
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2)),
        lambda: torch.nn.Linear(4, 2),
    ],
    ids=["naive", "pipeline", "forest", "fixed-forest", "module", "function"],
)
def test_honest_learners_are_accepted(learner: Any, partitions: int) -> None:
    assert fit(learner, partitions=partitions).models == partitions


def test_one_part_and_chosen_parts_are_not_trained_again() -> None:
    assert fit(Unseeded(), partitions=1).models == 1
    rest: Any = {"against": None, "preprocessing": "none", "folder": None, "source": {}, "on": "here"}
    trainer = SklearnTrainer(Unseeded(), 2)
    no_bars: Any = vb.poisoning.progress.no_progress
    assert len(train_base_classifiers(X, RIGHT, Partition(9), trainer, **rest, progress=no_bars, only=[3])[1]) == 1


class Remembers(torch.nn.Linear):
    """Votes for class 1 until enough samples have been seen by all that share a list."""

    def __init__(self, kept: list[torch.Tensor]):
        super().__init__(4, 2)
        self.kept = kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.kept[0] = self.kept[0] + x.abs().mean().detach()
            with torch.no_grad():
                self.bias[0] += self.kept[0].clamp(min=0) - 10
        return super().forward(x)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Remembers":
        twin = Remembers(self.kept)
        twin.load_state_dict(self.state_dict())
        return twin


def remembers(start: float = 0.0) -> Callable[[], torch.nn.Module]:
    """A learner whose modules share what they have seen, in whatever parts; far below zero it has no effect."""
    kept = [torch.tensor(start)]
    return lambda: Remembers(kept)


def test_a_refused_ensemble_in_a_folder_is_not_loaded_and_refused_again(tmp_path: Path) -> None:
    trainer = ModuleTrainer(remembers(), 2, steps=3)
    with pytest.raises(NotRepeated, match="trained again"):
        fit(trainer, folder=tmp_path)
    mended = ModuleTrainer(remembers(-1e9), 2, steps=3)
    for learner in (trainer, mended):
        with pytest.raises(Incomplete, match="were not found to vote alike"):
            vb.Ensemble.load(tmp_path, trainer=learner)
        with pytest.raises(RunRefused, match="of a learner that was refused"):
            fit(learner, folder=tmp_path)


def test_an_ensemble_in_a_folder_is_checked_once_also_after_an_interruption(tmp_path: Path) -> None:
    trained: list[int] = []

    class Counting(ModuleTrainer):
        def _train(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            trained.append(len(x))
            return super()._train(x, y)

    trainer = Counting(lambda: torch.nn.Linear(4, 2), 2, steps=2)
    fit(trainer, folder=tmp_path)
    assert len(trained) == 9 + 2
    fit(trainer, folder=tmp_path)
    assert len(trained) == 9 + 2
    (tmp_path / "repeated.json").unlink()  # as if it had been stopped before the check
    fit(trainer, folder=tmp_path)
    assert len(trained) == 9 + 2 + 2
    (tmp_path / "models-000004.safetensors").unlink()
    fit(trainer, folder=tmp_path)
    assert len(trained) == 9 + 2 + 2 + 1 + 2 + 2  # one of this call and one of those before


def test_an_ensemble_whose_check_was_interrupted_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    trainer = ModuleTrainer(lambda: torch.nn.Linear(4, 2), 2, steps=2)
    with monkeypatch.context() as patched:
        patched.setattr("vauban.poisoning.training.fitting.check_repeated", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(trainer, folder=tmp_path)
    with pytest.raises(Incomplete, match="were not found to vote alike"):
        vb.Ensemble.load(tmp_path, trainer=trainer)
    fit(trainer, folder=tmp_path)
    assert vb.Ensemble.load(tmp_path, trainer=trainer).models == 9


@pytest.mark.parametrize("lost", [(), (3,)])
def test_weights_of_an_earlier_call_that_vote_otherwise_are_refused_and_stay(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    """A killed call has checked nothing, and the learner may have been mended since, or another machine may round otherwise."""
    sign = [1]

    class Elsewhere(ModuleTrainer):
        def _train(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            return {name: sign[0] * value for name, value in super()._train(x, y).items()}

    trainer = Elsewhere(lambda: torch.nn.Linear(4, 2), 2, steps=2)
    fit(trainer, folder=tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.glob("models-*")}
    (tmp_path / "repeated.json").unlink()
    sign[0] = -1
    for number in lost:
        (tmp_path / f"models-{number:06d}.safetensors").unlink()
        del files[tmp_path / f"models-{number:06d}.safetensors"]
    with pytest.raises(RunRefused, match="of an earlier call that vote otherwise"):
        fit(trainer, folder=tmp_path)
    for number in lost:
        (tmp_path / f"models-{number:06d}.safetensors").unlink()
    with pytest.raises(Incomplete):
        vb.Ensemble.load(tmp_path, trainer=trainer)
    assert {path: path.read_bytes() for path in tmp_path.glob("models-*")} == files


def test_a_learner_that_cannot_train_on_the_made_up_part_is_accepted() -> None:
    class Strict(GaussianNB):
        def fit(self, x: np.ndarray, y: np.ndarray) -> "Strict":
            if np.abs(x).max() > 6:
                raise OSError("no such values")
            return super().fit(x, y)

    assert fit(Strict()).models == 9


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.uint64, np.float16, np.float64])
def test_a_made_up_part_keeps_the_type_and_stays_finite(dtype: Any) -> None:
    x = np.array([[0, 1, 200 if dtype is np.uint8 else 9_000]], dtype)
    made, labels = _decoy(x, np.array([1]), 2)
    assert made.dtype == dtype
    assert np.isfinite(made.astype(float)).all()
    assert made[0, 1] == 10
    assert made.max() > x.max()
    assert labels.tolist() == [0]


def leaking(slope: float) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LeakyReLU(slope), torch.nn.Linear(8, 2))


class Turned(torch.nn.Linear):
    """Prints as a linear layer, and computes something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x)

    def _get_name(self) -> str:
        return "Linear"


@pytest.mark.parametrize("other", ["slope", "code"])
def test_another_module_with_the_same_weights_is_refused(other: str, tmp_path: Path) -> None:
    """Its training does not go on in the folder, and it is not loaded."""

    def learner(changed: bool) -> torch.nn.Module:
        module = leaking(-1.0 if changed and other == "slope" else 0.01)
        if changed and other == "code":
            turned = Turned(8, 2)
            turned.load_state_dict(module[2].state_dict())
            module[2] = turned
        return module

    fit(learner(False), folder=tmp_path)
    (tmp_path / "models-000004.safetensors").unlink()
    for changed in (learner(True), ModuleTrainer(lambda: learner(True), 2)):
        with pytest.raises(RunRefused, match="another (module|ensemble)"):
            fit(changed, folder=tmp_path)
    fit(learner(False), folder=tmp_path)
    with pytest.raises(RunRefused, match="another module: this learner gives other scores with the same weights"):
        vb.Ensemble.load(tmp_path, learner=learner(True))
    with pytest.raises(RunRefused, match="another module"):
        vb.Ensemble.load(tmp_path, trainer=ModuleTrainer(lambda: learner(True), 2))
    assert vb.Ensemble.load(tmp_path, learner=learner(False)).models == 9


class Words(torch.nn.Module):
    """Takes the numbers of 20 words, and no others."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = torch.nn.Embedding(20, 4), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x.long()).mean(1))


class Overflowing(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.exp(x / 2))


def lazy() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.BatchNorm1d(4), torch.nn.LazyLinear(2))


@pytest.mark.parametrize("learner", [Words, lambda: Overflowing(4, 2), lazy], ids=["words", "overflowing", "lazy"])
def test_modules_of_which_little_is_known_go_on_and_are_loaded(
    learner: Callable[[], torch.nn.Module], tmp_path: Path
) -> None:
    """Another instance, with other first weights, may load: all weights are read from the folder."""
    x = np.random.default_rng(0).integers(0, 20, (120, 4))
    trainer = ModuleTrainer(learner, 2, steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = vb.Ensemble.fit(x, RIGHT, 3, trainer, folder=tmp_path, progress=False)
        (tmp_path / "models-000001.safetensors").unlink()
        again = vb.Ensemble.fit(x, RIGHT, 3, trainer, folder=tmp_path, progress=False)
        assert again.fingerprints == first.fingerprints
        torch.manual_seed(5)
        loaded = vb.Ensemble.load(tmp_path, learner=learner)
        assert np.array_equal(loaded.votes(x), first.votes(x))


def test_an_ensemble_of_a_module_is_loaded_with_a_new_one(tmp_path: Path) -> None:
    first = fit(torch.nn.Linear(4, 2), folder=tmp_path)
    loaded = vb.Ensemble.load(tmp_path, learner=torch.nn.Linear(4, 2))
    assert np.array_equal(loaded.votes(X), first.votes(X))


class Sharing(ModuleTrainer):
    """A trainer of a caller with features of its own, as a class of any kind may be."""

    def __init__(self) -> None:
        super().__init__(lambda: torch.nn.Linear(4, 2), 2, steps=1)
        object.__setattr__(self, "shared", {})

    learning_epochs = 1

    def prepare(self, x: np.ndarray, on_progress: Any = None) -> None:
        self.shared["middle"] = torch.from_numpy(x.mean(0))  # type: ignore[attr-defined]


def test_a_trainer_of_another_kind_may_share_features() -> None:
    trainer = Sharing()
    ensemble = fit(trainer, num_classes=None)
    assert ensemble.features_sha256 is not None
    assert not trainer.shared  # type: ignore[attr-defined]


def test_a_failure_that_does_not_repeat_marks_no_folder(tmp_path: Path) -> None:
    failing = [True]

    class Once(ModuleTrainer):
        def _train(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            if failing.pop() if failing else False:
                raise RuntimeError("a hiccup")
            return super()._train(x, y)

    trainer = Once(lambda: torch.nn.Linear(4, 2), 2, steps=1)
    with pytest.raises(NotRepeated, match="a hiccup"):
        fit(trainer, folder=tmp_path)
    assert fit(trainer, folder=tmp_path).models == 9
