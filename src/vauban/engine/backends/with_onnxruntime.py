"""ONNX Runtime: runs an ONNX model on the CPU in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from vauban.engine.backends.protocol import Floats32, Program, imported


class OnnxRuntime:
    """The library ONNX Runtime, with its provider for CPUs."""

    name: ClassVar[str] = "onnxruntime"

    def __init__(self) -> None:
        self._library = imported("onnxruntime", "onnxruntime", "backend onnxruntime")

    def version(self) -> str:
        return str(self._library.__version__)

    def precisions(self) -> Sequence[str]:
        return ("fp32",)

    def compile(self, content: bytes, shape: Sequence[int], threads: int, precision: str) -> Program:
        options = self._library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4  # errors are raised, and said once
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = self._library.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return _Session(session)


class _Session:
    """A session, whose outputs are new arrays in every call."""

    precision = "fp32"

    def __init__(self, session: Any):
        self._session, self._input = session, session.get_inputs()[0].name

    def __call__(self, views: Floats32) -> Floats32:
        scores: Floats32 = self._session.run(None, {self._input: views})[0]
        return scores
