"""ONNX files as models: read as data, checked, and left to a backend to run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vauban.engine.backends.onnx_network import OnnxNetwork, Side, messages
from vauban.engine.backends.protocol import imported
from vauban.engine.failed_calls import reason
from vauban.errors import BadInput
from vauban.models.composition import composed
from vauban.models.files import LoadedModel
from vauban.specs import Parameter, Spec, read_params

SUFFIX = ".onnx"

_OPTIONS = {"input": Parameter(str, example="views"), "output": Parameter(str, example="scores")}


@dataclass(frozen=True, eq=False)
class OnnxModel(LoadedModel):
    """The model of an ONNX file; its fingerprint is the file's hash."""

    def current_fingerprint(self) -> str:
        return str(self.fingerprint)


def is_onnx(text: str) -> bool:
    """Whether a model is given as `net.onnx` or `net.onnx:input=views,output=scores`."""
    path, _ = _parts(text)
    return path.endswith(SUFFIX) and (Path(path).expanduser().is_file() or composed(text) is None)


def load_onnx(text: str) -> OnnxModel:
    """The model of `net.onnx`, or of `net.onnx:input=…,output=…`, which says what its input and output must be called.

    Nothing in the file is executed here. Weights in files beside it are read, and hashed with it.
    """
    name, options = _parts(text)
    path = Path(name).expanduser()
    if not path.is_file():
        raise BadInput(f"{name} is not a file: give the path of an ONNX model")
    onnx = imported("onnx", "onnxruntime", f"reading {name}")
    wanted = read_params(Spec.parse(f"onnx:{options}" if options else "onnx"), _OPTIONS)
    model, content, sha256 = _read(onnx, path)
    takes, gives = _interface(onnx, model, path, wanted.get("input"), wanted.get("output"))
    network = OnnxNetwork(path.name, content, sha256, takes)
    classes = gives[1] or None
    spec = Spec("onnx", {"classes": str(classes)} if classes else {})
    return OnnxModel(network.eval(), str(spec), sha256, classes)


def _parts(text: str) -> tuple[str, str]:
    before, found, options = text.strip().partition(f"{SUFFIX}:")
    return (before + SUFFIX, options) if found else (text.strip(), "")


def _read(onnx: Any, path: Path) -> tuple[Any, bytes, str]:
    """The checked model, its bytes with all weights, and the sha256 of its file (and of those beside it that hold weights)."""
    content = path.read_bytes()
    digest = hashlib.sha256(content)
    try:
        model = onnx.load_model_from_string(content)
        onnx.checker.check_model(str(path))
    except Exception as problem:
        raise BadInput(
            f"{path} is not a sound ONNX model ({reason(problem)}): export it again, or give another"
        ) from None
    beside = {
        entry.value
        for message in messages(model)
        if message.DESCRIPTOR.name == "TensorProto" and message.data_location == onnx.TensorProto.EXTERNAL
        for entry in message.external_data
        if entry.key == "location"
    }
    if not beside:
        return model, content, digest.hexdigest()
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
        for name in sorted(beside):
            digest.update(hashlib.sha256((path.parent / name).read_bytes()).digest())
    except Exception as problem:
        raise BadInput(
            f"{path}: its weights in {', '.join(sorted(beside))} cannot be read ({reason(problem)})"
        ) from None
    return model, model.SerializeToString(deterministic=True), digest.hexdigest()


def _interface(
    onnx: Any, model: Any, path: Path, input_name: str | None, output_name: str | None
) -> tuple[Sequence[Side], Sequence[Side]]:
    """The sides of the one input, float32 [rows, ...], and of the one output [rows, classes]."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in weights]
    for what, found, wanted in (("input", inputs, input_name), ("output", list(model.graph.output), output_name)):
        names = [one.name for one in found]
        if len(found) != 1:
            raise BadInput(
                f"{path} has the {what}s {', '.join(names) or 'none'}: one {what} is needed; export it with one"
            )
        if wanted not in (None, names[0]):
            raise BadInput(f"{path} has the {what} {names[0]!r}, not {wanted!r}: leave {what}= out, or give that name")
    takes, gives = inputs[0].type.tensor_type, model.graph.output[0].type.tensor_type
    if takes.elem_type != onnx.TensorProto.FLOAT:
        kind = onnx.TensorProto.DataType.Name(takes.elem_type)
        raise BadInput(f"{path} takes {kind}: views are float32, so export it for float32 inputs")
    sides, scores = _sides(takes), _sides(gives)
    if len(sides) < 2:
        raise BadInput(f"{path} takes an input of {len(sides)} dimensions: [rows, ...] is needed, one view in each row")
    if len(scores) != 2:
        raise BadInput(f"{path} gives an output of {len(scores)} dimensions: scores [rows, classes] are needed")
    return sides, scores


def _sides(kind: Any) -> list[Side]:
    return [one.dim_value if one.HasField("dim_value") and one.dim_value > 0 else None for one in kind.shape.dim]
