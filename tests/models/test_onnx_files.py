"""ONNX files as models: checked, hashed, run by a backend, and refused in a sentence where they do not fit."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput, MissingExtra
from vauban.models import load
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'vauban[onnxruntime]'")

PICTURES = torch.randint(0, 256, (3, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
SETTINGS: dict[str, Any] = {"n": 200, "alpha": 0.01, "seed": 1, "progress": False}
WEIGHTS = np.random.default_rng(1).normal(size=(16, 3)).astype(np.float32)
BACKENDS = ("onnxruntime", "openvino")


def written(
    path: Path,
    *,
    rows: Any = "rows",
    shape: tuple[Any, ...] = (1, 4, 4),
    kind: int = onnx.TensorProto.FLOAT,
    operator: str = "MatMul",
    domain: str = "",
    weights: np.ndarray = WEIGHTS,
    gives: tuple[Any, ...] = (3,),
    more_inputs: tuple[str, ...] = (),
) -> Path:
    """An ONNX file of one dense layer over pixels, centred on grey."""
    helper = onnx.helper
    views = [helper.make_tensor_value_info(name, kind, [rows, *shape]) for name in ("views", *more_inputs)]
    scores = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [rows, *gives])
    centre = (-0.5 * weights.sum(0)).astype(np.float32)
    kept = [onnx.numpy_helper.from_array(array, name) for name, array in (("w", weights), ("b", centre))]
    nodes = [
        helper.make_node("Flatten", ["views"], ["flat"]),
        helper.make_node(operator, ["flat", "w"], ["product"], domain=domain),
        helper.make_node("Add", ["product", "b"], ["scores"]),
    ]
    graph = helper.make_graph(nodes, "net", views, [scores], kept)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(one, 20) for one in {"", domain}], ir_version=10
    )
    path.write_bytes(model.SerializeToString())
    return path


def by_hand(views: torch.Tensor) -> torch.Tensor:
    return (views.flatten(1) - 0.5) @ torch.from_numpy(WEIGHTS)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", ["rows", 20])
def test_a_file_votes_as_its_layer_does(backend: str, rows: Any, tmp_path: Path) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed: pip install 'vauban[{backend}]'")
    file = written(tmp_path / "net.onnx", rows=rows)
    model = load(f"{file}:input=views,output=scores")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert (model.num_classes, model.fingerprint, model.spec) == (3, digest, "onnx:classes=3")
    smoothed = SmoothedClassifier(model, "gaussian:sigma=0.5", rows=20, backend=backend)
    found = smoothed.certify(PICTURES, [0, 1, 2], out=tmp_path / "run", **SETTINGS)
    told = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (told["model"]["sha256"], told["compute"]["backend"]["sha256"]) == (digest, digest)
    assert "exporter" not in told["compute"]["backend"]
    verify_run(tmp_path / "run")
    plain = SmoothedClassifier(by_hand, "gaussian:sigma=0.5", num_classes=3, rows=20)
    expected = plain.certify(PICTURES, [0, 1, 2], **SETTINGS)
    assert np.abs(found.counts - expected.counts).sum() <= 4


def test_the_command_line_takes_a_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'vauban[onnxruntime]'")
    weights = np.random.default_rng(1).normal(size=(784, 10)).astype(np.float32)
    file = written(tmp_path / "net.onnx", shape=(1, 28, 28), weights=weights, gives=(10,))
    options = ["--smoothing", "gaussian:sigma=0.5", "-n", "100", "--limit", "2", "--json", "--device", "cpu"]
    command = ["certify", "--model", str(file), *options, "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*command, "--backend", "onnxruntime"])
    assert done.exit_code == 0, done.output
    refused = CliRunner().invoke(app, [*command, "--backend", "torch"])
    assert refused.exit_code == 2
    assert "net.onnx is an ONNX file: give --backend onnxruntime, openvino or auto" in refused.output


def test_weights_in_a_file_beside_it_are_read_and_hashed(tmp_path: Path) -> None:
    model = onnx.load(written(tmp_path / "net.onnx"))
    outside = {"save_as_external_data": True, "location": "net.data", "size_threshold": 0}
    onnx.save_model(model, tmp_path / "net.onnx", **outside)
    first = load(tmp_path / "net.onnx")
    data = bytearray((tmp_path / "net.data").read_bytes())
    data[3] ^= 64
    (tmp_path / "net.data").write_bytes(bytes(data))
    assert load(tmp_path / "net.onnx").fingerprint != first.fingerprint
    (tmp_path / "net.data").unlink()
    with pytest.raises(BadInput, match=r"net\.onnx"):
        load(tmp_path / "net.onnx")


def test_what_a_file_does_not_fit_is_said(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({}, ":input=pixels", "has the input 'views', not 'pixels'"),
        ({}, ":output=logits", "has the output 'scores', not 'logits'"),
        ({}, ":inputs=views", "no parameter 'inputs'"),
        ({"more_inputs": ("mask",)}, "", "has the inputs views, mask: one input is needed"),
        ({"gives": (3, 1)}, "", "an output of 3 dimensions"),
        ({"kind": onnx.TensorProto.DOUBLE}, "", "takes DOUBLE: views are float32|not a sound ONNX model"),
        ({"operator": "Nonsense"}, "", "is not a sound ONNX model"),
    ]
    for how, options, sentence in wrong:
        written(file, **how)
        with pytest.raises(BadInput, match=sentence):
            load(f"{file}{options}")
    file.write_bytes(b"nothing")
    with pytest.raises(BadInput, match="is not a sound ONNX model"):
        load(file)
    with pytest.raises(BadInput, match="is not a file"):
        load(tmp_path / "other.onnx")
    with pytest.raises(BadInput, match="leave weights out"):
        load(written(file), weights=tmp_path / "w.pt")
    with pytest.raises(BadInput, match="join them before the export"):
        load(f"{file} + {file}")


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            {"operator": "Own", "domain": "own.operators"},
            "cannot run the model .* operators that this version does not know",
        ),
        ({"rows": 8}, "takes exactly 8 views at a time, and a forward pass has rows=20: give rows=8"),
        ({"shape": (3, 4, 4)}, "takes views of shape 3x4x4; views of these inputs have 1x4x4"),
        ({"weights": WEIGHTS * np.float32("nan")}, "returned NaN on 20 views"),
        (
            {"shape": ("c", "h", "w"), "weights": np.ones((25, 3), dtype=np.float32)},
            r"failed on views of shape \(20, 1, 4, 4\) .*computes with another size",
        ),
    ],
)
def test_inputs_that_a_file_does_not_fit_are_said(how: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'vauban[onnxruntime]'")
    model = load(written(tmp_path / "net.onnx", **how))
    smoothed = SmoothedClassifier(model, "gaussian:sigma=0.5", num_classes=3, rows=20, backend="onnxruntime")
    with pytest.raises(BadInput, match=sentence):
        smoothed.certify(PICTURES, [0, 1, 2], **SETTINGS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator_that_a_backend_does_not_know_is_named(backend: str, tmp_path: Path) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed: pip install 'vauban[{backend}]'")
    model = load(written(tmp_path / "net.onnx", operator="Own", domain="own.operators"))
    smoothed = SmoothedClassifier(model, "gaussian:sigma=0.5", num_classes=3, rows=20, backend=backend)
    with pytest.raises(BadInput, match=r"cannot run the model \(\w+: .*own\.operators[.:]Own") as refused:
        smoothed.certify(PICTURES, [0, 1, 2], **SETTINGS)
    assert ".cpp" not in str(refused.value)


def test_openvino_says_which_sizes_do_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: pip install 'vauban[openvino]'")
    model = load(written(tmp_path / "net.onnx", shape=("c", "h", "w"), weights=np.ones((25, 3), dtype=np.float32)))
    smoothed = SmoothedClassifier(model, "gaussian:sigma=0.5", num_classes=3, rows=20, backend="openvino")
    with pytest.raises(BadInput, match=r"cannot run the model \(RuntimeError: [^:]*dimension") as refused:
        smoothed.certify(PICTURES, [0, 1, 2], **SETTINGS)
    assert "failed at" not in str(refused.value)


def with_second_output(path: Path, sides: int) -> Path:
    """A file whose output `other` is `scores` with the sign changed, with so many dimensions."""
    model = onnx.load(written(path))
    model.graph.node.append(onnx.helper.make_node("Neg", ["scores"], ["negative"]))
    operator = ("Unsqueeze", ["negative", "axis"]) if sides == 3 else ("Identity", ["negative"])
    model.graph.node.append(onnx.helper.make_node(*operator, ["other"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2]), "axis"))
    shape = [None, 3, 1][:sides]
    model.graph.output.append(onnx.helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, shape))
    path.write_bytes(model.SerializeToString())
    return path


def test_of_two_outputs_the_named_one_votes_or_the_only_one_that_can(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'vauban[onnxruntime]'")
    file = with_second_output(tmp_path / "a.onnx", sides=3)
    assert load(file).fingerprint == load(f"{file}:output=scores").fingerprint
    file = with_second_output(tmp_path / "b.onnx", sides=2)
    with pytest.raises(BadInput, match=r"has the outputs 'scores', 'other': say which one holds the scores"):
        load(file)
    models = [load(f"{file}:output={name}") for name in ("scores", "other")]
    assert models[0].fingerprint != models[1].fingerprint
    smoothed = [SmoothedClassifier(one, "gaussian:sigma=0.5", rows=20, backend="onnxruntime") for one in models]
    first, second = (one.certify(PICTURES, [0, 1, 2], **SETTINGS).counts for one in smoothed)
    assert not np.array_equal(first, second)


def test_auto_takes_the_next_backend_where_the_first_does_not_know_an_operator(tmp_path: Path) -> None:
    for backend in BACKENDS:
        pytest.importorskip(backend, reason=f"{backend} is not installed: pip install 'vauban[{backend}]'")
    to_onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed: pip install skl2onnx").to_onnx
    from sklearn.linear_model import LogisticRegression

    table = PICTURES.flatten(1).float().numpy() / 255
    fitted = LogisticRegression().fit(table, [0, 1, 2])
    (tmp_path / "net.onnx").write_bytes(to_onnx(fitted, table, options={"zipmap": False}).SerializeToString())
    smoothed = SmoothedClassifier(load(tmp_path / "net.onnx"), "gaussian:sigma=0.5", rows=20)
    smoothed.certify(table, [0, 1, 2], out=tmp_path / "run", **SETTINGS)
    told = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert told["compute"]["backend"]["name"] == "onnxruntime"


def test_torch_and_gradients_are_refused(tmp_path: Path) -> None:
    model = load(written(tmp_path / "net.onnx"))
    with pytest.raises(BadInput, match="give --backend onnxruntime, openvino or auto"):
        SmoothedClassifier(model, "gaussian:sigma=0.5", backend="torch").certify(PICTURES, [0, 1, 2], **SETTINGS)
    with pytest.raises(BadInput, match="no gradients pass"):
        model.module(PICTURES.float())


def test_reading_needs_the_package_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "net.onnx")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"needs onnx, which is not installed: pip install 'vauban\[onnxruntime\]'"):
        load(file)
