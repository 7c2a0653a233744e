"""Tables: CSV and Parquet with labels, splits, codes of categories, and rows that cannot be used."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vauban.data import load
from vauban.errors import BadInput
from vauban.standardise import Standardisation

HEADER = "height,width,kind"


def table(path: Path, *rows: str, header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *rows, ""]))
    return path


def test_numbers_and_labels_of_a_csv_file(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", "1.5,-200,dog", "2,1e3,cat", "3,0,dog")
    read = load(f"table:path={file},label=kind")
    assert read.images.dtype == np.float32
    assert read.images.tolist() == [[1.5, -200], [2, 1000], [3, 0]]
    assert read.features == ("height", "width")
    assert read.labels is not None
    assert (read.labels.tolist(), read.class_names) == ([1, 0, 1], ("cat", "dog"))
    assert load(f"table:path={file},label=kind,classes=dog/cat/emu").labels.tolist() == [0, 1, 0]  # type: ignore[union-attr]
    assert load(f"table:path={file},drop=kind").labels is None
    whole = table(tmp_path / "n.csv", "1;2;3", "4;5;0", header="a;b;y")
    assert load(f"table:path={whole},label=y").num_classes == 4
    assert load(str(whole)).features == ("a", "b", "y")
    (tmp_path / "bare.tsv").write_text("1\t2\n3\t4\n")
    assert load(f"table:path={tmp_path / 'bare.tsv'},header=false").features == ("0", "1")


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns: dict[str, Any] = {"height": [1.5, 2.0, 3.0], "width": [-200, 1000, 0], "kind": ["dog", "cat", "dog"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    file = table(tmp_path / "t.csv", "1.5,-200,dog", "2,1e3,cat", "3,0,dog")
    one, other = load(f"table:path={tmp_path / 't.parquet'},label=kind"), load(f"table:path={file},label=kind")
    assert one.fingerprint() == other.fingerprint()
    parquet.write_table(pyarrow.table({**columns, "kind": [1, 0, 1]}), tmp_path / "n.parquet")
    assert load(f"table:path={tmp_path / 'n.parquet'},label=kind").labels.tolist() == [1, 0, 1]  # type: ignore[union-attr]
    (tmp_path / "bad.parquet").write_text("no table")
    with pytest.raises(BadInput, match="cannot be read as Parquet"):
        load(f"table:path={tmp_path / 'bad.parquet'}")


def test_splits_are_disjoint_and_every_fifth_row_is_test(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", *(f"{i},0,{i % 2}" for i in range(12)))
    test, train = (load(f"table:path={file},label=kind,split={split}") for split in ("test", "train"))
    assert test.images[:, 0].tolist() == [4, 9]
    assert train.images[:, 0].tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11]
    assert test.selection.sha256 != train.selection.sha256


def test_codes_are_places_among_the_sorted_values_of_the_training_table(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", "10,red,1", "9,blue,0", "10,green,1")
    test = table(tmp_path / "test.csv", "10,green,1", "10,green,0")
    read = load(f"table:path={train},label=kind,codes=all")
    assert read.images.dtype == np.uint8
    assert read.images.tolist() == [[1, 2], [0, 0], [1, 1]]
    assert load(f"table:path={test},label=kind,codes=all,codes_from={train}").images.tolist() == [[1, 1], [1, 1]]
    table(test, "10,pink,1")
    with pytest.raises(BadInput, match="row 0 of column 'width' is 'pink', which .* does not have"):
        load(f"table:path={test},label=kind,codes=all,codes_from={train}")
    many = table(tmp_path / "many.csv", *(f"{i},0,1" for i in range(257)))
    with pytest.raises(BadInput, match="257 values.*at most 256"):
        load(f"table:path={many},label=kind,codes=all")


@pytest.mark.parametrize(
    ("rows", "more", "why"),
    [
        (["1,2,a", "3,,b"], "label=kind", "row 1 of column 'width' is '', and a finite number is needed"),
        (["1,nan,a"], "label=kind", "row 0 of column 'width' is 'nan'"),
        (["1,1e60,a"], "label=kind", "1e60"),
        (["1,red,a"], "label=kind", "codes=all"),
        (["1,2"], "label=kind", "row 0 has 2 values for 3 columns"),
        (["1,2,a"], "label=sort", "no column 'sort'; it has height, width, kind"),
        (
            ["1,2,a", "3,4,b"],
            "split=all",
            r"'kind' holds texts such as 'a'.*--data table:path=.*,label=kind.*\(drop=kind\)",
        ),
        (["x,2,a", "y,4,b"], "label=kind", r"'height' holds texts such as 'x', and features are numbers: leave it out"),
        (["1,2,a"], "label=kind,drop=sort", "no column 'sort'"),
        (["1,2,a"], "label=kind,drop=height/width", "no column besides the label"),
        (["1,2,a"], "label=kind,classes=b/c", "label 'a', which is none of the classes b, c"),
        (["1,2,a"], "label=kind,codes_from=x.csv", "codes=all too"),
        (["1,2,a"], "label=kind,split=test", "1 rows"),
        ([], "label=kind", "no rows"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_a_sentence(
    rows: list[str], more: str, why: str, tmp_path: Path
) -> None:
    file = table(tmp_path / "t.csv", *rows)
    with pytest.raises(BadInput, match=why):
        load(f"table:path={file},{more}")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="two columns named 'a'"):
        load(f"table:path={table(tmp_path / 't.csv', '1,2', header='a,a')}")


def test_standardisation_is_the_training_data_in_units_of_its_own_spread(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal([5, -300, 2], [1, 40, 0], (50, 3)).astype(np.float32)
    stats = Standardisation.of(values)
    scaled = stats.applied(values)
    assert np.allclose(scaled.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(scaled.std(axis=0), [1, 1, 0], atol=1e-5)
    assert Standardisation.from_json(stats.to_json()) == stats
    with pytest.raises(BadInput, match="same columns"):
        stats.applied(values[:, :2])
    with pytest.raises(BadInput, match="cannot be standardised"):
        Standardisation.of(np.zeros((2, 3, 4, 4), np.float32))
    for wrong in (
        {"scale": [1.0, 0.0, 1.0]},
        {"mean": [1.0]},
        {"mean": [1.0, float("nan"), 1.0]},
        {"scale": [1, 1, 1]},
    ):
        with pytest.raises(ValueError, match="standardisation"):
            Standardisation.from_json(stats.to_json() | wrong)
