"""Runs a network by its fused graph in the place of its module, and compares the two on the first views."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, fx, nn

from vauban.engine.backends.protocol import CannotRun, installed
from vauban.engine.backends.runner import Shape, processor_instructions, refuse_other_scores
from vauban.engine.failed_calls import reason
from vauban.engine.fusing.entry import Entry, with_entry
from vauban.engine.fusing.folding import CONVOLUTIONS, folded
from vauban.engine.fusing.graph import calls, flat, value
from vauban.engine.fusing.noise import writer
from vauban.engine.fusing.operators import on_gpu
from vauban.engine.network import in_precision
from vauban.smoothing.base import Smoothing

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_WIDE = 64  # channels from which on cuDNN's fused convolutions are expected to be faster than compiled ones
_WARM_UP = 3  # passes before a CUDA graph is recorded: kernels are chosen and loaded in them
_COMPARED = 128  # views that the module classifies at a time for the comparison


@dataclass(frozen=True)
class Fused:
    """The fused graph as a backend: torch's convolutions with cuDNN's sums and ReLUs on a GPU, in one program for each shape."""

    name: ClassVar[str] = "fused"

    def version(self) -> str:
        """The version of the rewriting: a change that changes scores changes it."""
        return "1"

    def precisions(self) -> Sequence[str]:
        return tuple(_DTYPES)


@dataclass
class Program:
    """A fused graph for one shape of views: `entry` lays them out in `laid`, `network` computes scores [rows, classes] from it.

    `precision`: in which it computes. `sha256`: of the graph's text, with the shapes of its constants. `steps`: its convolutions
    as (inside, outside) channels. `by_kernels`: whether cuDNN's and Triton's kernels are in the place of torch's operations.
    """

    network: fx.GraphModule
    entry: Entry | None
    laid: Tensor
    precision: str
    sha256: str
    steps: list[tuple[int, int]]
    by_kernels: bool
    _recorded: Any = None
    _records: bool = True
    _scores: Tensor | None = None

    @classmethod
    def of(
        cls, module: nn.Module, shape: Shape, device: torch.device, precision: str, by_kernels: bool = False
    ) -> Program:
        """The program of a module in evaluation mode."""
        dtype, network = _DTYPES[precision], flat(module, shape, device)
        folded(network)
        entry = with_entry(network, shape)
        network.to(dtype)
        wide = len(shape) == 4
        if wide:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if entry is not None:
            entry = replace(entry, by_kernel=by_kernels)
            laid = entry.buffer(shape[0], dtype)
        else:
            form = torch.channels_last if wide else torch.contiguous_format
            laid = torch.empty(shape, dtype=dtype, device=device, memory_format=form).zero_()
        about = _sha256(network), _widths(network)
        if by_kernels:
            on_gpu(network, dtype, device)
        network.graph.lint()
        network.recompile()
        return cls(network, entry, laid, precision, *about, by_kernels)

    def try_out(self, shape: Shape) -> None:
        """Compute the scores of one shape of zeros on a GPU, so that what fails there does so before a run begins."""
        device = self.laid.device
        if device.type != "cuda":
            return
        with torch.inference_mode(), in_precision(self.precision, device):
            self.write(torch.zeros(shape, device=device))
            self.scores()
            torch.cuda.synchronize(device)

    def write(self, views: Tensor) -> None:
        """Lay views out for the network."""
        if self.entry is None:
            self.laid.copy_(views)
        else:
            self.entry.write(views, self.laid)

    def scores(self) -> Tensor:
        """The scores of the views that were laid out, in memory that no later call changes."""
        if self._recorded is None and self._records and self.laid.device.type == "cuda":
            self._record()
        if self._recorded is None:
            return self.network(self.laid).float()
        self._recorded.replay()
        assert self._scores is not None
        return self._scores.clone()

    def _record(self) -> None:
        """Record the pass as a CUDA graph, which launches its kernels at once; where that fails, passes stay as they are."""
        self._records = False
        stream = torch.cuda.Stream(self.laid.device)
        stream.wait_stream(torch.cuda.current_stream(self.laid.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self.network(self.laid)
        torch.cuda.current_stream(self.laid.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._scores = self.network(self.laid).float()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as problem:
            warnings.warn(f"fused passes are not recorded as a CUDA graph ({reason(problem)})", stacklevel=2)
            return
        self._recorded = graph


@dataclass
class FusedRunner:
    """A network that is run by its fused graph: callable from views [rows, ...] to scores [rows, classes].

    One program is kept, that of the latest shape. `key`: fingerprint of the source. `optional`: whether torch may take its
    place where the module cannot be fused, or is expected to be no faster.
    """

    source: nn.Module
    device: torch.device
    precision: str
    key: str
    optional: bool = False
    backend: Fused = field(default_factory=Fused)
    _programs: dict[Shape, Program] = field(default_factory=dict, repr=False)
    _compared: set[Shape] = field(default_factory=set, repr=False)
    _writers: dict[Any, Callable[..., None]] = field(default_factory=dict, repr=False)
    _latest: Shape = ()

    def fit(self, shape: Shape) -> bool:
        """Make the program for views [rows, ...]; False, after a warning, where that fails and torch may take its place.

        A network whose convolutions are narrow is left to torch without a word where it may be.
        """
        try:
            program = self._program(shape)
        except CannotRun as problem:
            if not self.optional:
                raise
            warnings.warn(f"{problem}. Votes are cast by torch", stacklevel=2)
            return False
        return not self.optional or _is_wide(program.steps)

    def __call__(self, views: Tensor) -> Tensor:
        shape = tuple(views.shape)
        program = self._program(shape)
        try:
            program.write(views)
            scores = program.scores()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as problem:
            raise CannotRun(
                f"the fused graph failed on views of shape {shape} ({reason(problem)}): use --backend torch"
            ) from problem
        if shape not in self._compared:
            self._compare(views, scores)
            self._compared.add(shape)
        return scores

    def describe(self) -> dict[str, str]:
        """What the manifest says: the rewriting's version, precision, hash of the graph, and what else scores depend on."""
        said = {"name": self.backend.name, "version": self.backend.version(), "precision": self.precision}
        program = self._programs[self._latest]
        said["sha256"] = program.sha256
        if self.device.type == "cuda":
            timed = " benchmark" if torch.backends.cudnn.benchmark else ""  # kernels are then chosen by timing them
            said |= {} if program.by_kernels else {"operations": "torch"}
            return said | {"cudnn": f"{torch.backends.cudnn.version()}{timed}"}
        return said | {"instructions": processor_instructions()}

    def passes(self, shape: Shape) -> Callable[[], Tensor]:
        """Bare passes over the views [rows, ...] that are laid out, for benchmarks."""
        return self._program(shape).scores

    def makes(self, smoothing: Smoothing, levels: int | None) -> bool:
        """Whether views of this smoothing are written by a kernel, where the network reads them."""
        program = self._programs.get(self._latest)
        if levels is None or program is None or program.entry is None or not program.entry.by_kernel:
            return False
        return installed("triton") and smoothing.packed(levels) is not None

    def direct(
        self, smoothing: Smoothing, levels: int, rows: int, block: int, view: Shape
    ) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The function from pictures [blocks, ...], addresses and keys to scores; `makes` must be true. `view`: its shape."""
        key = (smoothing, levels, rows, block, view)

        def scores(pictures: Tensor, at: Tensor, keys: Tensor) -> Tensor:
            program = self._program((rows, *view))
            if key not in self._writers:
                assert program.entry is not None
                about = program.entry, rows, program.laid.dtype, smoothing, levels, block
                self._writers[key] = writer(*about, (pictures, at, keys))
            self._writers[key](pictures, at, keys, program.laid)
            return program.scores()

        return scores

    def _program(self, shape: Shape) -> Program:
        self._latest = shape
        if shape not in self._programs:
            self._programs.clear()  # each holds the memory of a whole pass
            self._writers.clear()
            try:
                self._programs[shape] = self._made(shape)
            except (CannotRun, torch.cuda.OutOfMemoryError):
                raise
            except Exception as problem:
                raise CannotRun(f"the model cannot be fused ({reason(problem)}): use --backend torch") from problem
        return self._programs[shape]

    def _made(self, shape: Shape) -> Program:
        """The program by kernels on a GPU, tried there; in torch's own operations elsewhere, and where the kernels fail."""
        about = self.source, shape, self.device, self.precision
        if self.device.type == "cuda":
            try:
                program = Program.of(*about, by_kernels=True)
                program.try_out(shape)
                return program
            except (CannotRun, torch.cuda.OutOfMemoryError):
                raise
            except Exception as problem:
                warnings.warn(
                    f"kernels of the fused graph failed ({reason(problem)}): it is computed by torch's own operations, which are "
                    "slower",
                    stacklevel=2,
                )
        program = Program.of(*about)
        program.try_out(shape)
        return program

    def _compare(self, views: Tensor, found: Tensor) -> None:
        named, parts = f"backend {self.backend.name}", zip(views.split(_COMPARED), found.split(_COMPARED), strict=True)
        for some, scores in parts:
            refuse_other_scores(self.source, some, scores, self.precision, named)


def _widths(network: fx.GraphModule) -> list[tuple[int, int]]:
    """The (inside, outside) channels of all convolutions."""
    weights = (value(network, node.args[1]) for node in calls(network.graph, *CONVOLUTIONS))
    return [(int(weight.shape[1]), int(weight.shape[0])) for weight in weights if weight is not None]


def _is_wide(steps: Sequence[tuple[int, int]]) -> bool:
    """Whether every convolution but the first has many channels: narrow ones are expected to be faster compiled and tuned."""
    return len(steps) > 1 and all(min(pair) >= _WIDE for pair in steps[1:]) and steps[0][1] >= _WIDE


def _sha256(network: fx.GraphModule) -> str:
    """The hash of a graph: what is called with what, and shapes of constants; not their values, which the model's hash covers."""
    lines = []
    for node in network.graph.nodes:
        tensor = value(network, node)
        name = getattr(node.target, "__name__", str(node.target)) if callable(node.target) else str(node.op)
        lines.append(f"{node.name} {name} {node.args} {node.kwargs} {'' if tensor is None else tuple(tensor.shape)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
