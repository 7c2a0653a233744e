"""The base classifier as the engine asks it: precision, memory layout, scores, votes, and whether it judges each view by itself.

The caller's module is left as it was: it is put into evaluation mode while it votes, and copied where its weights must be cast
or laid out otherwise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from vauban.engine.block_convolution import BlockConvolution, replace_by_blocks
from vauban.errors import BadInput
from vauban.specs import choose

Model = Callable[[torch.Tensor], Any]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class BaseClassifier:
    """A model and what is known of it. `spec`: its text form; `fingerprint`: sha256 of its code and tensors, None if that is
    not computed yet; `num_classes`, `channels`: None where nothing says."""

    module: Model
    spec: str | None = None
    fingerprint: str | None = None
    num_classes: int | None = None
    channels: int | None = None


@dataclass
class Network:
    """A base classifier in one precision and memory layout.

    `channels_last`: whether weights and views lie channels-last; None decides by what is faster, once the number of a view's
    dimensions is known (`prepare`). `model` is what is asked: the caller's own, or a copy whose tensors follow the caller's.
    """

    source: Model
    device: torch.device
    precision: str = "fp32"
    channels_last: bool | None = None
    model: Model = field(init=False)

    def __post_init__(self) -> None:
        check_precision(self.precision, self.device)
        self.model = self.source

    def prepare(self, dimensions: int, keep: bool = False) -> None:
        """Choose the layout for views of so many dimensions, and copy the module if it must be cast or laid out otherwise.

        `keep`: keep an earlier copy, which compiled programs refer to, and give it the caller's tensors as they are now.
        """
        if not isinstance(self.source, nn.Module):
            self.channels_last = bool(self.channels_last)
            return
        if self.channels_last is None:
            self.channels_last = channels_last_is_faster(self.source, dimensions, self.device, self.precision)
        if keep and isinstance(self.model, nn.Module) and self.model is not self.source:
            self.model.load_state_dict(self.source.state_dict())
        elif self.precision in _DTYPES or self.channels_last:
            self.model = self._copied(self.source)

    def _copied(self, source: nn.Module) -> nn.Module:
        try:
            working = copy.deepcopy(source)
        except Exception as problem:
            if self.precision in _DTYPES:
                raise BadInput(
                    f"precision={self.precision} needs a copy of the model, and it cannot be copied ({problem}): cast it "
                    "yourself, or use fp32"
                ) from None
            self.channels_last = False
            return source
        working.requires_grad_(False)
        if self.precision in _DTYPES:
            working.to(_DTYPES[self.precision])
        if self.channels_last:
            if self.device.type != "cpu" and self.precision == "bf16":
                replace_by_blocks(working)
            working.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return working

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into evaluation mode, and every part of it back into the mode it was in afterwards."""
        parts = list(self.model.modules()) if isinstance(self.model, nn.Module) else []
        modes = [part.training for part in parts]
        try:
            for part in parts:
                part.training = False
            yield
        finally:
            for part, mode in zip(parts, modes, strict=True):
                part.training = mode

    @property
    def by_blocks(self) -> list[str]:
        """The names of convolutions that are computed over blocks of pixels."""
        named = self.model.named_modules() if isinstance(self.model, nn.Module) else ()
        return [name for name, part in named if isinstance(part, BlockConvolution)]

    @property
    def dtype(self) -> torch.dtype:
        """The type in which views reach the network."""
        return _DTYPES.get(self.precision, torch.float32)

    def laid_out(self, views: torch.Tensor) -> torch.Tensor:
        """Views in the network's type and memory layout."""
        views = views.to(self.dtype)
        return views.contiguous(memory_format=torch.channels_last) if self.channels_last else views

    def scores(self, views: torch.Tensor, num_classes: int) -> torch.Tensor:
        """Scores [rows, num_classes] of views that are laid out."""
        return scores_of(self.model, views, num_classes)


def channels_last_is_faster(
    module: nn.Module, dimensions: int, device: torch.device | str, precision: str = "fp32"
) -> bool:
    """Whether a network answers faster channels-last: convolutions over pictures, on the CPU, and on GPUs in every precision
    that tensor cores compute in (all but fp32)."""
    faster = torch.device(device).type == "cpu" or precision != "fp32"
    return faster and dimensions == 3 and any(isinstance(part, nn.Conv2d) for part in module.modules())


def check_precision(precision: str, device: torch.device) -> str:
    """The precision, refused where there is none of that name or where the device has no such arithmetic."""
    choose("precision", precision, PRECISIONS)
    if precision == "tf32" and device.type != "cuda":
        raise BadInput(f"precision tf32 is an arithmetic of NVIDIA GPUs, not of {device.type}: ask for fp32 or bf16")
    return precision


@contextmanager
def in_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Let matrix products and convolutions on a GPU use TF32 with "tf32", and nowhere else."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    fast = precision == "tf32"
    try:
        torch.set_float32_matmul_precision("high" if fast else "highest")
        torch.backends.cudnn.allow_tf32 = fast
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads, and with as many as before afterwards."""
    before = torch.get_num_threads()
    try:
        if count != before:
            torch.set_num_threads(count)
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def device_name(device: torch.device) -> str:
    """The device as far as it can change what a network answers."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else device.type


def scores_of(model: Model, views: torch.Tensor, num_classes: int) -> torch.Tensor:
    """The model's scores [rows, num_classes] for a batch of views, or an error that says what it answered instead.

    Scores of 16 bits are widened to float32, which changes none of them.
    """
    scores = model(views)
    if not isinstance(scores, torch.Tensor):
        try:
            scores = torch.as_tensor(np.asarray(scores), device=views.device)
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(f"the model answered {type(scores).__name__}: a tensor of scores is needed") from None
    if scores.shape != (len(views), num_classes):
        raise BadInput(
            f"the model answered {tuple(scores.shape)} to {len(views)} views: scores of shape "
            f"({len(views)}, {num_classes}) are needed, one column per class"
        )
    if scores.is_complex():
        raise BadInput(f"the model answered scores of type {scores.dtype}: numbers that can be compared are needed")
    if not scores.is_floating_point():
        return scores.double()
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def votes_of(scores: torch.Tensor) -> torch.Tensor:
    """One vote per view [rows]: the class of the highest score (the first of equals), one past the last where NaN."""
    best, votes = scores.max(dim=1)
    return votes.masked_fill_(best.isnan(), scores.shape[1])


def not_comparable(views: int) -> BadInput:
    """The error for views whose scores are NaN."""
    return BadInput(
        f"the model answered NaN on {views} views: a vote needs scores that can be compared; "
        "check its weights and its normalisation"
    )


def check_invariance(
    ask: Callable[[torch.Tensor], torch.Tensor],
    blocks: int,
    *,
    why: str,
    advice: str,
    check: Callable[[torch.Tensor], None] = lambda scores: None,
) -> None:
    """Ask for one shape of `blocks` equal blocks, then for the same views in other rows with other neighbours; scores must
    match bit for bit.

    `ask` takes which block stands in each place, int64 [blocks], and answers scores [rows, classes]. `why`: what needs a base
    classifier that judges each view by itself; `advice`: what to do where scores depend on the row. `check` may refuse the
    first answer.
    """
    there = torch.arange(blocks)

    def scores(order: torch.Tensor) -> torch.Tensor:
        answer = ask(order)
        return answer.clone().view(blocks, -1, answer.shape[1])

    first = scores(there)
    check(first.flatten(0, 1))
    if not torch.equal(first, scores(there)):
        raise BadInput(f"the model gave two answers to the same views: {why} one that does not change")
    for kept, other in ((0, 0), (1, blocks - 1)):
        neighbours = torch.where(there % 2 == kept, there, other)  # one block over and over next to those that stay
        if not torch.equal(first[kept::2], scores(neighbours)[kept::2]):
            raise BadInput(
                f"the model's answer to a view depends on the other views of the batch: {why} one that judges each by itself "
                "(is a normalisation layer still training?)"
            )
    if not torch.equal(first, scores(there.roll(1)).roll(-1, 0)):
        raise BadInput(advice)
