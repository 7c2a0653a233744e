"""A run that is being extended: its claims and its seal stay until the extension is sealed, and nothing is lost."""

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.errors import Lie, RunRefused

Model = Callable[[torch.Tensor], torch.Tensor]
X = torch.stack([torch.full((16,), round(255 * v), dtype=torch.uint8) for v in (0.0, 0.2, 0.24, 0.5, 1.0)])
TRUTH = [0, 0, 0, 1, 2]
CLOSED = ("manifest.json", "claims.csv", "seal.json")


@pytest.fixture
def certify(half_spaces: Model) -> Callable[..., vb.Certificates]:
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=3)

    def run(out: Path, **options: Any) -> vb.Certificates:
        return smoothed.certify(X, TRUTH, n=1_000, alpha=0.001, seed=3, out=out, **options)

    return run


@pytest.fixture
def folder(certify: Callable[..., vb.Certificates], tmp_path: Path) -> Path:
    certify(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def interrupted(certify: Callable[..., vb.Certificates], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose extension to 2,000 votes was stopped after three tallies."""
    from vauban.runs.store import FolderStore

    keep, kept = FolderStore.keep, []

    def stop(store: FolderStore, record: Any) -> None:
        if len(kept) == 3:
            raise KeyboardInterrupt
        kept.append(record)
        keep(store, record)

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "keep", stop)
        with pytest.raises(KeyboardInterrupt):
            certify(folder, extend=2_000)
    return folder


def contents(folder: Path, names: tuple[str, ...] = CLOSED) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def test_an_interrupted_extension_keeps_the_claims_and_the_seal(
    certify: Callable[..., vb.Certificates], tmp_path: Path, interrupted: Path
) -> None:
    certify(tmp_path / "other")
    assert contents(interrupted) == contents(tmp_path / "other")
    verdict = vb.Run.open(interrupted).verify()
    assert (verdict.votes, verdict.extensions, verdict.extending) == (5_000, (), 2_000)
    said = CliRunner().invoke(app, ["verify", str(interrupted)])
    assert said.exit_code == 0
    assert "5 claims recomputed from 5,000 votes; all hold" in said.stdout
    assert "being extended to 2,000 votes and that is not finished: nothing is claimed at that number" in said.stdout
    assert "with --extend 2000 finishes it" in said.stdout
    assert json.loads(CliRunner().invoke(app, ["verify", str(interrupted), "--json"]).stdout)["extending"] == 2_000


@pytest.mark.parametrize("again", [{"extend": 2_000}, {}])
def test_the_same_command_finishes_it(
    certify: Callable[..., vb.Certificates], tmp_path: Path, interrupted: Path, again: dict[str, int]
) -> None:
    certify(tmp_path / "other")
    whole = certify(tmp_path / "other", extend=2_000)
    assert certify(interrupted, **again) == whole
    names = (*CLOSED, "claims-2000.csv", "extensions.jsonl")
    assert contents(interrupted, names) == contents(tmp_path / "other", names)
    verdict = vb.Run.open(interrupted).verify()
    assert (verdict.votes, verdict.extensions, verdict.extending) == (10_000, (2_000,), None)


def test_a_kill_before_the_new_seal_leaves_the_old_claims(
    certify: Callable[..., vb.Certificates], folder: Path
) -> None:
    old = contents(folder, ("seal.json",))["seal.json"]
    more = certify(folder, extend=2_000)
    new = contents(folder, ("seal.json",))["seal.json"]
    (folder / "seal.json").write_bytes(old)  # all votes and claims-2000.csv are there
    assert vb.Run.open(folder).verify().extending == 2_000
    assert certify(folder) == more
    assert (folder / "seal.json").read_bytes() == new
    (folder / "seal.json").write_bytes(old)
    certify(folder, extend=4_000)  # seals the extension to 2,000 first
    assert vb.Run.open(folder).verify().extensions == (2_000, 4_000)
    (folder / "seal.json").write_bytes(old)
    with pytest.raises(Lie, match="changed after the run was sealed|which this run does not have|does not name it"):
        vb.Run.open(folder).verify()


def test_a_run_that_lost_its_seal_is_sealed_before_it_is_extended(
    certify: Callable[..., vb.Certificates], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)
    (folder / "seal.json").unlink()
    (folder / "claims.csv").unlink()
    monkeypatch.setattr("vauban.runs.store.FolderStore.keep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        certify(folder, extend=2_000)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: shutil.copy(f / "claims.csv", f / "claims-2000.csv"), "votes of this extension are not all in"),
        (lambda f: shutil.copy(f / "claims.csv", f / "claims-4000.csv"), "the seal does not name it"),
        (lambda f: (f / "claims.csv").write_text("index,label,radius,abstained,truth\n"), "claims.csv line 2"),
        (lambda f: (f / "claims.csv").unlink(), "claims.csv is missing"),
    ],
)
def test_a_bent_run_that_is_being_extended_is_a_lie(interrupted: Path, change: Any, complaint: str) -> None:
    change(interrupted)
    with pytest.raises(Lie, match=complaint):
        vb.Run.open(interrupted).verify()


def test_certificates_of_an_extension_say_what_all_claims_cost(
    certify: Callable[..., vb.Certificates], folder: Path
) -> None:
    assert certify(folder).notes == ()
    (note,) = certify(folder, extend=4_000).notes
    assert "its claims at 1,000 votes and at every doubling up to 4,000 (top 1, alpha 0.001 each, binocp)" in note
    assert "together fail with probability at most 0.003, the sum of their alphas" in note
    assert certify(folder, extend=4_000).notes == (note,)  # from the folder, without new votes
    assert vb.Run.open(folder).certificates(n=4_000).notes == (note,)


@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        ({"n": 2_000, "k": 2}, "at most 0.003, the sum of their alphas"),
        ({"n": 500}, "at most 0.003, the sum of their alphas"),
        ({"all_looks": True}, "at most 0.003, the sum of their alphas"),
        ({"n": 2_000, "alpha": 0.01}, "at most 0.011, the sum of the alphas at 2 numbers of votes, here the larger"),
        ({"n": 1_000, "alpha": 0.01}, "at most 0.011, the sum of the alphas at 2 numbers of votes, here the larger"),
    ],
)
def test_a_further_claim_of_an_extended_run_costs_both_of_its_claims_too(
    certify: Callable[..., vb.Certificates], folder: Path, asked: dict[str, Any], cost: str
) -> None:
    certify(folder, extend=2_000)
    note = vb.Run.open(folder).certificates(**asked).notes[-1]
    assert "the run's own (top 1 at 1,000 votes and at every doubling up to 2,000, alpha 0.001 each, binocp)" in note
    assert f"all of them together fail with probability {cost}" in note


@pytest.mark.parametrize("killed_before", ["claims-2000.csv", "curve.png", "seal.json"])
def test_a_kill_while_an_extension_is_sealed_leaves_a_true_folder(
    killed_before: str, certify: Callable[..., vb.Certificates], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture of the extension replaces that of the run, whose seal must stay true until the new one is written."""
    from vauban.runs import store
    from vauban.runs.verify import verify_run

    out, plain, plain_json, sealed = tmp_path / "run", store.replace_file, store.write_json, []
    certify(out, picture=lambda certs: b"picture of the first claims")

    def kill(path: Path, content: bytes) -> None:
        sealed.append(path.name)
        if path.name == killed_before:
            raise KeyboardInterrupt
        plain(path, content)

    def kill_json(path: Path, value: Mapping[str, Any]) -> None:
        if path.name == killed_before and store.PICTURE in value:  # the last seal, which names the new picture
            sealed.append(path.name)
            raise KeyboardInterrupt
        plain_json(path, value)

    with monkeypatch.context() as patched:
        patched.setattr(store, "replace_file", kill)
        patched.setattr(store, "replace_packed", kill)
        patched.setattr(store, "write_json", kill_json)
        with pytest.raises(KeyboardInterrupt):
            certify(out, extend=2_000, picture=lambda certs: b"picture of the extension")
    assert sealed[-1] == killed_before
    assert verify_run(out).extending == 2_000
    certs = certify(out, extend=2_000, picture=lambda certs: b"picture of the extension")
    assert verify_run(out).extensions == (2_000,)
    assert (out / "curve.png").read_bytes() == b"picture of the extension"
    assert certs.counts.sum(axis=1).tolist() == [2_000] * len(X)


def test_a_refused_extension_leaves_the_folder_as_it_was(certify: Callable[..., vb.Certificates], folder: Path) -> None:
    votes = folder / "tallies.jsonl"
    (folder / "tallies.jsonl.gz").write_bytes(gzip.compress(votes.read_bytes()))
    votes.unlink()
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(RunRefused, match="unpack it with gunzip"):
        certify(folder, extend=2_000)
    assert sorted(path.name for path in folder.iterdir()) == before
    certify(folder)  # the run itself is as it was


def test_claims_of_an_extension_are_there_once(
    certify: Callable[..., vb.Certificates], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the claims and the seal: another text beside the true one is refused."""
    from vauban.runs import store
    from vauban.runs.verify import verify_run

    def kill(path: Path, value: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_json", kill)
        with pytest.raises(KeyboardInterrupt):
            certify(folder, extend=2_000)
    assert verify_run(folder).extending == 2_000
    (folder / "claims-2000.csv.gz").write_bytes(gzip.compress(b"all inputs: radius 99"))
    with pytest.raises(Lie, match="both exist"):
        verify_run(folder)


def test_lines_about_extensions_are_not_gzipped(certify: Callable[..., vb.Certificates], folder: Path) -> None:
    from vauban.runs.verify import verify_run

    certify(folder, extend=2_000)
    lines = folder / "extensions.jsonl"
    (folder / "extensions.jsonl.gz").write_bytes(gzip.compress(lines.read_bytes()))
    with pytest.raises(Lie, match="manifest, votes and claims may be gzipped"):
        verify_run(folder)


def test_the_first_claim_of_an_extended_run_names_the_others(
    certify: Callable[..., vb.Certificates], folder: Path
) -> None:
    assert vb.Run.open(folder).certificates().notes == ()
    certify(folder, extend=2_000)
    (note,) = vb.Run.open(folder).certificates().notes
    assert "first 1,000 votes; it was extended to 2,000 (n=2000, claims-2000.csv)" in note
    said = CliRunner().invoke(app, ["claim", str(folder)])
    assert "it was extended to 2,000" in " ".join(said.output.split())
