"""Counts and claims of fixed seeds are what they were when they were first written down, for every law and method."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_cases import cases
from golden_world import CLASSES, INDEX, SEED, kept, labels, network, pictures

from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier

KEPT = Path(__file__).parent / "kept.json"
CASES = cases()


def run(folder: Path, smoothing: str, **given: Any) -> dict[str, Any]:
    """Certify the tiny world into a folder and read back what is there."""
    block = 20 if "stop" in given else None
    smoothed = SmoothedClassifier(network, smoothing, num_classes=CLASSES, rows=60, block=block)
    seed = None if smoothed.smoothing.law.exact else SEED
    smoothed.certify(pictures(), labels(), index=INDEX, out=folder, seed=seed, **given)
    return kept(folder)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


def test_every_case_is_kept(golden: dict[str, Any]) -> None:
    assert sorted(golden) == sorted(CASES)


@pytest.mark.parametrize("name", list(CASES))
def test_counts_and_claims_are_as_they_were(name: str, golden: dict[str, Any], tmp_path: Path) -> None:
    found = run(tmp_path / "run", **CASES[name])
    assert json.loads(json.dumps(found)) == golden[name]
    verify_run(tmp_path / "run")


def test_the_world_decides_and_abstains(golden: dict[str, Any]) -> None:
    """What is kept is worth keeping: claims of many sizes, abstentions, and votes for several classes."""
    claims = [row for found in golden.values() for row in found["claims"]]
    assert len({row[2] for row in claims}) > 100
    assert 0.05 < np.mean([row[3] == "true" for row in claims]) < 0.7
    assert torch.tensor(labels()).unique().numel() > 1
