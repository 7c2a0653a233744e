"""Losses that learn features without labels: augmented copies of one picture should be near to each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from vauban.errors import BadInput
from vauban.smoothing import Smoothing
from vauban.training.augmented_views import WORDS, augmented
from vauban.training.encoder import Encoder
from vauban.training.losses.base import LOSSES, Batch, Loss, check_numbers, repeated


def simclr(points: torch.Tensor, temperature: float = 0.5) -> torch.Tensor:
    """Which of the other copies in the batch shows the same picture? Mean cross-entropy of cosines / temperature. [Chen2020]

    `points`: [2, b, width], the projections of two copies of every picture.
    """
    if points.dim() != 3 or len(points) != 2:
        raise BadInput(
            f"points of shape {tuple(points.shape)}: simclr compares two copies of each picture [2, b, width]"
        )
    flat = normalize(points.flatten(0, 1).float(), dim=1)
    itself = torch.eye(len(flat), dtype=torch.bool, device=flat.device)
    similar = (flat @ flat.T / temperature).masked_fill(itself, -torch.inf)
    return cross_entropy(similar, torch.arange(len(flat), device=flat.device).roll(points.shape[1]))


def simsiam(points: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    """Minus the mean cosine between the prediction of a copy and the mean point of the others, through which no gradient passes.

    `points`, `predictions`: [views, b, width]. With two copies [Chen2021], with more [Pototzky2022].
    """
    if points.shape != predictions.shape or points.dim() != 3 or len(points) < 2:
        raise BadInput(
            f"points {tuple(points.shape)} and predictions {tuple(predictions.shape)}: simsiam compares two copies or more of "
            "each picture, both [views, b, width]"
        )
    fixed = points.detach().float()
    others = (fixed.sum(0) - fixed) / (len(fixed) - 1)
    return -cosine_similarity(predictions.float(), others, dim=2).mean()


def coding_rate(points: torch.Tensor, weight: float = 200.0, epsilon: float = 0.2) -> torch.Tensor:
    """Minus the coding rate of a copy's points in the batch, less `weight` times the cosine with the mean point of all copies, in
    the mean over copies. [Tong2023]

    `points`: [views, b, width], scaled here to length one. The rate, log det(I + width / (b epsilon) Z'Z) / 2 of their matrix
    Z [b, width], is the larger, the more directions they fill.
    """
    if points.dim() != 3 or len(points) < 2:
        raise BadInput(
            f"points of shape {tuple(points.shape)}: coding-rate compares two copies or more of each picture [views, b, width]"
        )
    unit = normalize(points if points.dtype == torch.float64 else points.float(), dim=2)
    _, b, width = unit.shape
    products = unit @ unit.mT if b <= width else unit.mT @ unit  # both have the same determinant with I
    eye = torch.eye(products.shape[-1], dtype=unit.dtype, device=unit.device)
    factor = torch.linalg.cholesky_ex(eye + width / (b * epsilon) * products).L
    rates = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    near = cosine_similarity(unit, unit.mean(0), dim=2).mean()
    return -rates.mean() - weight * near


@dataclass(frozen=True)
class SelfSupervised(Loss):
    """A loss of augmented copies: parts of `least` to `most` of the area, of `side` pixels a side (0: as the picture), mirrored
    half of the time unless `mirror` is false."""

    uses_labels = False
    classifies = False
    learns_features = True
    changes_views = True

    least: float = 0.2
    side: int = 0
    mirror: bool = True
    most: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(self, "least", "most", low=0, above=True, high=1)
        if self.least > self.most:
            raise BadInput(f"{self}: least={self.least} is above most={self.most}: give shares of the area in order")
        check_numbers(self, "side", low=0)

    def check(self, smoothing: Smoothing, soft_labels: bool = False) -> None:
        if soft_labels:
            raise BadInput(f"{self} uses no labels, and mixup and cutmix mix them: leave these out")

    def check_shape(self, smoothing: Smoothing, shape: torch.Size) -> None:
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise BadInput(
                f"inputs {list(shape)}: copies are augmented as pictures of one channel or three, [1 or 3, height, width]"
            )

    def view_shape(self, smoothing: Smoothing, shape: torch.Size) -> tuple[int, ...]:
        return (shape[0], self.side, self.side) if self.side else tuple(shape)

    def views_of(self, batch: Batch, count: int) -> torch.Tensor:
        words = batch.words(count, WORDS).flatten(0, 1)
        with torch.no_grad(), torch.autocast(batch.x.device.type, enabled=False):
            copies = augmented(
                repeated(batch.pictures, count), words, self.least, self.side or None, self.mirror, self.most
            )
        return copies.contiguous(memory_format=torch.channels_last)

    def classification(self, scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        return scores.new_zeros(())


@LOSSES.register("simclr")
@dataclass(frozen=True)
class SimCLR(SelfSupervised):
    """Contrasts two copies of a picture with all other copies in the batch; `width` numbers are compared. [Chen2020]"""

    compares_inputs = True
    temperature: float = 0.5
    width: int = 128
    views = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "temperature", low=0, above=True)
        check_numbers(self, "width", low=1)

    def around(self, network: torch.nn.Module, seed: int) -> torch.nn.Module:
        return Encoder(network, self.width, predicts=False, seed=seed)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        with torch.autocast(scores.device.type, enabled=False):
            return simclr(scores, self.temperature)


@LOSSES.register("simsiam")
@dataclass(frozen=True)
class SimSiam(SelfSupervised):
    """Predicts from one copy the mean of the `views` - 1 others; no other pictures are needed. [Chen2021] [Pototzky2022]"""

    views: int = 4
    width: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "views", low=2)
        check_numbers(self, "width", low=1)

    def around(self, network: torch.nn.Module, seed: int) -> torch.nn.Module:
        return Encoder(network, self.width, predicts=True, seed=seed)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        with torch.autocast(scores.device.type, enabled=False):
            return simsiam(*scores.chunk(2, dim=2))


@LOSSES.register("coding-rate")
@dataclass(frozen=True)
class CodingRate(SelfSupervised):
    """Brings `views` copies of a picture together and keeps the points of a batch apart; it needs few epochs. [Tong2023]"""

    compares_inputs = True
    least: float = 0.25
    most: float = 0.25
    views: int = 16
    width: int = 1024
    weight: float = 200.0
    epsilon: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "views", low=2)
        check_numbers(self, "width", low=1)
        check_numbers(self, "weight", "epsilon", low=0, above=True)

    def around(self, network: torch.nn.Module, seed: int) -> torch.nn.Module:
        return Encoder(network, self.width, predicts=False, seed=seed, normalised=True)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        with torch.autocast(scores.device.type, enabled=False):
            return coding_rate(scores, self.weight, self.epsilon)
