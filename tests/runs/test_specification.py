"""The page on the run folder is enough to read one: a reader written from it, without Vauban, finds the same radii."""

import ast
from pathlib import Path

import independent_reader
import numpy as np
import pytest
from independent_reader import recomputed_radii

import vauban as vb


def model(views):  # type: ignore[no-untyped-def]
    """Scores of three classes from the mean of a view."""
    mean = views.flatten(1).mean(dim=1, keepdim=True)
    return -((mean - mean.new_tensor([[0.2, 0.5, 0.8]])) ** 2)


@pytest.mark.parametrize("labels", ["given", "chosen"])
def test_a_reader_that_knows_only_the_page_recomputes_every_radius(labels: str, tmp_path: Path) -> None:
    means = np.linspace(0.1, 0.85, 16)  # two of them lie halfway between classes
    pictures = (means[:, None, None, None] * np.full((1, 1, 4, 4), 255)).astype(np.uint8)
    truth = np.digitize(means, [0.35, 0.65]) if labels == "given" else None
    smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.25), num_classes=3)
    certs = smoothed.certify(pictures, truth, n=500, alpha=0.001, seed=1, out=tmp_path / "run")
    found = recomputed_radii(tmp_path / "run")
    assert 0 < certs.abstained.sum() < len(certs)
    for (own, claimed), radius, abstained in zip(found.values(), certs.radius, certs.abstained, strict=True):
        assert (own is None) == (claimed is None) == bool(abstained)
        if own is not None:
            assert claimed <= radius
            assert own - 1e-8 < claimed <= own


def test_the_reader_notices_an_altered_count(tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.25), num_classes=3)
    smoothed.certify(np.zeros((1, 1, 4, 4), dtype=np.uint8), [0], n=100, seed=1, out=tmp_path / "run")
    tallies = tmp_path / "run/tallies.jsonl"
    tallies.write_text(tallies.read_text().replace('"votes":100', '"votes":101'))
    with pytest.raises(ValueError, match="the check of a line does not match"):
        recomputed_radii(tmp_path / "run")


def test_the_reader_imports_nothing_of_vauban() -> None:
    tree = ast.parse(Path(independent_reader.__file__).read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {name.name for node in nodes for name in node.names} | {getattr(node, "module", "") for node in nodes}
    assert not any("vauban" in (name or "") for name in imported)
