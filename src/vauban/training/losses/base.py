"""What a loss is given and what it computes; losses are added by name, and by other packages as entry points."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass

import torch
from torch.nn.functional import cross_entropy

from vauban.errors import BadInput
from vauban.registry import Registry
from vauban.smoothing import Smoothing
from vauban.specs import Parameter, Spec, flag, read_params

Scores = torch.Tensor | Sequence[torch.Tensor]

_PLUS = re.compile(r"\+(?![\d.])")  # not that of a number such as 1e+5


@dataclass(frozen=True)
class Batch:
    """What a loss is given for one training step.

    `network`: from views [rows, ...] to scores [rows, classes], in training mode. `x` [b, ...]: uint8 pictures on the grid of
    `levels`, or floats (`levels` None). `labels`: int64 [b], or probabilities [b, classes]. `words(count)`: new random words
    at every call, int64 [count, b, words of a view]; `words(count, n)`: n words a view. `done`: the fraction of training that is
    done, 0 to 1 (on a GPU a tensor).
    """

    network: torch.nn.Module
    x: torch.Tensor
    labels: torch.Tensor
    smoothing: Smoothing
    levels: int | None
    words: Callable[..., torch.Tensor]
    done: float | torch.Tensor = 0.0
    label_smoothing: float = 0.0

    @property
    def pictures(self) -> torch.Tensor:
        """`x` as floats, where 1 is the highest level."""
        return self.x.float() if self.levels is None else self.x.float() / self.levels

    @torch.no_grad()
    def made(self, words: torch.Tensor) -> torch.Tensor:
        """Views of `x` from words [count, b, …]: float32 [count * b, ...], the first view of every picture first."""
        return self.smoothing.views(repeated(self.x, len(words)), words.flatten(0, 1), self.levels)

    def differentiable(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Views of float pictures x [b, ...] in [0, 1], in the order of `made`, differentiable in x."""
        return self.smoothing.differentiable(repeated(x, len(words)), words.flatten(0, 1), self.levels)

    def scores(self, views: torch.Tensor) -> torch.Tensor:
        """The network's scores [count, b, classes] of views [count * b, ...], in float32 or better."""
        return widened(self.network(views)).unflatten(0, (-1, len(self.x)))


class Loss:
    """Makes views of a batch, and returns a loss and the scores of the views.

    A loss has up to three parts: how views are made (`views_of`), a classification term, and a penalty; `Sum` combines the parts
    of several losses. A subclass is a frozen dataclass, whose fields are the keys of its text form.
    """

    views: int = 1
    changes_views: bool = False
    uses_labels: bool = True
    classifies: bool = True  # whether the network returns scores of classes
    compares_inputs: bool = False  # whether a batch of one input has no gradient
    learns_features: bool = False  # whether views are the loss's own, of no smoothing, and the last layer is left out

    def view_shape(self, smoothing: Smoothing, shape: torch.Size) -> tuple[int, ...]:
        """The shape of a view of an input, as the network sees it."""
        return tuple(smoothing.view_shape(shape))

    def __call__(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of a batch, a scalar, and the scores [views, b, classes] it was computed from."""
        self.check(batch.smoothing, soft_labels=batch.labels.is_floating_point())
        self.check_shape(batch.smoothing, batch.x.shape[1:])
        scores = batch.scores(self.views_of(batch, self.views))
        loss = self.classification(scores, batch.labels, batch.label_smoothing)
        penalty = self.penalty(scores, batch)
        return (loss if penalty is None else loss + penalty), scores

    def __str__(self) -> str:
        """The text form, without parameters that have their default values."""
        name = next((name for name, kind in LOSSES.items() if kind is type(self)), type(self).__name__)
        defaults: dict[str, object] = {key.name: key.default for key in fields(self)} if is_dataclass(self) else {}
        values = {key: getattr(self, key) for key in defaults}
        return str(Spec(name, {key: _written(value) for key, value in values.items() if value != defaults[key]}))

    def around(self, network: torch.nn.Module, seed: int) -> torch.nn.Module:
        """The module that is trained: the network itself, or with layers of the loss behind it, of random weights by `seed`."""
        return network

    def check(self, smoothing: Smoothing, soft_labels: bool = False) -> None:
        """Refuse a smoothing, or labels that are probabilities, with which the loss has no meaning."""

    def check_shape(self, smoothing: Smoothing, shape: torch.Size) -> None:
        """Refuse pictures of a shape whose views the loss cannot use."""

    def views_of(self, batch: Batch, count: int) -> torch.Tensor:
        """`count` views of each picture, [count * b, ...]."""
        return batch.made(batch.words(count))

    def classification(self, scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        """How badly views are classified: mean cross-entropy over all of them."""
        return mean_cross_entropy(scores, labels, label_smoothing)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor | None:
        """What is added to the classification term, if anything; any number of views from `views` on may be given."""
        return None


class Sum(Loss):
    """Several losses: the views of the one that changes them, the most views, the first classification term, all penalties."""

    def __init__(self, losses: Sequence[Loss]):
        changing = [loss for loss in losses if loss.changes_views]
        if len(changing) > 1:
            raise BadInput(f"{' and '.join(map(str, changing))} both make views of their own: leave one of them out")
        if any(not loss.uses_labels for loss in losses):
            raise BadInput(
                f"{'+'.join(map(str, losses))}: losses without labels are not added to others: give one alone"
            )
        self.losses, self.changes_views = tuple(losses), bool(changing)
        self.views = max(loss.views for loss in losses)
        self._makes_views = changing[0] if changing else losses[0]

    def check(self, smoothing: Smoothing, soft_labels: bool = False) -> None:
        for loss in self.losses:
            loss.check(smoothing, soft_labels)

    def check_shape(self, smoothing: Smoothing, shape: torch.Size) -> None:
        for loss in self.losses:
            loss.check_shape(smoothing, shape)

    def views_of(self, batch: Batch, count: int) -> torch.Tensor:
        return self._makes_views.views_of(batch, count)

    def classification(self, scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        return self.losses[0].classification(scores, labels, label_smoothing)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor | None:
        penalties = [penalty for loss in self.losses if (penalty := loss.penalty(scores, batch)) is not None]
        return torch.stack(penalties).sum() if penalties else None

    def __repr__(self) -> str:
        return f"Sum({', '.join(map(repr, self.losses))})"

    def __str__(self) -> str:
        return "+".join(map(str, self.losses))


class LossRegistry(Registry[type[Loss]]):
    """Subclasses of `Loss` by name."""

    group, kind = "vauban.losses", "loss"

    def accept(self, thing: object) -> type[Loss]:
        if not (isinstance(thing, type) and issubclass(thing, Loss) and is_dataclass(thing)):
            raise BadInput(f"{thing!r} is no loss: a dataclass that is a subclass of vauban.losses.Loss is needed")
        return thing


LOSSES = LossRegistry()


def build(text: str) -> Loss:
    """A loss, or a sum of losses joined by +, from its text form.

    >>> build("stability:weight=3")
    Stability(weight=3.0)
    >>> build("noise+consistency").views
    2
    """
    if not isinstance(text, str):
        raise BadInput(f"loss={text!r}: the text of a loss is needed, such as stability:weight=6")
    parts = [part.strip() for part in _PLUS.split(text)]
    if not all(parts):
        side = "after" if not parts[-1] else "before"
        what = f"{text!r}: a loss is missing {side} the +" if len(parts) > 1 else f"loss={text!r}: no loss is named"
        raise BadInput(f"{what}; write stability, or several such as stability+consistency")
    losses = [_one(Spec.parse(part)) for part in parts]
    return losses[0] if len(losses) == 1 else Sum(losses)


def _one(spec: Spec) -> Loss:
    kind = LOSSES[spec.name]
    parameters = {}
    for key in fields(kind):  # type: ignore[arg-type]
        required, default = key.default is MISSING, None if key.default is MISSING else key.default
        read = flag if isinstance(default, bool) else float if default is None else type(default)
        parameters[key.name] = Parameter(read, default, required=required, example=f"{key.name}" if required else "")
    return kind(**read_params(spec, parameters))


def check_numbers(loss: Loss, *keys: str, low: float, above: bool = False, high: float = math.inf) -> None:
    """Refuse a loss one of whose parameters `keys` is not finite, below `low` (with `above`: or equal to it) or above `high`."""
    for key in keys:
        value = getattr(loss, key)
        if (value > low if above else value >= low) and value <= high and math.isfinite(value):
            continue
        kind = "whole" if isinstance(value, int) else "finite"
        needed = f"{'above' if above else 'of at least'} {low}" + ("" if math.isinf(high) else f" and at most {high}")
        raise BadInput(f"{loss}: {key} must be a {kind} number {needed}")


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def stacked(scores: Scores) -> torch.Tensor:
    """Scores [views, batch, classes] from such a tensor, a sequence of [batch, classes], or one of these; float32 or better."""
    together = scores if isinstance(scores, torch.Tensor) else torch.stack(tuple(scores))
    if together.dim() not in (2, 3):
        raise BadInput(f"scores of shape {tuple(together.shape)}: [views, batch, classes] is needed")
    return widened(together if together.dim() == 3 else together[None])


def widened(scores: torch.Tensor) -> torch.Tensor:
    """Scores of 16 bits as float32, others as they are."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def repeated(x: torch.Tensor, count: int) -> torch.Tensor:
    """[b, ...] repeated to [count * b, ...], one after another."""
    return x if count == 1 else x.expand(count, *x.shape).flatten(0, 1)


def check_labels(labels: torch.Tensor, batch: int, classes: int | None = None) -> None:
    """Refuse labels that are neither int64 [batch] nor probabilities [batch, classes]; `classes`: None where it is not known.

    Labels that are no classes are refused on the CPU alone: to read those on a GPU is to wait for it.
    """
    needed = f"int64 [{batch}], one for each input, or probabilities [{batch}, {classes or 'classes'}]"
    if not isinstance(labels, torch.Tensor):
        raise BadInput(f"labels are a {type(labels).__name__}: a tensor is needed, {needed}")
    soft = labels.is_floating_point()
    sides = (batch,) if not soft else (batch, classes or labels.shape[-1])
    if tuple(labels.shape) != sides or labels.dtype in (torch.bool, torch.int8, torch.int16, torch.int32):
        kind = str(labels.dtype).removeprefix("torch.")
        advice = "" if tuple(labels.shape) != sides else ": labels.long()"
        raise BadInput(f"labels are {kind} {list(labels.shape)}, and needed are {needed}{advice}")
    reads = labels.device.type == "cpu" and not torch.compiler.is_compiling() and labels.numel() > 0
    if classes is None or soft or not reads:
        return
    low, high = int(labels.min()), int(labels.max())
    if not 0 <= low <= high < classes:
        raise BadInput(
            f"labels from {low} to {high}, and scores of {classes} classes: labels from 0 to {classes - 1} are needed; leave "
            "inputs without a label out"
        )


def mean_cross_entropy(scores: Scores, labels: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
    """Mean cross-entropy over all views; `labels`: int64 [batch], or probabilities [batch, classes]."""
    together = stacked(scores)
    check_labels(labels, *together.shape[1:])
    return cross_entropy(together.flatten(0, 1), repeated(labels, len(together)), label_smoothing=label_smoothing)
