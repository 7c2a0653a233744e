"""Replay of poisoning runs: base classifiers trained again vote as in the folder; altered ones and other data are found."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.data import load
from vauban.errors import BadInput, Lie, RunRefused
from vauban.poisoning import Ensemble, EnsembleVotes, Partition, SklearnTrainer, train
from vauban.poisoning.part_replay import replay_parts
from vauban.poisoning.training.weights_folder import WeightsFolder
from vauban.poisoning.votes.run_folder import PoisoningRecord, read_record, write_run
from vauban.replay import replay, undetected

TINY = "tiny-cnn:steps=2,group=5,views=1,batch=8"
ENSEMBLES = {"dpa": 8, "finite:spread=2": 4}
CASES = {
    "counts": ("dpa", "plurality"),
    "runoff": ("dpa", "runoff"),
    "finite": ("finite:spread=2", "plurality"),
    "finite-runoff": ("finite:spread=2", "runoff"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ensembles of eight base classifiers, `dpa` and `fin`, and a run of each case on 12 digits."""
    folder = tmp_path_factory.mktemp("parts")
    made = {
        defense: train("mnist", defense, partitions, out=folder / defense[:3], model=TINY, limit=80)
        for defense, partitions in ENSEMBLES.items()
    }
    for name, (defense, aggregate) in CASES.items():
        made[defense].certify_data("mnist:split=test", aggregate, every=7, limit=12, out=folder / name)
    return folder


@pytest.mark.parametrize(
    "name", ["counts", "finite-runoff", *(pytest.param(name, marks=pytest.mark.slow) for name in ("runoff", "finite"))]
)
def test_an_honest_run_is_replayed(name: str, home: Path) -> None:
    ensemble = home / CASES[name][0][:3]
    found = replay_parts(home / name, ensemble=ensemble, parts=7)
    record = read_record(home / name)
    assert (found.models, len(found.replayed), found.votes) == (8, 7, 7 * 12)
    assert found.altered == undetected(8, 7) == 1
    own = record.certificates()
    assert found.claims == int((~own.abstained).sum())
    if record.votes.spread == 1:
        assert found.radii == [int(radius) - 1 if radius >= 1 else None for radius in own.radius]
    assert found.remaining < found.claims


def test_a_run_that_keeps_every_vote_needs_no_ensemble(home: Path, tmp_path: Path) -> None:
    whole = replay_parts(home / "finite-runoff", parts=None)
    own = read_record(home / "finite-runoff").certificates()
    assert (whole.models, whole.altered, whole.remaining) == (8, 0, int((~own.abstained).sum()))
    record = read_record(home / "finite")
    assert record.votes.ballots is not None
    ballots = record.votes.ballots.copy()
    ballots[4, 6] = (ballots[4, 6] + 1) % 10
    votes = EnsembleVotes.from_arrays({"votes": ballots}, 10, spread=2)
    write_run(tmp_path / "forged", PoisoningRecord(record.manifest, votes))
    with pytest.raises(Lie, match="base classifier 6, trained again"):
        replay_parts(tmp_path / "forged", parts=None)


def test_an_altered_base_classifier_is_found(home: Path, tmp_path: Path) -> None:
    """The ensemble and the run agree, and every hash is right: only training again shows that one part was not trained so."""
    folder = Path(shutil.copytree(home / "dpa", tmp_path / "ens"))
    store = WeightsFolder.open(folder)
    group = next(group for group in store.groups() if 3 in group.numbers)
    weights = {name: value.clone() for name, value in group.weights().items()}
    for value in weights.values():
        value[group.numbers.index(3)] *= -1
    store.write(group.numbers, weights)
    Ensemble.load(folder).certify_data("mnist:split=test", every=7, limit=12, out=tmp_path / "run")
    assert vb.Run.open(tmp_path / "run").verify().inputs == 12
    with pytest.raises(Lie, match="base classifier 3, trained again on its part, does not vote"):
        replay_parts(tmp_path / "run", ensemble=folder, parts=None)
    with pytest.raises(Lie, match="not that of the run"):
        replay_parts(home / "counts", ensemble=folder)


def test_what_is_needed_is_said(home: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="keeps counts, which do not say how each part voted"):
        replay_parts(home / "counts")
    with pytest.raises(Lie, match="not the training set of the run"):
        replay_parts(home / "finite", training="mnist:split=test")
    with pytest.raises(Lie, match="true labels in the manifest"):
        replay_parts(home / "finite", data="mnist:split=train")
    with pytest.raises(RunRefused, match="poisoning run, which is replayed by parts"):
        replay(home / "counts", lambda views: views, None)
    Ensemble.load(home / "dpa").export(tmp_path / "votes.npz", *_digits(5))
    CliRunner().invoke(app, ["poison", "import", str(tmp_path / "votes.npz"), "--out", str(tmp_path / "imported")])
    with pytest.raises(BadInput, match="does not name the data set of its inputs"):
        replay_parts(tmp_path / "imported", ensemble=home / "dpa")
    assert replay_parts(tmp_path / "imported", ensemble=home / "dpa", data=_digits(5), parts=2).models == 8


def test_arrays_and_other_libraries(tmp_path: Path) -> None:
    from sklearn.neighbors import KNeighborsClassifier

    x, y = _digits(200)
    trainer = SklearnTrainer(KNeighborsClassifier(1), 10)
    ensemble = Ensemble.fit(x, y, Partition(4, spread=2), trainer)
    ensemble.certify(x[:9], y[:9], out=tmp_path / "run")
    with pytest.raises(BadInput, match="does not name its training set"):
        replay_parts(tmp_path / "run", data=(x[:9], y[:9]), trainer=trainer)
    found = replay_parts(tmp_path / "run", data=(x[:9], y[:9]), training=(x, y), trainer=trainer, parts=3)
    assert (found.models, found.votes) == (8, 27)


def _digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    some = load("mnist:split=test")
    assert some.labels is not None
    return some.images[:count], some.labels[:count]


@pytest.mark.slow
def test_the_command_line(home: Path) -> None:
    def say(*arguments: object, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["verify", *map(str, arguments), "--device", "cpu"])
        assert done.exit_code == code, done.output
        return done.output

    said = say(home / "counts", "--replay", "--ensemble", home / "dpa", "--parts", "7", "--data", "mnist:split=test")
    assert "7 of 8 base classifiers, trained again on their parts, cast the 84 votes of the run" in said
    assert "If more than 1 had been altered" in said
    assert "claims would remain" in said
    assert "were not picked after looking" in said
    told = json.loads(say(home / "finite", "--replay", "--all", "--json"))
    assert told["replay"]["altered"] == 0
    assert "--ensemble" in say(home / "counts", "--replay", code=2)
    assert "--model is not for a poisoning run" in say(home / "counts", "--replay", "--model", "mnist", code=2)
