"""Announced runs: the noise depends on a nonce that did not exist when the manifest was published; all else is refused."""

import hashlib
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import vauban as run_words

import vauban as vb
from vauban.data import Dataset, load
from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.files import write_json
from vauban.models import load as load_model
from vauban.models import packaged
from vauban.replay import replay
from vauban.runs.manifest import read_unchecked
from vauban.runs.store import FolderStore, read_record, write_claims
from vauban.runs.verify import verify_run
from vauban.seed import Seed
from vauban.smoothing.random import Stream

NONCE, OTHER = "ab" * 16, "cd" * 64
SOURCE = "a beacon/round 4711"
COMMAND = "certify --smoothing gaussian:sigma=0.5 --every 2000 --limit 4 -n 200 --alpha 0.01"


def vauban(command: str, *more: str | Path, code: int = 0) -> str:
    return run_words(*command.split(), *more, code=code)


def announced(folder: Path) -> str:
    said = json.loads(vauban(COMMAND, "--out", folder, "--announce", "--nonce-from", SOURCE, "--json"))
    assert said == {"run": str(folder), "announced": said["announced"], "nonce_from": SOURCE}
    return str(said["announced"])


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("mnist:split=test")


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An announced run without its nonce."""
    folder = tmp_path_factory.mktemp("announced") / "waiting"
    announced(folder)
    return folder


@pytest.fixture(scope="module")
def finished(waiting: Path) -> Path:
    folder = Path(shutil.copytree(waiting, waiting.parent / "finished"))
    vauban(COMMAND, "--out", folder, "--nonce", NONCE)
    return folder


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def identity(folder: Path) -> str:
    return vb.runs.manifest.read(folder).identity


@cache
def world() -> tuple[vb.SmoothedClassifier, Dataset]:
    """The classifier and inputs of `COMMAND`."""
    smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), "gaussian:sigma=0.5")
    return smoothed, load("mnist:split=test").select(2_000, 4)


def certify(folder: Path, **given: Any) -> Any:
    smoothed, inputs = world()
    return smoothed.certify(inputs, n=200, alpha=0.01, out=folder, progress=False, **given)


def test_an_announcement_writes_the_manifest_and_casts_no_vote(waiting: Path, tmp_path: Path) -> None:
    assert {path.name for path in waiting.iterdir()} - {".lock"} == {"manifest.json", "seed"}
    raw = json.loads((waiting / "manifest.json").read_text())
    assert (raw["seed"]["kind"], raw["seed"]["nonce_from"], raw["requires"]) == (
        "announced",
        SOURCE,
        ["seed.nonce_from"],
    )
    folder = copied(waiting, tmp_path)
    assert announced(folder) == identity(waiting)  # said again after a crash, the same
    with pytest.raises(Incomplete, match=f"announced as {identity(waiting)} and waits for its nonce"):
        verify_run(waiting)
    assert "waits for its nonce: give --nonce" in vauban(COMMAND, "--out", folder, code=2)
    assert "seed.nonce_from" in vauban(COMMAND, "--out", folder, "--announce", "--nonce-from", "else", code=2)


def test_the_key_is_what_the_specification_says(finished: Path) -> None:
    secret = bytes.fromhex((finished / "seed").read_text())
    said = json.loads((finished / "nonce.json").read_text())
    assert said == {"announced": identity(finished), "nonce": NONCE}
    inner = hashlib.sha256(bytes.fromhex(NONCE)).digest()
    right = hashlib.sha256(b"vauban votes with " + secret + bytes.fromhex(said["announced"]) + inner).digest()[:16]
    record, _ = read_record(finished)
    seed = record.bound(Seed.read(finished))
    assert seed.key == int.from_bytes(right, "little")
    words = Stream(seed, "count", 0).words(0, 4, 4, torch.device("cpu"))
    assert not torch.equal(words, Stream(Seed.read(finished), "count", 0).words(0, 4, 4, torch.device("cpu")))
    with pytest.raises(RunRefused, match="no noise before its nonce"):
        _ = Seed.of(None, SOURCE).key


def test_votes_seal_and_replay_are_those_of_hash_and_nonce(finished: Path, digits: Dataset, tmp_path: Path) -> None:
    assert len(replay(finished, load_model(packaged("mnist")), digits, inputs=None).replayed) == 4
    lines = (finished / "tallies.jsonl").read_text()
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    for name in ("nonce.json", "tallies.jsonl", "claims.csv", "seal.json"):
        (other / name).unlink()
    certify(other, nonce=OTHER)
    assert (other / "tallies.jsonl").read_text() != lines
    (other / "tallies.jsonl").write_text(lines)
    with pytest.raises(Lie, match="its check does not match"):
        verify_run(other)


def test_verify_compares_with_what_was_published(finished: Path) -> None:
    hashed = identity(finished)
    said = vauban("verify", finished, "--announced", hashed, "--nonce", NONCE)
    assert f"announced as {hashed}, with the nonce {NONCE}" in said
    assert "binds only together with a replay" in said
    assert SOURCE in said
    assert "another run" in vauban("verify", finished, "--announced", "0" * 64, "--nonce", NONCE, code=1)
    assert "another try" in vauban("verify", finished, "--announced", hashed, "--nonce", OTHER, code=1)
    assert "give both" in vauban("verify", finished, "--announced", hashed, code=2)
    assert "lower-case hex" in vauban("verify", finished, "--announced", hashed, "--nonce", "xyz", code=2)


def test_the_three_kinds_of_seeds_are_told_apart(finished: Path, tmp_path: Path) -> None:
    certify(tmp_path / "hand", seed=3)
    certify(tmp_path / "system")
    kinds = [verify_run(folder) for folder in (tmp_path / "hand", tmp_path / "system", finished)]
    assert [verdict.seed for verdict in kinds] == ["number", "system", "announced"]
    for verdict, words in zip(kinds, ("chosen by hand", "was not announced", "binds only together"), strict=True):
        assert words in " ".join(verdict.unproven)
    for folder in (tmp_path / "hand", tmp_path / "system"):
        with pytest.raises(RunRefused, match="is not announced"):
            verify_run(folder, announced=identity(folder), nonce=NONCE)
    forged = copied(tmp_path / "system", tmp_path)
    raw = json.loads((forged / "manifest.json").read_text())
    raw["seed"]["kind"] = "blessed"
    write_json(forged / "manifest.json", raw)
    with pytest.raises(RunRefused, match="'blessed'.*number, system, announced"):
        verify_run(forged)


def test_what_was_not_announced_cannot_become_so(finished: Path, tmp_path: Path) -> None:
    """Neither by the command nor by forging: a nonce beside a run of another kind, a kind without its nonce."""
    certify(tmp_path / "run")
    with pytest.raises(RunRefused, match="not announced before its votes"):
        certify(tmp_path / "run", announce=True, nonce_from=SOURCE)
    with pytest.raises(RunRefused, match="not announced before its votes"):
        certify(tmp_path / "run", nonce=NONCE)
    with pytest.raises(RunRefused, match="holds no announced run"):
        certify(tmp_path / "fresh", nonce=NONCE)
    shutil.copy(finished / "nonce.json", tmp_path / "run" / "nonce.json")
    with pytest.raises(Lie, match="not that of an announced run"):
        verify_run(tmp_path / "run")
    folder = copied(finished, tmp_path)
    (folder / "nonce.json").unlink()
    with pytest.raises(Lie, match="come after its nonce"):
        verify_run(folder)
    write_json(folder / "nonce.json", {"announced": "0" * 64, "nonce": NONCE})
    with pytest.raises(Lie, match="not about this run"):
        verify_run(folder)
    write_json(folder / "nonce.json", {"announced": identity(folder), "nonce": NONCE.upper()})
    with pytest.raises(Lie, match="lower-case hex"):
        verify_run(folder)


def test_one_nonce_and_no_more(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    assert "a second try" in vauban(COMMAND, "--out", folder, "--nonce", OTHER, code=2)
    assert "has its nonce already" in vauban(COMMAND, "--out", folder, "--announce", "--nonce-from", SOURCE, code=2)
    before = (folder / "seal.json").read_bytes()
    vauban(COMMAND, "--out", folder)  # resumed without --nonce, and with the same one
    vauban(COMMAND, "--out", folder, "--nonce", NONCE)
    assert (folder / "seal.json").read_bytes() == before


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    says = {
        "hides nothing": {"announce": True, "nonce_from": SOURCE, "seed": 1},
        "leave --seed out": {"nonce": NONCE, "seed": 1},
        "no nonce yet": {"announce": True, "nonce_from": SOURCE, "nonce": NONCE},
        "belong together": {"announce": True},
        "a line of text": {"announce": True, "nonce_from": " "},
        "give out=": {"announce": True, "nonce_from": SOURCE, "out": None},
    }
    for words, given in says.items():
        with pytest.raises(BadInput, match=words):
            certify(given.pop("out", tmp_path / "run"), **given)
    for bad in ("", "ab" * 15, "ab" * 65, "AB" * 16, "ab" * 16 + "a", " " + NONCE, "zz" * 16, NONCE + "\n"):
        with pytest.raises(BadInput, match="16 to 64 bytes"):
            certify(tmp_path / "run", nonce=bad)
    exact = vb.SmoothedClassifier(lambda views: views.flatten(1)[:, :10], "splitting:sigma=0.2", num_classes=10)
    with pytest.raises(BadInput, match="which is exact"):
        exact.certify(world()[1], out=tmp_path / "run", announce=True, nonce_from=SOURCE)
    assert not (tmp_path / "run").exists()


def test_a_crash_after_the_nonce_and_amid_the_votes_is_resumed(
    waiting: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(waiting, tmp_path)
    keep, kept = FolderStore.keep, []

    def dying(self: FolderStore, record: Any) -> None:
        if len(kept) in stops:
            stops.remove(len(kept))
            raise KeyboardInterrupt
        kept.append(record)
        keep(self, record)

    stops = [0, 3]
    monkeypatch.setattr(FolderStore, "keep", dying)
    for given in ({"nonce": NONCE}, {}):
        with pytest.raises(KeyboardInterrupt):
            certify(folder, **given)
        assert (folder / "nonce.json").exists()
    certify(folder)
    lines = [sorted((one / "tallies.jsonl").read_text().splitlines()) for one in (folder, finished)]
    assert lines[0] == lines[1]
    (folder / "nonce.json").unlink()  # a file system that lost it: the same nonce is taken again, another one is not
    with pytest.raises(Lie, match="its check does not match"):
        certify(folder, nonce=OTHER)
    assert not (folder / "nonce.json").exists()
    certify(folder, nonce=NONCE)
    verify_run(folder)


def test_a_seed_that_is_never_shown_is_said(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    (folder / "seed").unlink()
    assert "the run is not an announced one" in " ".join(verify_run(folder).unproven)


def test_extended_and_saved_runs_keep_the_binding(finished: Path, digits: Dataset, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    certs = certify(folder, extend=400)
    assert verify_run(folder).extensions == (400,)
    assert replay(folder, load_model(packaged("mnist")), digits, inputs=2).votes == 800
    certs.save(tmp_path / "saved")
    assert verify_run(tmp_path / "saved", announced=identity(folder), nonce=NONCE).seed == "announced"


def test_an_altered_picture_is_found_and_what_is_not_derived_is_said(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    verdict = verify_run(folder)
    assert "curve.png" in " ".join(verdict.underived)
    assert "device, threads and versions" in vauban("verify", folder)
    (folder / "curve.png").write_bytes((folder / "curve.png").read_bytes() + b"!")
    with pytest.raises(Lie, match=r"curve.png changed after the run was sealed"):
        verify_run(folder)
    with pytest.raises(Lie, match="remove them"):
        certify(folder)
    (folder / "curve.png").unlink()
    with pytest.raises(Lie, match=r"curve.png changed after the run was sealed"):
        verify_run(folder)
    write_claims(folder, read_record(folder)[0])  # an older run, whose seal names no picture
    (folder / "curve.png").write_bytes(b"anything")
    assert "the seal does not name it" in " ".join(verify_run(folder).underived)
    vauban(COMMAND, "--out", folder)  # the command line draws it again, and seals it
    assert "those that were sealed" in " ".join(verify_run(folder).underived)


def test_the_binding_is_the_hash_of_the_nonce_file(finished: Path) -> None:
    text = f'{{"announced":"{identity(finished)}","nonce":"{NONCE}"}}'
    bound = hashlib.sha256(text.encode()).hexdigest()
    assert read_record(finished)[0].binding == bound
    assert json.loads((finished / "seal.json").read_text())["nonce.json"] == bound


def test_poisoning_runs_have_no_noise_to_announce() -> None:
    results = Path(__file__).parents[2] / "results"
    kinds = {path.parent: read_unchecked(path.parent).get("kind") for path in results.glob("*/*/manifest.json*")}
    poisoning = min(folder for folder, kind in kinds.items() if kind == "poisoning")
    with pytest.raises(RunRefused, match="no noise to announce"):
        verify_run(poisoning, announced="0" * 64, nonce=NONCE)
    with pytest.raises(RunRefused, match="no selection to compare"):
        verify_run(poisoning, data=world()[1])
    vauban("poison certify --announce", code=2)


@pytest.mark.slow
def test_workers_of_a_cluster_have_the_same_noise(
    waiting: Path, finished: Path, tmp_path: Path, ray_cluster: Any
) -> None:
    folder = copied(waiting, tmp_path)
    certify(folder, nonce=NONCE, on=ray_cluster.on)
    lines = [sorted((one / "tallies.jsonl").read_text().splitlines()) for one in (folder, finished)]
    assert lines[0] == lines[1]


def test_a_refused_command_spends_no_nonce(waiting: Path, tmp_path: Path) -> None:
    folder = copied(waiting, tmp_path)
    with pytest.raises(RunRefused, match="not finished"):
        certify(folder, nonce=NONCE, extend=400)
    assert not (folder / "nonce.json").exists()
    certify(folder, nonce="ab" * 16)
    assert verify_run(folder).seed == "announced"
