"""Updates recorded as a CUDA graph: launching its hundreds of kernels one by one takes longer than small ones run."""

from __future__ import annotations

import warnings

import torch

from vauban.training.updates import Updater

_WARM_UP = 3  # updates before the recording: they compile programs and allocate the optimizer's state


class Recorded:
    """Updates of an `Updater`: the first ones as they are, then one recording of them, replayed at every step.

    Only on one GPU, and for losses that never wait for the device; where recording fails, updates stay as they are.
    """

    def __init__(self, updater: Updater):
        self.updater = updater
        recipe = updater.recipe
        self._records = updater.device.type == "cuda" and updater.processes.world == 1
        self._records &= not (recipe.mixup or recipe.cutmix)
        self._updates = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def update(self, x: torch.Tensor, labels: torch.Tensor, step: int, steps: int) -> torch.Tensor:
        """As `Updater.update`."""
        self.updater.prepare(step, steps)
        self._updates += 1
        if not self._records or self._updates <= _WARM_UP:
            return self._on_side_stream(x, labels) if self._records else self.updater.update(x, labels)
        graph = self._graph or self._record(x, labels)
        if graph is None:
            return self.updater.update(x, labels)
        self._x.copy_(x, non_blocking=True)
        self._labels.copy_(labels, non_blocking=True)
        graph.replay()
        return self._found.clone()

    def _on_side_stream(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """An update on a stream of its own, as recordings need it."""
        stream = torch.cuda.Stream(self.updater.device)
        stream.wait_stream(torch.cuda.current_stream(self.updater.device))
        with torch.cuda.stream(stream):
            found = self.updater.update(x, labels)
        torch.cuda.current_stream(self.updater.device).wait_stream(stream)
        return found

    def _record(self, x: torch.Tensor, labels: torch.Tensor) -> torch.cuda.CUDAGraph | None:
        """The recording of an update; None where it fails."""
        self._x, self._labels = x.clone(), labels.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            own = torch.cuda.Stream(self.updater.device)  # the default one is that of the GPU that recorded first
            with torch.cuda.graph(
                graph, stream=own, capture_error_mode="thread_local"
            ):  # other threads may pin pictures
                self._found = self.updater.update(self._x, self._labels)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as problem:
            reason = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
            warnings.warn(f"updates are not recorded as a CUDA graph ({reason.strip()[:200]})", stacklevel=2)
            self._records = False
            self.updater.optimizer.zero_grad(set_to_none=True)
            return None
        self._graph = graph
        return graph
