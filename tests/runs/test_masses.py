"""L1 claims as Wasserstein claims: the mass of pictures is asked for, or taken from the run's inputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.data import load
from vauban.errors import BadInput, VaubanError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    x = np.zeros((3, 1, 2, 2), dtype=np.uint8)
    x[0, 0], x[1, 0], x[2, 0] = 255, [[51, 0], [0, 0]], [[100, 20], [3, 1]]
    np.savez(tmp_path / "x.npz", images=x, labels=np.array([0, 1, 1]))
    model = lambda views: torch.stack([v := views.flatten(1).mean(dim=1) - 0.5, -v], dim=1)  # noqa: E731
    smoothed = vb.SmoothedClassifier(model, "laplace:sigma=0.1", num_classes=2)
    smoothed.certify(load(f"npz:path={tmp_path / 'x.npz'}"), n=1000, seed=1, out=tmp_path / "run", progress=False)
    return tmp_path / "run"


def test_the_mass_of_a_picture_divides_its_radius(run: Path, tmp_path: Path) -> None:
    opened, data = vb.Run.open(run), load(f"npz:path={tmp_path / 'x.npz'}")
    l1 = opened.certificates().radius
    assert opened.certificates(threat="wasserstein").radius == pytest.approx(l1 / 8)
    asked = opened.certificates(threat="wasserstein-l2", mass=1)
    assert asked.radius == pytest.approx(l1 / 2)
    assert (asked.radius <= l1 / 2).all()
    assert "no picture add up to more than 1.0" in asked.notes[-1]
    own = opened.certificates(threat="wasserstein-l2", mass=data)
    masses = np.array([4.0, 0.2, 124 / 255])
    assert own.radius == pytest.approx(l1 / (2 * masses))
    assert (own.radius <= l1 / (2 * masses)).all()


def test_a_mass_without_a_part_in_the_claim_is_refused(run: Path, tmp_path: Path) -> None:
    opened = vb.Run.open(run)
    with pytest.raises(BadInput, match="plays no part"):
        opened.certificates(threat="l0", mass=1)
    with pytest.raises(BadInput, match="mass 0"):
        opened.certificates(threat="wasserstein", mass=0)
    np.savez(tmp_path / "other.npz", images=np.ones((3, 1, 2, 2), dtype=np.uint8), labels=np.array([0, 1, 1]))
    with pytest.raises(VaubanError):
        opened.certificates(threat="wasserstein", mass=load(f"npz:path={tmp_path / 'other.npz'}"))


def test_claim_takes_a_mass(run: Path, tmp_path: Path) -> None:
    def said(*more: str) -> str:
        return CliRunner().invoke(app, ["claim", str(run), *more]).output

    assert "presupposed" in said("--threat", "wasserstein-l2", "--mass", "1")
    assert "run's inputs" in said("--threat", "wasserstein-l2", "--mass", f"npz:path={tmp_path / 'x.npz'}")
    assert "belongs to --threat" in said("--mass", "1")
