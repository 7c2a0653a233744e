"""Certificates from votes: certified, certified for another label, and abstained; compared, pickled, as text, table and curve."""

import csv
import io
import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vauban.certificates import Claims
from vauban.errors import BadInput
from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.report.curve import figure

COUNTS = np.array([[5, 0, 0], [0, 5, 0], [0, 0, 5]])
VOTES = EnsembleVotes.from_arrays({"counts": COUNTS}, 3)
TRUTH = np.array([0, 0, 2])


def given() -> PoisoningCertificates:
    """Certified at radius 2, abstained, certified at radius 2."""
    return derive(VOTES, TRUTH, label="given", index=[7, 3, 20])


def test_three_outcomes_stay_apart() -> None:
    answer, given = derive(VOTES, TRUTH), derive(VOTES, TRUTH, label="given")
    assert answer.label.tolist() == [0, 1, 2]
    assert not answer.abstained.any()
    assert given.abstained.tolist() == [False, True, False]
    assert np.isnan(given.radius[1])
    assert answer.accuracy() == given.accuracy() == pytest.approx(2 / 3)
    assert answer.certified_elsewhere == given.undecided == pytest.approx(1 / 3)
    assert given.median_radius == answer.median_radius == 2
    assert derive(VOTES, np.array([1, 2, 0])).summary([0])["median_radius"] is None


def test_equal_certificates_are_equal_and_a_changed_field_is_seen() -> None:
    certs = given()
    assert certs == given()
    assert pickle.loads(pickle.dumps(certs)) == certs
    changes = {
        "label": certs.label + 1,
        "radius": np.array([2.0, 0.0, 2.0]),
        "abstained": ~certs.abstained,
        "answer": certs.answer + 1,
        "counts": certs.counts + 1,
        "truth": None,
        "k": 2,
        "aggregate": "runoff",
        "spread": 2,
        "against": "labels",
        "index": certs.index + 1,
        "scope": " Of some classes.",
    }
    assert set(changes) == set(vars(certs))
    for name, value in changes.items():
        assert replace(certs, **{name: value}) != certs, name
    assert certs != "certificates"
    with pytest.raises(TypeError, match="unhashable"):
        hash(certs)


def test_claims_as_text() -> None:
    rows = list(csv.DictReader(io.StringIO(given().to_csv())))
    assert list(rows[0]) == ["index", "label", "radius", "abstained", "truth"]
    assert [row["index"] for row in rows] == ["7", "3", "20"]
    assert [row["radius"] for row in rows] == ["2", "", "2"]
    assert [row["abstained"] for row in rows] == ["false", "true", "false"]
    assert [row["truth"] for row in rows] == ["0", "0", "2"]
    unlabelled = list(csv.DictReader(io.StringIO(derive(VOTES).to_csv())))
    assert [(row["index"], row["truth"]) for row in unlabelled] == [("0", ""), ("1", ""), ("2", "")]
    assert [row["radius"] for row in given().rows()] == [2, None, 2]
    assert [row["index"] for row in given().rows()] == [7, 3, 20]


def test_claims_as_a_pandas_table() -> None:
    table = given().to_pandas()
    assert list(table.columns) == [
        "index",
        "truth",
        "label",
        "radius",
        "abstained",
        "count_0",
        "count_1",
        "count_2",
    ]
    assert table["index"].tolist() == [7, 3, 20]
    assert table["count_1"].tolist() == [0, 5, 0]
    assert given().to_pandas(["a", "b", "c"])["name"].tolist() == ["a", "b", "c"]


def test_the_curve_steps_down_behind_each_radius(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    certs = derive(EnsembleVotes.from_arrays({"counts": np.array([[9, 0], [6, 3]])}, 2), [0, 0])
    (axes,) = certs.plot(tmp_path / "curve.png", title="two").axes
    (line,) = axes.lines
    steps = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert steps[1.0] == 100
    assert certs.radius.tolist() == [4, 1]
    assert line.get_xdata()[:3].tolist() == [0, 1, 4]
    assert line.get_ydata()[:3].tolist() == [100, 100, 50]
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    assert axes.get_title() == "two"
    assert "symmetric difference" in axes.get_xlabel()
    assert not axes.collections, "exact claims have no band"
    with pytest.raises(BadInput, match="true labels"):
        figure([derive(VOTES)])


def test_certificates_show_themselves_in_a_notebook() -> None:
    page = given()._repr_html_()
    assert "5 base classifiers, plurality" in page
    assert "certified at radius 2" in page
    assert "counts twice" in page
    unlabelled = derive(VOTES)._repr_html_()
    assert "abstained" in unlabelled
    assert "certified at radius" not in unlabelled


def test_claims_about_the_data_set_are_the_accuracy_itself() -> None:
    assert isinstance(given(), Claims)
    assert given().exact
    assert given().accuracy_claim(2) == given().accuracy(2) == pytest.approx(2 / 3)
    assert given().accuracy_claim(3) == 0
    with pytest.raises(BadInput, match="rho=2"):
        given().accuracy_claim(2, rho=2)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_clean_accuracy_of_the_top_k_agrees_with_sorting(k: int) -> None:
    rng = np.random.default_rng(k)
    ballots, truth = rng.integers(0, 4, (60, 6)), rng.integers(0, 4, 60)
    certs = derive(EnsembleVotes.from_arrays({"votes": ballots}, 4), truth, k=k)
    top = [sorted(range(4), key=lambda c: (-row[c], c))[:k] for row in certs.counts.tolist()]
    assert certs.clean_accuracy == np.mean([label in some for label, some in zip(truth.tolist(), top, strict=True)])


def test_clean_accuracy_of_a_run_off_is_that_of_its_answer() -> None:
    counts = np.array([[2, 2, 1]])
    duels = np.array([[[0, 2, 2], [3, 0, 2], [3, 3, 0]]])
    votes = EnsembleVotes.from_arrays({"counts": counts, "duels": duels}, 3)
    certs = derive(votes, [1], aggregate="runoff")
    assert certs.answer.tolist() == [1]
    assert certs.clean_accuracy == 1
    assert derive(votes, [1]).clean_accuracy == 0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"index": [1, 1, 2]}, "names an input twice"),
        ({"index": [0, 1]}, "index of shape"),
        ({"truth": [0, 1, 3]}, "label 3 of input 2 is outside the classes 0..2"),
        ({"truth": [0, 1]}, "labels of shape"),
        ({"k": 3}, "below the number of classes"),
        ({"k": 1.0}, "a whole number is needed"),
        ({"label": "both"}, "not a known label"),
        ({"aggregate": "mean"}, "not a known aggregate"),
        ({"aggregate": "runoff", "k": 2}, "one answer"),
        ({"label": "given"}, "there are none"),
    ],
)
def test_bad_requests_are_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        derive(VOTES, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(("models", "classes", "k"), [(5, 3, 1), (5, 3, 2), (6, 2, 1)])
def test_altered_base_classifiers_are_allowed_for(
    models: int, classes: int, k: int, cases_tried: Callable[[int], None]
) -> None:
    """Some votes are not those said, and as many parts as the radius are changed besides: the label stays in the top k."""
    everything = np.array(list(itertools.product(range(classes), repeat=models)))
    tables = np.stack([np.bincount(votes, minlength=classes) for votes in everything])
    tried = kept = 0
    for votes, counts in zip(everything, tables, strict=True):
        label = int(counts.argmax())
        ranks = (tables > tables[:, [label]]).sum(1) + (tables[:, :label] == tables[:, [label]]).sum(1)
        nearest = (everything != votes).sum(1)[ranks >= k].min(initial=models + 1)
        for altered in (0, 1, 2):
            certs = derive(EnsembleVotes(counts[None]), truth=[label], k=k, label="given", altered=altered)
            if not certs.abstained[0]:
                assert altered + int(certs.radius[0]) < nearest
                kept += altered > 0
            tried += len(everything)
    cases_tried(tried)
    assert kept > 0
