"""classes=: how it is read, and that what messages advise to give works when it is given."""

import csv
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from PIL import Image

from vauban import models
from vauban.data import load
from vauban.data.classes import read_classes, stating
from vauban.data.dataset import Dataset
from vauban.errors import BadInput
from vauban.poisoning.selection import check_fixed_beforehand
from vauban.specs import Spec

NAMES = [
    ("no", "yes"),
    ("New York", "Rome, Italy", "it's"),
    ("n/a", "no", "yes"),
    ("-1", "1.0", "x"),
    ("a,b=c", "d"),
    ("b" * 200, "c" * 200),
]


def table(folder: Path, labels: Sequence[str], name: str = "t.csv") -> Path:
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "kind"], *([i, -i, labels[i % len(labels)]] for i in range(20))])
    return folder / name


def advised(message: str, names: Sequence[str], folder: Path) -> str:
    """What --data is to be according to a message; where that is to name a file of `names`, it is written."""
    found = re.search(r"--data ('(?:[^']|'\"'\"')*'|[^\s']+?)(?=[\s)]|, where|$)", " ".join(message.split()))
    assert found is not None, message
    (data,) = shlex.split(found[1])
    if "classes=FILE" in data:
        (folder / "names.txt").write_text("".join(f"{name}\n" for name in names))
    return str(data.replace("classes=FILE", f"classes={folder / 'names.txt'}"))


@pytest.mark.parametrize("names", [*NAMES, ("0", "1", "2"), ("7",), ("00", "01")])
def test_what_is_advised_reads_back_as_the_same_names(names: tuple[str, ...], tmp_path: Path) -> None:
    data = advised(stating(names, data=Spec("table", {"path": "t.csv"})), names, tmp_path)
    assert read_classes(Spec.parse(data).params["classes"]) == names


def test_names_that_no_text_and_no_file_can_hold_are_to_be_changed() -> None:
    assert "'a/\\nb' cannot be written" in stating(["a/\nb", "c"])
    assert stating(["a", "b"], 4) == "classes=a/b/CLASS2/CLASS3 with the right name for CLASS2, …"


@pytest.mark.parametrize("text", ["a//b", "a/b/a", "/"])
def test_names_that_are_empty_or_the_same_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="no list of different names"):
        read_classes(text)


@pytest.mark.parametrize("names", [*NAMES, ("1", "2", "3"), ("01", "02")])
def test_classes_that_poisoning_asks_for_can_be_given_as_it_says(names: tuple[str, ...], tmp_path: Path) -> None:
    read = load(f"table:path={table(tmp_path, names)},label=kind,split=train")
    with pytest.raises(BadInput, match="one poisoned label could change") as refused:
        check_fixed_beforehand(read)
    given = load(advised(str(refused.value), read.class_names, tmp_path))
    check_fixed_beforehand(given)
    assert (given.class_names, given.fingerprint()) == (read.class_names, read.fingerprint())


def test_all_classes_of_folders_are_advised(tmp_path: Path) -> None:
    for name in "abcdef":
        (tmp_path / "p" / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "p" / name / "0.png")
    with pytest.raises(BadInput) as refused:
        check_fixed_beforehand(load(f"images:path={tmp_path / 'p'}"))
    check_fixed_beforehand(load(advised(str(refused.value), "", tmp_path)))


@pytest.mark.parametrize("names", NAMES)
def test_a_number_of_classes_for_named_labels_says_which_names_to_give(names: tuple[str, ...], tmp_path: Path) -> None:
    file = table(tmp_path, names)
    with pytest.raises(BadInput, match="is none of the classes 0, 1, 2: correct it, or give") as refused:
        load(f"table:path={file},label=kind,classes=3")
    read = load(advised(str(refused.value), [*names, "CLASS2"][:3], tmp_path))
    assert (read.num_classes, read.class_names[: len(names)]) == (3, names)


def test_a_label_that_is_missing_from_named_classes_is_advised_with_them(tmp_path: Path) -> None:
    file = table(tmp_path, ["no", "yes", "maybe"])
    with pytest.raises(BadInput, match="'maybe', which is none of the classes yes, no: correct it") as refused:
        load(f"table:path={file},label=kind,classes=yes/no")
    assert load(advised(str(refused.value), "", tmp_path)).class_names == ("yes", "no", "maybe")


@pytest.mark.parametrize("labels", [["0", "1", ""], ["a", "", "b"]])
def test_a_row_without_a_label_is_refused(labels: list[str], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"row \d has no label \(column 'kind' is ''\): fill or remove it"):
        load(f"table:path={table(tmp_path, labels)},label=kind")


def test_a_null_label_of_a_parquet_file_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for column in (["a", None], [0.0, float("nan")], [0, None]):
        parquet.write_table(pyarrow.table({"x": [1.0, 2.0], "kind": column}), tmp_path / "t.parquet")
        with pytest.raises(BadInput, match="row 1 has no label"):
            load(f"table:path={tmp_path / 't.parquet'},label=kind")


def test_a_column_of_texts_is_named_as_labels_with_everything_else_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "my table.csv").write_text("1,2,x,no\n3,4,y,yes\n5,6,x,no\n7,8,y,yes\n9,1,x,no\n")
    with pytest.raises(BadInput, match=r"so does column '3'") as refused:
        load(f"table:path={tmp_path / 'my table.csv'},header=false,split=train,drop=0")
    data = advised(str(refused.value), "", tmp_path)
    read = load(f"{data},drop=0/3".replace("drop=0,", ""))
    assert (read.features, read.class_names, len(read)) == (("1",), ("x", "y"), 4)
    assert "(drop=0/2)" in str(refused.value)


@pytest.mark.parametrize(("model", "code"), [(3, 0), (2, 2)])
def test_classes_that_certify_asks_for_can_be_given_as_it_says(model: int, code: int, tmp_path: Path) -> None:
    """A model with more classes than the table has; of one with fewer, no classes= is advised."""
    spec, weights = f"mlp:features=2,classes={model},width=4,depth=1", tmp_path / "m.safetensors"
    models.save(weights, models.build(spec), spec, {})
    file = table(tmp_path, ["New York", "Rome"] if model == 3 else ["a", "b", "c"])
    command = ["certify", "--model", weights, "-s", "gaussian:sigma=0.5", "-n", "100", "--out", tmp_path / "run"]
    refused = vauban(*command, "--data", f"table:path={file},label=kind", code=2)
    assert ("--data 'table:" in refused) == (code == 0)
    if code == 0:
        assert "has 2 (New York, Rome) and does not say" in refused
        vauban(*command, "--data", advised(refused, "", tmp_path))


def test_the_classes_of_a_fitted_classifier_are_advised_where_labels_are_among_them(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    from vauban.engine.adapters.estimators import Estimator

    x = np.arange(12.0).reshape(6, 2)
    named = Estimator(LogisticRegression().fit(x, ["1", "2", "b/c"] * 2), "predict_proba")
    read = load(f"table:path={table(tmp_path, ['1', '2'])},label=kind")
    with pytest.raises(BadInput, match="name them in its order") as refused:
        named.check_names(read)
    named.check_names(load(advised(str(refused.value), ["1", "2", "b/c"], tmp_path)))
    with pytest.raises(BadInput, match="labels that are its classes are needed"):
        named.check_names(load(f"table:path={table(tmp_path, ['0', '2'])},label=kind"))
    named.check_names(x)
    named.check_names(Dataset(x.astype(np.float32), None, 0, (), "arrays"))
