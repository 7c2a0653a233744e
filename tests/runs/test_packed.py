"""A finished run whose manifest, votes and claims are gzipped is the same run to everything that reads, resumes or avoids it."""

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import vauban
from typer.testing import CliRunner

import vauban as vb
from vauban.attacks.folder import AttackFolder
from vauban.cli import app
from vauban.data import Dataset
from vauban.errors import Lie, RunRefused
from vauban.poisoning.training.weights_folder import WeightsFolder
from vauban.poisoning.votes.importing import holds_votes, import_votes
from vauban.replay import replay
from vauban.reproduce.running import pack
from vauban.runs.manifest import has_manifest
from vauban.runs.verify import verify_run

X = np.linspace(120, 250, 24).astype(np.uint8).reshape(6, 1, 2, 2)


def model(views: torch.Tensor) -> torch.Tensor:
    mean = views.flatten(1).mean(dim=1, keepdim=True)
    return torch.cat([0.6 - mean, mean - 0.6], dim=1)


def certify(out: Path, **more: Any) -> vb.Certificates:
    smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.25), num_classes=2)
    return smoothed.certify(X, [1] * len(X), n=100, seed=1, out=out, progress=False, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    certify(folder)
    return folder


@pytest.fixture
def plain(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "plain"))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(made, tmp_path / "run"))
    pack(folder)
    return folder


@pytest.fixture
def poisoning(tmp_path: Path) -> Path:
    """A packed poisoning run."""
    votes = np.random.default_rng(1).integers(0, 3, (4, 11))
    np.savez(
        tmp_path / "votes.npz",
        votes=votes,
        labels=[0, 1, 2, 0],
        num_classes=3,
        partition="hash:partitions=11",
        spread=1,
        threat="samples",
    )
    import_votes(tmp_path / "votes.npz", tmp_path / "parts")
    pack(tmp_path / "parts")
    return tmp_path / "parts"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_packing_leaves_no_plain_copy_and_the_same_verdict(plain: Path, run: Path) -> None:
    assert names(run) == ["claims.csv.gz", "manifest.json.gz", "seal.json", "seed", "tallies.jsonl.gz"]
    assert (run / "seal.json").read_bytes() == (plain / "seal.json").read_bytes()
    assert gzip.decompress((run / "manifest.json.gz").read_bytes()) == (plain / "manifest.json").read_bytes()
    assert verify_run(run) == verify_run(plain)
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    pack(run)
    assert before == {path: path.stat().st_mtime_ns for path in run.iterdir()}


@pytest.mark.parametrize(
    "words", ["verify RUN", "claim RUN -k 1 --alpha 0.01", "compare RUN RUN", "report RUN --out X.html"]
)
def test_commands_read_a_packed_run(words: str, plain: Path, run: Path, tmp_path: Path) -> None:
    said = []
    for folder in (plain, run):
        given = [
            str(folder) if word == "RUN" else word.replace("X", str(tmp_path / folder.name)) for word in words.split()
        ]
        said.append(vauban(*given).replace(str(folder), "RUN").replace(str(tmp_path / folder.name), "X"))
    assert said[0] == said[1]


def test_convert_reads_it_and_writes_nothing_into_it(run: Path, poisoning: Path, tmp_path: Path) -> None:
    for folder in (run, poisoning):
        vauban("convert", folder, tmp_path / "out.csv")
        assert "lies in a run folder" in vauban("convert", folder, folder / "out.csv", code=2)


def test_a_packed_run_goes_on_where_a_run_with_packed_votes_does(run: Path) -> None:
    before = names(run)
    certs = certify(run)
    assert names(run) == before
    assert certs == vb.Run.open(run).certificates()
    with pytest.raises(RunRefused, match="unpack it with gunzip"):
        certify(run, extend=200)
    with pytest.raises(RunRefused, match="other settings"):
        certify(run, alpha=0.01)
    (run / "tallies.jsonl").write_bytes(gzip.decompress((run / "tallies.jsonl.gz").read_bytes()))
    (run / "tallies.jsonl.gz").unlink()
    certify(run, extend=200)
    assert verify_run(run).extensions == (200,)
    assert not (run / "manifest.json").exists()


def test_two_manifests_are_refused(run: Path, poisoning: Path) -> None:
    for folder in (run, poisoning):
        (folder / "manifest.json").write_bytes(gzip.decompress((folder / "manifest.json.gz").read_bytes()))
        with pytest.raises(Lie, match=r"manifest.json.* both exist"):
            verify_run(folder)


@pytest.mark.parametrize("name", ["manifest.json", "tallies.jsonl"])
@pytest.mark.parametrize("words", ["claim RUN", "plot RUN --out X.png", "compare RUN RUN"])
def test_no_command_picks_one_of_two_files_that_differ(name: str, words: str, run: Path, tmp_path: Path) -> None:
    content = gzip.decompress((run / f"{name}.gz").read_bytes())
    given = [str(run) if word == "RUN" else word.replace("X", str(tmp_path / "out")) for word in words.split()]
    (run / name).write_bytes(content)
    vauban(*given)  # the same twice, as a kill while it is packed leaves them
    (run / name).write_bytes(content.replace(b"9", b"8"))
    assert "both exist and differ" in vauban(*given, code=1)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{}", "cannot be unpacked"), (b"", "cut off"), (gzip.compress(b"{", mtime=0), "cannot be read")],
)
def test_a_damaged_manifest_ends_in_a_sentence(content: bytes, words: str, run: Path, poisoning: Path) -> None:
    for folder in (run, poisoning):
        (folder / "manifest.json.gz").write_bytes(content)
        with pytest.raises(Lie, match=words):
            verify_run(folder)
        for command in ("claim", "verify"):
            answer = CliRunner().invoke(app, [command, str(folder)])
            assert (answer.exit_code != 0, isinstance(answer.exception, SystemExit)) == (True, True)
    with pytest.raises(Lie, match=words):
        certify(run)


def test_a_packed_poisoning_run_is_found_again(poisoning: Path, tmp_path: Path) -> None:
    assert names(poisoning) == ["ballots.npz", "claims.csv.gz", "manifest.json.gz", "seal.json"]
    assert verify_run(poisoning).inputs == 4
    assert holds_votes(poisoning)
    before = names(poisoning)
    import_votes(tmp_path / "votes.npz", poisoning)
    assert names(poisoning) == before
    with pytest.raises(RunRefused, match="other settings"):
        import_votes(tmp_path / "votes.npz", poisoning, k=2)
    (poisoning / "seal.json").unlink()
    import_votes(tmp_path / "votes.npz", poisoning)  # derived again, with one manifest
    assert names(poisoning) == ["ballots.npz", "claims.csv", "manifest.json", "seal.json"]
    verify_run(poisoning)


def test_nothing_else_is_begun_in_the_folder_of_a_packed_run(run: Path) -> None:
    (run / "seal.json").unlink()
    assert has_manifest(run)
    with pytest.raises(RunRefused, match="something else than an attack"):
        AttackFolder(run, {}, (1,), "<f4")
    with pytest.raises(RunRefused, match="is of kind 'smoothing'"):
        WeightsFolder.begin(run, {"schema": 1, "kind": "ensemble"})
    assert not (run / "manifest.json").exists()
    certify(run)
    verify_run(run)


def test_a_packed_run_is_replayed(run: Path) -> None:
    data = Dataset(X, np.ones(len(X), dtype=np.int64), 2, ("dark", "bright"), "six")
    assert len(replay(run, model, data, progress=False).replayed) == len(X)
