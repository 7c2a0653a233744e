"""Model files of other libraries: skops and ONNX files are models, pickles are refused; random weights are warned about."""

import hashlib
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput, MissingExtra
from vauban.models import load

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'vauban[sklearn]'")

RANDOM = np.random.default_rng(7)
FEATURES = RANDOM.random((60, 4)).astype(np.float32)
LABELS = (FEATURES[:, 0] > FEATURES[:, 1]).astype(np.int64) + (FEATURES[:, 2] > 0.8)


def pipeline(forest: bool = False) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    last = RandomForestClassifier(3, random_state=0) if forest else LogisticRegression(C=100)
    return make_pipeline(StandardScaler(), last).fit(FEATURES, LABELS)


@pytest.fixture
def data(tmp_path: Path) -> str:
    np.savez(tmp_path / "table.npz", images=FEATURES[:12], labels=LABELS[:12])
    return f"npz:path={tmp_path / 'table.npz'},classes=3"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, "--device", "cpu"])


def certified_verified_replayed(model: list[str], data: str, out: Path) -> None:
    """Certify, verify and replay from the command line."""
    settings = ["--smoothing", "gaussian:sigma=0.1", "-n", "200", "--alpha", "0.01", "--json"]
    made = run("certify", *model, "--data", data, *settings, "--out", str(out))
    assert made.exit_code == 0, made.output
    replayed = run("verify", str(out), "--replay", *model, "--data", data, "--all")
    assert replayed.exit_code == 0, replayed.output
    assert "all 2,400 votes of 12 of 12 inputs are those in the folder" in " ".join(replayed.output.split())


def test_a_skops_file_is_certified_verified_and_replayed(data: str, tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io", reason="skops is not installed: pip install 'vauban[sklearn]'")
    file = tmp_path / "pipeline.skops"
    skops.dump(pipeline(), file)
    model = load(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert (model.spec, model.num_classes, model.fingerprint) == ("skops:classes=3,features=4", 3, digest)
    expected = pipeline().predict_proba(FEATURES.astype(np.float64))
    assert np.array_equal(model.module(torch.from_numpy(FEATURES)).numpy(), expected)
    assert load(f"{file}:method=decision_function").fingerprint != digest
    certified_verified_replayed(["--model", str(file)], data, tmp_path / "run")


def test_types_that_skops_does_not_trust_are_named_until_trusted(tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io", reason="skops is not installed: pip install 'vauban[sklearn]'")
    file = tmp_path / "forest.skops"
    skops.dump(pipeline(forest=True), file)
    with pytest.raises(
        BadInput, match=r"holds sklearn.tree._tree.Tree, .* give .*forest.skops:trust=sklearn.tree._tree.Tree"
    ):
        load(file)
    found = load(f"{file}:trust=sklearn.tree._tree.Tree").module(torch.from_numpy(FEATURES))
    assert np.array_equal(found.numpy(), pipeline(forest=True).predict_proba(FEATURES))


def test_an_onnx_file_of_a_pipeline_votes_by_its_probabilities(data: str, tmp_path: Path) -> None:
    to_onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed: pip install skl2onnx").to_onnx
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'vauban[onnxruntime]'")
    file = tmp_path / "pipeline.onnx"
    file.write_bytes(to_onnx(pipeline(), FEATURES[:1], options={"zipmap": False}).SerializeToString())
    assert load(file).num_classes == 3
    assert load(f"{file}:output=probabilities").fingerprint == load(file).fingerprint
    with pytest.raises(BadInput, match=r"an output of 1 dimensions, INT64: scores \[rows, classes\]"):
        load(f"{file}:output=label")
    certified_verified_replayed(["--model", str(file)], data, tmp_path / "run")
    file.write_bytes(to_onnx(pipeline(), FEATURES[:1]).SerializeToString())
    with pytest.raises(BadInput, match=r"options=\{'zipmap': False\}"):
        load(f"{file}:output=output_probability")


OWN = """
import pickle, torch
def pipeline(): return pickle.load(open("pipeline.pkl", "rb"))
def random(): return torch.nn.Linear(4, 3)
def settled():
    net = torch.nn.Linear(4, 3)
    torch.nn.init.eye_(net.weight)
    torch.nn.init.zeros_(net.bias)
    return net
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "my_models.py").write_text(OWN)
    (tmp_path / "pipeline.pkl").write_bytes(pickle.dumps(pipeline()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_models", None)


def test_a_function_that_returns_a_pipeline_is_a_model_and_its_content_is_hashed(own: Path, data: str) -> None:
    first = load("my_models:pipeline")
    assert load("my_models:pipeline").fingerprint == first.fingerprint
    certified_verified_replayed(["--model", "my_models:pipeline"], data, own / "run")
    (own / "pipeline.pkl").write_bytes(pickle.dumps(pipeline(forest=True)))
    assert load("my_models:pipeline").fingerprint != first.fingerprint
    refused = run("verify", str(own / "run"), "--replay", "--model", "my_models:pipeline", "--data", data)
    assert refused.exit_code == 1
    assert "another model" in refused.output


def test_random_weights_of_an_own_function_are_warned_about(own: Path, recwarn: pytest.WarningsRecorder) -> None:
    load("my_models:settled")
    load("my_models:random", allow_random=True)
    torch.save(torch.nn.Linear(4, 3).state_dict(), own / "weights.pt")
    load("my_models:random", weights="weights.pt")
    assert [str(one.message) for one in recwarn if "random weights" in str(one.message)] == []
    state = torch.get_rng_state()
    with pytest.warns(
        UserWarning, match=r"my_models:random returned a model with random weights .* give --weights FILE"
    ):
        load("my_models:random")
    assert torch.equal(state, torch.get_rng_state())


def test_a_model_with_more_classes_than_labels_says_what_to_give(own: Path) -> None:
    np.savez(own / "few.npz", images=FEATURES[:2], labels=np.array([0, 1]))
    options = ["--smoothing", "gaussian:sigma=0.1", "-n", "100", "--out", str(own / "few")]
    refused = run("certify", "--model", "my_models:pipeline", "--data", f"npz:path={own / 'few.npz'}", *options)
    assert refused.exit_code == 2
    assert "the model has 3 classes" in refused.output
    assert f"give --data npz:path={own / 'few.npz'},classes=3" in refused.output


def test_training_a_network_that_returns_no_tensor_points_to_wrap() -> None:
    from vauban.training.origins import check_network

    class Pair(torch.nn.Module):
        def forward(self, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return views, views

    with pytest.raises(BadInput, match=r"returned tuple: training needs a tensor of scores; vb.wrap\(model\)"):
        check_network(Pair(), torch.zeros(2, 3), 3)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pipeline.pkl", r"pipeline.pkl is a pickle, and reading one executes .* skops.io.dump"),
        ("pipeline.joblib", "is a pickle"),
        ("net.keras", "export the model to ONNX"),
        ("net.skops", "net.skops is not a file"),
    ],
)
def test_files_that_are_code_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        load(name)


def test_a_file_that_skops_cannot_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skops.io", reason="skops is not installed: pip install 'vauban[sklearn]'")
    file = tmp_path / "net.skops"
    file.write_bytes(b"nothing")
    with pytest.raises(BadInput, match="is not a file that skops reads"):
        load(file)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vauban\[sklearn\]'"):
        load(file)
