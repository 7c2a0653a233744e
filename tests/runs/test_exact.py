"""Exact runs: every vote kept in order, interrupted anywhere, resumed, verified without a model, and every lie found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vauban import files
from vauban.certificates import derive_exact
from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput, CannotWrite, Incomplete, Lie, RunRefused
from vauban.laws.exact import Ballots
from vauban.runs import store
from vauban.runs.run import Run
from vauban.runs.store import read_record
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier
from vauban.votes import BallotPiece, BallotVotes, checked_line

Model = Callable[[torch.Tensor], torch.Tensor]
INPUTS = torch.randint(0, 256, (6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
INDEX, TRUTH = [0, 10, 20, 30, 40, 50], [0, 1, 1, 1, 2, 1]
SPEC = "splitting:sigma=0.2"  # 176 views
RUN = "r" * 64
BALLOTS = BallotVotes.file


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


def kept_votes(folder: Path) -> BallotVotes:
    votes = read_record(folder)[0].votes
    assert isinstance(votes, BallotVotes)
    return votes


class KeptRun(tuple):
    """Radii, claims and seal of a run."""

    def __new__(cls, *parts: object) -> "KeptRun":
        return super().__new__(cls, (np.nan_to_num(parts[0], nan=-1).tolist(), *parts[1:]))


def run(folder: Path, model: Model, spec: str = SPEC, label: str = "given", **more: Any) -> KeptRun:
    base = BaseClassifier(model, "half-spaces", "m" * 64)
    smoothed = SmoothedClassifier(base, spec, num_classes=3, rows=20, **more)
    certs = smoothed.certify(INPUTS, TRUTH, index=INDEX, label=label, out=folder)
    return KeptRun(certs.radius, (folder / "claims.csv").read_bytes(), (folder / "seal.json").read_bytes())


def test_a_run_is_what_certify_says_and_verifies(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    certs = Run.open(tmp_path / "run").certificates()
    alone = SmoothedClassifier(half_spaces, SPEC, num_classes=3, rows=7).certify(INPUTS, TRUTH)
    assert certs.index.tolist() == INDEX
    np.testing.assert_array_equal(certs.radius, alone.radius)
    np.testing.assert_array_equal(certs.counts, alone.counts)
    assert certs.exact
    assert certs.votes_per_input == 176
    assert (certs.counts.sum(axis=1) == 176).all()
    verdict = verify_run(tmp_path / "run")
    assert verdict.votes == 6 * 176
    assert "no probability is left" in verdict.claim
    assert not (tmp_path / "run" / "seed.json").exists()


@pytest.mark.parametrize("in_flight", [1, 3, 100])
def test_batch_changes_nothing(tmp_path: Path, half_spaces: Model, in_flight: int) -> None:
    assert run(tmp_path / "a", half_spaces) == run(tmp_path / "b", half_spaces, in_flight=in_flight)


@pytest.mark.usefixtures("unprobed")
@pytest.mark.parametrize("every_second", [False, True])
def test_interrupted_anywhere_and_resumed(
    tmp_path: Path, half_spaces: Model, every_second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if every_second:
        monkeypatch.setattr(store, "_SECOND", -1.0)
    whole = run(tmp_path / "whole", half_spaces)
    for calls in (1, 5, 12, 20, 33, 52):
        folder, left = tmp_path / f"after{calls}", [calls]

        def failing(views: torch.Tensor) -> torch.Tensor:
            left[0] -= 1  # noqa: B023
            if left[0] < 0:  # noqa: B023
                raise Interrupted
            return half_spaces(views)

        with pytest.raises(Interrupted):
            run(folder, failing, in_flight=1)
        kept = kept_votes(folder)
        assert kept.cast.sum() == min(20 * calls, 6 * 176)
        with pytest.raises(Incomplete):
            verify_run(folder)
        torn = folder / BALLOTS
        torn.write_bytes(torn.read_bytes() + b'{"input":0,"fir')
        assert run(folder, half_spaces) == whole
        verify_run(folder)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("line", [1, 2, 5])
def test_interrupted_while_writing(
    tmp_path: Path, half_spaces: Model, when: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a line's writing: the line is there whole or not at all, and never twice."""
    whole = run(tmp_path / "whole", half_spaces, spec="sparse:scale=3")
    write, left = files.os.write, [line]

    def interrupted(file: int, content: bytes) -> int:
        left[0] -= 1
        if left[0] == 0 and when == "before":
            raise KeyboardInterrupt
        length = write(file, content[:30] if left[0] == 0 else content)
        if left[0] == 0:
            raise KeyboardInterrupt
        return length

    monkeypatch.setattr(files.os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", half_spaces, spec="sparse:scale=3")
    monkeypatch.undo()
    with pytest.raises(Incomplete):
        verify_run(tmp_path / "run")
    assert run(tmp_path / "run", half_spaces, spec="sparse:scale=3") == whole


def test_a_full_disk_loses_nothing_before_it(
    tmp_path: Path, half_spaces: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole", half_spaces, spec="sparse:scale=3")
    write, left = files.os.write, [3]

    def full(file: int, content: bytes) -> int:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        return write(file, content)

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(CannotWrite, match="make room"):
        run(tmp_path / "run", half_spaces, spec="sparse:scale=3")
    monkeypatch.undo()
    assert kept_votes(tmp_path / "run").cast.sum() == 2 * 3
    assert run(tmp_path / "run", half_spaces, spec="sparse:scale=3") == whole


def test_holes_are_filled(tmp_path: Path, half_spaces: Model) -> None:
    """Lines may come in any order, as they would from several workers, and only what is missing votes."""
    whole = run(tmp_path / "run", half_spaces)
    path = tmp_path / "run" / BALLOTS
    kept = path.read_bytes().splitlines(keepends=True)
    assert len(kept) == 6
    path.write_bytes(b"".join([kept[4], kept[1], kept[3]]))
    for name in ("claims.csv", "seal.json"):
        (tmp_path / "run" / name).unlink()
    assert kept_votes(tmp_path / "run").missing == [(0, 176), (352, 528), (880, 1056)]
    assert run(tmp_path / "run", half_spaces) == whole


def test_sets_of_classes_are_kept(tmp_path: Path) -> None:
    def soft(views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(dim=1)
        return 6 * torch.stack([0.25 - mean, -(mean - 0.5).abs() + 0.25, mean - 0.75], dim=1)

    pictures = INPUTS.view(6, 1, 2, 4).repeat(1, 1, 2, 1)
    spec = "band:size=2,threshold=0.3"
    smoothed = SmoothedClassifier(soft, spec, num_classes=3, rows=5)
    smoothed.certify(pictures, TRUTH, index=INDEX, out=tmp_path / "run")
    kept = kept_votes(tmp_path / "run")
    assert kept.votes.shape == (6, 4, 3)
    assert kept.votes.dtype == bool
    assert kept.votes.sum() not in (0, 24)
    verify_run(tmp_path / "run")


def test_a_piece_that_is_there_twice_does_no_harm(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path, half_spaces)
    path = tmp_path / BALLOTS
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[2])
    verify_run(tmp_path)


def test_other_k_from_the_same_ballots(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    opened = Run.open(tmp_path / "run")
    top2 = opened.certificates(k=2)
    law = opened.manifest.method.law
    again = derive_exact(Ballots(opened.votes.votes, 3), np.array(TRUTH), law, k=2)
    np.testing.assert_array_equal(top2.radius, again.radius)
    assert (np.nan_to_num(top2.radius, nan=-1) >= np.nan_to_num(opened.certificates().radius, nan=-1)).all()


def test_the_winner_can_be_certified(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces, label="votes")
    certs = Run.open(tmp_path / "run").certificates()
    assert (certs.label == certs.counts.argmax(axis=1)).all()
    assert not certs.abstained.any()
    verify_run(tmp_path / "run")


def test_what_only_samples_have_is_refused(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    opened = Run.open(tmp_path / "run")
    for asked in ({"alpha": 0.01}, {"n": 100}, {"bounds": "binocp"}):
        with pytest.raises(BadInput, match="exact"):
            opened.certificates(**asked)
    smoothed = SmoothedClassifier(half_spaces, SPEC, num_classes=3)
    for asked in ({"alpha": 0.01}, {"n": 100}, {"n0": 5}, {"seed": 1}):
        with pytest.raises(BadInput, match="every view votes"):
            smoothed.certify(INPUTS, TRUTH, **asked)


def test_inputs_off_the_grid_are_refused(half_spaces: Model) -> None:
    smoothed = SmoothedClassifier(half_spaces, SPEC, num_classes=3)
    with pytest.raises(BadInput, match="input 1 is not on the 8-bit grid"):
        smoothed.certify(torch.tensor([[0.0, 1.0], [0.5, 1.0]]), [0, 1])
    with pytest.raises(BadInput, match="not arithmetic='float'"):
        SmoothedClassifier(half_spaces, SPEC, num_classes=3, arithmetic="float").certify(INPUTS, TRUTH)


def test_predict_is_the_winner_of_all_votes(half_spaces: Model) -> None:
    smoothed = SmoothedClassifier(half_spaces, SPEC, num_classes=3)
    predictions = smoothed.predict(INPUTS, k=2)
    order = np.argsort(-smoothed.ballots(INPUTS).counts, axis=1, kind="stable")
    assert list(predictions) == [tuple(row[:2]) for row in order.tolist()]


def test_other_settings_are_not_mixed(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    with pytest.raises(RunRefused, match="other settings"):
        run(tmp_path / "run", half_spaces, spec="splitting:sigma=0.2,offsets=1")


def _change_vote(folder: Path) -> None:
    path, record = folder / BALLOTS, read_record(folder)[0]
    kept, identity = path.read_text().splitlines(), record.manifest.identity
    piece = record.votes.parse(kept[0], identity)
    votes = np.array(piece.votes)
    votes[5] = (votes[5] + 1) % 3
    changed = record.votes.line(BallotPiece(piece.input, piece.first, votes), identity)
    path.write_text("\n".join([changed, *kept[1:], ""]))


def _edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return edit


def _twice(folder: Path) -> None:
    path = folder / BALLOTS
    before = path.read_text()
    _change_vote(folder)
    path.write_text(before + path.read_text().splitlines(keepends=True)[0])


LIES = {
    "a vote": _change_vote,
    "a line": _edit(BALLOTS, '"first":0', '"first":1'),
    "a view that votes twice": _twice,
    "a claim": _edit("claims.csv", "false", "true"),
    "the number of views": _edit("manifest.json", '"views": 176', '"views": 175'),
    "the list": _edit("manifest.json", '"views": 176,\n  "sha256": "', '"views": 176,\n  "sha256": "0'),
    "the method": _edit("manifest.json", '"name": "exact"', '"name": "fixed"'),
    "k": _edit("manifest.json", '"k": 1', '"k": 2'),
    "the noise": _edit("manifest.json", "splitting:sigma=0.2", "splitting:sigma=0.3"),
    "the seal": _edit("seal.json", '"ballots.jsonl": "', '"ballots.jsonl": "0'),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found(tmp_path: Path, half_spaces: Model, lie: str) -> None:
    run(tmp_path, half_spaces)
    verify_run(tmp_path)
    LIES[lie](tmp_path)
    with pytest.raises(Lie):
        verify_run(tmp_path)


def table(classes: int, sets: bool = False, views: int = 53) -> BallotVotes:
    return BallotVotes([7], classes, views, sets)


@pytest.mark.parametrize("classes", [2, 3, 10, 256, 257, 1000])
@pytest.mark.parametrize("sets", [False, True])
def test_pieces_survive_the_file(classes: int, sets: bool) -> None:
    rng = np.random.default_rng(classes)
    votes = rng.random((50, classes)) < 0.2 if sets else rng.integers(0, classes, 50)
    line = table(classes, sets).line(BallotPiece(7, 3, votes), RUN)
    back = table(classes, sets).parse(line, RUN)
    assert (back.input, back.first) == (7, 3)
    np.testing.assert_array_equal(back.votes, votes)
    for wrong, run_ in ((table(classes, sets, 52), RUN), (table(classes, sets), "s" * 64)):
        with pytest.raises(ValueError, match="views 3 to|check does not match"):
            wrong.parse(line, run_)


def test_pieces_that_were_never_votes_are_refused() -> None:
    line = table(3).line(BallotPiece(7, 0, np.array([0, 1, 2])), RUN)
    body = json.loads(line)
    for edit in ({"votes": "AAAA"}, {"count": 2}, {"count": 4}, {"first": -1}, {"first": True}):
        forged = {k: v for k, v in (body | edit).items() if k != "check"}
        with pytest.raises(ValueError, match=r"."):
            table(3, views=10).parse(checked_line(forged, RUN), RUN)
    with pytest.raises(ValueError, match="class 2 of 2"):
        table(2, views=10).parse(line, RUN)


def test_a_torn_line_after_the_last_vote_does_no_harm(tmp_path: Path, half_spaces: Model) -> None:
    """A kill while a line was written a second time: all votes are there, the run is sealed and verifies."""
    folder = tmp_path / "run"
    before = run(folder, half_spaces)
    (folder / "seal.json").unlink()
    with (folder / BALLOTS).open("a") as file:
        file.write('{"input":0,"first"')
    assert run(folder, half_spaces) == before
    verify_run(folder)
