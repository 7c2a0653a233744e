"""Certificates are saved as the run folder that certify would have written, and nothing else is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput
from vauban.runs.verify import verify_run

X = np.linspace(60, 200, 40).astype(np.uint8).reshape(10, 1, 2, 2)


def model(views: torch.Tensor) -> torch.Tensor:
    mean = views.flatten(1).mean(dim=1, keepdim=True)
    return torch.cat([0.6 - mean, mean - 0.6, mean * 0 - 9], dim=1)


@pytest.fixture(scope="module")
def own() -> vb.Certificates:
    smoothed = vb.SmoothedClassifier(model, "gaussian:sigma=0.25", num_classes=3)
    return smoothed.certify(X, [0] * 7 + [1] * 3, label="votes", n=400, n0=50, seed=1, progress=False)


def test_what_certify_returned_is_saved(own: vb.Certificates, tmp_path: Path) -> None:
    own.save(tmp_path / "run")
    verify_run(tmp_path / "run")
    run = vb.Run.open(tmp_path / "run")
    assert run.certificates() == own
    run.certificates().save(tmp_path / "again")
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("run", "again")]
    assert files[0]["claims.csv"] == files[1]["claims.csv"]


@pytest.mark.parametrize(
    "asked",
    [
        {"k": 2},
        {"alpha": 0.5},
        {"n": 200},
        {"label": "given"},
        {"all_looks": True},
        {"bounds": "half"},
        {"threat": "linf"},
    ],
    ids=str,
)
def test_a_second_claim_is_not_saved_as_the_run(asked: dict[str, Any], own: vb.Certificates, tmp_path: Path) -> None:
    run = own.save(tmp_path / "run")
    with pytest.raises(BadInput, match="second claim"):
        vb.Run.open(run).certificates(**asked).save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_an_extended_run_is_saved(tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(model, "gaussian:sigma=0.25", num_classes=3)
    smoothed.certify(X, n=400, seed=1, n0=50, progress=False, out=tmp_path / "run")
    more = smoothed.certify(X, n=400, seed=1, n0=50, extend=800, progress=False, out=tmp_path / "run")
    more.save(tmp_path / "saved")
    assert verify_run(tmp_path / "saved").extensions == (800,)
