"""Kernel machines on fixed descriptors: against a slow one, alone and among others, saved and voting."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vauban.data import Dataset, load
from vauban.errors import BadInput
from vauban.poisoning.ensemble_training import load_ensemble, train
from vauban.poisoning.training.input_transforms import descriptors
from vauban.poisoning.training.kernel_machines import KernelTrainer
from vauban.poisoning.training.stacked.build_trainer import build_trainer
from vauban.runs.verify import verify_run


def pictures(count: int = 30, channels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.integers(0, 256, (count, channels, 16, 16), dtype=np.uint8), draw.integers(0, 3, count)


def test_a_machine_is_kernel_ridge_regression() -> None:
    x, y = pictures()
    trainer = KernelTrainer(3, gamma=0.4, ridge=0.2, mirrored=False)
    [(numbers, weights)] = trainer.fit([(x[:20], y[:20])], [7])
    points = descriptors(torch.from_numpy(x).float() / 255).flatten(1).double().numpy()
    support = points[:20].astype(np.float16).astype(np.float64)
    near = lambda a, b: np.exp(-0.4 * ((a[:, None] - b[None]) ** 2).sum(2))  # noqa: E731
    share = np.linalg.solve(near(support, support) + 0.2 * np.eye(20), np.eye(3)[y[:20]] - 1 / 3)
    assert numbers == [7]
    assert np.allclose(trainer.scores(weights, x)[0].numpy(), near(points, support) @ share, atol=1e-4)


def test_mirrored_samples_make_a_machine_that_does_not_see_which_side_is_left() -> None:
    x, y = pictures()
    trainer = build_trainer((3, 16, 16), 3, model="kernel:ridge=0.1")
    assert isinstance(trainer, KernelTrainer)
    assert trainer.mirrored
    assert KernelTrainer.from_spec(trainer.spec) == trainer
    [(_, weights)] = trainer.fit([(x[:20], y[:20])], [0])
    assert weights["support"].shape[:2] == (1, 40)
    assert torch.allclose(trainer.scores(weights, x), trainer.scores(weights, x[..., ::-1].copy()), atol=1e-3)


def test_an_ensemble_is_saved_votes_and_verifies(tmp_path: Path) -> None:
    x, y = pictures(60)
    data = Dataset(x, y, 3, tuple("abc"), "made", classes_fixed=True)
    ensemble = train(data, "dpa", 5, out=tmp_path / "ens", model="kernel:gamma=0.3")
    assert ensemble.manifest["trainer"]["trainer"] == "kernel"
    assert ensemble.manifest["against"] == "samples"
    again = load_ensemble(tmp_path / "ens")
    certs = again.certify(x[:9], y[:9], out=tmp_path / "run")
    verify_run(tmp_path / "run")
    assert len(certs.radius) == 9
    alone = train(data, "dpa", 5, model="kernel:gamma=0.3")
    assert alone.fingerprints == again.fingerprints


def test_descriptors_tell_digits_apart_from_few_samples() -> None:
    data = load("mnist:split=train").select(every=100, limit=300)
    assert data.labels is not None
    trainer = KernelTrainer.recipe((1, 28, 28), 10)
    [(_, weights)] = trainer.fit([(data.images[:50], data.labels[:50])], [0])
    votes = trainer.scores(weights, data.images[50:])[0].argmax(1).numpy()
    assert (votes == data.labels[50:]).mean() > 0.6


def test_what_has_no_descriptors_is_refused() -> None:
    with pytest.raises(BadInput, match="grey or colour pictures"):
        build_trainer((5,), 2, model="kernel")
    with pytest.raises(BadInput, match="no random numbers"):
        build_trainer((3, 16, 16), 3, model="kernel", seeds="shared")
    with pytest.raises(BadInput, match="features=none"):
        build_trainer((3, 16, 16), 3, model="kernel", features="simclr")
    with pytest.raises(BadInput, match="above 0"):
        build_trainer((3, 16, 16), 3, model="kernel:gamma=0")
    with pytest.raises(BadInput, match="have no descriptors"):
        descriptors(torch.zeros(1, 2, 16, 16))
