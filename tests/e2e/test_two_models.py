"""Votes of two models never meet in one run: what a model reads, imports, and answers is part of its run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput, RunRefused
from vauban.smoothing.gaussian import Gaussian as GaussianViews

X = torch.tensor([[0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9]])


def half_done(folder: Path) -> None:
    """Take the second half of a run's votes away, as an interruption would."""
    lines = (folder / "tallies.jsonl").read_text().splitlines(keepends=True)
    (folder / "tallies.jsonl").write_text("".join(lines[: len(lines) // 2]))
    for name in ("claims.csv", "seal.json"):
        (folder / name).unlink()


def certify(model: Any, folder: Path, **options: Any) -> vb.Certificates:
    smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.5), num_classes=2, **options)
    return smoothed.certify(X, [0, 1], n=300, alpha=0.01, seed=1, out=folder)


def reader(path: Path) -> Any:
    """A model that reads its weights from a file whenever it is called."""

    def model(views: torch.Tensor) -> torch.Tensor:
        mean = views.mean(dim=1) * float(np.load(path)[0])
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)

    return model


def test_a_model_that_reads_other_weights_is_refused_on_resume(tmp_path: Path) -> None:
    np.save(tmp_path / "W.npy", np.array([1.0]))
    model = reader(tmp_path / "W.npy")
    certify(model, tmp_path / "run")
    half_done(tmp_path / "run")
    np.save(tmp_path / "W.npy", np.array([1.001]))
    with pytest.raises(RunRefused, match=r"model\.scores"):
        certify(model, tmp_path / "run")
    np.save(tmp_path / "W.npy", np.array([1.0]))
    certify(model, tmp_path / "run")
    assert vb.Run.open(tmp_path / "run").verify().votes == 600


def test_files_that_a_model_is_declared_to_read_are_part_of_it(tmp_path: Path) -> None:
    np.save(tmp_path / "W.npy", np.array([1.0]))
    np.save(tmp_path / "rare.npy", np.array([1.0]))  # read where no probe view leads
    model = reader(tmp_path / "W.npy")
    certify(model, tmp_path / "run", depends=[tmp_path / "rare.npy"])
    assert list(json.loads((tmp_path / "run" / "manifest.json").read_text())["model"]["depends"]) == ["rare.npy"]
    half_done(tmp_path / "run")
    np.save(tmp_path / "rare.npy", np.array([2.0]))
    with pytest.raises(RunRefused, match=r"model\.depends"):
        certify(model, tmp_path / "run", depends=[tmp_path / "rare.npy"])
    with pytest.raises(RunRefused, match=r"model\.depends"):
        certify(model, tmp_path / "run")
    with pytest.raises(BadInput, match="cannot be read"):
        certify(model, tmp_path / "other", depends=[tmp_path / "gone"])


def test_a_helper_that_changed_is_refused_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helping.py").write_text("scale = 1.0\n")
    (tmp_path / "mine.py").write_text(
        "import torch\nimport helping\n\n\ndef model(views):\n    mean = views.mean(dim=1) * helping.scale\n"
        "    return torch.stack([0.5 - mean, mean - 0.5], dim=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import mine  # type: ignore[import-not-found]

    certify(mine.model, tmp_path / "run")
    half_done(tmp_path / "run")
    (tmp_path / "helping.py").write_text("scale = 1.0  # the same, and yet another file\n")
    with pytest.raises(RunRefused, match=r"model\.sha256"):
        certify(mine.model, tmp_path / "run")


def test_other_noise_is_refused_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another version of Vauban might make it."""

    def model(views: torch.Tensor) -> torch.Tensor:
        mean = views.mean(dim=1)
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)

    certify(model, tmp_path / "run")
    half_done(tmp_path / "run")
    views = GaussianViews.views
    monkeypatch.setattr(GaussianViews, "views", lambda self, x, words, levels: views(self, x, words.flip(1), levels))
    with pytest.raises(RunRefused, match=r"model\.(scores|views)"):
        certify(model, tmp_path / "run")
