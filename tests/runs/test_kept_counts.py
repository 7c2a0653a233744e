"""Exact runs that keep counts in place of ballots, and votes that are gzipped: the same claims, sealed, resumed and verified."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.runs.verify import verify_run

SPLITTING = "splitting:sigma=0.05"


def model(views: torch.Tensor) -> torch.Tensor:
    mean = views.flatten(1).mean(dim=1)
    return torch.stack([0.4 - mean, mean - 0.4, (mean - 0.4).abs() - 0.1], dim=1)


def pictures(count: int = 6) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 2, 2), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)


def certify(out: Path | None, smoothing: str = SPLITTING, count: int = 6, **more: Any) -> vb.Certificates:
    smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=3)
    return smoothed.certify(pictures(count), y=[0, 1, 2, 0, 1, 2][:count], out=out, progress=False, **more)


def pack(folder: Path, name: str) -> None:
    (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    (folder / name).unlink()


def test_counts_prove_what_ballots_prove(tmp_path: Path) -> None:
    kept, whole = certify(tmp_path / "counts", keep="counts"), certify(tmp_path / "ballots")
    assert np.array_equal(kept.radius, whole.radius, equal_nan=True)
    assert np.array_equal(kept.counts, whole.counts)
    assert kept.exact
    assert (tmp_path / "counts" / "claims.csv").read_bytes() == (tmp_path / "ballots" / "claims.csv").read_bytes()
    assert not (tmp_path / "counts" / "ballots.jsonl").exists()
    assert json.loads((tmp_path / "counts" / "manifest.json").read_text())["settings"]["keep"] == "counts"
    assert verify_run(tmp_path / "counts").inputs == 6
    run = vb.Run.open(tmp_path / "counts")
    assert run.ballots is None
    assert np.array_equal(
        run.certificates(k=2).radius, vb.Run.open(tmp_path / "ballots").certificates(k=2).radius, equal_nan=True
    )


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    first = certify(tmp_path / "run", keep="counts")
    before = (tmp_path / "run" / "seal.json").read_bytes()
    assert certify(tmp_path / "run", keep="counts") == first
    assert (tmp_path / "run" / "seal.json").read_bytes() == before
    with pytest.raises(RunRefused, match="keep"):
        certify(tmp_path / "run")


def test_an_interrupted_run_goes_on_with_the_inputs_that_are_left(tmp_path: Path) -> None:
    whole = certify(tmp_path / "whole", keep="counts")
    stopped = tmp_path / "stopped"
    certify(stopped, keep="counts")
    for name in ("seal.json", "claims.csv"):
        (stopped / name).unlink()
    lines = (stopped / "counts.jsonl").read_text().splitlines(keepends=True)
    (stopped / "counts.jsonl").write_text("".join(lines[:2]) + lines[2][:20])  # a kill cut the third line off
    with pytest.raises(Incomplete, match="2 of 6 inputs"):
        verify_run(stopped)
    assert certify(stopped, keep="counts") == whole
    assert verify_run(stopped).votes == verify_run(tmp_path / "whole").votes


@pytest.mark.parametrize("change", ["counts", "twice", "total"])
def test_altered_counts_are_refused(tmp_path: Path, change: str) -> None:
    from vauban.votes import checked_line

    certify(tmp_path / "run", keep="counts")
    path, run = tmp_path / "run" / "counts.jsonl", vb.Run.open(tmp_path / "run").record.binding
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    body = {"input": lines[0]["input"], "counts": dict(lines[0]["counts"])}
    first = next(iter(body["counts"]))
    other = str((int(first) + 1) % 3)
    if change == "twice":
        extra = [checked_line(body, run)]
    else:
        body["counts"][first] -= 1
        if change == "counts":
            body["counts"][other] = body["counts"].get(other, 0) + 1
        extra = []
    body["counts"] = {key: n for key, n in sorted(body["counts"].items()) if n}
    rest = [checked_line({k: v for k, v in line.items() if k != "check"}, run) for line in lines[1:]]
    path.write_text("\n".join([checked_line(body, run), *rest, *extra, ""]))
    with pytest.raises(Lie):
        verify_run(tmp_path / "run")


def test_what_needs_every_vote_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs the vote of every view"):
        certify(None, "band:size=1", keep="counts")
    with pytest.raises(BadInput, match="keep counts anyway"):
        certify(None, "gaussian:sigma=0.5", n=100, keep="counts")
    with pytest.raises(BadInput, match=r"counts \(.*\) or ballots \(.*\) is needed"):
        certify(None, keep="all")
    margin = certify(tmp_path / "margin", "band:size=1,bound=margin,threshold=0.3", keep="counts")
    assert np.array_equal(margin.radius, certify(None, "band:size=1,bound=margin,threshold=0.3").radius, equal_nan=True)
    assert verify_run(tmp_path / "margin").inputs == 6
    with pytest.raises(BadInput, match="kept counts"):
        vb.Run.open(tmp_path / "margin").votes.ballots([0])


@pytest.mark.parametrize(("smoothing", "name", "more"), [
    (SPLITTING, "counts.jsonl", {"keep": "counts"}),
    (SPLITTING, "ballots.jsonl", {}),
    ("gaussian:sigma=0.5", "tallies.jsonl", {"n": 200, "seed": 1}),
])  # fmt: skip
def test_gzipped_votes_are_verified_and_read(tmp_path: Path, smoothing: str, name: str, more: dict[str, Any]) -> None:
    certs = certify(tmp_path / "run", smoothing, **more)
    plain = verify_run(tmp_path / "run")
    pack(tmp_path / "run", name)
    packed = verify_run(tmp_path / "run")
    assert (packed.votes, packed.underived) == (plain.votes, plain.underived)
    assert np.array_equal(vb.Run.open(tmp_path / "run").certificates().radius, certs.radius, equal_nan=True)
    assert certify(tmp_path / "run", smoothing, **more) == certs


def test_gzipped_votes_are_not_trusted_more_than_plain_ones(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    certify(folder, keep="counts")
    content = (folder / "counts.jsonl").read_bytes()
    pack(folder, "counts.jsonl")
    (folder / "counts.jsonl.gz").write_bytes(gzip.compress(content.replace(b'"input":0', b'"input":9')))
    with pytest.raises(Lie, match="check does not match"):
        verify_run(folder)
    (folder / "counts.jsonl.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(Lie, match="cut off"):
        verify_run(folder)
    (folder / "counts.jsonl.gz").write_bytes(gzip.compress(content))
    (folder / "counts.jsonl").write_bytes(content)
    with pytest.raises(Lie, match="both exist"):
        verify_run(folder)
    (folder / "counts.jsonl").unlink()
    (folder / "ballots.jsonl.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(Lie, match="the seal does not name it"):
        verify_run(folder)


def test_an_unfinished_run_is_unpacked_before_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    certify(folder, keep="counts")
    for name in ("seal.json", "claims.csv"):
        (folder / name).unlink()
    lines = (folder / "counts.jsonl").read_text().splitlines(keepends=True)
    (folder / "counts.jsonl").write_text("".join(lines[:2]))
    pack(folder, "counts.jsonl")
    with pytest.raises(RunRefused, match="gunzip"):
        certify(folder, keep="counts")
