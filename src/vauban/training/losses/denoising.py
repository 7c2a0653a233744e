"""Losses of denoisers, which need no labels: nearness to the picture, and the answers of the classifier behind the denoiser."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import mse_loss

from vauban.errors import BadInput
from vauban.models.denoised import Denoised
from vauban.smoothing import Smoothing
from vauban.training.losses.base import LOSSES, Batch, Loss, Scores, mean_cross_entropy, repeated, stacked


def mse(denoised: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
    """Mean squared error between denoised views and pictures in [0, 1], over all their numbers. [Salman2020]

    `denoised`: [views, b, ...], or [b, ...] for one view. `pictures`: [b, ...].
    """
    together = denoised[None] if denoised.shape == pictures.shape else denoised
    if together.shape[1:] != pictures.shape:
        raise BadInput(
            f"mse compares views {list(together.shape)} with pictures {list(pictures.shape)}: a network that returns pictures is "
            "needed, such as dncnn or unet"
        )
    return mse_loss(together.flatten(0, 1), repeated(pictures, len(together)))


def denoised_stability(scores: Scores, clean: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
    """Mean cross-entropy of views with the classifier's own answers to the clean pictures. [Salman2020]

    `scores` [views, b, classes]: of denoised views. `clean` [b, classes]: the classifier's scores of the pictures themselves.
    """
    return mean_cross_entropy(scores, clean.argmax(1), label_smoothing)


class _WithoutLabels(Loss):
    """A loss of a denoiser. The view takes the place of the picture, so both must have one shape."""

    uses_labels = False

    def check(self, smoothing: Smoothing, soft_labels: bool = False) -> None:
        if soft_labels:
            raise BadInput(f"{self} uses no labels, and mixup and cutmix mix them: leave these out")

    def check_shape(self, smoothing: Smoothing, shape: torch.Size) -> None:
        views = smoothing.view_shape(shape)
        if views != shape:
            raise BadInput(
                f"views of {smoothing.spec} are {list(views)} where pictures are {list(shape)}: a denoiser returns a "
                "picture for a view of its shape, as gaussian, laplace, uniform, splitting, flow and discrete make them"
            )

    def classification(self, scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        return scores.new_zeros(())


@LOSSES.register("mse")
@dataclass(frozen=True)
class Mse(_WithoutLabels):
    """Mean squared error between the network's answer to a view and the picture. [Salman2020]"""

    classifies = False

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        return mse(scores, batch.pictures)


@LOSSES.register("denoised-stability")
@dataclass(frozen=True)
class DenoisedStability(_WithoutLabels):
    """Cross-entropy of a denoiser and a frozen classifier with the classifier's own answer to the clean picture. [Salman2020]"""

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        classifier = _frozen_classifier(batch.network)
        if torch.is_grad_enabled() and not scores.requires_grad:
            raise BadInput(
                "denoised-stability: no gradient passes the classifier, so a denoiser cannot learn from its answers: give a "
                "classifier that torch differentiates, or use mse"
            )
        with torch.no_grad(), torch.autocast(batch.x.device.type, enabled=False):
            clean = stacked(classifier(batch.pictures))[0]
        return denoised_stability(scores, clean, batch.label_smoothing)


def _frozen_classifier(network: torch.nn.Module) -> torch.nn.Module:
    """The classifier behind the denoiser of a network, which may be compiled or shared by processes."""
    while not isinstance(network, Denoised):
        inner = getattr(network, "_orig_mod", None) or getattr(network, "module", None)
        if not isinstance(inner, torch.nn.Module):
            raise BadInput(
                "denoised-stability trains a denoiser for a classifier: give the classifier (--classifier; in Python classifier=)"
            )
        network = inner
    parameters = list(network.classifier.parameters())
    if any(p.requires_grad for p in parameters):
        raise BadInput(
            "denoised-stability: the classifier behind the denoiser is trained too, and would agree with whatever it answers: "
            "freeze it by requires_grad_(False), or give it as --classifier (in Python classifier=)"
        )
    if parameters and network.classifier.training:
        raise BadInput("denoised-stability: the classifier is in training mode: call its eval()")
    return network.classifier
