"""Counts of a run as a text file: the last column holds the true labels, by which readers of this layout count accuracies."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import vauban

import vauban as vb

X = np.linspace(60, 200, 40).astype(np.uint8).reshape(10, 1, 2, 2)
ANSWERS = [0] * 6 + [1] * 4


def model(views: torch.Tensor) -> torch.Tensor:
    mean = views.flatten(1).mean(dim=1, keepdim=True)
    return torch.cat([0.6 - mean, mean - 0.6], dim=1)


def made(out: Path, smoothing: str, truth: list[int] | None, **settings: Any) -> vb.Certificates:
    smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=2)
    return smoothed.certify(X, truth, out=out, progress=False, **settings)


@pytest.mark.parametrize(
    ("smoothing", "settings"), [("uniform:sigma=0.1", {"n": 400, "n0": 50, "seed": 1}), ("splitting:sigma=0.1", {})]
)
def test_labels_that_votes_chose_are_not_counted_as_the_true_ones(
    smoothing: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    truth = [1 - answer if place % 2 else answer for place, answer in enumerate(ANSWERS)]
    own = made(tmp_path / "run", smoothing, truth, label="votes", **settings)
    said = vauban("convert", tmp_path / "run", tmp_path / "counts.txt")
    assert "the last column holds the true labels" in " ".join(said.split())
    assert [int(line.split()[-1]) for line in (tmp_path / "counts.txt").read_text().splitlines()] == truth
    claimed = vauban("claim", tmp_path / "counts.txt", "--smoothing", smoothing, "--json")
    found = json.loads(claimed)
    assert found["clean_accuracy"] == own.clean_accuracy < 1
    given = vb.Run.open(tmp_path / "run").certificates(label="given")
    assert [claim["abstained"] for claim in found["claims"]] == given.abstained.tolist()
    assert any("taken for the true one" in note for note in found["notes"])


def test_without_true_labels_it_is_said_that_no_accuracy_follows(tmp_path: Path) -> None:
    made(tmp_path / "run", "splitting:sigma=0.1", None)
    assert "no accuracy follows from it" in " ".join(vauban("convert", tmp_path / "run", tmp_path / "c.txt").split())


def test_given_labels_need_no_word(tmp_path: Path) -> None:
    made(tmp_path / "run", "splitting:sigma=0.1", ANSWERS, label="given")
    assert "last column" not in vauban("convert", tmp_path / "run", tmp_path / "c.txt")
