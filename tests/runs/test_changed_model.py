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


def certify(out: Path, **options: Any) -> vb.Certificates:
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=2)
    return smoothed.certify(X, None if options.get("n0") else TRUTH, out=out, seed=3, progress=False, **options)


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


def test_the_same_model_goes_on(tmp_path: Path) -> None:
    whole = certify(tmp_path / "whole", n=1_000, keep="last")
    killed(tmp_path / "run", -1, 22, n=1_000, keep="last")
    assert certify(tmp_path / "run", n=1_000, keep="last") == whole
