"""Votes of two models never meet in one run: what a model reads, imports, and answers is part of its run."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.data.dataset import Dataset
from vauban.errors import BadInput, Lie, RunRefused
from vauban.replay import replay
from vauban.smoothing.gaussian import Gaussian as GaussianViews

X = torch.tensor([[0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9]])

DATA = Dataset(X.numpy(), np.array([0, 1]), 2, ("0", "1"), "two")


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


def judge(views: torch.Tensor, kind: str) -> torch.Tensor:
    """The votes of kind B are the others where the mean is large."""
    mean = views.mean(dim=1)
    sign = torch.where(mean < 0.5, 1.0, -1.0) if kind == "B" else torch.ones(())
    return torch.stack([0.5 - mean, mean - 0.5], dim=1) * sign.reshape(-1, 1)


class Judge(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        return judge(views, self.kind)


@pytest.mark.parametrize("make", [Judge, lambda kind: functools.partial(judge, kind=kind)])
def test_a_model_with_another_attribute_neither_resumes_nor_replays(make: Callable[[str], Any], tmp_path: Path) -> None:
    certify(make("A"), tmp_path / "run")
    assert replay(tmp_path / "run", make("A"), DATA).votes == 600
    with pytest.raises(Lie, match="another model"):
        replay(tmp_path / "run", make("B"), DATA)
    half_done(tmp_path / "run")
    with pytest.raises(RunRefused, match=r"model\.sha256"):
        certify(make("B"), tmp_path / "run")
    certify(make("A"), tmp_path / "run")


class Lazy(Judge):
    """A model that keeps a tensor from its first call on."""

    def __init__(self) -> None:
        super().__init__("A")
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        if not self.kept:
            self.kept["ones"] = torch.ones(len(views), 1)
        return super().forward(views) * self.kept["ones"]


def test_what_a_model_fills_in_its_first_call_does_not_make_it_another(tmp_path: Path) -> None:
    certify(Lazy(), tmp_path / "run")
    half_done(tmp_path / "run")
    certify(Lazy(), tmp_path / "run")
    assert replay(tmp_path / "run", Lazy(), DATA).votes == 600
