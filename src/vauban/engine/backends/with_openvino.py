"""OpenVINO: runs an ONNX model on the CPU in fp32, or in bf16 where the processor has instructions for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from vauban.engine.backends.protocol import CannotRun, Floats32, Program, imported
from vauban.interrupts import signal_stack_as_before

_HINTS = {"fp32": "f32", "bf16": "bf16"}
_REPORTED = {"f32": "f32", "float": "f32", "float32": "f32", "bf16": "bf16", "bfloat16": "bf16"}

_UNKNOWN = re.compile(r"(?:No conversion rule found for operations|support the following ONNX operations): *(.+)")
"""What OpenVINO says of operators that it does not know, in several lines of which this is one."""


class OpenVINO:
    """The library OpenVINO."""

    name: ClassVar[str] = "openvino"

    def __init__(self) -> None:
        self._library = imported("openvino", "openvino", "backend openvino")
        with signal_stack_as_before():
            self._core = self._library.Core()
            self._capabilities = self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")  # loads the plugin, too

    def version(self) -> str:
        return str(self._library.get_version())

    def precisions(self) -> Sequence[str]:
        """fp32, and bf16 where it is computed and not replaced by fp32."""
        return ("fp32", "bf16") if "BF16" in self._capabilities else ("fp32",)

    def compile(self, content: bytes, shape: Sequence[int], threads: int, precision: str) -> Program:
        """The program with the run's threads. Threads are not bound to processors: workers that share a machine would all
        be bound to the same ones."""
        hint = _HINTS[precision]
        settings = {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
        }
        with _plain_errors(), signal_stack_as_before():
            model = self._core.read_model(content)
            model.reshape({0: list(shape)})
            compiled = self._core.compile_model(model, "CPU", settings)
        said = str(compiled.get_property("INFERENCE_PRECISION_HINT"))
        found = _REPORTED.get(said.strip("<>").split("'")[1] if "'" in said else said, said)
        if found != hint:
            raise CannotRun(f"OpenVINO computes in {found} where {hint} was asked for: use --precision fp32")
        return _Compiled(compiled, found)


class _Compiled:
    """A compiled model with one request, whose input memory is the same in every call."""

    def __init__(self, compiled: Any, precision: str):
        self.precision = precision
        self._request = compiled.create_infer_request()
        self._views = self._request.get_input_tensor().data

    def __call__(self, views: Floats32) -> Floats32:
        self._views[:] = views
        with _plain_errors():
            self._request.infer()
        return np.array(self._request.get_output_tensor().data)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Context in which errors of OpenVINO say what is wrong: their first lines name places in its own code."""
    try:
        yield
    except RuntimeError as problem:
        raise RuntimeError(_said(str(problem))) from problem


def _said(text: str) -> str:
    """The operators that are not known, or the first line that is no heading of the next one."""
    if (unknown := _UNKNOWN.search(text)) is not None:
        return f"no rule for the operators {unknown[1].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if not line.endswith(":")), text)
