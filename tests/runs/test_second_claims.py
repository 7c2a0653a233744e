"""Claims for other settings than the manifest's: what they cost together with its own, and the claim at all looks at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.certificates import derive
from vauban.cli import app
from vauban.errors import BadInput

Model = Callable[[torch.Tensor], torch.Tensor]
X = torch.stack([torch.full((16,), round(255 * v), dtype=torch.uint8) for v in (0.0, 0.2, 0.24, 0.5, 1.0)])
TRUTH = [0, 0, 0, 1, 2]


@pytest.fixture
def folder(half_spaces: Model, tmp_path: Path) -> Path:
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=3)
    smoothed.certify(X, TRUTH, n=1_000, alpha=0.001, seed=3, out=tmp_path / "run")
    return tmp_path / "run"


def claim(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["claim", *map(str, arguments)])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        ({"n": 500}, "at most 0.002, the sum"),
        ({"k": 2}, "at most 0.002, the sum"),  # by other bounds: simuem
        ({"bounds": "half"}, "at most 0.002, the sum"),
        ({"alpha": 0.05}, "at most 0.05, the larger"),
        ({"alpha": 1e-20}, "at most 0.001, the larger"),
        ({"k": 2, "bounds": "binocp"}, "at most 0.001, the larger"),
        ({"n": 500, "alpha": 0.05}, "at most 0.051, the sum"),
        ({"all_looks": True}, "at most 0.002, the sum"),
    ],
)
def test_another_claim_says_what_it_costs(folder: Path, asked: dict[str, Any], cost: str) -> None:
    note = vb.Run.open(folder).certificates(**asked).notes[-1]
    assert "second claim" in note
    assert f"fail with probability {cost}" in note
    assert "before you look" in note


def test_the_runs_own_claim_has_no_notes(folder: Path) -> None:
    run = vb.Run.open(folder)
    for asked in ({}, {"n": 1_000}, {"k": 1, "alpha": 0.001, "bounds": "binocp"}):
        assert run.certificates(**asked).notes == ()
    assert "note:" not in claim(folder)


def test_all_looks_share_alpha_and_give_the_largest_radius(folder: Path) -> None:
    run = vb.Run.open(folder)
    looks = [100, 200, 500, 1_000]
    certs = run.certificates(all_looks=True)
    each = np.stack([run.certificates(n=n, alpha=0.001 / 4).radius for n in looks])
    assert np.array_equal(certs.radius, np.fmax.reduce(each), equal_nan=True)
    assert certs.look is not None
    for i, (look, abstained) in enumerate(zip(certs.look, certs.abstained, strict=True)):
        assert look == 0 if abstained else certs.radius[i] == each[looks.index(look), i]
    assert certs.alpha == 0.001
    assert "0.999" in certs.claim
    assert "all 4 looks at once (100, 200, 500, 1,000 votes): alpha / 4" in certs.notes[0]
    assert "look" in certs.to_pandas().columns
    assert "second claim" in certs._repr_html_()


def test_a_look_that_can_certify_nothing_costs_its_share_and_no_more(folder: Path) -> None:
    """100 votes prove nothing at 1e-60; the others still do."""
    certs = vb.Run.open(folder).certificates(all_looks=True, alpha=1e-60)
    assert certs.look is not None
    assert set(certs.look.tolist()) - {0} <= {500, 1_000}
    assert not certs.abstained.all()


def test_an_extended_run_has_the_looks_of_its_manifest(half_spaces: Model, folder: Path) -> None:
    before = vb.Run.open(folder).certificates(all_looks=True)
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=3)
    smoothed.certify(X, TRUTH, n=1_000, alpha=0.001, seed=3, out=folder, extend=2_000)
    after = vb.Run.open(folder)
    assert after.certificates(all_looks=True) == before
    assert "at most 0.002, the sum" in after.certificates(n=2_000).notes[0]


def test_the_command_line_prints_and_writes_it(folder: Path, tmp_path: Path) -> None:
    assert "note: this is a second claim (top 1 at 500 votes" in claim(folder, "-n", 500)
    shown = claim(folder, "--all-looks", "--out", tmp_path / "all.csv")
    assert "at all looks at once" in shown
    assert "note: one claim at all 4 looks" in shown
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert lines[0] == "index,label,radius,abstained,truth,look"
    assert {line.split(",")[-1] for line in lines[1:]} <= {"", "100", "200", "500", "1000"}
    found = json.loads(claim(folder, "--all-looks", "--json"))
    assert len(found["notes"]) == 2
    assert [one["look"] is None for one in found["claims"]] == [one["abstained"] for one in found["claims"]]
    claim(folder, "-n", 500, "--out", tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text().startswith("index,label,radius,abstained,truth\n")


def test_converted_claims_keep_their_notes(folder: Path) -> None:
    found = json.loads(claim(folder, "-n", 500, "--threat", "linf", "--json"))
    assert found["threat"] == "linf"
    assert "second claim" in found["notes"][0]
    assert "what the L2 norm radii imply" in found["notes"][1]
    own = json.loads(claim(folder, "-n", 500, "--json"))["claims"]
    for converted, one in zip(found["claims"], own, strict=True):
        assert one["abstained"] or 0 < one["radius"] / 4 - converted["radius"] < 1e-8
    assert "as radii in linf" in claim(folder, "--threat", "linf")


def test_where_there_is_one_look_or_none_all_looks_are_refused(
    half_spaces: Model, folder: Path, tmp_path: Path
) -> None:
    assert "leave one of them out" in claim(folder, "-n", 500, "--all-looks", code=2)
    counts = tmp_path / "counts.txt"
    counts.write_text("990 10 0\n")
    assert "--all-looks" in claim(counts, "--smoothing", "gaussian:sigma=0.5", "--all-looks", code=2)
    for smoothing, given in (
        ("gaussian:sigma=0.5", {"n": 1_000, "stop": "target:radius=0.1"}),
        ("splitting:sigma=0.3", {}),
    ):
        smoothed = vb.SmoothedClassifier(half_spaces, smoothing, num_classes=3)
        smoothed.certify(X, TRUTH, out=tmp_path / smoothing[0], **given)
        with pytest.raises(BadInput, match="all looks at once"):
            vb.Run.open(tmp_path / smoothing[0]).certificates(all_looks=True)
        assert vb.Run.open(tmp_path / smoothing[0]).certificates().notes == ()


@pytest.fixture
def voted(half_spaces: Model, tmp_path: Path) -> Path:
    """A run whose labels votes chose, with true labels of which one differs from the answer."""
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=3)
    smoothed.certify(X, [0, 0, 2, 1, 2], n=1_000, n0=50, alpha=0.05, seed=3, out=tmp_path / "voted")
    return tmp_path / "voted"


def test_given_labels_are_certified_from_the_votes_of_labels_that_votes_chose(voted: Path) -> None:
    run = vb.Run.open(voted)
    own = run.certificates()
    certs = run.certificates(label="given", k=2, alpha=0.001, bounds="simuem")
    assert certs.truth is not None
    assert certs.label.tolist() == certs.truth.tolist() != own.label.tolist()
    from_counts = derive(
        own.counts, certs.truth, own.law, k=2, alpha=0.001, bounds="simuem", deviation=run.record.method.deviation
    )
    assert np.array_equal(certs.radius, from_counts.radius, equal_nan=True)
    assert certs.summary([0.1])["labels"] == "given"
    assert "of the given labels) besides the run's own (top 1" in certs.notes[0]
    assert own.notes == run.certificates(label="votes").notes == ()


@pytest.mark.parametrize("asked", [{"label": "given"}, {"label": "given", "alpha": 0.05, "bounds": "binocp"}])
def test_a_claim_about_other_labels_costs_its_own_alpha(voted: Path, asked: dict[str, Any]) -> None:
    """The bound of another label is another event, so that no alpha is inside the other."""
    assert "fail with probability at most 0.1, the sum" in vb.Run.open(voted).certificates(**asked).notes[0]


def test_labels_are_refused_that_nothing_chose_or_gave(
    half_spaces: Model, folder: Path, voted: Path, tmp_path: Path
) -> None:
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=3)
    smoothed.certify(X, n=1_000, seed=3, out=tmp_path / "unlabelled")
    smoothed.certify(X, TRUTH, n=1_000, label="votes", stop="target:radius=0.1", seed=3, out=tmp_path / "stopped")
    for path, label, why in (
        (folder, "votes", "cast no uncounted votes"),
        (folder, "both", "'given' or 'votes'"),
        (tmp_path / "unlabelled", "given", "no true labels"),
        (tmp_path / "stopped", "given", "votes stopped for one claim cannot prove another"),
    ):
        with pytest.raises(BadInput, match=why):
            vb.Run.open(path).certificates(label=label)
    counts = tmp_path / "counts.txt"
    counts.write_text("990 10 0\n")
    assert "belongs to a run folder" in claim(counts, "--smoothing", "gaussian:sigma=0.5", "--label", "given", code=2)
    assert "given labels" in claim(voted, "--label", "given")


def test_exact_runs_certify_given_labels_and_the_winner_from_the_same_votes(half_spaces: Model, tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(half_spaces, "splitting:sigma=0.3", num_classes=3)
    truth = [0, 0, 2, 1, 2]
    for label, other in (("given", "votes"), ("votes", "given")):
        own = smoothed.certify(X, truth, label=label, out=tmp_path / label)
        assert vb.Run.open(tmp_path / label).certificates() == own
        found = vb.Run.open(tmp_path / label).certificates(label=other)
        assert found == smoothed.certify(X, truth, label=other)
        assert found.notes == ()
