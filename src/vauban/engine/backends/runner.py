"""Runs a network by a backend in the place of its module, and compares the two on the first views."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from vauban.engine.adapters.outputs import scores_in
from vauban.engine.backends.export import exported, exporter
from vauban.engine.backends.onnx_network import OnnxNetwork
from vauban.engine.backends.protocol import Backend, CannotRun, Program
from vauban.engine.failed_calls import reason
from vauban.errors import BadInput

Shape = tuple[int, ...]

CLOSE = {"fp32": 1e-3, "bf16": 1e-1, "fp16": 1e-1}
"""How far scores may be from the module's in fp32, as a fraction of their range."""
SAME_LABELS = {"fp32": 0.99, "bf16": 0.9, "fp16": 0.9}
"""The least fraction of the first views whose label must be the module's: the rest may be ties but for rounding."""

_INSTRUCTIONS = (
    "avx2",
    "avx512_f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "amx_fp16",
    "neon",
    "sve",
    "bf16",
)


@dataclass
class Runner:
    """A network that is run by a backend: callable from views [rows, ...] to scores [rows, classes].

    It is compiled once for each shape and number of threads. `key`: fingerprint of the source. `optional`: whether torch may take
    its place where the backend cannot run it; `others`: backends that may, before that.
    """

    own_threads: ClassVar[bool] = True
    """The library has threads of its own. After a parallel operation torch's threads wait without sleeping, for some
    milliseconds, on processors that the library then lacks: views are made by one thread."""

    backend: Backend
    source: nn.Module
    precision: str
    key: str
    optional: bool = False
    others: list[Backend] = field(default_factory=list, repr=False)
    _files: dict[Shape, bytes] = field(default_factory=dict, repr=False)
    _programs: dict[tuple[Shape, int], Program] = field(default_factory=dict, repr=False)
    _compared: set[tuple[Shape, int]] = field(default_factory=set, repr=False)
    _latest: tuple[Shape, int] = ((), 0)

    def fit(self, shape: Shape) -> bool:
        """Compile the program for views [rows, ...]; False, after a warning, where that fails and torch may take its place."""
        try:
            self._program(shape)
        except CannotRun as problem:
            if self.others:
                self.backend = self.others.pop(0)
                return self.fit(shape)
            if not self.optional:
                raise
            warnings.warn(f"{problem}. Votes are cast by torch", stacklevel=2)
            return False
        return True

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        shape = tuple(views.shape)
        program = self._program(shape)
        try:
            scores = torch.from_numpy(program(views.contiguous().numpy()))
        except Exception as problem:
            raise self._failed(shape, problem) from problem
        if self._latest not in self._compared and not isinstance(self.source, OnnxNetwork):
            refuse_other_scores(self.source, views, scores, self.precision, self._named)
            self._compared.add(self._latest)
        return scores

    def describe(self) -> dict[str, str]:
        """What the manifest says: backend, version and precision, hash of the ONNX model, and what else scores depend on."""
        shape, _ = self._latest
        made_by = {} if isinstance(self.source, OnnxNetwork) else {"exporter": exporter()}
        return {
            "name": self.backend.name,
            "version": self.backend.version(),
            "precision": self._programs[self._latest].precision,
            "sha256": hashlib.sha256(self._files[shape]).hexdigest(),
            **made_by,
            "instructions": processor_instructions(),
        }

    def _program(self, shape: Shape) -> Program:
        self._latest = shape, torch.get_num_threads()
        if self._latest not in self._programs:
            self._programs[self._latest] = self._compiled(shape)
        return self._programs[self._latest]

    def _compiled(self, shape: Shape) -> Program:
        if isinstance(self.source, OnnxNetwork):
            self.source.check_shape(shape)
            self._files[shape] = self.source.content
        elif shape not in self._files:
            self._files[shape] = exported(self.source, shape, self.backend.name)
        try:
            return self.backend.compile(self._files[shape], shape, torch.get_num_threads(), self.precision)
        except CannotRun:
            raise
        except Exception as problem:
            raise CannotRun(
                f"{self._named} cannot run the model ({_short(problem)}): it may use operators that this version does not know, "
                f"or take other views than those of shape {tuple(shape[1:])}; try the other backend, or --backend torch with the "
                "torch model"
            ) from problem

    def _failed(self, shape: Shape, problem: Exception) -> BadInput:
        """The error for a call that the library refused, though it compiled the network."""
        name = self.source.name if isinstance(self.source, OnnxNetwork) else "the model"
        return BadInput(
            f"{self._named} failed on views of shape {shape} ({_short(problem)}): inside, {name} computes with another size or "
            "another number of views than it was given; give inputs of the size that it was exported for, or --rows with that "
            "number"
        )

    @property
    def _named(self) -> str:
        return f"{self.backend.name} {self.backend.version()}"


def refuse_other_scores(
    source: nn.Module, views: torch.Tensor, found: torch.Tensor, precision: str, named: str
) -> None:
    """Refuse scores [rows, classes] that are not the module's but for rounding; `named`: what computed them."""
    with torch.inference_mode():
        answer = source(views)
    scores = answer if isinstance(answer, torch.Tensor) else scores_in(answer, views, found.shape[1])
    expected = scores.float()
    if expected.shape != found.shape:
        shapes = f"scores of shape {tuple(found.shape)} where the module gives {tuple(expected.shape)}"
        raise CannotRun(f"{named} gives {shapes}: use --backend torch")
    same = (expected == found) | (expected.isnan() & found.isnan())
    apart = torch.where(same, 0.0, (expected - found).abs()).max()
    width = expected.max() - expected.min()
    labels = (expected.argmax(1) == found.argmax(1)).float().mean()
    if not (apart <= CLOSE[precision] * width and labels >= SAME_LABELS[precision]) and not same.all():
        raise CannotRun(
            f"{named} does not compute this model as torch does: on {len(views)} views scores differ by up to "
            f"{float(apart):.3g}, of a range of {float(width):.3g}, and {100 * float(labels):.1f} % of the labels agree; use "
            "--backend torch"
        )


def _short(problem: Exception) -> str:
    """What a library says of a failure, without the place in its own code."""
    text = reason(problem)
    return f"{type(problem).__name__}: {text.partition('Status Message: ')[2] or text.partition(': ')[2] or text}"


def processor() -> dict[str, Any]:
    """What torch knows of this processor, by name; empty in versions that cannot say."""
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return found


def processor_instructions() -> str:
    """The instructions of this processor by which libraries choose kernels."""
    capable = processor()
    return " ".join(name for name in _INSTRUCTIONS if capable.get(name))
