"""Voting that was stopped goes on from the votes that were kept: to the same votes, and each model votes once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vauban.data import load
from vauban.errors import RunRefused
from vauban.poisoning import Ensemble, Partition
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
from vauban.poisoning.votes.checkpoint import FILE, VotesCheckpoint

DIGITS = load("mnist:split=test")
X, Y = DIGITS.images[:300, :, ::4, ::4].copy(), DIGITS.labels[:300]
TEST_X = DIGITS.images[400:450, :, ::4, ::4].copy()
TRAINER = StackedTrainer("dense", 10, steps=4, batch=32, group=4, front="none", augment="shift", views=1)
ABOUT = {"run": "mine"}


@pytest.fixture(scope="module", params=[Partition(11), Partition(5, spread=3)], ids=str)
def ensemble(request: pytest.FixtureRequest) -> Ensemble:
    made = Ensemble.fit(X, Y, request.param, TRAINER)
    assert len(made.groups) > 2
    made.manifest["compute"]["rows"] = 20  # three chunks of inputs for each group
    return made


def counting(stop_at: int | None = None) -> tuple[list[int], Callable[..., Any]]:
    """Scores as before, but each call is noted, and one of them is interrupted."""
    calls: list[int] = []
    plain = StackedTrainer.scores

    def scores(trainer: Any, weights: Any, x: Any) -> Any:
        if stop_at is not None and len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(len(x))
        return plain(trainer, weights, x)

    return calls, scores


def same(one: Any, other: Any, aggregate: str) -> bool:
    mine, theirs = one.arrays(aggregate), other.arrays(aggregate)
    return set(mine) == set(theirs) and all(np.array_equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
@pytest.mark.parametrize("stop_at", [0, 3, 4, 7])
def test_votes_go_on_where_they_stopped(
    ensemble: Ensemble, aggregate: str, stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ensemble.tally(TEST_X, aggregate)
    _, stopping = counting(stop_at)
    with monkeypatch.context() as patched:
        patched.setattr(StackedTrainer, "scores", stopping)
        with pytest.raises(KeyboardInterrupt):
            ensemble.tally(TEST_X, aggregate, checkpoint=VotesCheckpoint(tmp_path, ABOUT))
    assert (tmp_path / FILE).exists()
    calls, noting = counting()
    told: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(StackedTrainer, "scores", noting)
        resumed = ensemble.tally(TEST_X, aggregate, told.append, VotesCheckpoint(tmp_path, ABOUT))
    assert same(whole, resumed, aggregate)
    rounds = ensemble.rounds(aggregate)
    assert sum(told) == rounds * (ensemble.models - len(ensemble.empty))
    assert len(calls) == 3 * (rounds * len(ensemble.groups) - stop_at // 3), "whole groups are not asked again"


def test_a_second_round_begins_with_the_first_ones_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ensemble.fit(X, Y, Partition(5, spread=3), TRAINER)
    whole = made.tally(TEST_X, "runoff")
    groups = len(made.groups)
    _, stopping = counting(groups + 1)
    with monkeypatch.context() as patched:
        patched.setattr(StackedTrainer, "scores", stopping)
        with pytest.raises(KeyboardInterrupt):
            made.tally(TEST_X, "runoff", checkpoint=VotesCheckpoint(tmp_path, ABOUT))
    calls, noting = counting()
    with monkeypatch.context() as patched:
        patched.setattr(StackedTrainer, "scores", noting)
        assert same(made.tally(TEST_X, "runoff", checkpoint=VotesCheckpoint(tmp_path, ABOUT)), whole, "runoff")
    assert len(calls) == groups


def test_votes_are_kept_before_a_kill_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ensemble.fit(X, Y, Partition(11), TRAINER)
    monkeypatch.setattr("vauban.poisoning.votes.checkpoint._SECONDS", 0.0)
    kept: list[bytes] = []
    made.tally(TEST_X, on_progress=lambda _: kept.append((tmp_path / FILE).read_bytes() if (tmp_path / FILE).exists() else b""),
               checkpoint=VotesCheckpoint(tmp_path, ABOUT))  # fmt: skip
    (tmp_path / FILE).write_bytes(kept[-1])  # as a kill in the last group would leave it
    calls, noting = counting()
    whole = made.tally(TEST_X)
    monkeypatch.setattr(StackedTrainer, "scores", noting)
    assert same(made.tally(TEST_X, checkpoint=VotesCheckpoint(tmp_path, ABOUT)), whole, "plurality")
    assert 0 < len(calls) < len(made.groups)


def test_votes_of_another_run_and_damaged_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ensemble.fit(X, Y, Partition(11), TRAINER)
    _, stopping = counting(1)
    with monkeypatch.context() as patched:
        patched.setattr(StackedTrainer, "scores", stopping)
        with pytest.raises(KeyboardInterrupt):
            made.tally(TEST_X, checkpoint=VotesCheckpoint(tmp_path, ABOUT))
    with pytest.raises(RunRefused, match="another run"):
        made.tally(TEST_X, checkpoint=VotesCheckpoint(tmp_path, {"run": "another"}))
    with pytest.raises(RunRefused, match="damaged"):
        made.tally(TEST_X[:40], checkpoint=VotesCheckpoint(tmp_path, ABOUT))
    content = (tmp_path / FILE).read_bytes()
    with np.load(tmp_path / FILE) as opened:
        arrays = dict(opened)
    assert arrays["groups"] == 1
    for name, value in (("groups", np.array(2)), ("counts", arrays["counts"] + 1), ("seen", arrays["seen"] * 0)):
        np.savez(tmp_path / FILE, **{**arrays, name: value})
        with pytest.raises(RunRefused, match="do not add up"):
            made.tally(TEST_X, checkpoint=VotesCheckpoint(tmp_path, ABOUT))
    for damage in (content[:100], b"", content.replace(b"counts", b"founts")):
        (tmp_path / FILE).write_bytes(damage)
        with pytest.raises(RunRefused, match="damaged"):
            made.tally(TEST_X, checkpoint=VotesCheckpoint(tmp_path, ABOUT))
