"""A model that changes in a call which is killed: the next call finds other votes in the folder, and refuses to go on."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import vauban as vb
from vauban.errors import RunRefused
from vauban.runs.store import FolderStore

X = torch.stack([torch.full((16,), v, dtype=torch.uint8) for v in (0, 70, 70, 80, 255, 250)])
TRUTH = [0, 0, 0, 1, 1, 1]


def half_spaces(views: torch.Tensor) -> torch.Tensor:
    """Scores of dark and bright views; the border between them is moved from outside, as by a file that a model reads."""
    lead = 0.3 + float(os.environ.get("MOVED", "0")) - views.flatten(1).mean(1)
    return torch.stack([lead, -lead], 1)


def certify(
    out: Path, x: torch.Tensor = X, smoothing: str = "gaussian:sigma=0.5", shape: Any = None, **options: Any
) -> vb.Certificates:
    smoothed = vb.SmoothedClassifier(half_spaces, smoothing, num_classes=2, **(shape or {}))
    seed = {} if smoothed.smoothing.law.exact else {"seed": 3}
    return smoothed.certify(x, None if options.get("n0") else TRUTH, out=out, progress=False, **seed, **options)


def killed(out: Path, changed_after: int, after: int, **options: Any) -> None:
    """A call whose model changes after some tallies, and which ends after some more."""
    keep, kept = FolderStore.keep, []

    def stop(store: FolderStore, record: Any) -> None:
        keep(store, record)
        kept.append(record)
        if len(kept) == changed_after:
            patched.setenv("MOVED", "0.06")
        if len(kept) == after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FolderStore, "keep", stop)
        with pytest.raises(KeyboardInterrupt):
            certify(out, **options)


@pytest.mark.parametrize("keep", [None, "last"])
@pytest.mark.parametrize("chosen", [{}, {"n0": 50}, {"n0": 100}])
def test_votes_of_a_changed_model_are_not_taken_up(tmp_path: Path, keep: str | None, chosen: dict[str, int]) -> None:
    options = {"n": 1_000, "keep": keep, **chosen}
    killed(tmp_path / "run", 6, 22, **options)
    with pytest.raises(RunRefused, match="the votes in the folder are not those of this model"):
        certify(tmp_path / "run", **options)


@pytest.mark.parametrize("keep", [None, "last"])
def test_votes_of_an_extension_neither(tmp_path: Path, keep: str | None) -> None:
    options = {"n": 1_000, "keep": keep}
    whole = certify(tmp_path / "run", **options)
    killed(tmp_path / "run", 1, 4, **options, extend=2_000)
    with pytest.raises(RunRefused, match="at 2000 votes"):
        certify(tmp_path / "run", **options, extend=2_000)
    assert vb.Run.open(tmp_path / "run").verify().extending == 2_000
    assert vb.Run.open(tmp_path / "run").certificates() == whole


@pytest.mark.parametrize("changed_after", [60, 67, 76])
def test_votes_behind_many_choices_of_labels_are_compared(tmp_path: Path, changed_after: int) -> None:
    """Two blocks a shape: many inputs have their labels chosen one after the other, and the last lines are no counts."""
    alike = torch.stack([torch.full((16,), 70 + i % 3, dtype=torch.uint8) for i in range(60)])
    options = {"n": 1_000, "n0": 100, "x": alike, "shape": {"rows": 200, "block": 100}}
    killed(tmp_path / "run", changed_after, 92, **options)
    lines = (tmp_path / "run" / "tallies.jsonl").read_text().splitlines()
    assert all('"choose"' in line for line in lines[-10:])
    with pytest.raises(RunRefused, match="the votes in the folder are not those of this model"):
        certify(tmp_path / "run", **options)


@pytest.mark.parametrize("keep", [None, "last"])
def test_votes_of_an_extension_whose_seal_is_gone_are_compared(tmp_path: Path, keep: str | None) -> None:
    options = {"n": 1_000, "keep": keep}
    certify(tmp_path / "run", **options)
    killed(tmp_path / "run", 1, 4, **options, extend=2_000)
    (tmp_path / "run" / "seal.json").unlink()
    with pytest.raises(RunRefused, match="the votes in the folder are not those of this model"):
        certify(tmp_path / "run", **options, extend=2_000)


def test_the_same_model_goes_on(tmp_path: Path) -> None:
    whole = certify(tmp_path / "whole", n=1_000, keep="last")
    killed(tmp_path / "run", -1, 22, n=1_000, keep="last")
    assert certify(tmp_path / "run", n=1_000, keep="last") == whole


@pytest.mark.parametrize("keep", [None, "last"])
def test_an_extension_seals_no_votes_that_were_not_compared(tmp_path: Path, keep: str | None) -> None:
    options, run = {"n": 1_000, "keep": keep}, tmp_path / "run"
    killed(run, 4, 24, **options)  # all votes, no seal
    for more in ({"extend": 2_000}, {}):
        with pytest.raises(RunRefused, match="the votes in the folder are not those of this model"):
            certify(run, **options, **more)
    assert not (run / "seal.json").exists()


def test_nor_does_an_extension_of_an_extension(tmp_path: Path) -> None:
    run = tmp_path / "run"
    certify(run, n=1_000)
    killed(run, 1, 6, n=1_000, extend=2_000)
    for n in (4_000, 2_000):
        with pytest.raises(RunRefused, match="at 2000 votes"):
            certify(run, n=1_000, extend=n)


@pytest.mark.parametrize("keep", [None, "last"])
@pytest.mark.parametrize(("changed_after", "after"), [(21, 23), (21, 24), (22, 24)])
def test_a_change_during_the_last_input_is_seen(
    tmp_path: Path, keep: str | None, changed_after: int, after: int
) -> None:
    options = {"n": 1_000, "keep": keep, "x": torch.stack([*X[:5], X[1] + 2])}
    killed(tmp_path / "run", changed_after, after, **options)
    with pytest.raises(RunRefused, match="the votes in the folder are not those of this model"):
        certify(tmp_path / "run", **options)


def test_the_last_votes_are_those_written_last(tmp_path: Path) -> None:
    options = {"n": 1_000, "order": [5, 4, 3, 2, 1, 0], "x": torch.stack([X[1], *X[1:]])}
    killed(tmp_path / "run", 20, 22, **options)
    with pytest.raises(RunRefused, match="input 0: the votes in the folder are not those of this model"):
        certify(tmp_path / "run", **options)


@pytest.mark.parametrize("keep", [None, "counts"])
def test_votes_of_exact_runs_neither(tmp_path: Path, keep: str | None) -> None:
    bands = torch.tensor([[[[0.0, 0.6], [0.6, 0.6]]]] * 6).mul(255).byte()
    options = {"x": bands, "smoothing": "splitting:sigma=0.3", "keep": keep, "order": [5, 4, 3, 2, 1, 0]}
    whole = certify(tmp_path / "whole", **options)
    killed(tmp_path / "same", -1, 4, **options)
    assert certify(tmp_path / "same", **options) == whole
    killed(tmp_path / "run", 3, 5, **options)
    with pytest.raises(RunRefused, match="the votes in the folder are not those of this model"):
        certify(tmp_path / "run", **options)


def test_what_a_finished_call_rewrote_is_only_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vauban.runs import store

    def stopped(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_claims", stopped)
        with pytest.raises(KeyboardInterrupt):
            certify(tmp_path / "run", n=1_000, keep="last")
    monkeypatch.setattr("vauban.resumed.Scheduler", stopped)  # casts no vote
    certify(tmp_path / "run", n=1_000, keep="last")
    assert vb.Run.open(tmp_path / "run").verify().votes == 6_000
