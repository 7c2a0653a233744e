"""Model files that other libraries write: which are read as data, and what to do about those that are code."""

from __future__ import annotations

from pathlib import Path

from vauban.errors import BadInput
from vauban.models.composition import composed
from vauban.models.files import FileModel

_PICKLES = (".pkl", ".pickle", ".joblib")
_KERAS = (".h5", ".keras", ".tflite", ".pb")

_UNPICKLED = (
    "{file} is a pickle, and reading one executes whatever code is in it, so Vauban does not. Save the classifier as data, "
    "skops.io.dump(model, 'model.skops') or skl2onnx's to_onnx, and give that file; or, if you trust it, write a function that "
    "loads it and give --model package.module:function --depends {file}"
)
_EXPORT = (
    "{file} is a file of Keras or TensorFlow, which Vauban does not read: export the model to ONNX and give the .onnx file, or "
    "write a function that returns vb.wrap(model, layout='nhwc') and give --model package.module:function"
)


def load_foreign(text: str, weights: str | Path | None) -> FileModel | None:
    """The model of `net.onnx` or `pipeline.skops`, with options behind a colon; None where the text is of another kind."""
    from vauban.models.onnx_file import is_onnx, load_onnx
    from vauban.models.skops_file import is_skops, load_skops

    loader = load_onnx if is_onnx(text) else load_skops if is_skops(text) else None
    if loader is None:
        _refuse(text)
        return None
    if weights is not None:
        raise BadInput(f"{text} holds its weights, and the weights {weights} are given too: leave weights out")
    return loader(text)


def _refuse(text: str) -> None:
    """Refuse a file that cannot be read as data."""
    path = Path(text).expanduser()
    if ":" in text or composed(text) is not None:
        return
    if path.suffix in _PICKLES:
        raise BadInput(_UNPICKLED.format(file=text))
    if path.suffix in _KERAS:
        raise BadInput(_EXPORT.format(file=text))
