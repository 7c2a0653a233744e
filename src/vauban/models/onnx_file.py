"""ONNX files as models: read as data, checked, and left to a backend to run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vauban.engine.backends.onnx_network import OnnxNetwork, Side, messages
from vauban.engine.backends.protocol import imported
from vauban.engine.failed_calls import reason
from vauban.errors import BadInput
from vauban.models.composition import composed
from vauban.models.files import FileModel
from vauban.specs import Parameter, Spec, read_params

SUFFIX = ".onnx"

_OPTIONS = {"input": Parameter(str, example="views"), "output": Parameter(str, example="scores")}


def is_onnx(text: str) -> bool:
    """Whether a model is given as `net.onnx` or `net.onnx:input=views,output=scores`."""
    path, _ = _parts(text)
    return path.endswith(SUFFIX) and (Path(path).expanduser().is_file() or composed(text) is None)


def load_onnx(text: str) -> FileModel:
    """The model of `net.onnx`, or of `net.onnx:input=…,output=…`, which says what its input and output must be called.

    Nothing in the file is executed here. Weights in files beside it are read, and hashed with it. Of several outputs the one that
    is named votes, or the only one that can be scores, and its name is hashed too.
    """
    name, options = _parts(text)
    path = Path(name).expanduser()
    if not path.is_file():
        raise BadInput(f"{name} is not a file: give the path of an ONNX model")
    onnx = imported("onnx", "onnxruntime", f"reading {name}")
    wanted = read_params(Spec.parse(f"onnx:{options}" if options else "onnx"), _OPTIONS)
    model, content, sha256 = _read(onnx, path)
    takes = _input(onnx, model, path, wanted.get("input"))
    output = _output(onnx, model, path, wanted.get("output"))
    if len(model.graph.output) > 1:
        content = _with_one_output(model, output)
        sha256 = hashlib.sha256(f"{sha256} {output.name}".encode()).hexdigest()
    network = OnnxNetwork(path.name, content, sha256, takes)
    sides = _sides(output.type.tensor_type)
    classes = sides[1] if len(sides) == 2 else None
    spec = Spec("onnx", {"classes": str(classes)} if classes else {})
    return FileModel(network.eval(), str(spec), sha256, classes)


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


def _input(onnx: Any, model: Any, path: Path, wanted: str | None) -> Sequence[Side]:
    """The sides of the one input, float32 [rows, ...]."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in weights]
    names = [one.name for one in inputs]
    if len(inputs) != 1:
        raise BadInput(f"{path} has the inputs {', '.join(names) or 'none'}: one input is needed; export it with one")
    if wanted not in (None, names[0]):
        raise BadInput(f"{path} has the input {names[0]!r}, not {wanted!r}: leave input= out, or give that name")
    takes = inputs[0].type.tensor_type
    if takes.elem_type != onnx.TensorProto.FLOAT:
        kind = onnx.TensorProto.DataType.Name(takes.elem_type)
        raise BadInput(f"{path} takes {kind}: views are float32, so export it for float32 inputs")
    sides = _sides(takes)
    if len(sides) < 2:
        raise BadInput(f"{path} takes an input of {len(sides)} dimensions: [rows, ...] is needed, one view in each row")
    return sides


def _output(onnx: Any, model: Any, path: Path, wanted: str | None) -> Any:
    """The output that holds scores [rows, classes]: the one of this name, or the only one that can."""
    outputs = {one.name: one for one in _inferred(onnx, model).graph.output}
    names = ", ".join(map(repr, outputs))
    if wanted is not None and wanted not in outputs:
        raise BadInput(f"{path} has the output {names}, not {wanted!r}: leave output= out, or give that name")
    possible = [one for one in outputs.values() if _can_be_scores(onnx, one)]
    if wanted is None and len(outputs) > 1 and len(possible) != 1:
        raise BadInput(f"{path} has the outputs {names}: say which one holds the scores, {path}:output=NAME")
    found = outputs[wanted] if wanted is not None else (possible or list(outputs.values()))[0]
    if found.type.WhichOneof("value") == "sequence_type":
        raise BadInput(
            f"{path} gives a list of mappings from classes to probabilities: scores [rows, classes] are needed; export it with "
            "skl2onnx's to_onnx(…, options={'zipmap': False})"
        )
    if not _can_be_scores(onnx, found):
        kind = onnx.TensorProto.DataType.Name(found.type.tensor_type.elem_type)
        sides = len(_sides(found.type.tensor_type))
        raise BadInput(
            f"{path} gives an output of {sides} dimensions, {kind}: scores [rows, classes] in floating point are needed"
        )
    return found


def _can_be_scores(onnx: Any, output: Any) -> bool:
    kind = output.type.tensor_type
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    unknown = not kind.HasField("shape")
    return (
        output.type.WhichOneof("value") == "tensor_type"
        and kind.elem_type in floats
        and (unknown or len(_sides(kind)) == 2)
    )


def _inferred(onnx: Any, model: Any) -> Any:
    """The model with the shapes of its outputs, where the file leaves them out and they follow from the rest."""
    if all(one.type.tensor_type.HasField("shape") for one in model.graph.output):
        return model
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:
        return model


def _with_one_output(model: Any, output: Any) -> bytes:
    """The model's bytes, without its other outputs."""
    kept = type(model)()
    kept.CopyFrom(model)
    del kept.graph.output[:]
    kept.graph.output.append(output)
    content: bytes = kept.SerializeToString(deterministic=True)
    return content


def _sides(kind: Any) -> list[Side]:
    return [one.dim_value if one.HasField("dim_value") and one.dim_value > 0 else None for one in kind.shape.dim]
