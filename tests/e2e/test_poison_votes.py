"""vauban claim on files of votes of base classifiers: what cannot be read or used is answered."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from poison_commands import PLAIN


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"votes": np.zeros((3, 4), int)}, "how many classes"),
        ({"num_classes": 10}, "there are no votes"),
        ({"votes": np.full((3, 4), 10), "num_classes": 10}, "votes are 0 to 9"),
        ({"votes": np.zeros((3, 4)), "num_classes": 10}, "whole numbers"),
        (
            {"votes": np.zeros((3, 4), int), "labels": np.zeros(2, int), "num_classes": 10},
            "one whole number each is needed",
        ),
        (
            {"votes": np.zeros((3, 4), int), "labels": np.full(3, 12), "num_classes": 10},
            "outside the classes 0..9",
        ),
        ({"counts": np.ones((3, 4), int), "num_classes": 10}, "counts of 4 classes"),
        ({"counts": np.ones((3, 10), int), "num_classes": 10, "spread": 2}, "needs the vote of every model"),
        ({"votes": np.zeros((3, 4), int), "num_classes": 10, "training": "[1]"}, "JSON object"),
        ({"votes": np.zeros((3, 4), int), "num_classes": 10, "training": '{"lr": NaN}'}, "JSON object"),
        ({"votes": np.zeros((3, 4), int), "num_classes": 10, "index": np.zeros(3, int)}, "names an input twice"),
        ({"votes": np.array([object()]), "num_classes": 10}, "cannot be read"),
    ],
)
def test_bad_vote_files_are_answered(arrays: dict[str, object], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "votes.npz", **arrays)  # type: ignore[arg-type]
    smoothing = "partition:threat=samples" if "spread" in arrays else PLAIN
    assert words in vauban("claim", tmp_path / "votes.npz", "--smoothing", smoothing, code=2)


def test_no_labels_no_accuracy_but_radii(tmp_path: Path) -> None:
    np.savez(tmp_path / "votes.npz", votes=np.ones((3, 5), dtype=np.uint8), num_classes=4)
    told = json.loads(vauban("claim", tmp_path / "votes.npz", "--smoothing", PLAIN, "--json"))
    assert [c["radius"] for c in told["claims"]] == [2, 2, 2]
    assert "clean_accuracy" not in told
