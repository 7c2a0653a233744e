"""Poisoning run folders: what is written verifies, whatever is changed after the fact is noticed, and Vauban 0.1's are read."""

import csv
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vauban as vb
from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.files import read_packed
from vauban.poisoning import derive, import_votes
from vauban.poisoning.votes.poisoning_run import PoisoningRun
from vauban.poisoning.votes.run_folder import read_record, write_run
from vauban.runs.verify import verify_run

RESULTS = Path(__file__).parents[3] / "results" / "poisoning"
LABELS = [0, 1, 2, 1]
INDEX = [3, 5, 8, 13]
VOTES = np.array([[0] * 9 + [1] * 2, [1] * 6 + [2] * 5, [0] * 4 + [1] * 4 + [2] * 3, [2] * 11])


def saved(path: Path, **more: Any) -> Path:
    np.savez(path, votes=VOTES, num_classes=3, index=INDEX, **more)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    training = json.dumps({"defense": "dpa", "command": "elsewhere", "partition": "hash:partitions=11"})
    import_votes(saved(tmp_path / "votes.npz", labels=LABELS, training=training), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A copy of a run that Vauban 0.1 wrote, with its manifest unpacked."""
    run = Path(shutil.copytree(RESULTS / "cifar-dpa-50-runoff", tmp_path / "earlier"))
    content = read_packed(run / "manifest.json")
    (run / "manifest.json.gz").unlink()
    (run / "manifest.json").write_bytes(content)
    return run


def change(run: Path, edit: Callable[[dict[str, Any]], Any], file: str = "manifest.json") -> None:
    value = json.loads((run / file).read_text())
    edit(value)
    (run / file).write_text(json.dumps(value))


def test_a_run_says_what_its_votes_say(run: Path) -> None:
    verdict = verify_run(run)
    assert (verdict.inputs, verdict.votes, verdict.optional) == (4, 44, {})
    assert sorted(path.name for path in run.iterdir()) == ["ballots.npz", "claims.csv", "manifest.json", "seal.json"]
    rows = list(csv.DictReader((run / "claims.csv").open()))
    assert list(rows[0]) == ["index", "label", "radius", "abstained", "truth"]
    assert [int(row["truth"]) for row in rows] == LABELS
    assert [int(row["index"]) for row in rows] == INDEX
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["schema"], manifest["kind"], manifest["models"]) == (2, "poisoning", 11)
    assert manifest["settings"] == {"aggregate": "plurality", "k": 1, "label": "votes"}
    assert manifest["data"]["num_classes"] == 3
    assert list(json.loads((run / "seal.json").read_text())) == ["manifest.json", "ballots.npz", "claims.csv"]


def test_an_opened_run(run: Path, tmp_path: Path) -> None:
    opened = vb.Run.open(run)
    assert isinstance(opened, PoisoningRun)
    assert opened.verify() == verify_run(run)
    assert opened.manifest.settings.k == 1
    assert opened.manifest.training["command"] == "elsewhere"
    assert len(opened) == 4
    assert "inputs without a name, hash:partitions=11, plurality, 4 inputs" in repr(opened)
    assert opened.certificates() == derive(opened.votes, LABELS, index=INDEX)
    assert opened.certificates(k=2) == derive(opened.votes, LABELS, k=2, index=INDEX)
    assert opened.to_pandas()["truth"].tolist() == LABELS
    assert opened.to_pandas(k=2)["radius"].tolist() != opened.to_pandas()["radius"].tolist()
    assert len(opened.plot(tmp_path / "curve.svg", k=[2]).axes[0].lines) >= 2
    assert "11 base classifiers" in opened._repr_html_()
    with pytest.raises(BadInput, match="second-round"):
        opened.certificates(aggregate="runoff")


def test_certificates_say_which_part_of_a_data_set_the_run_is_about(tmp_path: Path) -> None:
    training = json.dumps({"data": {"classes": "0,1,7"}})
    opened = import_votes(saved(tmp_path / "votes.npz", training=training), tmp_path / "run", defense="dpa")
    assert "the classes 0,1,7" in opened.certificates().claim
    assert opened.certificates().claim == opened.manifest.claim == opened.verify().claim
    assert "the classes 0,1,7" in opened._repr_html_()


def test_inputs_without_true_labels_have_no_truth(tmp_path: Path) -> None:
    import_votes(saved(tmp_path / "votes.npz"), tmp_path / "run", defense="dpa")
    verify_run(tmp_path / "run")
    assert [row["truth"] for row in csv.DictReader((tmp_path / "run" / "claims.csv").open())] == [""] * 4


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: m.update(schema=1), "is malformed:"),
        (lambda m: m.update(schema=3), "has schema 3"),
        (lambda m: m.update(kind="smoothing"), "is malformed: 'method'"),
        (lambda m: m.update(claim="all is well"), "wording"),
        (lambda m: m.update(against="labels"), "threat"),
        (lambda m: m["threat"].update(unit="pixels"), "the threat should be"),
        (lambda m: m.update(models=12), "number of models"),
        (lambda m: m.update(models=11.0), "whole numbers"),
        (lambda m: m.update(partition="hash:partitions=12"), "models of the partition"),
        (lambda m: m.update(partition="hash:partitions=5,spread=2"), "cannot be what a run left"),
        (lambda m: m.update(partition="sort:partitions=11"), "sorted partitions"),
        (lambda m: m.update(partition=7), "cannot be what a run left"),
        (lambda m: m["settings"].update(k=2), "wording"),
        (lambda m: m["settings"].update(aggregate="runoff"), "second-round"),
        (lambda m: m["settings"].update(k=True), "whole numbers"),
        (lambda m: m["settings"].update(label="given"), "claims.csv line 4"),
        (lambda m: m["settings"].update(label="mine"), "cannot be what a run left"),
        (lambda m: m["settings"].pop("aggregate"), "is malformed: 'aggregate'"),
        (lambda m: m["data"].update(index=[3, 5, 8, 3]), "indices, which must differ"),
        (lambda m: m["data"].update(index=[3, 5, 8, -1]), "be 0 or more"),
        (lambda m: m["data"].update(index=[3, 5, 8], label=[0, 1, 2]), "votes on 4 inputs, not 3"),
        (lambda m: m["data"].update(index=[3, 5, 8, 14]), "claims.csv line 5"),
        (lambda m: m["data"].update(label=[0, 1, 2]), "number of labels"),
        (lambda m: m["data"].update(label=[0, 1, 2, 3]), "outside the classes"),
        (lambda m: m["data"].update(label=[0, 1, 2, 2]), "claims.csv line 5"),
        (lambda m: m["data"].update(num_classes=4), "counts of 3 classes"),
        (lambda m: m["data"].update(sha256="0" * 64), r"manifest.json changed after the run was sealed"),
        (lambda m: m.update(training=[]), "training"),
        (lambda m: m["training"].update(partition="hash:partitions=10"), "partition of the training"),
        (lambda m: m["training"].update(command="here"), r"manifest.json changed after the run was sealed"),
        (lambda m: m["versions"].update(numpy="0"), r"manifest.json changed after the run was sealed"),
        (lambda m: m.update(note="added later"), r"manifest.json changed after the run was sealed"),
        (
            lambda m: m.update(requires=["a proof nobody knows"]),
            "requires a reader that understands a proof nobody knows",
        ),
    ],
)
def test_a_changed_manifest_is_refused(run: Path, edit: Callable[[dict[str, Any]], Any], words: str) -> None:
    change(run, edit)
    with pytest.raises((Lie, RunRefused), match=words):
        verify_run(run)


def test_duplicate_keys_are_refused(run: Path) -> None:
    for name in ("manifest.json", "seal.json"):
        text = (run / name).read_text()
        key = text.split('"')[1]
        (run / name).write_text(text.replace("{", f'{{"{key}": 1, ', 1))
        with pytest.raises(Lie, match="a key occurs twice"):
            verify_run(run)
        (run / name).write_text(text)
    verify_run(run)


def test_optional_fields_are_hashed_and_shown(run: Path) -> None:
    record = read_record(run)
    raw = json.loads((run / "manifest.json").read_text()) | {"note": "by hand"}
    raw["data"]["licence"] = "free"
    shutil.rmtree(run)
    run.mkdir()
    (run / "manifest.json").write_text(json.dumps(raw))
    np.savez(run / "ballots.npz", **record.arrays)  # type: ignore[arg-type]
    with_fields = read_record(run)
    write_run(run, with_fields)
    assert verify_run(run).optional == {"note": "by hand", "data.licence": "free"}
    assert with_fields.manifest.identity != record.manifest.identity


def test_changed_votes_are_lies(run: Path) -> None:
    counts = read_record(run).votes.counts
    other = counts.copy()
    other[1] = [0, 11, 0]
    np.savez(run / "ballots.npz", counts=other)
    with pytest.raises(Lie, match="claims.csv line 3"):
        verify_run(run)
    same_claims = counts.copy()
    same_claims[2] = [4, 3, 4]
    np.savez(run / "ballots.npz", counts=same_claims)
    with pytest.raises(Lie, match=r"ballots.npz changed after the run was sealed"):
        verify_run(run)
    np.savez(run / "ballots.npz", counts=counts, more=counts)
    with pytest.raises(Lie, match="not the votes of this run"):
        verify_run(run)
    np.savez(run / "ballots.npz", counts=counts.astype(np.uint32))
    verify_run(run)
    (run / "ballots.npz").unlink()
    with pytest.raises(Incomplete, match=r"has no ballots.npz"):
        verify_run(run)


def test_ballots_packed_by_lzma_are_read_and_damage_is_said(run: Path) -> None:
    path = run / "ballots.npz"
    with zipfile.ZipFile(path) as kept:
        content = kept.read("counts.npy")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as packed:
        packed.writestr("counts.npy", content)
    verify_run(run)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        with suppress(BadInput, Lie):  # never an error of zipfile or lzma; names in headers may differ
            assert verify_run(run).votes == 44


@pytest.mark.parametrize("names", [("counts.npy", "counts"), ("counts", "counts.npy")])
def test_two_arrays_that_numpy_gives_one_name_are_refused(run: Path, names: tuple[str, str]) -> None:
    """Of `counts` and `counts.npy` one reader takes the first, another the second."""
    forged = io.BytesIO()
    np.save(forged, np.zeros_like(read_record(run).votes.counts))
    with zipfile.ZipFile(run / "ballots.npz") as kept:
        content = kept.read("counts.npy")
    with zipfile.ZipFile(run / "ballots.npz", "w") as packed:
        for name, some in zip(names, (forged.getvalue(), content), strict=True):
            packed.writestr(name, some)
    with pytest.raises(Lie, match="two arrays of one name"):
        verify_run(run)


def test_changed_claims_and_seals_are_lies(run: Path) -> None:
    claims, seal = (run / "claims.csv").read_text(), (run / "seal.json").read_text()
    for line in (1, 4):
        lines = claims.split("\n")
        lines[line] = lines[line][:-1] + "2" if line == 1 else lines[line].replace(",false", "0,false")
        (run / "claims.csv").write_text("\n".join(lines))
        with pytest.raises(Lie, match=f"claims.csv line {line + 1} says"):
            verify_run(run)
    (run / "claims.csv").unlink()
    with pytest.raises(Lie, match="must have its claims"):
        verify_run(run)
    (run / "claims.csv").write_text(claims)
    for name in ("manifest.json", "ballots.npz", "claims.csv"):
        change(run, lambda hashes, name=name: hashes.update({name: "0" * 64}), "seal.json")
        with pytest.raises(Lie, match=f"{name} changed after the run was sealed"):
            verify_run(run)
        (run / "seal.json").write_text(seal)
    change(run, lambda hashes: hashes.update({"claims-7.csv": "0" * 64}), "seal.json")
    with pytest.raises(Lie, match=r"names claims-7.csv, which this run does not have"):
        verify_run(run)
    (run / "seal.json").unlink()
    with pytest.raises(Incomplete, match="not sealed"):
        verify_run(run)


def test_the_same_run_is_left_as_it_is_and_another_is_refused(run: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    change(run, lambda m: m["versions"].update(vauban="9"))
    with pytest.raises(Lie, match=r"manifest.json changed"):
        import_votes(tmp_path / "votes.npz", run)
    change(run, lambda m: m["versions"].update(vauban=vb.__version__))
    import_votes(tmp_path / "votes.npz", run)
    after = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"manifest.json"}
    with pytest.raises(RunRefused, match=r"(?s)holds a run with other settings.*settings\.k: the run has 1, now 2"):
        import_votes(tmp_path / "votes.npz", run, k=2)
    (run / "seal.json").unlink()
    import_votes(tmp_path / "votes.npz", run)
    verify_run(run)


def test_a_run_of_vauban_0_1_verifies_and_gives_claims(earlier: Path) -> None:
    opened = vb.Run.open(earlier)
    assert opened.manifest.schema == 1
    assert opened.verify().votes == 500_000
    assert opened.manifest.data.num_classes == 10
    certs = opened.certificates()
    rows = read_packed(earlier / "claims.csv").decode().splitlines()
    assert rows[0] == "index,label,radius,abstained"
    assert [",".join(row.split(",")[:4]) for row in certs.to_csv().splitlines()] == rows
    assert opened.certificates(aggregate="plurality").aggregate == "plurality"
    with pytest.raises(RunRefused, match=r"written by Vauban 0.1.*cannot be resumed"):
        write_run(earlier, opened.record)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: m.update(label="given"), "claims.csv line"),
        (lambda m: m.update(k=2), "wording"),
        (lambda m: m.pop("num_classes"), "is malformed: 'num_classes'"),
        (lambda m: m["training"].update(command="another"), "manifest changed after the run was sealed"),
        (lambda m: m.update(schema=2), "is malformed: 'settings'"),
    ],
)
def test_a_changed_manifest_of_vauban_0_1_is_refused(
    earlier: Path, edit: Callable[[dict[str, Any]], Any], words: str
) -> None:
    change(earlier, edit)
    with pytest.raises((Lie, RunRefused), match=words):
        verify_run(earlier)
