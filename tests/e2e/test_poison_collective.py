"""vauban poison collective as a person uses it: kept votes, budgets, top k, and runs that keep counts only."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from poison_commands import TEST, TINY

import vauban as vb
from vauban.errors import BadInput

PUBLISHED = Path(__file__).parents[2] / "results" / "poisoning"
TRAIN = ["--data", "mnist", "--limit", "300", "--partitions", "9", "--model", TINY, "--device", "cpu"]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collective") / "ens"
    vauban("poison", "train", *TRAIN, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def run(ensemble: Path) -> Path:
    folder = ensemble.parent / "kept"
    vauban("poison", "certify", "--ensemble", ensemble, *TEST, "--keep-votes", "--out", folder)
    return folder


def dissenting(path: Path) -> Path:
    """Votes of 7 models on 14 inputs: on each another model dissents, so no 3 of them can change every answer."""
    votes = np.zeros((14, 7), dtype=np.int64)
    votes[np.arange(14), np.arange(14) % 7] = 1
    np.savez(
        path,
        votes=votes,
        num_classes=2,
        labels=np.zeros(14, int),
        spread=1,
        threat="samples",
        partition="hash:partitions=7",
    )
    return path


def test_kept_votes_prove_the_same_claims_one_by_one(run: Path, ensemble: Path) -> None:
    counts = ensemble.parent / "counts"
    vauban("poison", "certify", "--ensemble", ensemble, *TEST, "--out", counts)
    assert (counts / "claims.csv").read_bytes() == (run / "claims.csv").read_bytes()
    assert set(np.load(run / "ballots.npz")) == {"votes"}
    assert set(np.load(counts / "ballots.npz")) == {"counts"}
    vauban("verify", run)
    vauban("verify", run, "--replay", "--ensemble", ensemble, "--parts", "2")


def test_kept_votes_are_replayed_without_the_ensemble(run: Path) -> None:
    assert "2 of 9" in vauban("verify", run, "--replay", "--parts", "2")


def test_a_run_of_counts_proves_the_count_one_by_one_and_says_so(ensemble: Path, tmp_path: Path) -> None:
    vauban("poison", "certify", "--ensemble", ensemble, *TEST, "--out", tmp_path / "run")
    printed = vauban("poison", "collective", tmp_path / "run", "--budget", "1,2")
    assert "keeps counts" in printed
    assert "--keep-votes" in printed
    claim = vb.Run.open(tmp_path / "run").collective(1)
    assert claim.proof == "one by one"
    assert claim.changed == claim.one_by_one


def test_one_poisoning_changes_fewer_answers_than_one_for_each_input(tmp_path: Path) -> None:
    vauban("poison", "import", dissenting(tmp_path / "votes.npz"), "--keep-votes", "--out", tmp_path / "run")
    (claim,) = json.loads(vauban("poison", "collective", tmp_path / "run", "--budget", "3", "--json"))["claims"]
    assert claim["one_by_one"] == 14
    assert claim["changed"] == 8  # 3 of 7 models: the inputs on which the other 4 dissent
    assert claim["kept"] == 6
    assert "at least 6 of the 14 correctly answered inputs" in claim["claim"]
    assert "kept, one poisoning" in vauban("poison", "collective", tmp_path / "run", "--budget", "3,4")
    by_solver = vb.Run.open(tmp_path / "run").collective(3, solver_seconds=300)
    assert by_solver.changed == 8


def test_abstained_and_wrong_answers_are_not_counted_as_kept(tmp_path: Path) -> None:
    votes = np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    np.savez(tmp_path / "v.npz", votes=votes, num_classes=2, labels=[0, 0, 0], spread=1, threat="labels")
    run = vb.poisoning.import_votes(tmp_path / "v.npz", tmp_path / "run", defense="ss-dpa", keep_votes=True)
    assert (run.collective(1).claimed, run.collective(1).kept) == (2, 2)
    assert (run.collective(1, of="answers").claimed, run.collective(1, of="answers").kept) == (3, 3)
    assert run.collective(1, label="given", of="answers").claimed == 2
    assert run.collective(2).kept == 1
    assert "relabelled" in run.collective(2).claim


def test_what_cannot_be_asked_is_refused_in_words(run: Path, tmp_path: Path) -> None:
    assert "--budget 0" in vauban("poison", "collective", run, "--budget", "0", code=2)
    assert "--budget few" in vauban("poison", "collective", run, "--budget", "few", code=2)
    with pytest.raises(BadInput, match="budget=1.5"):
        vb.Run.open(run).collective(1.5)
    runoff = ["--keep-votes", "--aggregate", "runoff", "--out", tmp_path / "runoff"]
    said = vauban("poison", "certify", "--ensemble", run.parent / "ens", *TEST, *runoff, code=2)
    assert "leave it out for a run-off" in said


def test_the_published_votes_verify_and_prove_the_published_number() -> None:
    run = vb.Run.open(PUBLISHED / "collective" / "dpa-1200")
    assert run.verify().inputs == 10_000
    claim = run.collective(100)
    assert claim.claimed - claim.one_by_one == 9_585
    assert abs(claim.kept - 9_596) <= 1  # weights are found in floating point, which another machine rounds otherwise


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "budget", "alone", "kept"),
    [
        ("collective/dpa-1200", 200, 9_407, 9_421),
        ("collective/dpa-1200", 400, 8_623, 8_666),
        ("collective/dpa-1200", 550, 5_667, 5_696),
        ("finite-1200-16", 100, 955, 957),
        ("finite-1200-16", 200, 937, 939),
        ("finite-1200-16", 400, 861, 867),
    ],
)
def test_the_published_collective_numbers(folder: str, budget: int, alone: int, kept: int) -> None:
    """Weights are found in floating point: another machine may find slightly better or worse ones."""
    claim = vb.Run.open(PUBLISHED / folder).collective(budget)
    assert claim.claimed - claim.one_by_one == alone
    assert abs(claim.kept - kept) <= 2
    assert claim.kept > alone
