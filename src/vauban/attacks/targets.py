"""Targets: what an attack is run against, a smoothed classifier or a base classifier alone."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from vauban.attacks.budgets import Allowance
from vauban.attacks.passes import RunByBackend, searched, views_in_a_pass
from vauban.attacks.units import Units
from vauban.bounds.ranks import least_votes
from vauban.engine.backends.onnx_network import OnnxNetwork
from vauban.engine.network import BaseClassifier, Model, Network, in_precision, refuse_nan, scores_of, votes_of
from vauban.engine.sampler import choose_rows
from vauban.errors import BadInput, NoGradients, VaubanError
from vauban.inputs import LEVELS
from vauban.laws.exact import ExactLaw
from vauban.laws.law import Law
from vauban.smoothed import SmoothedClassifier
from vauban.standardise import Standardisation
from vauban.surrogate import Surrogate
from vauban.validation import check_k, check_num_classes

VIEWS, VOTES, CONFIRM_VOTES = 64, 1_000, 10_000
CONFIRM_ALPHA = 1e-6
_FIRST_VOTES = 128
_LEAD_VOTES = 64
_MANY = 4 * _FIRST_VOTES  # views of an exact smoothing of which some vote first
_LEAST_VIEWS = 4
_AHEAD = 3.0
"""By how many standard deviations of a difference of votes another class must be ahead, in a search with common noise, so that
fresh votes usually confirm it."""
_AHEAD_OF_ABSTENTION = 1.0
"""The same where an abstention is enough: beyond the lead at which fresh votes of the same share abstain."""

Ints = NDArray[np.int64]
Given = torch.Tensor | NDArray[Any]


class Target(Allowance, ABC):
    """A classifier under attack: scores to follow, hard labels to judge by, and a count of the views that were made.

    `levels`: 255 where inputs are 8-bit pictures, and only those are adversarial; None for floats. `input_range`: the least and
    the largest number of an input, None for no limit. `k`: an input is adversarial if its label is not among the top k.
    `units`: those of inputs [b, ...] in every method here, and those of inputs as the classifier is given them.
    """

    device: torch.device
    num_classes: int

    def __init__(
        self,
        k: int,
        levels: int | None,
        input_range: tuple[float, float] | None,
        standardise: Standardisation | None = None,
    ):
        super().__init__()
        self.k, self.levels, self.input_range = check_k(k, self.num_classes), levels, input_range
        self.units = Units(levels, standardise)

    @abstractmethod
    def scores(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities [b, classes] of inputs [b, ...], differentiable in them; the same noise at every call."""

    @abstractmethod
    def hard(self, x: torch.Tensor) -> torch.Tensor:
        """Counts [b, classes] of votes on inputs [b, ...] with the noise of every call, for the search."""

    @abstractmethod
    def adversarial(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Which inputs [b] do not have their label in the top k, by votes with common noise: what a search goes by."""

    @abstractmethod
    def lead(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """By how much inputs [b] are adversarial, from some of the votes where these are many: above 0 where they may be."""

    @abstractmethod
    def confirm(self, x: Given, seed: int, alpha: float = CONFIRM_ALPHA) -> tuple[Ints, Ints]:
        """The top k labels [b, k] of inputs [b, ...] by fresh votes, -1 where they abstain, and their counts [b, classes].

        `x`: a tensor in the units of the search, or an array as the classifier is given it. A label is wrong with probability at
        most alpha; never where the smoothing is exact, or there is none.
        """

    @property
    def sampled(self) -> bool:
        """Whether answers are estimates from votes."""
        return False

    @property
    def rungs(self) -> tuple[int, ...]:
        """The numbers of views behind a gradient with which a search is repeated, so that more views only add to it."""
        return (1,)

    @contextmanager
    def following(self, views: int) -> Iterator[None]:
        """Let gradients be those of this many views, one of `rungs`."""
        yield

    def margin(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """By how much the k-th best other class is ahead of the label, in log-probability [b]; above 0: adversarial."""
        return self._margin(self.scores(x), labels)

    def _margin(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        own = scores.gather(1, labels[:, None])
        others = scores.scatter(1, labels[:, None], -torch.inf)
        return others.topk(self.k, dim=1).values[:, -1] - own[:, 0]

    def gradient(
        self, x: torch.Tensor, labels: torch.Tensor, aim: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The margin [b] and its gradient [b, ...] in the inputs; with `aim` [b] the gradient of this class's own margin."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            scores = self.scores(leaf)
            margin = self._margin(scores, labels)
            followed = (
                margin if aim is None else (scores.gather(1, aim[:, None]) - scores.gather(1, labels[:, None]))[:, 0]
            )
            return margin.detach(), torch.autograd.grad(followed.sum(), leaf)[0].nan_to_num()

    def loss_gradient(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The gradient [b, ...] in the inputs of the loss, the label's log-probability times -1. [Levine2023] (E.10)"""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            loss = -self.scores(leaf).gather(1, labels[:, None]).sum()
            return torch.autograd.grad(loss, leaf)[0].nan_to_num()

    def rivals(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The other classes [b, classes - 1] by their scores, the best first."""
        with torch.no_grad():
            scores = self.scores(x).scatter(1, labels[:, None], -torch.inf)
        return scores.argsort(dim=1, descending=True)[:, :-1]

    def differentiable(self, x: torch.Tensor, labels: torch.Tensor) -> bool:
        """Whether scores of these inputs have a gradient that is not 0 everywhere."""
        try:
            return bool((self.gradient(x, labels)[1] != 0).any())
        except NoGradients:
            return False
        except VaubanError:
            raise
        except RuntimeError:
            return False

    def allowed(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest inputs that a classifier may be given: in the input range, on the grid of 8-bit pictures, and, where
        features are standardised, such that they are float32 before as well."""
        if self.input_range is not None:
            x = x.clamp(*self.input_range)
        return self.units.seen(x)

    def _outside_top(self, counts: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Which labels [b] are not among the k largest counts [b, classes], ties to the smaller label."""
        own = counts.gather(1, labels[:, None])
        smaller = torch.arange(counts.shape[1], device=counts.device) < labels[:, None]
        return ((counts > own) | (counts == own) & smaller).sum(dim=1) >= self.k


class SmoothedTarget(Target):
    """A smoothed classifier, attacked through `views` views of common noise for gradients and `votes` for hard labels.

    Exact smoothings: every view votes; of many views some vote first, and the others where these leave the label in doubt.
    `smoothed` decides about fresh votes, in its own precision and shape. `abstain`: the alpha of a classifier whose abstentions,
    with `confirm_votes` votes, count as adversarial; None: only another answer does.
    """

    def __init__(
        self,
        smoothed: SmoothedClassifier,
        shape: torch.Size,
        *,
        levels: int | None = LEVELS,
        k: int = 1,
        views: int = VIEWS,
        votes: int = VOTES,
        confirm_votes: int = CONFIRM_VOTES,
        seed: int = 0,
        abstain: float | None = None,
    ):
        self.num_classes, self.device = smoothed.num_classes, smoothed.device
        super().__init__(k, levels, smoothed.input_range, smoothed.standardise)
        self.smoothed = _in_arithmetic(smoothed, levels)
        law = smoothed.smoothing.law.for_shape(shape)
        self.law, self._shape, self.confirm_votes = law, shape, confirm_votes
        listed = law.views if isinstance(law, ExactLaw) else None
        few = listed is not None and listed <= views
        self._soft = Surrogate(self.smoothed, None if few else views, None if few else seed, hard=False)
        self._all = Surrogate(
            self.smoothed, votes if listed is None else None, seed if listed is None else None, hard=True
        )
        view = smoothed.smoothing.view_shape(shape)
        rows = smoothed.rows or choose_rows(shape, self.device)
        base = self._soft.base = self._all.base = searched(self._soft.base, smoothed.network, rows, view)
        self._rows, self._soft.rows = (views_in_a_pass(base, view, self.device, keeps) for keeps in (False, True))
        self._threshold = getattr(law, "threshold", None)
        self._needed = _needed_lead(votes, confirm_votes, abstain)

    @property
    def sampled(self) -> bool:
        return not self.law.exact

    @property
    def rungs(self) -> tuple[int, ...]:
        most = self._soft.samples
        if most is None:
            return (1,)
        fewer = (most >> 2 * i for i in range(16, 0, -1))
        return (*(views for views in fewer if views >= _LEAST_VIEWS), most)

    @contextmanager
    def following(self, views: int) -> Iterator[None]:
        """The first of the views: fewer of them are part of more."""
        whole = self._soft
        if whole.samples is not None and views != whole.samples:
            self._soft = copy.copy(whole)
            self._soft.samples, self._soft._kept = views, None
        try:
            yield
        finally:
            self._soft = whole

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        self.views += len(x) * len(self._soft.words(x[:1]))
        return self._soft(x)

    def hard(self, x: torch.Tensor) -> torch.Tensor:
        return self._votes(x, self._all.words(x))

    def adversarial(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        first, rest = self._split(self._all.words(x), _FIRST_VOTES)
        counts = self._votes(x, first)
        if not self.sampled and not len(rest):
            return self._outside_top(counts, labels)
        open_ = self._lead(counts, labels) > -_AHEAD
        if len(rest) and bool(open_.any()):
            counts[open_] += self._votes(x[open_], rest)
        beyond = self._lead(counts, labels) > self._needed if self.sampled else self._outside_top(counts, labels)
        return open_ & beyond

    def _split(self, words: torch.Tensor, some: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The words of the first views to vote, and of the others: the first `some`; of an exact smoothing all, or, where they
        are many, some that are evenly spread."""
        if self.sampled:
            return words[:some], words[some:]
        if len(words) <= _MANY:
            return words, words[:0]
        first = torch.zeros(len(words), dtype=torch.bool, device=words.device)
        first[:: len(words) // some] = True
        return words[first], words[~first]

    def lead(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        words, rest = self._split(self._all.words(x), _LEAD_VOTES)
        if self.sampled or len(rest):
            return self._lead(self._votes(x, words), labels) + _AHEAD
        counts = self._votes(x, words)
        lead = self._lead(counts, labels)
        return torch.where(self._outside_top(counts, labels), lead.clamp(min=1e-9), lead.clamp(max=0))

    def _lead(self, counts: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """By how many standard deviations the k-th best other class is ahead of the label [b]."""
        own = counts.gather(1, labels[:, None])[:, 0]
        other = counts.scatter(1, labels[:, None], -1).topk(self.k, dim=1).values[:, -1]
        return (other - own) / (other + own).clamp(min=1).double().sqrt()

    def _votes(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Counts [b, classes] of the votes on views of x [b, ...] made from words [views, 1, …]."""
        counts = torch.zeros(len(x), self.num_classes, dtype=torch.int64, device=self.device)
        with torch.no_grad(), in_precision(self.smoothed.network.precision, self.device):
            for some, into in zip(x.split(self._rows), counts.split(self._rows), strict=True):
                for part in words.split(max(1, self._rows // len(some))):
                    into += self._counted(self._all.scores(some, part))
        self.views += len(x) * len(words)
        return counts

    def _counted(self, scores: torch.Tensor) -> torch.Tensor:
        """Counts [b, classes] of scores [views, b, classes]."""
        refuse_nan(scores.flatten(0, 1))
        if self._threshold is not None:
            return (scores.softmax(dim=2) >= self._threshold).sum(dim=0)
        votes = votes_of(scores.flatten(0, 1)).view(scores.shape[:2])
        return torch.nn.functional.one_hot(votes, self.num_classes).sum(dim=0)

    def confirm(self, x: Given, seed: int, alpha: float = CONFIRM_ALPHA) -> tuple[Ints, Ints]:
        given = self.units.given(x) if isinstance(x, torch.Tensor) else x
        settings: dict[str, Any] = {} if not self.sampled else {"n": self.fresh_votes, "alpha": alpha, "seed": seed}
        answers = self.smoothed.predict(given, k=self.k, progress=False, **settings)
        self.views += int(answers.counts.sum())
        return np.asarray(answers.labels.filled(-1), dtype=np.int64), answers.counts

    @property
    def fresh_votes(self) -> int:
        """How many fresh votes confirm an answer: fewer than asked for where the noise deviates from its law."""
        votes = self.confirm_votes
        deviation = self.law.deviation(self._shape, self.levels) if isinstance(self.law, Law) else 0.0
        most = votes if deviation == 0 else int(CONFIRM_ALPHA / 2 / deviation)
        least = least_votes(self.k, CONFIRM_ALPHA / 2)
        if min(votes, most) < least:
            reason = f"the noise deviates by {deviation:.3g} in each view" if most < votes else "too few votes"
            raise BadInput(
                f"{min(votes, most)} fresh votes cannot confirm an answer at error {CONFIRM_ALPHA:g}: {reason}"
            )
        return min(votes, most)


class BaseTarget(Target):
    """A base classifier without smoothing: its scores are followed, and its best class is its answer."""

    def __init__(
        self,
        model: Model | BaseClassifier,
        num_classes: int | None = None,
        *,
        device: torch.device | str | None = None,
        levels: int | None = LEVELS,
        k: int = 1,
        input_range: tuple[float, float] | None = (0.0, 1.0),
        standardise: Standardisation | None = None,
    ):
        base = model if isinstance(model, BaseClassifier) else BaseClassifier(model)
        module, classes = base.module, num_classes or base.num_classes
        if isinstance(module, torch.nn.Module):
            device = device or next((p.device for p in module.parameters()), None)
            module = copy.deepcopy(module).eval().requires_grad_(False)
        self.num_classes, self.device = check_num_classes(classes), torch.device(device or "cpu")
        super().__init__(k, levels, input_range, standardise)
        if isinstance(module, OnnxNetwork):
            module = RunByBackend(Network(module, self.device))
        self.base, self._module = base, module

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        self.views += len(x)
        return scores_of(self._module, x.to(self.device), self.num_classes).log_softmax(dim=1)

    def hard(self, x: torch.Tensor) -> torch.Tensor:
        """The ranks of scores, as counts: the best class has the most."""
        with torch.no_grad():
            rows = choose_rows(x.shape[1:], self.device)
            scores = torch.cat([scores_of(self._module, part, self.num_classes) for part in x.split(rows)])
        refuse_nan(scores)
        self.views += len(x)
        order = scores.sort(dim=1, descending=True, stable=True).indices
        ranks = torch.arange(self.num_classes, 0, -1, device=scores.device).expand_as(order)
        return torch.zeros_like(order).scatter(1, order, ranks)

    def adversarial(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self._outside_top(self.hard(x), labels)

    def lead(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = choose_rows(x.shape[1:], self.device)
        with torch.no_grad():
            parts = zip(x.split(rows), labels.split(rows), strict=True)
            return torch.cat([self.margin(some, own) for some, own in parts])

    def confirm(self, x: Given, seed: int, alpha: float = CONFIRM_ALPHA) -> tuple[Ints, Ints]:
        counts = self.hard(x if isinstance(x, torch.Tensor) else self.units.read(x).to(self.device))
        return counts.topk(self.k, dim=1).indices.cpu().numpy(), counts.cpu().numpy()


def _needed_lead(votes: int, fresh: int, abstain: float | None) -> float:
    """By how many standard deviations of `votes` votes another class must be ahead (below 0: may be behind) in a search.

    Fresh votes abstain at alpha where the label leads by less than z(alpha / 2) of their own standard deviations, which is
    sqrt(votes / fresh) times as many of the search's. A search with as many votes as decide is itself the decision.
    """
    if abstain is None:
        return _AHEAD
    margin = _AHEAD_OF_ABSTENTION if votes < fresh else 0.0
    return margin + float(ndtri(abstain / 2)) * math.sqrt(min(1.0, votes / fresh))


def _in_arithmetic(smoothed: SmoothedClassifier, levels: int | None) -> SmoothedClassifier:
    """The same classifier; for floats one that makes their views in float arithmetic even where they are on the grid."""
    if levels is not None or smoothed.arithmetic == "float":
        return smoothed
    other = copy.copy(smoothed)
    other.arithmetic, other._samplers = "float", {}
    return other
