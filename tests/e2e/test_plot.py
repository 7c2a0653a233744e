"""vauban plot and vauban compare on real run folders."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import vauban

import vauban as vb
from vauban import models

pytest.importorskip("matplotlib")


@pytest.fixture
def runs(tmp_path: Path, half_spaces: Callable[[torch.Tensor], torch.Tensor]) -> list[Path]:
    x = torch.rand(12, 4, generator=torch.Generator().manual_seed(1))
    y = half_spaces(x).argmax(dim=1).tolist()
    folders = []
    for sigma in (0.1, 0.3):
        smoothed = vb.SmoothedClassifier(half_spaces, f"gaussian:sigma={sigma}", num_classes=3)
        folders.append(tmp_path / f"sigma-{sigma}")
        smoothed.certify(x, y=y, n=500, seed=1, out=folders[-1], progress=False)
    return folders


def test_plot_writes_a_picture_and_its_numbers(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "figures" / "sigma"
    said = vauban("plot", *runs, "--best", "--out", out).split()
    assert said == [f"{out}{kind}" for kind in (".png", ".svg", ".csv", ".tex")]
    with open(f"{out}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {row["line"] for row in rows}
    assert names == {"gaussian:sigma=0.1", "gaussian:sigma=0.3", "best"}
    certs = vb.Run.open(runs[0]).certificates()
    first = [row for row in rows if row["line"] == "gaussian:sigma=0.1"]
    assert [float(row["accuracy"]) for row in first] == pytest.approx(
        [certs.accuracy(float(r["radius"])) for r in first]
    )


def test_plot_refuses_the_ending_of_a_file_that_it_does_not_write(runs: list[Path], tmp_path: Path) -> None:
    for ending in (".exe", ".pdf"):
        assert f"give a name without {ending}" in vauban("plot", runs[0], "--out", tmp_path / f"x{ending}", code=2)
    vauban("plot", runs[0], "--out", tmp_path / "sigma-0.25")
    assert (tmp_path / "sigma-0.25.png").exists()


def test_several_k_n_and_alpha_of_one_run_have_their_own_lines(runs: list[Path], tmp_path: Path) -> None:
    vauban("plot", runs[0], "-k", 1, "-k", 2, "-n", 100, "-n", 500, "--out", tmp_path / "f.png")
    text = (tmp_path / "f.csv").read_text()
    assert all(f"{name}" in text for name in ('"top 1, 100 votes', '"top 2, 500 votes'))
    vauban("plot", runs[0], "--histogram", "--out", tmp_path / "h")
    assert (tmp_path / "h.png").stat().st_size > 5000


def test_compare_prints_differences_from_the_first_run(runs: list[Path], tmp_path: Path) -> None:
    told = json.loads(vauban("compare", *runs, "--radii", "0,0.05", "--json"))
    one, two = (vb.Run.open(run).certificates() for run in runs)
    found = told["runs"][1]["against_first"][1]
    assert found["difference"] == pytest.approx(two.accuracy(0.05) - one.accuracy(0.05))
    said = vauban("compare", *runs, "--radii", "0", "--out", tmp_path / "t.tex")
    assert "against the first" in said
    assert "±: the standard error of a difference over inputs" in said
    assert f"table: {tmp_path / 't.tex'}" in said.splitlines()
    assert r"\begin{tabular}" in (tmp_path / "t.tex").read_text()


def test_compare_takes_the_mean_over_trainings(tmp_path: Path) -> None:
    x, y = torch.rand(12, 4, generator=torch.Generator().manual_seed(1)), [0, 1, 2] * 4
    runs = [tmp_path / f"run-{seed}" for seed in range(3)]
    for seed, run in enumerate(runs):
        model = models.build("mlp:features=4,classes=3,width=8,depth=1", seed=seed).eval()
        smoothed = vb.SmoothedClassifier(model, "gaussian:sigma=0.1", num_classes=3)
        smoothed.certify(x, y=y, n=100, alpha=0.01, seed=1, out=run, progress=False)
    told = json.loads(vauban("compare", *runs, "--seeds", 3, "--radii", "0,0.05", "--json"))["trainings"][0]
    shares = [vb.Run.open(run).certificates().accuracy(0.05) for run in runs]
    assert told["certified"][1]["values"] == shares
    assert told["certified"][1]["mean"] == pytest.approx(sum(shares) / 3)
    assert "gaussian:sigma=0.1 (3)" in vauban("compare", *runs, "--seeds", 3)
    assert "two are of the same model" in vauban("compare", runs[0], runs[0], "--seeds", 2, code=2)
    assert "leave --seeds out" in vauban("compare", *runs, "--seeds", 3, "--out", tmp_path / "t.csv", code=2)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "is no folder" in vauban("plot", tmp_path / "none", "--out", tmp_path / "f", code=2)
