"""A model is given the columns that it was trained on, in their order: others are refused, whichever way they come."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import vauban

import vauban as vb
from vauban.columns import COLUMNS, check_columns, columns_of
from vauban.data import load
from vauban.errors import BadInput
from vauban.models import load as load_model

pandas = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 60)
FRAME = pandas.DataFrame({"age": Y + RNG.normal(0, 0.1, 60), "income": 100 * RNG.normal(0, 1, 60)})
SWAPPED = FRAME[["income", "age"]]
OTHERS = [SWAPPED, FRAME.rename(columns={"age": "years"})]


def classifier() -> Any:
    linear = pytest.importorskip("sklearn.linear_model")
    return vb.SmoothedClassifier(linear.LogisticRegression().fit(FRAME, Y), vb.Gaussian(sigma=0.1), input_range=None)


@pytest.mark.parametrize("frame", OTHERS, ids=["order", "names"])
def test_a_frame_with_other_columns_is_refused(frame: Any) -> None:
    smoothed = classifier()
    for ask in (lambda: smoothed.certify(frame, Y, n=50, seed=1), lambda: smoothed.predict(frame[:3], n=50, seed=1)):
        with pytest.raises(BadInput, match="the classifier was fitted on 'age'"):
            ask()
    assert len(smoothed.certify(FRAME, Y, n=50, seed=1)) == 60
    assert len(smoothed.certify(FRAME.to_numpy(), Y, n=50, seed=1)) == 60  # an array says no names


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name, frame in (("clean", FRAME), ("swapped", SWAPPED)):
        frame.assign(kind=Y).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.mark.parametrize("standardise", [True, False])
def test_a_network_trained_on_a_table_knows_its_columns(standardise: bool, tables: Path, tmp_path: Path) -> None:
    given = ["--standardise"] if standardise else ["--input-range", "none"]
    vauban(
        "train", "--data", f"table:path={tables}/clean.csv,label=kind", "--smoothing", "gaussian:sigma=0.5", *given,
        "--epochs", "1", "--validate", "0", "--out", tmp_path / "net.safetensors",
    )  # fmt: skip
    base = ["certify", "--model", tmp_path / "net.safetensors", "--smoothing", "gaussian:sigma=0.5", "-n", "20"]
    base += [] if standardise else ["--input-range", "none"]
    asked = [*base, "--data", f"table:path={tables}/swapped.csv,label=kind,split=test", "--out", tmp_path / "run"]
    assert "column 0 of the table is 'income'" in vauban(*asked, code=2)
    assert not (tmp_path / "run").exists()
    vauban(*base, "--data", f"table:path={tables}/clean.csv,label=kind,split=test", "--out", tmp_path / "run")


def test_a_network_trained_from_python_knows_them_too(tables: Path, tmp_path: Path) -> None:
    vb.train(
        "mlp",
        load(f"table:path={tables}/clean.csv,label=kind"),
        vb.Gaussian(sigma=0.5),
        epochs=1,
        input_range=None,
        out=tmp_path / "net.safetensors",
    )
    smoothed = vb.SmoothedClassifier(load_model(tmp_path / "net.safetensors"), vb.Gaussian(sigma=0.5), input_range=None)
    assert len(smoothed.certify(FRAME, Y, n=20)) == 60
    with pytest.raises(BadInput, match="column 0 of the table is 'income'"):
        smoothed.certify(SWAPPED, Y, n=20)


def test_names_that_are_no_texts_are_no_names() -> None:
    assert columns_of(pandas.DataFrame(np.ones((2, 2)))) is None
    assert columns_of(FRAME) == ("age", "income")
    assert columns_of(FRAME.set_axis(["0", "1"], axis=1)) is None  # as header=false calls them
    assert columns_of(np.ones((2, 2))) is None
    assert columns_of([[1.0, 2.0]]) is None


@pytest.mark.parametrize("said", ["age, income", "3", "null", "[]"])
def test_entries_of_others_are_not_taken_for_columns(said: str) -> None:
    check_columns({COLUMNS: said, "columns": said}, FRAME)
