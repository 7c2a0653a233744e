"""Training and certifying from Python: the folders are byte for byte those of the command line, also after an interruption."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amounts import some_slow
from typer.testing import CliRunner

from vauban.cli import app
from vauban.data import load
from vauban.errors import BadInput, RunRefused
from vauban.poisoning import ClusterEnsemble, Ensemble, import_votes, load_ensemble, train
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.selection import select
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
from vauban.poisoning.votes.checkpoint import FILE
from vauban.poisoning.votes.run_folder import InputSource
from vauban.runs.verify import verify_run

TINY = "dense:steps=2,group=4,views=1,batch=8,front=none,augment=none"
CASES = {
    "dpa": {"defense": "dpa", "partitions": 11, "limit": 120, "model": TINY},
    "finite": {"defense": "finite:spread=3", "partitions": 4, "limit": 90, "model": TINY, "seed": 5},
    "flips": {"defense": "ss-dpa:features=none", "partitions": 5, "every": 100, "model": TINY, "seeds": "shared"},
    "clusters": {"defense": "ss-dpa:features=clusters", "limit": 300, "classes": "1,7"},
}


def vauban(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, f"{done.stderr}\n{done.exception!r}"


def options(given: dict[str, Any]) -> list[str]:
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.fixture(scope="module", params=CASES)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble trained by the command line, and the same trained from Python."""
    folder = tmp_path_factory.mktemp(request.param)
    given = {"data": "mnist:split=test", **CASES[request.param]}
    vauban("poison", "train", *options(given), "--device", "cpu", "--out", folder / "ens")
    ensemble = train(out=folder / "python", **given)
    assert content(folder / "python") == content(folder / "ens")
    assert type(ensemble) is type(load_ensemble(folder / "ens"))
    return folder / "ens"


@pytest.mark.parametrize(
    "asked",
    some_slow([{"aggregate": "runoff"}, {"k": 2, "label": "votes"}, {}, {"label": "given"}], quick=[0, 1]),
    ids=str,
)
def test_run_folders_are_those_of_the_command_line(trained: Path, asked: dict[str, Any], tmp_path: Path) -> None:
    ensemble = load_ensemble(trained)
    if isinstance(ensemble, ClusterEnsemble) and asked not in ({}, {"label": "given"}):
        with pytest.raises(BadInput, match="one round|below the number of classes"):
            ensemble.certify_data("mnist", limit=30, out=tmp_path / "never", **asked)
        assert not (tmp_path / "never").exists()
        return
    given = {("-k" if name == "k" else f"--{name}"): value for name, value in asked.items()}
    words = [str(word) for pair in given.items() for word in pair]
    vauban("poison", "certify", "-e", trained, "--limit", "30", "--device", "cpu", "-o", tmp_path / "command", *words)
    certs = ensemble.certify_data("mnist", limit=30, out=tmp_path / "python", **asked)
    assert content(tmp_path / "python") == content(tmp_path / "command")
    inputs = select("mnist", split="test", limit=30, classes=ensemble.manifest["data"]["classes"])
    by_hand = ensemble.certify(inputs.x, inputs.y, out=tmp_path / "arrays", source=inputs.source, **asked)
    assert content(tmp_path / "arrays") == content(tmp_path / "command")
    in_memory = ensemble.certify(inputs.x, inputs.y, **asked)
    for one in (certs, by_hand):
        assert np.array_equal(one.radius, in_memory.radius, equal_nan=True)
        assert np.array_equal(one.label, in_memory.label)
    assert verify_run(tmp_path / "python").inputs == len(inputs.x)


def stopping_at(call: int) -> Any:
    plain, calls = StackedTrainer.scores, []

    def scores(trainer: Any, weights: Any, x: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return plain(trainer, weights, x)

    return scores


@pytest.mark.parametrize("aggregate", some_slow(["plurality", "runoff"], quick=[0]))
def test_an_interrupted_certify_resumes_to_the_same_bytes(
    trained: Path, aggregate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = load_ensemble(trained)
    if isinstance(ensemble, ClusterEnsemble):
        pytest.skip("the votes of clusters are counted at once")
    ensemble.certify_data("mnist", aggregate, limit=30, out=tmp_path / "whole")
    votings = ensemble.rounds(aggregate) * len(ensemble.group_numbers)
    assert votings > 1
    for stop in sorted({1, 2, votings // 2 + 1, votings}):
        folder = tmp_path / f"stopped-{stop}"
        with monkeypatch.context() as patched:
            patched.setattr(StackedTrainer, "scores", stopping_at(stop))
            with pytest.raises(KeyboardInterrupt):
                ensemble.certify_data("mnist", aggregate, limit=30, out=folder)
        assert FILE in content(folder)
        assert "seal.json" not in content(folder)
        other = "plurality" if aggregate == "runoff" else "runoff"
        with pytest.raises(RunRefused, match="another run"):
            ensemble.certify_data("mnist", other, limit=30, out=folder)
        load_ensemble(trained).certify_data("mnist", aggregate, limit=30, out=folder)
        assert content(folder) == content(tmp_path / "whole")


def test_arrays_without_a_source_are_a_run_too(tmp_path: Path) -> None:
    digits = load("mnist:split=test")
    x, y = digits.images[:60], digits.labels[:60]
    train(replace(digits, images=x, labels=y), "dpa", 5, model=TINY, out=tmp_path / "ens")
    started: list[tuple[str, int, int]] = []
    told: list[int] = []

    @contextmanager
    def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[ProgressCallback]:
        started.append((label, total, done))
        yield told.append

    certs = load_ensemble(tmp_path / "ens").certify(x[:9], y[:9], out=tmp_path / "run", progress=progress)
    assert started == [("voting", 5, 0)]
    assert sum(told) == 5
    assert verify_run(tmp_path / "run").inputs == len(certs) == 9
    again = Ensemble.load(tmp_path / "ens").certify(x[:9], y[:9], out=tmp_path / "run")
    assert np.array_equal(again.radius, certs.radius)
    with pytest.raises(RunRefused, match="a run with other settings"):
        Ensemble.load(tmp_path / "ens").certify(x[1:9], y[1:9], out=tmp_path / "run")


def test_bad_requests_are_refused_before_anybody_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = train("mnist", "dpa", 3, limit=30, model=TINY)
    x, y = load("mnist:split=test").images[:5], load("mnist:split=test").labels[:5]
    monkeypatch.setattr(Ensemble, "tally", None)
    for words, arguments in {
        "one answer": {"aggregate": "runoff", "k": 2},
        "not a known aggregate": {"aggregate": "mean"},
        "below the number of classes": {"k": 10},
        "not a known label": {"label": "both"},
    }.items():
        with pytest.raises(BadInput, match=words):
            ensemble.certify(x, y, out=tmp_path / "run", **arguments)
    with pytest.raises(BadInput, match="there are none"):
        ensemble.certify(x, None, label="given", out=tmp_path / "run")
    with pytest.raises(BadInput, match="trained on"):
        ensemble.certify(x.astype(np.float32), y, out=tmp_path / "run")
    with pytest.raises(BadInput, match=r"index of shape \(4,\) and type int64 for 5 inputs"):
        ensemble.certify(x, y, out=tmp_path / "run", source=InputSource.of_arrays(x[:4], y[:4]))
    with pytest.raises(BadInput, match="outside the classes"):
        ensemble.certify(x, y + 9, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_imported_votes_are_those_of_the_command_line(tmp_path: Path) -> None:
    votes = np.random.default_rng(0).integers(0, 10, (30, 20))
    labels = load("mnist:split=test").labels[:30]
    np.savez(tmp_path / "v.npz", votes=votes, labels=labels, num_classes=10)
    vauban("poison", "import", tmp_path / "v.npz", "-d", "mnist", "--defense", "ss-dpa", "-o", tmp_path / "command")
    run = import_votes(tmp_path / "v.npz", tmp_path / "python", data="mnist", defense="ss-dpa")
    assert content(tmp_path / "python") == content(tmp_path / "command")
    assert run.certificates().threat.name == "label-flips"
    with pytest.raises(BadInput, match="not those of"):
        import_votes(tmp_path / "v.npz", tmp_path / "x", data=load("mnist:split=train"), defense="dpa")
    assert not (tmp_path / "x").exists()


def test_selected_classes_are_different_numbers() -> None:
    digits = load("mnist:split=test")
    chosen = select(digits, split="test", limit=50, classes="7,1")
    assert set(digits.labels[chosen.index].tolist()) == {1, 7}
    assert np.array_equal(chosen.y == 0, digits.labels[chosen.index] == 7)
    assert chosen.source.sha256 == digits.select(1, 50).fingerprint()
    for text in ("1", "1,1", "1,01", "1,x", "1,", ""):
        with pytest.raises(BadInput, match="two or more different"):
            select(digits, split="test", classes=text)
    with pytest.raises(BadInput, match="0 to 9"):
        select(digits, split="test", classes="1,10")
    bare = replace(digits, labels=None)
    assert select(bare, split="test", labels_needed=False).y is None
    with pytest.raises(BadInput, match="no labels"):
        select(bare, split="test")


def test_the_number_of_classes_must_be_stated(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", images=np.zeros((20, 1, 4, 4), dtype=np.uint8), labels=np.arange(20) % 2)
    assert load("mnist:split=test").classes_fixed
    assert not load(f"npz:path={tmp_path / 'd.npz'}").classes_fixed
    assert load(f"npz:path={tmp_path / 'd.npz'},classes=2").classes_fixed
    with pytest.raises(BadInput, match="one poisoned label could"):
        train(f"npz:path={tmp_path / 'd.npz'}", "dpa", 2)
    with pytest.raises(BadInput, match="one poisoned label could"):
        train(replace(load("mnist:split=test"), classes_fixed=False), "dpa", 2)


def test_a_source_of_arrays_tells_them_apart() -> None:
    x, y = np.zeros((3, 2), dtype=np.uint8), np.array([0, 1, 0])
    assert InputSource.of_arrays(x, y).sha256 != InputSource.of_arrays(x, 1 - y).sha256
    assert InputSource.of_arrays(x, None).sha256 != InputSource.of_arrays(x, y).sha256
