"""Holds the training sets of one group of base classifiers on the device and makes their training batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.training.augmentation import augmentation
from vauban.poisoning.training.random_numbers import uniforms
from vauban.validation import check_labels

if TYPE_CHECKING:
    from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer

_ROWS = 16  # samples of a partition that are prepared at once
_STEPS_AHEAD = 50  # steps whose random numbers are generated at once


class GroupData:
    """The training sets of one group on the device: augmented copies of each picture, or pictures to augment at every step."""

    def __init__(self, trainer: StackedTrainer, group: int, slots: Mapping[int, TrainingSet]):
        self.trainer, self.device = trainer, torch.device(trainer.device)
        size = trainer.group
        first = next(iter(slots.values()))[0]
        own = torch.arange(group * size, (group + 1) * size, device=self.device)
        self.lanes = own if trainer.seeds == "partition" else torch.zeros_like(own)
        counts = torch.tensor([len(slots[s][1]) if s in slots else 0 for s in range(size)])
        self.counts = counts.to(self.device)
        passes = max(1, -(-int(counts.max()) // _ROWS))
        self.y = torch.zeros(size, passes * _ROWS, dtype=torch.int64)
        for slot, (_, labels) in slots.items():
            self.y[slot, : len(labels)] = torch.from_numpy(np.asarray(labels, dtype=np.int64))
        self._check_labels(slots)
        self.y = self.y.to(self.device)
        self._transform, self._augmentation = trainer.transform(), augmentation(trainer.augment)
        blocks = [self._block(slots, first, i * _ROWS) for i in range(passes)]
        transformed = [channels_last(self._transform.after(block)) for block in blocks]
        self.shape = (transformed[0].shape[3], transformed[0].shape[1], transformed[0].shape[2])
        self.constants = self._constants(transformed) if trainer.normalise == "partition" else {}
        del transformed
        self.pictures = torch.cat([block.view(size, _ROWS, *block.shape[1:]) for block in blocks], dim=1)
        self.copies = self._augmented_copies(blocks) if trainer.views else None
        self._step_numbers = -1, torch.empty(0)

    def initial_uniforms(self, tensor: int, count: int) -> torch.Tensor:
        """Uniform numbers [group, count] for the initial values of a tensor."""
        return uniforms(self.trainer.seed, self.lanes, "weights", tensor, count)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Transformed pictures [group, batch, h, w, c] and labels [group, batch] of a step; with mixup also the other labels
        and the share of the first [group].

        Row j is one of the samples between j n / batch and (j + 1) n / batch of a partition's n, so all are equally likely.
        """
        size = self.trainer.batch
        u = self._uniforms_of_step(step)
        at = (torch.arange(size, device=self.device) + u[:, :size]) * (self.counts[:, None] / size)
        rows = torch.minimum(at.long(), (self.counts[:, None] - 1).clamp(min=0))
        which = torch.arange(len(rows), device=self.device)[:, None]
        y = self.y[which, rows]
        if self.copies is not None:
            x = self.copies[which, rows, (u[:, size : 2 * size] * self.trainer.views).long()]
        else:
            numbers = u[:, size:-1].reshape(rows.numel(), self._augmentation.numbers)
            augmented = self._augmentation.apply(self.pictures[which, rows].flatten(0, 1), numbers)
            x = channels_last(self._transform.after(augmented)).view(*rows.shape, *self.shape[1:], self.shape[0])
        if not self.trainer.mixup:
            return x, y, None, None
        share = 1 - self.trainer.mixup * u[:, -1] / 2
        weight = share.to(x.dtype)[:, None, None, None, None]
        return weight * x + (1 - weight) * x.flip(1), y, y.flip(1), share

    def _uniforms_of_step(self, step: int) -> torch.Tensor:
        """Uniform numbers [group, …] of a step."""
        block, offset = divmod(step, _STEPS_AHEAD)
        extra = 1 if self.copies is not None else self._augmentation.numbers
        count = self.trainer.batch * (1 + extra) + 1
        if block != self._step_numbers[0]:
            numbers = uniforms(self.trainer.seed, self.lanes, "steps", block, _STEPS_AHEAD * count)
            self._step_numbers = block, numbers.view(-1, _STEPS_AHEAD, count)
        return self._step_numbers[1][:, offset]

    def _block(self, slots: Mapping[int, TrainingSet], like: NDArray[Any], start: int) -> torch.Tensor:
        """Samples start..start + _ROWS of every slot before augmentation, padded with zeros: [group * _ROWS, c, h, w]."""
        block = np.zeros((self.trainer.group, _ROWS, *like.shape[1:]), dtype=like.dtype)
        for slot, (x, _) in slots.items():
            some = x[start : start + _ROWS]
            block[slot, : len(some)] = some
        return self._transform.before(to_pictures(block.reshape(-1, *like.shape[1:]), self.trainer.device))

    def _augmented_copies(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """Augmented copies of every sample, [group, rows, views, h, w, c]."""
        size, views = self.trainer.group, self.trainer.views
        channels, *sides = self.shape
        dtype = getattr(torch, self.trainer.precision) if self.trainer.normalise == "fixed" else torch.float32
        copies = torch.empty(size, len(blocks) * _ROWS, views, *sides, channels, dtype=dtype, device=self.device)
        count = self._augmentation.numbers
        for i, block in enumerate(blocks):
            for view in range(views):
                u = uniforms(self.trainer.seed, self.lanes, "views", i * views + view, _ROWS * count)
                augmented = self._augmentation.apply(block, u.reshape(len(block), count))
                rows = channels_last(self._transform.after(augmented)).view(size, _ROWS, *sides, channels)
                copies[:, i * _ROWS : (i + 1) * _ROWS, view] = rows.to(dtype)
        return copies

    def _constants(self, blocks: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Mean and inverse deviation of each channel over a partition's own samples; padding adds zeros."""
        size, channels = self.trainer.group, self.shape[0]
        present = torch.arange(len(blocks) * _ROWS, device=self.device) < self.counts[:, None]
        total = self.counts.clamp(min=1)[:, None] * math.prod(self.shape[1:])

        def mean(values: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            summed = torch.zeros(size, channels, device=self.device)
            for i, block in enumerate(blocks):
                mask = present[:, i * _ROWS : (i + 1) * _ROWS, None]
                summed = summed + (values(block.view(size, _ROWS, -1, channels)).sum(dim=2) * mask).sum(dim=1)
            return summed / total

        centre = mean(lambda x: x)
        variance = mean(lambda x: (x - centre[:, None, None]) ** 2)
        return {"input.mean": centre, "input.scale": 1 / (variance.sqrt() + 0.05)}

    def _check_labels(self, slots: Mapping[int, TrainingSet]) -> None:
        for slot, (x, labels) in slots.items():
            try:
                check_labels(labels, len(x), self.trainer.num_classes, of="sample")
            except BadInput as problem:
                raise BadInput(f"slot {slot}: {problem}") from None


def to_pictures(x: NDArray[Any], device: str) -> torch.Tensor:
    """Inputs as float32 [n, c, h, w] on the device, 8-bit values scaled to [0, 1]; flat inputs become [n, values, 1, 1]."""
    values = torch.from_numpy(x).to(device)
    values = values.float() / 255 if values.dtype == torch.uint8 else values.float()
    return values if values.ndim == 4 else values.flatten(1)[:, :, None, None]


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """[n, c, h, w] to [n, h, w, c]."""
    return x.permute(0, 2, 3, 1).contiguous()


def padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    """x [n, …] followed by zeros up to [rows, …]."""
    missing = rows - len(x)
    return torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing > 0 else x
