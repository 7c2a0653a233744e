"""Base classifiers that are kernel machines on fixed descriptors of pictures, for parts of few samples; solved in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.deterministic import deterministic
from vauban.poisoning.training.input_transforms import input_transform

_AT_ONCE = 500  # pictures whose descriptors are computed at once
_CACHED_BLOCKS = 64


@dataclass(frozen=True)
class KernelTrainer:
    """Ridge regression of the classes with the kernel exp(-gamma |a - b|^2) between descriptors of pictures.

    front: an input transform, a function of one picture alone that no sample can poison. mirrored: the mirror image of a sample
    is a sample too. ridge: what is added to the kernel's diagonal. No random numbers are used.
    """

    num_classes: int = 10
    front: str = "descriptors"
    gamma: float = 0.5
    ridge: float = 0.003
    mirrored: bool = True
    device: str = "cpu"
    _seen: dict[bytes, torch.Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        input_transform(self.front)
        if self.num_classes < 2 or not self.gamma > 0 or not self.ridge > 0:
            raise BadInput(
                f"num_classes={self.num_classes}, gamma={self.gamma}, ridge={self.ridge}: two classes or more are needed, and "
                "numbers above 0"
            )

    @classmethod
    def recipe(cls, shape: Sequence[int], num_classes: int, device: str = "cpu", **changes: Any) -> KernelTrainer:
        """Vauban's recipe for pictures of this shape [c, h, w], with `changes` to its fields; grey ones are not mirrored."""
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise BadInput(f"descriptors are those of grey or colour pictures [c, h, w], not of {tuple(shape)}")
        return cls(**{"num_classes": num_classes, "device": device, "mirrored": shape[0] == 3, **changes})

    @property
    def spec(self) -> dict[str, Any]:
        """The settings as plain values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> KernelTrainer:
        """The trainer that `spec` describes."""
        return cls(**spec)

    def fit(
        self, parts: Sequence[TrainingSet], numbers: Sequence[int], on_progress: ProgressCallback | None = None
    ) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        """Yield ([number], {support [1, n, d], share [1, n, classes]}) for each partition."""
        for i, number in enumerate(numbers):
            with deterministic(), torch.no_grad():
                weights = self._solve(*parts[i])
            if on_progress:
                on_progress(1)
            yield [number], {name: value[None].contiguous() for name, value in weights.items()}

    def scores(self, weights: Mapping[str, torch.Tensor], x: NDArray[Any]) -> torch.Tensor:
        """Scores float32 [machines, inputs, num_classes] of machines on inputs [inputs, ...]."""
        with deterministic(), torch.no_grad():
            points = self._cached(x)
            pairs = zip(weights["support"], weights["share"], strict=True)
            found = [self._kernel(points, s.to(self.device).float()) @ share.to(self.device) for s, share in pairs]
        return torch.stack(found)

    def _solve(self, x: NDArray[Any], y: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        support, labels = self._described(x), torch.from_numpy(np.ascontiguousarray(y)).to(self.device)
        if self.mirrored:
            support = torch.cat([support, self._described(x[..., ::-1])])
            labels = labels.repeat(2)
        support = support.half().float()  # as it will be kept
        targets = functional.one_hot(labels, self.num_classes).float() - 1 / self.num_classes
        products = self._kernel(support, support) + self.ridge * torch.eye(len(support), device=support.device)
        return {"support": support.half(), "share": torch.linalg.solve(products, targets)}

    def _kernel(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        squares = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
        return torch.exp(-self.gamma * squares.clamp(min=0))

    def _described(self, x: NDArray[Any]) -> torch.Tensor:
        """Descriptors [n, d] of pictures."""
        transform, blocks = input_transform(self.front), []
        for start in range(0, len(x), _AT_ONCE):
            values = torch.from_numpy(np.ascontiguousarray(x[start : start + _AT_ONCE])).to(self.device)
            pictures = values.float() / 255 if values.dtype == torch.uint8 else values.float()
            blocks.append(transform.after(transform.before(pictures)).flatten(1))
        return torch.cat(blocks)

    def _cached(self, x: NDArray[Any]) -> torch.Tensor:
        """Descriptors of inputs, kept for the machines that vote on them next."""
        whole = np.ascontiguousarray(x)
        key = blake2b(whole.view(np.uint8).data, person=b"vauban inputs").digest() + str((x.shape, x.dtype)).encode()
        if key not in self._seen:
            while len(self._seen) >= _CACHED_BLOCKS:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = self._described(whole)
        return self._seen[key]
