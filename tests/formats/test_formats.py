"""Files of other tools: each layout is written out here as its tool writes it, read, and written back."""

import json
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
from vauban.formats.choice import LAYOUTS, read, recognised, write
from vauban.formats.results import of_claims
from vauban.laws.poisoning.finite import spread_offsets

COUNTS = np.array([[180, 15, 5], [30, 160, 10], [70, 70, 60], [1, 0, 199]])
TRUTH = np.array([0, 0, 2, 2])


def claims() -> Any:
    """Claims for the labels with most votes, of which the third abstains."""
    return derive(COUNTS, COUNTS.argmax(axis=1), "gaussian:sigma=0.5").against(TRUTH)


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


COHEN = (  # certify.py prints "{}\t{}\t{}\t{:.3}\t{}\t{}" for index, label, prediction, radius, correct, timedelta
    "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
    "0\t3\t3\t1.66\t1\t0:00:12.052631\n"
    "20\t8\t1\t0.0312\t0\t0:00:11.5\n"
    "40\t5\t-1\t0.0\t0\t0:00:11.000004\n"
)


def test_cohens_table_comes_back_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(COHEN)
    found = read(tmp_path / "a.tsv", threat="l2")
    assert (found.index.tolist(), found.label.tolist(), found.truth.tolist()) == ([0, 20, 40], [3, 1, -1], [3, 8, 5])
    assert found.radius[:2].tolist() == [1.66, 0.0312]
    assert found.abstained.tolist() == [False, False, True]
    assert [round(found.accuracy(r), 3) for r in (0, 1.66, 1.67)] == [0.333, 0.333, 0]
    write(tmp_path / "b.tsv", found)
    assert (tmp_path / "b.tsv").read_text() == COHEN


def test_claims_in_cohens_table_are_never_larger(tmp_path: Path) -> None:
    certs = claims()
    write(tmp_path / "a.tsv", of_claims(certs))
    back = read(tmp_path / "a.tsv")
    kept = ~certs.abstained
    assert back.abstained.tolist() == [False, False, True, False]
    assert back.label[kept].tolist() == certs.label[kept].tolist()
    assert (back.radius[kept] <= certs.radius[kept]).all()
    assert (back.radius[kept] > certs.radius[kept] - 2e-9).all()
    lines = [line.split("\t") for line in (tmp_path / "a.tsv").read_text().splitlines()]
    assert [line[4] for line in lines[1:]] == ["1", "0", "0", "1"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("idx\tlabel\tpredict\tcorrect\ttime\n0\t1\t1\t1\t0:00:01\n", "no column radius: it is a table of predictions"),
        ("idx\tlabel\tpredict\tradius\tcorrect\ttime\n", "no line besides its header"),
        ("idx\tlabel\tpredict\tradius\n0\t1\tcat\t0.5\n", "line 2: whole numbers"),
        ("idx\tlabel\tpredict\tradius\n0\t1\t1\tnan\n", "line 2: whole numbers"),
        ("idx\tlabel\tpredict\tradius\n0\t1\n", "line 2: whole numbers"),
    ],
)
def test_damaged_tables_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(BadInput, match=sentence):
        read(tmp_path / "a.tsv", "cohen")


def save(folder: Path, **arrays: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def rs4a(folder: Path) -> Path:
    """As test.py of rs4a writes: float64 arrays, of which radii and bounds were computed in float32."""
    shares = np.array([[60, 4, 0], [10, 50, 4], [30, 34, 0]]) / 64
    lower = np.array([0.9, 0.7, 0.4], dtype=np.float32).astype(np.float64)
    l2 = np.array([0.64, 0.26, -0.13], dtype=np.float32).astype(np.float64)
    more = {"radius_l1": l2 / 2, "radius_l2": l2, "radius_linf": l2 / 55, "preds_nll": -np.log(shares[:, 0])}
    return save(folder, preds=shares, labels=np.array([0.0, 1.0, 1.0]), prob_lb=lower, **more)


def test_arrays_of_rs4a_come_back(tmp_path: Path) -> None:
    folder = rs4a(tmp_path / "a")
    with pytest.raises(BadInput, match="has radii in l1, l2, linf: say which are meant"):
        read(folder)
    found = read(folder, threat="l2")
    assert found.label.tolist() == [0, 1, -1]
    assert found.abstained.tolist() == [False, False, True]
    write(tmp_path / "b", found, "rs4a")
    for name in ("preds", "labels", "prob_lb"):
        assert np.array_equal(np.load(folder / f"{name}.npy"), np.load(tmp_path / "b" / f"{name}.npy"))
    old, new = (np.load(place / "radius_l2.npy") for place in (folder, tmp_path / "b"))
    assert np.array_equal(old[:2], new[:2])
    assert new[2] < 0
    assert read(tmp_path / "b").accuracy(0.3) == pytest.approx(1 / 3)


def test_claims_as_arrays_of_rs4a(tmp_path: Path) -> None:
    certs = claims()
    write(tmp_path / "a", of_claims(certs), "rs4a")
    back = read(tmp_path / "a")
    assert np.array_equal(back.radius, np.where(certs.abstained, np.nan, certs.radius), equal_nan=True)
    assert not (tmp_path / "a" / "prob_lb.npy").exists()
    assert back.threat == "l2"


LAW = "splitting:sigma=0.05"  # floor(2 sqrt 3 0.05 255) = 44 views


def dssn(folder: Path, counts: Any) -> Path:
    """As test_derandomized.py writes: shares of float32 counts, the radius from the two largest counts, by the exact rule."""
    counts = np.asarray(counts)
    total = counts.sum(axis=1, keepdims=True)
    shares = (counts.astype(np.float32) / total.astype(np.float32)).astype(np.float64)
    first = np.argsort(-counts, axis=1, kind="stable")
    best, second = (np.take_along_axis(counts, first[:, i : i + 1], axis=1)[:, 0] for i in (0, 1))
    radii = ((best - second - (first[:, 1] <= first[:, 0])) / 2).astype(int) / 255
    arrays = {"preds": shares, "predicted_labels": first[:, 0].astype(float), "radius_l1": radii}
    return save(folder, labels=np.array([0.0, 1.0]), time=3.5, time_per=0.1, **arrays)


def test_a_dssn_folder_gives_counts_from_which_the_same_radii_follow(tmp_path: Path) -> None:
    folder = dssn(tmp_path / "a", [[30, 10, 4], [20, 21, 3]])
    assert recognised(folder) == "dssn"
    assert read(folder).counts is None
    found = read(folder, smoothing=LAW)
    assert found.counts.tolist() == [[30, 10, 4], [20, 21, 3]]
    assert derive(found.counts, found.label, LAW).radius == pytest.approx(found.radius)
    write(tmp_path / "b", found, "dssn")
    for name in ("preds", "predicted_labels", "labels", "radius_l1"):
        assert np.array_equal(np.load(folder / f"{name}.npy"), np.load(tmp_path / "b" / f"{name}.npy"))
    with pytest.raises(BadInput, match=r"not those of 53 votes, one for each view of splitting:sigma=0.06"):
        read(folder, smoothing="splitting:sigma=0.06")
    with pytest.raises(
        BadInput, match=r"from 88 votes, .* radius of input 0 is 0.0784314, and the folder states 0.0392157"
    ):
        read(folder, smoothing="splitting:sigma=0.1")
    with pytest.raises(BadInput, match="is sampled"):
        read(folder, smoothing="splitting:sigma=0.05,sampled=true")


TOPK = "180 15 5 0\n30 160 10 1\n70 70 60 0\n1 0 199 2\n"  # compute_radius.py: frequency of each label, then the label to certify


def test_counts_of_certify_topk_come_back_and_are_claimed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TOPK)
    found = read(tmp_path / "a.txt")
    assert np.array_equal(found.counts, COUNTS)
    write(tmp_path / "b.txt", found)
    assert (tmp_path / "b.txt").read_text() == TOPK
    done = command(
        "claim", str(tmp_path / "b.txt"), "--smoothing", "gaussian:sigma=0.5", "--out", str(tmp_path / "c.parquet")
    )
    assert done.exit_code == 0, done.output
    assert np.array_equal(read(tmp_path / "c.parquet").radius, claims().radius, equal_nan=True)


def evaluation(path: Path) -> Path:
    """As evaluate_*.py of DPA writes: scores of three base classifiers for two inputs and three classes."""
    scores = torch.tensor([[[2.0, 1, 0], [0, 3, 1], [5, 4, 4]], [[0.5, 0.5, 0], [0, 0, 1], [1, 2, 3]]])
    torch.save({"labels": torch.tensor([0, 2], dtype=torch.int32), "scores": scores}, path)
    return path


def test_an_evaluation_of_dpa_gives_votes_that_are_claimed_and_comes_back(tmp_path: Path) -> None:
    file = evaluation(tmp_path / "a.pth")
    done = command("convert", str(file), str(tmp_path / "votes.npz"), "--json")
    assert done.exit_code == 0, done.output
    assert "1 votes between equal scores" in done.output
    claimed = ["claim", str(tmp_path / "votes.npz"), "--smoothing", "partition:spread=1,threat=samples", "--json"]
    assert '"inputs": 2' in command(*claimed).output
    assert read(file).ballots.tolist() == [[0, 1, 0], [0, 2, 2]]
    write(tmp_path / "b.pth", read(file))
    assert read(tmp_path / "b.pth").ballots.tolist() == [[0, 1, 0], [0, 2, 2]]
    assert torch.load(tmp_path / "b.pth", weights_only=True)["labels"].tolist() == [0, 2]


def test_a_poisoning_run_is_written_as_an_evaluation_with_the_same_counts(tmp_path: Path) -> None:
    votes = np.array([[0, 0, 1, 0], [2, 2, 2, 1]])
    np.savez(tmp_path / "votes.npz", votes=votes, num_classes=3, labels=[0, 2])
    run = str(tmp_path / "run")
    made = command(
        "poison", "import", str(tmp_path / "votes.npz"), "--defense", "dpa", "--partitions", "4", "--out", run
    )
    assert made.exit_code == 0, made.output
    for name in ("a.pth", "again.npz"):
        done = command("convert", run, str(tmp_path / name))
        assert done.exit_code == 0, done.output
    assert read(tmp_path / "a.pth").counts.tolist() == [[3, 1, 0], [0, 1, 3]]
    with np.load(tmp_path / "again.npz") as again:
        assert again["counts"].tolist() == [[3, 1, 0], [0, 1, 3]]
        assert again["labels"].tolist() == [0, 2]
    refused = command("convert", run, str(tmp_path / "counts.txt"))
    assert "write a votes file (--to votes)" in refused.output


@pytest.mark.parametrize(("defense", "threat", "spread"), [("ss-dpa", "labels", 1), ("finite:spread=2", "samples", 2)])
def test_votes_of_a_run_say_how_they_were_cast(defense: str, threat: str, spread: int, tmp_path: Path) -> None:
    """Taken for votes of disjoint parts against added samples, they would prove what nobody has proven."""
    votes = np.array([[0, 0, 0, 0, 0, 1], [2, 2, 2, 2, 2, 2]])
    offsets = {"offsets": spread_offsets(6, 2)} if spread == 2 else {}
    np.savez(tmp_path / "votes.npz", votes=votes, num_classes=3, labels=[0, 2], **offsets)
    run, file = str(tmp_path / "run"), str(tmp_path / "again.npz")
    made = ["poison", "import", str(tmp_path / "votes.npz"), "--defense", defense, "--partitions", str(6 // spread)]
    assert command(*made, "--out", run).exit_code == 0
    assert command("convert", run, file).exit_code == 0
    wrong = command("claim", file, "--smoothing", "partition:spread=1,threat=samples")
    assert wrong.exit_code == 2
    assert "they must agree" in wrong.output
    right = command("claim", file, "--smoothing", f"partition:spread={spread},threat={threat}", "--json")
    own = vb.Run.open(run).certificates().radius.tolist()
    assert [claim["radius"] for claim in json.loads(right.stdout)["claims"]] == own
    evaluation = command("convert", run, str(tmp_path / "a.pth"))
    assert ("flipped labels alone" if threat == "labels" else "write a votes file") in evaluation.output
    assert evaluation.exit_code == (0 if spread == 1 else 2)


def test_what_a_file_cannot_say_is_said(tmp_path: Path) -> None:
    """How votes are counted, and what radii measure."""
    votes = np.array([[0, 0, 1, 0, 2]])
    np.savez(tmp_path / "votes.npz", scores=np.eye(3)[votes], num_classes=3, labels=[0])
    run = str(tmp_path / "run")
    made = [
        "poison",
        "import",
        str(tmp_path / "votes.npz"),
        "--defense",
        "dpa",
        "--partitions",
        "5",
        "--aggregate",
        "runoff",
    ]
    imported = command(*made, "--out", run)
    assert imported.exit_code == 0, imported.output
    for name in ("again.npz", "a.pth"):
        done = command("convert", run, str(tmp_path / name))
        assert "claims are by runoff, and the file is read by plurality" in done.output
    assert "take radii for L2, and these are" in command("convert", run, str(tmp_path / "a.tsv")).output
    inside = command("convert", run, str(tmp_path / "run" / "claims.csv"))
    assert inside.exit_code == 2
    assert "lies in a run folder" in inside.output


def test_radii_of_another_distance_stay_so_through_tables(tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(lambda views: views[:, :2], "sparse:scale=2", num_classes=2)
    x = torch.full((1, 6), 200, dtype=torch.uint8)
    smoothed.certify(x, y=[0], progress=False, out=tmp_path / "run")
    for name in ("a.parquet", "b.parquet", "c.csv"):
        source = tmp_path / "run" if name == "a.parquet" else tmp_path / "a.parquet"
        assert command("convert", str(source), str(tmp_path / name)).exit_code == 0
    for name, known in (
        ("a.parquet", "l0"),
        ("b.parquet", "l0"),
        ("c.csv", "in a distance that the file does not name"),
    ):
        done = command("convert", str(tmp_path / name), str(tmp_path / f"{name}.tsv"))
        assert f"take radii for L2, and these are {known}" in " ".join(done.output.split())
    again = command("convert", str(tmp_path / "c.csv.tsv"), str(tmp_path / "d.tsv"))
    assert "take radii for L2" not in again.output


def test_counts_are_not_taken_for_those_of_a_base_classifier_that_never_changes_its_mind(tmp_path: Path) -> None:
    """Of few views each may be taken to vote one way only: wrong where a base classifier is random by design."""

    def random(views: torch.Tensor) -> torch.Tensor:
        keeps_first = views[:, 0] + views[:, 7] > 0.5
        vote = (torch.rand(len(views)) < torch.where(keeps_first, 1.0, 0.55)).float()
        return torch.stack([vote, 1 - vote], dim=1)

    classifier = vb.SmoothedClassifier(random, "ablation:retained=1", num_classes=2, stochastic="rows")
    x = torch.full((3, 7), 100, dtype=torch.uint8)
    certs = classifier.certify(x, y=[0] * 3, n=20_000, seed=5, progress=False, out=tmp_path / "run")
    assert certs.radius.tolist() == [0, 0, 0]
    done = command("convert", str(tmp_path / "run"), str(tmp_path / "c.txt"), "--to", "topk")
    assert "does not give a view always the same answer" in done.output
    claimed = command("claim", str(tmp_path / "c.txt"), "--smoothing", "ablation:retained=1,features=7", "--json")
    assert [claim["radius"] for claim in json.loads(claimed.stdout)["claims"]] == [0, 0, 0]


def test_files_that_torch_reads_and_dpa_did_not_write_are_refused(tmp_path: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, tmp_path / "a.pth")
    with pytest.raises(BadInput, match="is no evaluation of DPA"):
        read(tmp_path / "a.pth")
    torch.save({"labels": torch.zeros(2), "scores": torch.full((2, 3, 4), torch.nan)}, tmp_path / "b.pth")
    with pytest.raises(BadInput, match="finite scores"):
        read(tmp_path / "b.pth")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_of_claims_come_back(ending: str, tmp_path: Path) -> None:
    certs, file = claims(), tmp_path / f"a.{ending}"
    write(file, of_claims(certs))
    back = read(file)
    assert back.label.tolist() == certs.label.tolist()
    assert back.truth.tolist() == TRUTH.tolist()
    assert back.abstained.tolist() == certs.abstained.tolist()
    kept = ~certs.abstained
    assert (back.radius[kept] <= certs.radius[kept]).all()
    assert back.radius[kept] == pytest.approx(certs.radius[kept], abs=2e-9)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "exact"
    pictures = torch.randint(0, 256, (3, 1, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    model = lambda views: torch.stack([views.flatten(1).mean(1), 0.9 - views.flatten(1).mean(1)], dim=1)  # noqa: E731
    smoothed = vb.SmoothedClassifier(model, LAW, num_classes=2)
    smoothed.certify(pictures, [0, 1, 0], label="votes", out=folder, progress=False)
    return folder


@pytest.mark.parametrize("to", ["csv", "parquet", "cohen", "topk", "dssn", "rs4a"])
def test_a_run_is_written_in_every_layout_and_says_the_same(to: str, run: Path, tmp_path: Path) -> None:
    certs = vb.Run.open(run).certificates()
    out = tmp_path / f"out{LAYOUTS[to].suffix}"
    done = command("convert", str(run), str(out), "--to", to)
    assert done.exit_code == 0, done.output
    back = read(out, smoothing=LAW if to == "dssn" else None)
    assert back.truth is not None
    if to in ("topk", "dssn"):
        assert np.array_equal(back.counts, certs.counts)
        proven = vb.Run.open(run).certificates(label="given") if to == "topk" else certs
        assert np.array_equal(back.label, proven.label)
        assert np.array_equal(derive(back.counts, back.label, LAW).radius, proven.radius, equal_nan=True)
    if to != "topk":
        assert (back.radius <= certs.radius).all()
        assert back.radius == pytest.approx(certs.radius, abs=2e-9)
        assert np.array_equal(back.label, certs.label)


def test_what_cannot_be_written_is_said(run: Path, tmp_path: Path) -> None:
    for arguments, sentence in [
        ([str(run), "a.pth"], "a poisoning run is needed"),
        ([str(run), "a.xyz"], "say what it is to be, --to csv"),
        ([str(run), "a.csv", "--threat", "l2"], "--threat is for files of other tools"),
        ([str(tmp_path), "a.csv"], "its layout is not recognised: say it with --from"),
        (["nowhere.tsv", "a.csv"], "nowhere.tsv does not exist"),
        ([str(evaluation(tmp_path / "e.pth")), "a.csv"], "there are no radii, which this layout needs"),
        ([str(tmp_path / "e.pth"), "a.txt", "--threat", "l1"], "--threat is not for the layout dpa"),
    ]:
        done = command("convert", *arguments)
        assert done.exit_code == 2
        assert sentence in done.output
    with pytest.raises(BadInput, match="the top 2, and layouts of other tools hold one label"):
        of_claims(derive(COUNTS, TRUTH, "gaussian:sigma=0.5", k=2))


def test_counts_of_a_run_that_stopped_early_are_not_written(tmp_path: Path) -> None:
    above = lambda views: torch.stack([views.mean(1), 0.5 + 0 * views.mean(1)], dim=1)  # noqa: E731
    smoothed = vb.SmoothedClassifier(above, "gaussian:sigma=0.5", num_classes=2)
    settings: dict[str, Any] = {"n": 1000, "alpha": 0.01, "seed": 1, "progress": False}
    smoothed.certify(torch.ones(2, 4), [0, 0], stop="target:radius=0.1", out=tmp_path / "stopped", **settings)
    done = command("convert", str(tmp_path / "stopped"), str(tmp_path / "counts.txt"))
    assert done.exit_code == 2
    assert "stopped by target:radius=0.1" in done.output
    assert not (tmp_path / "counts.txt").exists()


def test_radii_of_other_tools_are_called_stated(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(COHEN)
    done = command("convert", str(tmp_path / "a.tsv"), str(tmp_path / "a.csv"))
    assert done.exit_code == 0, done.output
    assert "33.33 % at 0.5" in done.output
    assert "nothing was derived or verified" in " ".join(done.output.split())


def test_a_table_in_parquet_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"vauban\[parquet\]"):
        write(tmp_path / "a.parquet", of_claims(claims()))
