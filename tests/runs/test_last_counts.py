"""Sampled runs that keep their counts at n alone: the same votes and claims, resumed, extended and verified; a smaller folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from independent_reader import recomputed_radii
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.runs import manifest as manifests
from vauban.runs.store import FolderStore, read_record, write_claims
from vauban.runs.verify import verify_run
from vauban.votes import checked_line

Model = Callable[[torch.Tensor], torch.Tensor]
Certify = Callable[..., vb.Certificates]
X = torch.stack([torch.full((16,), round(255 * v), dtype=torch.uint8) for v in (0.0, 0.2, 0.24, 0.5, 1.0)])
TRUTH = [0, 0, 0, 1, 2]
LAST = {"keep": "last"}


@pytest.fixture
def certify(half_spaces: Model) -> Certify:
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=3)

    def run(out: Path | None, **options: Any) -> vb.Certificates:
        given = {"n": 1_000, "alpha": 0.001, "seed": 3, "progress": False} | options
        return smoothed.certify(X, None if given.get("n0") else TRUTH, out=out, **given)

    return run


@pytest.fixture
def folder(certify: Certify, tmp_path: Path) -> Path:
    certify(tmp_path / "run", **LAST)
    return tmp_path / "run"


def tallies(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "tallies.jsonl").read_text().splitlines()]


def interrupted(certify: Certify, folder: Path, after: int, **options: Any) -> None:
    """A run that is stopped after some tallies."""
    keep, kept = FolderStore.keep, []

    def stop(store: FolderStore, record: Any) -> None:
        if len(kept) == after:
            raise KeyboardInterrupt
        kept.append(record)
        keep(store, record)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FolderStore, "keep", stop)
        with pytest.raises(KeyboardInterrupt):
            certify(folder, **options)


def forge(folder: Path, change: Callable[[dict[str, Any]], None], drop: Callable[[dict[str, Any]], bool]) -> None:
    """Change the manifest of an unsealed run, and bind those of its lines to it that are not dropped."""
    raw = json.loads((folder / "manifest.json").read_text())
    change(raw)
    (folder / "manifest.json").write_text(json.dumps(raw))
    bodies = [{key: value for key, value in line.items() if key != "check"} for line in tallies(folder)]
    lines = [checked_line(body, manifests.identity(raw)) + "\n" for body in bodies if not drop(body)]
    (folder / "tallies.jsonl").write_text("".join(lines))
    for name in ("seal.json", "claims.csv"):
        (folder / name).unlink(missing_ok=True)


@pytest.mark.parametrize("labels", [{}, {"n0": 50}])
def test_the_same_claims_from_fewer_lines(certify: Certify, tmp_path: Path, labels: dict[str, int]) -> None:
    whole, last = certify(tmp_path / "whole", **labels), certify(tmp_path / "last", **labels, **LAST)
    assert last == whole
    assert np.array_equal(last.counts, whole.counts)
    assert not last.abstained.all()
    assert (tmp_path / "last" / "claims.csv").read_bytes() == (tmp_path / "whole" / "claims.csv").read_bytes()
    counted = [line["votes"] for line in tallies(tmp_path / "last") if line["stage"] == "count"]
    assert counted == [1_000] * len(X)
    sizes = [(tmp_path / name / "tallies.jsonl").stat().st_size for name in ("last", "whole")]
    assert sizes[0] < (0.6 if labels else 0.35) * sizes[1]
    raw = json.loads((tmp_path / "last" / "manifest.json").read_text())
    assert (raw["settings"]["keep"], raw["method"]["looks"]) == ("last", [1_000])
    assert vb.Run.open(tmp_path / "last").verify().votes == 5_000
    assert certify(None, **labels, **LAST) == whole


def test_a_reader_without_vauban_reads_it(folder: Path) -> None:
    found = recomputed_radii(folder)
    assert any(own is not None for own, _ in found.values())
    for own, claimed in found.values():
        assert (own is None) == (claimed is None)
        assert own is None or own - 1e-8 < claimed <= own


def test_claims_at_a_smaller_n_are_refused(folder: Path) -> None:
    run = vb.Run.open(folder)
    with pytest.raises(BadInput, match="n=500 is not a look of this run; it kept counts at 1000"):
        run.certificates(n=500)
    with pytest.raises(BadInput, match=r"kept counts at 1,000 votes alone \(keep=last\); leave this out"):
        run.certificates(all_looks=True)
    said = CliRunner().invoke(app, ["claim", str(folder), "-n", "500"])
    assert said.exit_code == 2
    assert "is not a look of this run" in said.stderr


@pytest.mark.parametrize("asked", [{"alpha": 0.05}, {"k": 2}, {"bounds": "half"}, {"n": 1_000}])
def test_other_claims_from_the_same_votes(
    certify: Certify, folder: Path, tmp_path: Path, asked: dict[str, Any]
) -> None:
    certify(tmp_path / "whole")
    mine, theirs = (vb.Run.open(path).certificates(**asked) for path in (folder, tmp_path / "whole"))
    assert mine == theirs
    assert mine.notes == theirs.notes


@pytest.mark.parametrize("labels", [{}, {"n0": 50}])
def test_an_interrupted_run_goes_on(certify: Certify, tmp_path: Path, labels: dict[str, int]) -> None:
    whole = certify(tmp_path / "whole", **labels, **LAST)
    stopped = tmp_path / "stopped"
    interrupted(certify, stopped, 7 if labels else 2, **labels, **LAST)
    with pytest.raises(Incomplete, match="of 5 inputs"):
        vb.Run.open(stopped).verify()
    assert certify(stopped, **labels, **LAST) == whole
    assert sorted(map(str, tallies(stopped))) == sorted(map(str, tallies(tmp_path / "whole")))
    assert (stopped / "seal.json").read_bytes() == (tmp_path / "whole" / "seal.json").read_bytes()


@pytest.mark.parametrize("labels", [{}, {"n0": 50}])
def test_a_resumed_run_casts_few_of_its_counted_votes_again(
    certify: Certify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: dict[str, int]
) -> None:
    from vauban import resumed

    interrupted(certify, tmp_path / "run", 13 if labels else 8, **labels, **LAST)
    last = tallies(tmp_path / "run")[-1]
    compared, plain = [], resumed.counts_at

    def noted(stage: str, looks: list[int], after: int, before: Any) -> Any:
        compared.append((stage, *looks, after))
        return plain(stage, looks, after, before)

    monkeypatch.setattr(resumed, "counts_at", noted)
    certify(tmp_path / "run", **labels, **LAST)
    assert last["stage"] in {stage for stage, _, _ in compared} == {"count"}
    assert last["votes"] in {look for _, look, _ in compared}
    assert 1 <= len(compared) <= 5
    assert (
        sum(look - after for _, look, after in compared) <= 2 * 500 + 3 * 100
    )  # two of the last looks, three first ones


def test_an_interruption_loses_nothing_and_the_seal_keeps_the_last_counts(certify: Certify, tmp_path: Path) -> None:
    run = tmp_path / "run"
    interrupted(certify, run, 6, **LAST)
    looks = [line["votes"] for line in tallies(run)]
    assert len(looks) == 6
    assert set(looks) - {1_000}
    certify(run, **LAST)
    assert [line["votes"] for line in tallies(run)] == [1_000] * len(X)


def test_a_kill_between_the_last_vote_and_the_seal(
    certify: Certify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vauban.runs import store

    whole, run = certify(tmp_path / "whole", **LAST), tmp_path / "run"

    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    for name in ("replace_file", "write_claims"):  # before the other counts are removed, and after
        with monkeypatch.context() as patched:
            patched.setattr(store, name, kill)
            with pytest.raises(KeyboardInterrupt):
                certify(run, **LAST)
        assert {line["votes"] for line in tallies(run)} == (
            {100, 200, 500, 1_000} if name == "replace_file" else {1_000}
        )
    with pytest.raises(BadInput, match="n=500 is not a look of this run"):
        vb.Run.open(run).certificates(n=500)
    assert certify(run, **LAST) == whole
    assert (run / "seal.json").read_bytes() == (tmp_path / "whole" / "seal.json").read_bytes()


def test_what_a_run_keeps_is_decided_when_it_begins(certify: Certify, folder: Path) -> None:
    with pytest.raises(RunRefused, match=r"settings\.keep|looks"):
        certify(folder)


def test_an_extension_adds_one_look(certify: Certify, folder: Path, tmp_path: Path) -> None:
    certify(tmp_path / "whole")
    whole = certify(tmp_path / "whole", extend=4_000)
    interrupted(certify, folder, 2, extend=4_000, **LAST)
    verdict = vb.Run.open(folder).verify()
    assert (verdict.votes, verdict.extending) == (5_000, 4_000)
    assert certify(folder, extend=4_000, **LAST) == whole
    assert sorted({line["votes"] for line in tallies(folder)}) == [1_000, 4_000]
    assert vb.Run.open(folder).verify().extensions == (4_000,)
    mine, theirs = (vb.Run.open(path).certificates(n=4_000) for path in (folder, tmp_path / "whole"))
    assert (mine, mine.notes) == (theirs, theirs.notes)
    assert vb.Run.open(folder).certificates() == vb.Run.open(tmp_path / "whole").certificates()
    with pytest.raises(BadInput, match="it kept counts at 1000, 4000"):
        vb.Run.open(folder).certificates(n=2_000)
    with pytest.raises(BadInput, match=r"kept counts at 1,000 and 4,000 votes alone \(keep=last\); leave this out"):
        vb.Run.open(folder).certificates(all_looks=True)


def test_a_replay_casts_the_same_votes(folder: Path, half_spaces: Model) -> None:
    from vauban.replay import replay

    data = torch.utils.data.TensorDataset(X, torch.tensor(TRUTH))
    assert len(replay(folder, half_spaces, data, progress=False).replayed) == len(X)


def test_where_every_look_or_view_is_needed_it_is_refused(half_spaces: Model, certify: Certify, tmp_path: Path) -> None:
    for stop in ("target:radius=0.1", "grid:step=0.25", "anytime"):
        with pytest.raises(BadInput, match=f"keep=last with stop={stop}.*, which decides at every look"):
            certify(tmp_path / "run", stop=stop, **LAST)
    exact = vb.SmoothedClassifier(half_spaces, "splitting:sigma=0.3", num_classes=3)
    with pytest.raises(BadInput, match=r"keep='last': counts \(.*\) or ballots \(.*\) is needed, or leave it out"):
        exact.certify(X, TRUTH, keep="last", out=tmp_path / "run")
    with pytest.raises(BadInput, match=r"keep='first': last \(counts at n alone\) is needed, or leave it out"):
        certify(tmp_path / "run", keep="first")
    assert not (tmp_path / "run").exists()


def set_looks(raw: dict[str, Any]) -> None:
    raw["method"]["looks"] = [100, 200, 500, 1_000]


def set_last(raw: dict[str, Any]) -> None:
    raw["settings"]["keep"] = "last"


def set_both(raw: dict[str, Any]) -> None:
    set_last(raw)
    raw["method"]["looks"] = [1_000]


def set_stop(raw: dict[str, Any]) -> None:
    raw["settings"]["stop"] = "grid:step=0.25"


@pytest.mark.parametrize(
    ("keep", "change", "dropped", "complaint"),
    [
        ("last", set_looks, (), r"looks of its method should be \[1000\]"),
        (None, set_last, (100, 200, 500), r"looks of its method should be \[1000\]"),
        ("last", lambda raw: raw["settings"].update(n=2_000), (), r"looks of its method should be \[2000\]"),
        (None, lambda raw: None, (100,), "200 votes in stage 'count' of input 0 are not its next look"),
        ("last", set_stop, (), "keep=last with stop=grid:step=0.25, which decides at every look"),
    ],
)
def test_forged_runs_are_lies(
    certify: Certify, tmp_path: Path, keep: str | None, change: Any, dropped: tuple[int, ...], complaint: str
) -> None:
    folder = tmp_path / "run"
    certify(folder, keep=keep)
    forge(folder, change, lambda body: body["votes"] in dropped)
    with pytest.raises(Lie, match=complaint):
        verify_run(folder)


def resealed(folder: Path, source: Path, votes: set[int]) -> None:
    """Give a run the lines of another at these numbers of votes, as its own, with claims and a seal that fit them."""
    shutil.copy(source / "tallies.jsonl", folder)
    forge(folder, lambda raw: None, lambda body: body["votes"] not in votes)
    write_claims(folder, read_record(folder)[0])


def test_a_sealed_run_with_counts_that_it_does_not_keep_is_a_lie(
    certify: Certify, folder: Path, tmp_path: Path
) -> None:
    certify(tmp_path / "whole")
    certify(tmp_path / "whole", extend=4_000)
    resealed(folder, tmp_path / "whole", {1_000})
    assert verify_run(folder).votes == 5_000
    resealed(folder, tmp_path / "whole", {100, 200, 500, 1_000})
    with pytest.raises(Lie, match="sealed with counts at 100 votes, and with keep=last it keeps those at 1,000 alone"):
        verify_run(folder)
    certify(tmp_path / "more", **LAST)
    certify(tmp_path / "more", extend=4_000, **LAST)
    resealed(tmp_path / "more", tmp_path / "whole", {1_000, 2_000, 4_000})
    with pytest.raises(Lie, match="counts at 2,000 votes, .* keeps those at 1,000 and 4,000 alone"):
        verify_run(tmp_path / "more")


def test_an_extension_in_progress_may_hold_more_counts(certify: Certify, folder: Path) -> None:
    interrupted(certify, folder, 1, extend=8_000, **LAST)
    assert {line["votes"] for line in tallies(folder)} == {1_000, 2_000}
    assert verify_run(folder).extending == 8_000
    interrupted(certify, folder, 2, extend=8_000, **LAST)
    assert verify_run(folder).extending == 8_000


def test_a_line_at_another_look_is_a_lie(certify: Certify, folder: Path, tmp_path: Path) -> None:
    certify(tmp_path / "whole")
    run = json.loads((folder / "manifest.json").read_text())
    first = next(line for line in tallies(tmp_path / "whole") if line["votes"] == 100)
    first.pop("check")
    lines = (folder / "tallies.jsonl").read_text()
    for votes, complaint in ((100, "changed after the run was sealed"), (150, "150 votes .* are not its next look")):
        counts = {"0": votes} if votes == 150 else first["counts"]
        body = first | {"votes": votes, "counts": counts}
        (folder / "tallies.jsonl").write_text(lines + checked_line(body, manifests.identity(run)) + "\n")
        with pytest.raises(Lie, match=complaint):
            verify_run(folder)
