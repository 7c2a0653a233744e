"""Votes files: what an ensemble exports says how its votes were cast; of other files nothing is assumed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput
from vauban.laws.poisoning.finite import spread_offsets
from vauban.poisoning import ClusterEnsemble, Ensemble, Partition, SklearnTrainer, import_votes
from vauban.poisoning.votes.importing import derive_claims
from vauban.poisoning.votes.votes_file import read_votes_file
from vauban.runs.verify import verify_run

RNG = np.random.default_rng(1)
X, Y = RNG.integers(0, 256, size=(400, 1, 2, 2)).astype(np.uint8), None
Y = (X[:, 0, 0, 0] > 127).astype(np.int64) + (X[:, 0, 1, 1] > 200)
ASKED, TRUTH = X[:40] ^ 1, Y[:40]
TRAINER = SklearnTrainer(KNeighborsClassifier(1), 3)


def vauban(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, f"exit {done.exit_code}\n{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("split", [Partition(20), Partition(10, spread=4), Partition(20, by="sort")], ids=str)
@pytest.mark.parametrize("aggregate", ["plurality", "runoff"])
def test_exported_votes_claim_what_their_ensemble_does(split: Partition, aggregate: str, tmp_path: Path) -> None:
    ensemble = Ensemble.fit(X, Y, split, TRAINER)
    ensemble.export(tmp_path / "votes.npz", ASKED, TRUTH, aggregate)
    right = ensemble.certify(ASKED, TRUTH, aggregate)
    smoothing = [] if aggregate == "plurality" else ["--smoothing", "partition:aggregate=runoff"]
    told = json.loads(vauban("claim", tmp_path / "votes.npz", *smoothing, "--json"))
    assert [claim["radius"] for claim in told["claims"]] == [
        None if np.isnan(radius) else radius for radius in right.radius
    ]
    assert told["threat"] == right.threat.name == ("label-flips" if split.by == "sort" else "poisoning")
    run = import_votes(tmp_path / "votes.npz", tmp_path / "run", aggregate)
    assert np.array_equal(run.certificates().radius, right.radius, equal_nan=True)
    assert (run.manifest.partition, run.manifest.against) == (str(split), split.against)
    assert run.manifest.training["failure_rule"] == ensemble.manifest["failure_rule"]
    verify_run(tmp_path / "run")
    for wrong in ("spread=2", "threat=labels" if split.by != "sort" else "threat=samples"):
        assert "must agree" in vauban("claim", tmp_path / "votes.npz", "--smoothing", f"partition:{wrong}", code=2)


def test_bare_votes_once_claimed_more_than_is_true(tmp_path: Path) -> None:
    """Votes of models that share samples: as if they did not, the radii are several times too large."""
    ensemble = Ensemble.fit(X, Y, Partition(10, spread=4), TRAINER)
    bare = {"votes": ensemble.votes(ASKED), "labels": TRUTH, "num_classes": 3}
    np.savez(tmp_path / "bare.npz", **bare)
    np.savez(tmp_path / "offsets.npz", **bare, offsets=spread_offsets(40, 4))
    right = ensemble.certify(ASKED, TRUTH)
    for smoothing in (None, "partition", "partition:spread=4", "partition:threat=samples"):
        with pytest.raises(BadInput, match=r"does not say the (spread|threat)"):
            derive_claims(tmp_path / "bare.npz", smoothing)
    with pytest.raises(BadInput, match=r"which buckets .*add that array as offsets"):
        derive_claims(tmp_path / "bare.npz", "partition:spread=4,threat=samples")
    said = derive_claims(tmp_path / "offsets.npz", "partition:spread=4,threat=samples").certificates
    assert np.array_equal(said.radius, right.radius, equal_nan=True)
    untrue = derive_claims(tmp_path / "bare.npz", "partition:spread=1,threat=samples").certificates
    assert np.nanmedian(untrue.radius) > 3 * np.nanmedian(right.radius)
    for name in ("bare", "offsets"):
        with pytest.raises(BadInput, match="does not say the spread and threat"):
            import_votes(tmp_path / f"{name}.npz", tmp_path / "run")
    run = import_votes(tmp_path / "offsets.npz", tmp_path / "run", defense="finite:spread=4")
    assert np.array_equal(run.certificates().radius, right.radius, equal_nan=True)


def saved(path: Path, **more: Any) -> Path:
    np.savez(path, votes=np.array([[0] * 7 + [1] * 3]), num_classes=2, **more)
    return path


@pytest.mark.parametrize(
    ("inside", "given", "against"),
    [
        ({"spread": 1, "threat": "labels"}, {}, "labels"),
        ({"spread": 1}, {"against": "samples"}, "samples"),
        ({"threat": "samples"}, {"spread": 1}, "samples"),
        ({"partition": "sort:partitions=10"}, {}, "labels"),
        ({"partition": "hash:partitions=10"}, {"against": "labels"}, "labels"),
        ({"training": json.dumps({"partition": "hash:partitions=10", "against": "samples"})}, {}, "samples"),
        ({"training": json.dumps({"partition": {"spec": "sort:partitions=10"}})}, {}, "labels"),
        ({"training": json.dumps({"defense": "dpa"})}, {}, "samples"),
        ({}, {"defense": "ss-dpa"}, "labels"),
    ],
)
def test_what_states_the_threat(inside: dict, given: dict, against: str, tmp_path: Path) -> None:
    file = read_votes_file(saved(tmp_path / "v.npz", **inside), **given)
    assert (file.votes.spread, file.votes.against) == (1, against)


@pytest.mark.parametrize(
    ("inside", "given", "words"),
    [
        ({}, {}, "does not say the spread and threat"),
        ({"spread": 1}, {}, "does not say the threat"),
        ({"partition": "hash:partitions=10"}, {}, "does not say the threat"),
        ({"threat": "labels"}, {}, "does not say the spread"),
        ({"spread": 1, "threat": "pixels"}, {}, "not a known threat"),
        ({"spread": 1, "threat": 5}, {}, "threat must be one text"),
        ({"partition": "sort:partitions=10", "threat": "samples"}, {}, "threat is labels"),
        ({"partition": "sort:partitions=10"}, {"against": "samples"}, "threat is labels"),
        ({"partition": "hash:partitions=5,spread=2", "spread": 1}, {}, "spread"),
        ({"partition": "hash:partitions=9"}, {"against": "samples"}, "votes of 10 models"),
        (
            {"partition": "hash:partitions=10", "training": json.dumps({"partition": "sort:partitions=10"})},
            {},
            "partition",
        ),
        ({"training": json.dumps({"partition": 5})}, {}, "must be a text"),
        ({"spread": 2, "threat": "samples"}, {}, "which buckets"),
        ({"spread": 1, "threat": "samples"}, {"defense": "ss-dpa"}, "threat"),
    ],
)
def test_nothing_is_assumed_and_nothing_contradicted(inside: dict, given: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        read_votes_file(saved(tmp_path / "v.npz", **inside), **given)


def test_a_run_needs_a_partition(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"how the training set was partitioned.*--defense"):
        import_votes(saved(tmp_path / "v.npz", spread=1, threat="samples"), tmp_path / "run")


def test_clusters_export_too(tmp_path: Path) -> None:
    ensemble = ClusterEnsemble.fit(X, np.minimum(Y, 1))
    ensemble.export(tmp_path / "votes.npz", ASKED)
    claimed = derive_claims(tmp_path / "votes.npz").certificates
    assert claimed.threat.name == "label-flips"
    assert np.array_equal(claimed.radius, ensemble.certify(ASKED).radius)
    with pytest.raises(BadInput, match=r"take .*votes.npz"):
        ensemble.export(tmp_path / "votes.txt", ASKED)
