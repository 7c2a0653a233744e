"""Every smoothing used for real: trained on its own views, planned, certified, claimed, verified."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from commands import vauban

from vauban.bench.certificates import SMOOTHINGS as AT_IMAGENET_SIZE
from vauban.bench.exact import SMOOTHINGS as EXACT_RATES
from vauban.laws import LAWS
from vauban.smoothing import SMOOTHINGS
from vauban.specs import Spec

TRIED = {
    "gaussian:sigma=0.25": None,
    "laplace:sigma=0.25": None,
    "uniform:sigma=0.25": None,
    "splitting:sigma=0.25,sampled=true": None,
    "fractional:p=1/2,scale=4,sampled=true": None,
    "ablation:retained=80": None,
    "ablation:retained=80,null=mean,mean=0.13": None,
    "discrete:keep=0.5,values=256": None,
    "flow:sigma=0.001": "cnn-small:channels=1,classes=10,mean=0,std=0.004",
    "band:size=6,sampled=true": None,
    "block:size=14,sampled=true": None,
}
EXACT_TRIED = {  # the base accuracy that few steps reach on views, and every how many of the test digits vote
    "splitting:sigma=0.25": (0.3, 500),
    "fractional:p=1/2,scale=2": (0.3, 2500),
    "fractional:p=1/3,scale=1,representation=center_error,coupling=arbitrary": (0.3, 2500),
    "sparse:scale=5": (0.3, 500),
    "sparse:scale=5,unit=feature,offsets=3": (0.3, 500),
    "band:size=8,threshold=0.3": (0.2, 500),
    "block:size=14,stride=2": (0.3, 500),
    "block:size=7,count=3": (0.2, 500),
}


QUICK = ("gaussian:sigma=0.25", "splitting:sigma=0.25")
"""The smoothings that are tried in every run of the tests; the others are slow tests."""


def some_slow(specs: Iterable[str]) -> list[Any]:
    return [pytest.param(spec, marks=[] if spec in QUICK else [pytest.mark.slow]) for spec in specs]


def training(spec: str) -> list[str]:
    """The command that trains on views of every 20th digit, of every 60th where few digits are enough."""
    every = "60" if spec in QUICK else "20"
    return ["train", "--smoothing", spec, "--every", every, "--epochs", "3", "--batch-size", "100", "--lr", "0.003"]


def test_every_law_has_its_views_and_is_tried_here_and_in_the_bench() -> None:
    sampled, exact = ({name for name, forms in LAWS.items() if any(f.exact == e for f in forms)} for e in (False, True))
    assert LAWS.keys() == SMOOTHINGS.keys()
    assert {Spec.parse(spec).name for spec in TRIED} == sampled
    assert {Spec.parse(spec).name for spec in EXACT_TRIED} == exact
    assert {Spec.parse(spec).name for spec in EXACT_RATES} == exact
    assert {Spec.parse(spec).name for spec in AT_IMAGENET_SIZE} == sampled


@pytest.mark.parametrize("spec", some_slow(TRIED))
def test_train_plan_certify_claim_verify(tmp_path: Path, spec: str) -> None:
    model, run = tmp_path / "model.safetensors", tmp_path / "run"
    architecture = ["--model", TRIED[spec]] if TRIED[spec] else []
    trained = json.loads(vauban(*training(spec), *architecture, "--out", model, "--json"))
    assert trained["base_accuracy_on_training_views"] > 0.3
    common = ["--smoothing", spec, "--model", model, "--every", "500", "--json"]
    plan = json.loads(vauban("plan", *common, "-n", "300", "--alpha", "0.01", "--seconds", "0.05"))
    assert plan["largest_radius"] >= 0
    certified = json.loads(vauban("certify", *common, "-n", "300", "--alpha", "0.01", "--seed", "1", "--out", run))
    assert certified["clean_accuracy"] > 0.3
    assert 0 < certified["base_accuracy"] <= 1
    vauban("verify", run)
    vauban("claim", run, "-k", "3", "--out", tmp_path / "top3.csv")
    radii = {row["index"]: row["radius"] for row in csv.DictReader((tmp_path / "top3.csv").open())}
    assert len(radii) == 20
    assert any(radii.values())


def test_what_a_certificate_is_worth_in_another_threat(tmp_path: Path) -> None:
    counts = tmp_path / "counts.txt"
    counts.write_text("99990 10 0 0\n60000 40000 0 0\n")
    gaussian = ["claim", counts, "--smoothing", "gaussian:sigma=2", "--json", "--shape", "3x32x32"]
    l2 = json.loads(vauban(*gaussian))["claims"][0]["radius"]
    l0 = json.loads(vauban(*gaussian, "--threat", "l0"))
    assert l0["threat"] == "l0"
    assert l0["claims"][0]["radius"] == -(-(l2**2) // 3) - 1
    assert "only to: l1, l0" in vauban(*gaussian, "--threat", "wasserstein", code=2)
    assert "--shape 3x32x32" in vauban(*gaussian[:-2], "--threat", "l0", code=2)
    vauban("claim", counts, "--smoothing", "ablation:retained=45,features=784", "--out", tmp_path / "l0.csv")
    radius = (tmp_path / "l0.csv").read_text().splitlines()[1].split(",")[2]
    assert radius.isdigit()
    assert int(radius) > 5


def test_another_proof_about_the_same_votes(tmp_path: Path) -> None:
    counts = tmp_path / "counts.txt"
    counts.write_text("99000 1000 0 0\n")
    radii = [
        json.loads(vauban("claim", counts, "--smoothing", f"laplace:sigma=0.5{bound}", "--json"))["claims"][0]["radius"]
        for bound in ("", ",bound=theorem1", ",bound=lecuyer")
    ]
    assert radii[0] >= radii[1] >= radii[2] > 0
    assert radii[0] > radii[2]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--smoothing", "ablation:retained=784"], "hides nothing"),
        (["--smoothing", "ablation:retained=0"], "retained=0"),
        (["--smoothing", "discrete:keep=1.5"], "keep"),
        (["--smoothing", "splitting:sigma=0.5"], "sampled=true"),
        (["--smoothing", "fractional:p=1/2,scale=4"], "views of these inputs under fractional:p=1/2,scale=4 have 2"),
        (["--smoothing", "fractional:p=2,scale=4,sampled=true"], "p"),
        (["--smoothing", "band:size=6,stride=2,count=2"], "leave the stride out"),
        (["--smoothing", "flow:sigma=0.01,ground=l3"], "ground"),
        (
            ["--smoothing", "ablation:retained=45"],
            "1 channels; views of these inputs under ablation:retained=45 have 2",
        ),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    errors = vauban("certify", *arguments, "--limit", "2", "-n", "100", "--out", tmp_path / "run", code=2)
    assert complaint in errors
    assert not (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.parametrize("spec", some_slow(EXACT_TRIED))
def test_train_plan_certify_claim_verify_exactly(tmp_path: Path, spec: str) -> None:
    model, run = tmp_path / "model.safetensors", tmp_path / "run"
    base, every = EXACT_TRIED[spec]
    trained = json.loads(vauban(*training(spec), "--model", "cnn-small", "--out", model, "--json"))
    assert trained["base_accuracy_on_training_views"] > base
    common = ["--smoothing", spec, "--model", model, "--every", str(every), "--json"]
    plan = json.loads(vauban("plan", *common, "--seconds", "0.05"))
    assert plan["largest_radius"] > 0
    certified = json.loads(vauban("certify", *common, "--out", run))
    assert certified["exact"]
    assert certified["votes_per_input"] == plan["views"]
    assert certified["inputs"] == 10_000 // every
    vauban("verify", run)
    vauban("claim", run, "-k", "3", "--out", tmp_path / "top3.csv")
    radii = [row["radius"] for row in csv.DictReader((tmp_path / "top3.csv").open())]
    assert len(radii) == 10_000 // every
    assert all(float(r) >= 0 for r in radii if r)
    assert any(radii)
    predicted = json.loads(vauban("predict", *common))
    assert predicted["undecided"] == 0
    assert predicted["correct"] == pytest.approx(certified["clean_accuracy"])


def test_exact_answers_to_what_it_does_not_have(tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    spec = "sparse:scale=4"
    vauban("train", "--smoothing", spec, "--every", "100", "--epochs", "1", "--out", model, "--json")
    common = ["--smoothing", spec, "--model", model, "--every", "1000"]
    for wrong in (["-n", "100"], ["--alpha", "0.01"], ["--seed", "1"], ["--n0", "10"], ["--bounds", "binocp"]):
        assert "every view votes" in vauban("certify", *common, *wrong, "--out", tmp_path / "run", code=2)
    assert "not arithmetic='float'" in vauban(
        "certify", *common, "--arithmetic", "float", "--out", tmp_path / "r", code=2
    )
    vauban("certify", *common, "--out", tmp_path / "run", "--json")
    assert "cannot certify rectangles" in vauban("claim", tmp_path / "run", "--patch", "2x3", code=2)
    assert "every view votes" in vauban("claim", tmp_path / "run", "--alpha", "0.01", code=2)
    counts = tmp_path / "counts.txt"
    counts.write_text("3 1 0 0\n2 2 0 0\n")
    assert json.loads(vauban("claim", counts, "--smoothing", spec, "--json"))["claims"][0]["radius"] == 1
    counts.write_text("3 2 0 0\n")
    assert "4 views" in vauban("claim", counts, "--smoothing", spec, code=2)
    assert "needs every view's vote" in vauban(
        "claim", counts, "--smoothing", "band:size=4", "--shape", "1x5x5", code=2
    )


def test_patches_of_any_size_from_one_ballot(tmp_path: Path) -> None:
    model, run, spec = tmp_path / "model.safetensors", tmp_path / "run", "band:size=8"
    vauban("train", "--smoothing", spec, "--every", "20", "--epochs", "3", "--lr", "0.003", "--out", model, "--json")
    squares = vauban("certify", "--smoothing", spec, "--model", model, "--every", "100", "--out", run, "--radii", "0,2")
    assert "by the papers' margin" in squares
    side2 = json.loads(vauban("claim", run, "--radii", "2", "--json"))["certified"][0]
    assert side2["by_margin"] <= side2["accuracy"]
    standing = {
        p: json.loads(vauban("claim", run, "--patch", p, "--json"))["certified"] for p in ("2x2", "28x2", "2x9")
    }
    assert standing["2x2"] == pytest.approx(side2["accuracy"])
    assert standing["28x2"] == pytest.approx(side2["accuracy"])  # columns do not see how high a patch is
    assert standing["2x9"] <= standing["2x2"]
    for too_large in ("29x1", "1x29"):
        assert "28x28 pixels" in vauban("claim", run, "--patch", too_large, code=2)
    margin = json.loads(vauban("claim", run, "--smoothing", f"{spec},bound=margin", "--radii", "2", "--json"))
    assert margin["certified"][0]["accuracy"] == pytest.approx(side2["by_margin"])
