"""vauban poison as a person uses it: train, stop, go on, certify, verify, and everything that can be wrong."""

import csv
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from poison_commands import PLAIN, TEST, TINY
from typer.testing import CliRunner

from vauban.cli import app
from vauban.data import load
from vauban.laws.poisoning.finite import spread_offsets
from vauban.poisoning import Ensemble, EnsembleVotes, derive
from vauban.poisoning.partitioning.samples import set_sha256
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
from vauban.poisoning.training.weights_folder import WeightsFolder

TRAIN = [
    "poison",
    "train",
    "--data",
    "mnist",
    "--limit",
    "600",
    "--partitions",
    "20",
    "--model",
    TINY,
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("poison") / "ens"
    vauban(*TRAIN, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def run(ensemble: Path) -> Path:
    folder = ensemble.parent / "run"
    vauban("poison", "certify", "--ensemble", ensemble, *TEST, "--out", folder)
    return folder


def interrupt_at(call: int, by_signal: bool) -> None:
    """Interrupt this process when base classifiers are scored or saved for the `call`-th time."""
    import os
    import signal
    import time

    from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
    from vauban.poisoning.training.weights_folder import WeightsFolder

    calls = []

    def interrupting(function):
        def call_it(*given):
            calls.append(1)
            if len(calls) == call and by_signal:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been inherited as ignored
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            elif len(calls) == call:
                raise KeyboardInterrupt
            return function(*given)

        return call_it

    StackedTrainer.scores = interrupting(StackedTrainer.scores)
    WeightsFolder.write = interrupting(WeightsFolder.write)


def interrupted(call: int, command: list[str], by_signal: bool) -> str:
    """What a command says that is interrupted: by a signal in a process of its own, or by the exception alone."""
    if by_signal:
        code = f"{inspect.getsource(interrupt_at)}\ninterrupt_at({call}, True)\nfrom vauban.cli import main; main()"
        process = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
        assert process.returncode == 130, process.stderr
        return process.stderr
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StackedTrainer, "scores", StackedTrainer.scores)
        patched.setattr(WeightsFolder, "write", WeightsFolder.write)
        interrupt_at(call, False)
        return vauban(*command, code=130)


INTERRUPTIONS = [pytest.param(False, id="exception"), pytest.param(True, id="signal", marks=pytest.mark.slow)]


@pytest.mark.parametrize("by_signal", INTERRUPTIONS)
def test_stopped_with_ctrl_c_and_taken_up_again(by_signal: bool, ensemble: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ens"
    assert "run the same command again" in interrupted(6, [*TRAIN, "--out", str(folder)], by_signal)
    there = len(list(folder.glob("models-*.safetensors")))
    assert there == 2
    assert "train command again" in vauban("poison", "certify", "-e", folder, *TEST, "--out", tmp_path / "r", code=3)
    done = CliRunner().invoke(app, [*TRAIN, "--out", str(folder)])
    assert done.exit_code == 0
    assert f"holds {5 * there} of 20 base classifiers; going on" in done.stderr
    names = sorted(path.name for path in ensemble.glob("*.safetensors"))
    assert names == sorted(path.name for path in folder.glob("*.safetensors"))
    one, two = Ensemble.load(ensemble), Ensemble.load(folder)
    assert one.fingerprints == two.fingerprints


@pytest.mark.parametrize("by_signal", INTERRUPTIONS)
def test_voting_stopped_with_ctrl_c_goes_on(by_signal: bool, ensemble: Path, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    asked = ["poison", "certify", "--ensemble", str(ensemble), *TEST, "--out", str(folder)]
    assert "keeps the votes so far; run the same command again" in interrupted(3, asked, by_signal)
    assert {path.name for path in folder.iterdir()} - {".lock"} == {"ballots.checkpoint.npz"}
    assert "another run" in vauban(*asked[:-1], folder, "--aggregate", "runoff", code=2)
    vauban(*asked)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in run.iterdir())
    assert (folder / "seal.json").read_bytes() == (run / "seal.json").read_bytes()
    vauban("verify", folder)


def test_a_finished_run_is_not_voted_on_again(
    ensemble: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    monkeypatch.setattr(Ensemble, "tally", None)
    command = ["poison", "certify", "-e", str(ensemble), *TEST, "--out", str(folder)]
    first = vauban("claim", run, "--json")
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.output
    assert "is finished: its stored votes are used, and no base classifier votes again" in again.stderr
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["run"] == str(folder)
    assert vauban("claim", folder, "--json") == first
    assert "without the vote of every base classifier" in vauban(*command, "--keep-votes", code=2)
    assert "holds a run with other settings" in vauban(*command[:-1], folder, "--limit", "7", code=2)
    other = ensemble.parent / "other"
    vauban(*(word if word != "600" else "500" for word in TRAIN), "--out", other)
    said = vauban(*command[:3], str(other), *command[4:], code=2)
    assert "holds a run with other settings" in said
    assert "training." in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in run.iterdir()
    }


def test_altered_votes_of_a_finished_run_are_not_used(ensemble: Path, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    with np.load(folder / "ballots.npz") as kept:
        arrays = {name: np.array(kept[name]) for name in kept.files}
    arrays["counts"][0] = np.roll(arrays["counts"][0], 1)
    np.savez_compressed(folder / "ballots.npz", **arrays)
    vauban("poison", "certify", "-e", ensemble, *TEST, "--out", folder, code=1)
    (folder / "ballots.npz").unlink()
    vauban("poison", "certify", "-e", ensemble, *TEST, "--out", folder)
    assert (folder / "seal.json").read_bytes() == (run / "seal.json").read_bytes()


def test_a_folder_with_another_run_is_refused_before_anybody_votes(
    ensemble: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ensemble, "tally", None)
    before = sorted(path.name for path in run.iterdir())
    said = vauban("poison", "certify", "-e", ensemble, *TEST, "--aggregate", "runoff", "--out", run, code=2)
    assert "holds a run with other settings" in said
    assert sorted(path.name for path in run.iterdir()) == before


def test_the_run_says_what_the_votes_say(ensemble: Path, run: Path) -> None:
    digits = load("mnist:split=test")
    certs = Ensemble.load(ensemble).certify(digits.images[:40], digits.labels[:40])
    rows = list(csv.DictReader((run / "claims.csv").open()))
    assert [int(row["label"]) for row in rows] == certs.label.tolist()
    assert [float(row["radius"]) for row in rows] == certs.radius.tolist()
    manifest = json.loads((run / "manifest.json").read_text())
    train = load("mnist:split=train")
    assert manifest["training"]["data"]["sha256"] == set_sha256(train.images[:600], train.labels[:600])
    assert manifest["partition"] == "hash:partitions=20"
    assert "counts twice" in manifest["claim"]


def test_verify_proves_it_without_torch(run: Path) -> None:
    code = (
        f"import sys; from vauban.runs.verify import verify_run; v = verify_run({str(run)!r}); "
        "assert 'torch' not in sys.modules; print(v.votes)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "800\n"
    assert "40 claims recomputed from 800 votes; all hold" in vauban("verify", run)


def test_verify_finds_lies(run: Path, tmp_path: Path) -> None:
    def forged(name: str) -> Path:
        copy = tmp_path / name
        shutil.copytree(run, copy)
        return copy

    claims = forged("claims")
    lines = (claims / "claims.csv").read_text().splitlines()
    index, label, radius, *rest = lines[3].split(",")
    lines[3] = ",".join([index, label, str(int(radius) + 1), *rest])
    (claims / "claims.csv").write_text("\n".join(lines) + "\n")
    assert "line 4 says" in vauban("verify", claims, code=1)
    open_ = forged("open")
    (open_ / "seal.json").unlink()
    assert "not sealed" in vauban("verify", open_, code=3)
    bare = forged("bare")
    (bare / "ballots.npz").unlink()
    assert "has no ballots" in vauban("verify", bare, code=3)
    garbled = forged("garbled")
    (garbled / "ballots.npz").write_bytes(b"PK nothing")
    assert "cannot be read" in vauban("verify", garbled, code=1)


def test_runoff_and_finite_aggregation(ensemble: Path, tmp_path: Path) -> None:
    out = vauban("poison", "certify", "-e", ensemble, *TEST, "--aggregate", "runoff", "--out", tmp_path / "runoff")
    assert "runoff" in out
    assert "all hold" in vauban("verify", tmp_path / "runoff")
    finite = tmp_path / "finite"
    small = [*TRAIN[:4], "--limit", "300", "-p", "5", "--model", TINY, "--device", "cpu"]
    vauban(*small, "--defense", "finite:spread=3", "--out", finite)
    for aggregate in ("plurality", "runoff"):
        folder = tmp_path / f"finite-{aggregate}"
        told = json.loads(
            vauban("poison", "certify", "-e", finite, *TEST, "--aggregate", aggregate, "--json", "--out", folder)
        )
        assert told["models"] == 15
        assert told["spread"] == 3
        assert "all hold" in vauban("verify", folder)
        again = vauban("poison", "certify", "-e", finite, *TEST, "--aggregate", aggregate, "--json", "--out", folder)
        assert json.loads(again) == told
    arrays = np.load(tmp_path / "finite-runoff" / "ballots.npz")
    assert sorted(arrays.files) == ["prefers", "votes", "winner"]
    flipped = arrays["prefers"].copy()
    flipped[0] ^= 0xFF
    np.savez(tmp_path / "finite-runoff" / "ballots.npz", **{**arrays, "prefers": flipped})
    assert "do not fit" in vauban("verify", tmp_path / "finite-runoff", code=1)


def test_label_flips_and_clusters(tmp_path: Path) -> None:
    small = [*TRAIN[:4], "--limit", "300", "-p", "6", "--model", TINY, "--device", "cpu", "--preprocess", "equalize"]
    vauban(*small, "--defence", "ss-dpa:features=none", "--seeds", "shared", "--out", tmp_path / "flips")
    out = vauban("poison", "certify", "-e", tmp_path / "flips", *TEST, "-k", "2", "--out", tmp_path / "r")
    assert "relabelled training samples" in out
    assert "all hold" in vauban("verify", tmp_path / "r")
    clusters = ["poison", "train", "--limit", "2000", "--classes", "1,7", "--defense", "ss-dpa:features=clusters"]
    vauban(*clusters, "--out", tmp_path / "clusters")
    told = json.loads(
        vauban("poison", "certify", "-e", tmp_path / "clusters", "--limit", "500", "--json", "--out", tmp_path / "c")
    )
    assert told["clean_accuracy"] > 0.9
    assert told["median_radius"] > 150
    assert "all hold" in vauban("verify", tmp_path / "c")
    index = json.loads((tmp_path / "c" / "manifest.json").read_text())["data"]["index"]
    assert set(load("mnist:split=test").labels[index].tolist()) == {1, 7}


def test_claim_again_from_a_run_and_from_anybodys_votes(ensemble: Path, run: Path, tmp_path: Path) -> None:
    out = vauban("claim", run, "-k", "2", "--out", tmp_path / "top2.csv")
    assert "top 2 of 40 inputs" in out
    digits = load("mnist:split=test")
    made = Ensemble.load(ensemble)
    votes, scores = made.votes(digits.images[:40]), made.scores(digits.images[:40])
    np.savez(tmp_path / "votes.npz", votes=votes, labels=digits.labels[:40], num_classes=10)
    told = json.loads(vauban("claim", tmp_path / "votes.npz", "--smoothing", PLAIN, "--json"))
    rows = list(csv.DictReader((run / "claims.csv").open()))
    assert [str(c["radius"]) for c in told["claims"]] == [row["radius"] for row in rows]
    offsets = spread_offsets(scores.shape[1], 2)
    np.savez(tmp_path / "scores.npz", scores=scores, labels=digits.labels[:40], num_classes=10, offsets=offsets)
    two = "partition:aggregate=runoff,spread=2,threat=samples"
    told = json.loads(vauban("claim", tmp_path / "scores.npz", "--smoothing", two, "--json", "-o", tmp_path / "c.csv"))
    slow = derive(EnsembleVotes.from_arrays({"scores": scores}, 10, spread=2), digits.labels[:40], aggregate="runoff")
    assert [c["radius"] for c in told["claims"]] == slow.radius.tolist()
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 41
    flips = vauban("claim", tmp_path / "votes.npz", "--smoothing", "partition:spread=1,threat=labels")
    assert "relabelled" in flips


def test_votes_of_elsewhere_become_a_run(ensemble: Path, run: Path, tmp_path: Path) -> None:
    digits = load("mnist:split=test")
    arrays = Ensemble.load(ensemble).tally(digits.images[:40], "runoff").arrays("runoff")
    duels = np.zeros((40, 10, 10), dtype=np.uint16)
    scores = Ensemble.load(ensemble).scores(digits.images[:40])
    for a in range(10):
        for b in range(10):
            if a != b:
                above = (scores[:, :, a] > scores[:, :, b]) | ((scores[:, :, a] == scores[:, :, b]) & (a < b))
                duels[:, a, b] = above.sum(axis=1)
    training = json.dumps({"defense": "dpa", "partition": "hash:partitions=20", "command": "elsewhere"})
    np.savez(
        tmp_path / "v.npz",
        counts=arrays["counts"],
        duels=duels,
        labels=digits.labels[:40],
        num_classes=10,
        training=training,
    )
    command = ["poison", "import", tmp_path / "v.npz", "--data", "mnist:split=test"]
    vauban(*command, "--out", tmp_path / "plain")
    assert (tmp_path / "plain" / "claims.csv").read_bytes() == (run / "claims.csv").read_bytes()
    vauban(*command, "--aggregate", "runoff", "--out", tmp_path / "runoff")
    kept = np.load(tmp_path / "runoff" / "ballots.npz")
    assert all(np.array_equal(kept[name], arrays[name]) for name in ("counts", "winner", "beats"))
    assert "all hold" in vauban("verify", tmp_path / "runoff")
    assert "holds a run with other settings" in vauban(
        *command, "--aggregate", "runoff", "--out", tmp_path / "plain", code=2
    )
    assert "votes of 20 models" in vauban(*command, "--defense", "dpa", "-p", "30", "--out", tmp_path / "x", code=2)
    np.savez(tmp_path / "w.npz", counts=arrays["counts"], labels=(digits.labels[:40] + 1) % 10, num_classes=10)
    wrong = ["poison", "import", tmp_path / "w.npz", "-d", "mnist", "--out", tmp_path / "x"]
    assert "not those of" in vauban(*wrong, "--defense", "dpa", code=2)
    assert "does not say the spread and threat of its votes" in vauban(*wrong, code=2)
    assert not (tmp_path / "x").exists()


BAD = [
    (["poison", "train", "-o", "X"], "--partitions is needed"),
    (["poison", "train", "-p", "5", "--defense", "dpa:by=sort", "-o", "X"], "would prove nothing"),
    (["poison", "train", "-p", "5", "--defence", "doa", "-o", "X"], "did you mean 'dpa'"),
    (["poison", "train", "-p", "5", "--limit", "50", "--model", "tiny-cnn:stops=3", "-o", "X"], "did you mean 'steps'"),
    (["poison", "train", "-p", "5", "--limit", "50", "--model", "cnn:steps=many", "-o", "X"], "cannot be read"),
    (["poison", "train", "-p", "5", "--limit", "50", "--classes", "1,11", "-o", "X"], "classes 0 to 9"),
    (["poison", "train", "-p", "5", "--limit", "50", "--classes", "1", "-o", "X"], "two or more different"),
    (["poison", "train", "--limit", "50", "--defense", "ss-dpa:features=clusters", "-o", "X"], "--classes 1,7"),
    (["poison", "train", "-p", "5", "--limit", "50", "--seeds", "odd", "-o", "X"], "way to seed"),
    (["poison", "train", "-p", "5", "--limit", "50", "--preprocess", "odd", "-o", "X"], "not a known preprocessing"),
    (["poison", "certify", "-e", "nowhere", "-o", "X"], "has no manifest.json"),
    (
        ["poison", "certify", "-e", "ENS", "-d", "mnist:split=test", "--aggregate", "mean", "-o", "X"],
        "not a known aggregate",
    ),
    (["poison", "certify", "-e", "ENS", "--aggregate", "runoff", "-k", "2", "--limit", "5", "-o", "X"], "one answer"),
    (["poison", "certify", "-e", "RUN", "-o", "X"], "vauban poison train wrote"),
    (["poison", "import", "nowhere.npz", "-o", "X"], "is no file"),
    (["verify", "ENS"], "vauban poison certify wrote"),
    (["claim", "VOTES"], "--smoothing partition:spread=1,threat=samples"),
    (["claim", "VOTES", "--smoothing", "partition"], "does not say the spread and threat"),
    (["claim", "VOTES", "--smoothing", "partition:threat=labels"], "does not say the spread of"),
    (["claim", "VOTES", "--smoothing", "partition:spread=2,threat=samples"], "as offsets"),
    (["claim", "VOTES", "--smoothing", "gaussian:sigma=1"], "about partitions"),
    (["claim", "VOTES", "--smoothing", PLAIN, "--alpha", "0.1"], "exact"),
    (["claim", "VOTES", "--smoothing", f"{PLAIN},aggregate=runoff"], "second-round votes"),
    (["claim", "VOTES", "--smoothing", "partition:spread=3,threat=samples"], "partitions \\* spread"),
    (["claim", "VOTES", "--smoothing", "partition:spread=0"], "whole number from 1"),
    (["claim", "VOTES", "--smoothing", PLAIN, "-k", "10"], "below the number of classes"),
    (["claim", "RUN", "--smoothing", "partition"], "leave --smoothing out"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=lambda a: " ".join(a[1:6]) if isinstance(a, list) else None)
def test_bad_requests_are_answered(arguments: list[str], words: str, ensemble: Path, run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "votes.npz", votes=np.zeros((3, 4), dtype=np.uint8), num_classes=10)
    names = {"ENS": ensemble, "RUN": run, "VOTES": tmp_path / "votes.npz", "X": tmp_path / "x"}
    smaller = ["--data", "mnist:split=test"] if arguments[:2] == ["poison", "train"] else []
    said = vauban(*(names.get(argument, argument) for argument in [*arguments, *smaller]), code=2)
    assert words.replace("\\", "") in said
    assert "Traceback" not in said
    assert not (tmp_path / "x").exists()
