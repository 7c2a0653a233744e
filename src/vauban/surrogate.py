"""The smoothed classifier as a torch module: log-probabilities that are differentiable in the pictures."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from vauban.engine.network import refuse_nan, scores_of, votes_of
from vauban.engine.sampler import choose_rows
from vauban.errors import BadInput
from vauban.inputs import LEVELS
from vauban.laws.exact import ExactLaw
from vauban.seed import Seed
from vauban.smoothing.random import Stream
from vauban.validation import check_at_least_one

if TYPE_CHECKING:
    from vauban.smoothed import SmoothedClassifier

SAMPLES = 64
_KEPT_WORDS = 2**25  # words that a module with a seed keeps between calls, in place of making them again


def log_mean_softmax(scores: torch.Tensor) -> torch.Tensor:
    """The log of the mean over views of the softmax of scores [views, ..., classes]: [..., classes]. [Salman2019]"""
    return scores.log_softmax(-1).logsumexp(0) - math.log(len(scores))


def log_vote_shares(scores: torch.Tensor) -> torch.Tensor:
    """The log of the share of views [views, b, classes] that vote for each class, [b, classes], without gradient; the share of a
    class without votes is the least number above 0."""
    refuse_nan(scores.flatten(0, 1))
    votes = votes_of(scores.detach().flatten(0, 1)).view(scores.shape[:2])
    shares = torch.nn.functional.one_hot(votes, scores.shape[-1]).to(scores.dtype).mean(0)
    return shares.clamp(min=torch.finfo(scores.dtype).tiny).log()


class Surrogate(torch.nn.Module):
    """From pictures [b, ...] in [0, 1] to log-probabilities [b, classes] under a smoothing.

    Soft (default): the log of the mean softmax over views, differentiable in the pictures. [Salman2019] `hard`: the log of the
    share of votes. Both are estimates from `samples` views and prove nothing; None takes all views of an exact smoothing. With a
    `seed` every picture gets the same noise at each call, so that this is a function of one picture; without it every view is
    new, from torch's generator. The base classifier is a copy in evaluation mode whose parameters need no gradient. Large
    numbers of views pass in chunks, whose activations are computed again for the gradient.
    """

    def __init__(self, smoothed: SmoothedClassifier, samples: int | None, seed: int | None, hard: bool):
        super().__init__()
        law, self.smoothing = smoothed.smoothing.law, smoothed.smoothing
        if samples is None and not law.exact:
            raise BadInput(f"samples=None with {law.spec}, which has no list of views: give a number of samples")
        if samples is None and seed is not None:
            raise BadInput(f"seed={seed} with samples=None: all views are made, and none is random; leave the seed out")
        self.samples = check_at_least_one("samples", samples, "one view or more is needed")
        self.seed, self.hard = None if seed is None else Seed.of(seed), hard
        self.num_classes, self.device = smoothed.num_classes, smoothed.device
        floats = smoothed.arithmetic == "float" or smoothed.standardise is not None
        self.levels = None if floats and not law.exact else LEVELS
        self.base = _frozen(smoothed.base.module)
        self._kept: torch.Tensor | None = None
        self.rows: int | None = None  # views in one pass; None: as many as votes of a run have

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities [b, classes] of pictures [b, ...]: floats in [0, 1], or uint8."""
        if x.dtype != torch.uint8 and not x.is_floating_point():
            raise BadInput(f"pictures of type {x.dtype}: floats in [0, 1], or uint8, are needed")
        x = (x.float() / LEVELS if x.dtype == torch.uint8 else x).to(self.device)
        words = self.words(x)
        rows = self.rows or choose_rows(self.smoothing.view_shape(x.shape[1:]), self.device)
        # Torch stops a second computation early by an exception, which would pass through the model as an error of its own.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.hard), set_checkpoint_early_stop(False):
            parts = words.split(max(1, rows // len(x)))
            save = len(parts) > 1 and torch.is_grad_enabled()
            each = [checkpoint(self.scores, x, p, use_reentrant=False) if save else self.scores(x, p) for p in parts]
            scores = torch.cat(each)
            return log_vote_shares(scores) if self.hard else log_mean_softmax(scores)

    def words(self, x: torch.Tensor) -> torch.Tensor:
        """The words of views of x [b, ...], int64 [views, 1 or b, words of a view]."""
        if self.samples is None:
            law = self.smoothing.law.for_shape(x.shape[1:])
            assert isinstance(law, ExactLaw)
            return torch.arange(law.views, device=self.device)[:, None, None]
        if self.seed is None:
            return torch.stack([self.smoothing.random_words(x, None, self.levels) for _ in range(self.samples)])
        per_view = self.smoothing.words(x.shape[1:], self.levels)
        if self.samples * per_view > _KEPT_WORDS:
            return Stream(self.seed, "surrogate", 0).words(0, self.samples, per_view, self.device)[:, None]
        if self._kept is None or self._kept.shape[-1] != per_view:
            self._kept = Stream(self.seed, "surrogate", 0).words(0, self.samples, per_view, self.device)[:, None]
        return self._kept

    def scores(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Scores [views, b, classes] of the views of x [b, ...] from words [views, 1 or b, …]."""
        shape = len(words), len(x)
        repeated = x.expand(shape[0], *x.shape).flatten(0, 1)
        views = self.smoothing.differentiable(repeated, words.expand(-1, shape[1], -1).flatten(0, 1), self.levels)
        parameters = self.base.parameters() if isinstance(self.base, torch.nn.Module) else iter(())
        own = next((p.dtype for p in parameters if p.is_floating_point()), x.dtype)
        return scores_of(self.base, views.to(own), self.num_classes).unflatten(0, shape)


class AsModule:
    """The part of `SmoothedClassifier` that makes modules."""

    def as_module(self, samples: int | None = SAMPLES, seed: int | None = None, hard: bool = False) -> Surrogate:
        """The smoothed classifier as a torch module from pictures [b, ...] in [0, 1] to log-probabilities [b, classes] that are
        differentiable in the pictures, for attacks of other libraries; see `vauban.surrogate.Surrogate`. Where the classifier
        standardises features, the module takes standardised ones (`standardise.applied(x)`; `standardise.undone` leads back).

        >>> import torch, vauban as vb
        >>> smoothed = vb.SmoothedClassifier(torch.nn.Linear(4, 2), vb.Gaussian(sigma=0.25), num_classes=2)
        >>> smoothed.as_module(samples=16, seed=1)(torch.rand(3, 4)).shape
        torch.Size([3, 2])
        """
        return Surrogate(cast("SmoothedClassifier", self), samples, seed, hard)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities [b, classes] from 64 new views, differentiable in x: `as_module()(x)`. For answers with a known
        probability of error use `predict`."""
        return self.as_module()(x)


def _frozen(model: Callable[[torch.Tensor], object]) -> Callable[[torch.Tensor], object]:
    """A copy of a module in evaluation mode, without gradients of its parameters; other callables as they are."""
    if not isinstance(model, torch.nn.Module):
        return model
    try:
        return copy.deepcopy(model).eval().requires_grad_(False)
    except Exception as problem:
        raise BadInput(
            f"as_module needs a copy of the model, and it cannot be copied ({problem}): give the smoothed classifier a function"
        ) from None
