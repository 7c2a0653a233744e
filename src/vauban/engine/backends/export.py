"""Exports a torch module to ONNX for one shape of views; the same module gives the same bytes on every machine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

import torch
from torch import nn

from vauban.engine.backends.onnx_network import messages
from vauban.engine.backends.protocol import CannotRun, imported
from vauban.engine.failed_calls import reason


def exported(module: nn.Module, shape: Sequence[int], backend: str) -> bytes:
    """The module, in evaluation mode, as an ONNX model for float32 views of this shape [rows, ...]."""
    for package in ("onnx", "onnxscript"):
        imported(package, backend, f"exporting a torch module for backend {backend}")
    try:
        with _quiet(), torch.inference_mode(False), torch.no_grad():
            made = torch.onnx.export(
                module,
                (torch.zeros(*shape),),
                dynamo=True,
                input_names=["views"],
                output_names=["scores"],
                verbose=False,
            )
    except Exception as problem:
        cause = problem.__cause__ or problem
        raise CannotRun(
            f"the model cannot be exported for backend {backend} ({reason(cause)}): use --backend torch, which runs any model, "
            "or take out what decides by the values of a tensor"
        ) from problem
    assert made is not None
    model = made.model_proto
    if len(model.graph.input) != 1 or len(model.graph.output) != 1:
        raise CannotRun(
            f"the model, exported for backend {backend}, has {len(model.graph.input)} inputs and {len(model.graph.output)} "
            "outputs: one that maps views to scores and changes nothing of its own is needed; use --backend torch"
        )
    for message in messages(model):
        for field in ("metadata_props", "doc_string"):  # names of files on this machine, which no score depends on
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def exporter() -> str:
    """The versions of what exports."""
    return f"torch {torch.__version__}, onnxscript {version('onnxscript')}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what the exporter says of its own deprecated calls and of packages it does without."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    try:
        logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
