"""The base classifier in the engine: precision, memory layout, scores, votes, and the check that it judges each view by itself.

The caller's module is left as it was: in evaluation mode while it votes, copied where it needs another type or memory layout.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from vauban.engine.adapters.outputs import scores_in, wrong_shape
from vauban.engine.block_convolution import BlockConvolution, replace_by_blocks
from vauban.engine.failed_calls import failed_call, not_comparable
from vauban.errors import BadInput, VaubanError
from vauban.files import arrays_sha256, floats_hex
from vauban.laws.law import AnyLaw
from vauban.laws.subsets import separating
from vauban.models.layouts import channels_last_is_faster, same_scores, trial_scores, trial_views
from vauban.models.unchanged import IS_RANDOM, State
from vauban.runs.sections import ComputeSection
from vauban.smoothing.trained_views import trained_views, warn_of_other_views
from vauban.validation import check_precision, check_way_of_running

Model = Callable[[torch.Tensor], Any]

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class BaseClassifier:
    """A model and its description. `spec`: its text form; `fingerprint`: sha256 of its code and tensors, None if not computed
    yet; `num_classes`, `channels`: None where unknown."""

    module: Model
    spec: str | None = None
    fingerprint: str | None = None
    num_classes: int | None = None
    channels: int | None = None

    def current_fingerprint(self) -> str | None:
        """The fingerprint of the module as it is now."""
        return self.fingerprint

    def warn_if_trained_for_other_views(self, law: AnyLaw) -> None:
        """Warn if the model is known to be trained on views of another law."""
        warn_of_other_views(trained_views(self.module), law, stacklevel=3)


@dataclass
class Network:
    """A base classifier in one precision and memory layout.

    `channels_last`: whether weights and views are channels-last; None lets `prepare` choose the faster layout. `model` votes: the
    caller's own, or a copy with its tensors. `stochastic`: how a base classifier that is random by design is called: "views", one
    view at a time, "rows", many views whose votes are declared independent; None for one that always gives the same answer.
    `backend`: None is torch or a resumed run's; `runner`: the network in it, None for torch; `prepared`: how often `prepare` ran.
    """

    source: Model
    device: torch.device
    precision: str = "fp32"
    channels_last: bool | None = None
    stochastic: str | None = None
    backend: str | None = None
    model: Model = field(init=False)
    runner: Any = field(init=False, default=None)
    prepared: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        check_precision(self.precision, self.device.type)
        check_way_of_running(self.backend, self.stochastic)
        self.model = self.source

    def prepare(self, shape: Sequence[int], keep: bool = False, of_run: str | None = None) -> None:
        """Choose the layout for views of this shape, and copy the module if it needs another type or layout.

        `keep`: load current tensors into an earlier copy, to which compiled programs refer. `of_run`: a resumed run's backend.
        """
        self.runner, self.prepared = self._runner(keep, of_run), self.prepared + 1
        self.model = self.runner or (self.model if isinstance(self.model, nn.Module) else self.source)
        if self.runner is not None:
            return
        dimensions, chooses = len(shape), self.channels_last is None and self.stochastic is None
        if dimensions != 3 or not isinstance(self.source, nn.Module):
            self.channels_last = bool(self.channels_last) and dimensions == 3
        if not isinstance(self.source, nn.Module):
            return
        if self.channels_last is None:
            self.channels_last = channels_last_is_faster(self.source, dimensions, self.device, self.precision)
        if keep and isinstance(self.model, nn.Module) and self.model is not self.source:
            self.model.load_state_dict(self.source.state_dict())
        elif self.precision in _DTYPES or self.channels_last:
            self.model = self._copied(self.source, shape if chooses else None)

    def _runner(self, compile: bool, of_run: str | None) -> Any:
        """The network in its backend, None for torch; the common case, which needs no choice, loads no further file."""
        special = self.precision == "bf16" or hasattr(self.source, "check_shape")
        if special or not {self.backend, of_run} <= {None, "torch"}:
            from vauban.engine.backends.choice import runner_for

            return runner_for(self, compile, of_run)

    def _copied(self, source: nn.Module, tried: Sequence[int] | None = None) -> nn.Module:
        """A copy in the network's type and layout. `tried`: a shape of views for which both layouts must give the same scores,
        or the plain one stays; some models, such as those that call `view` after a convolution, work in that one alone."""
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
            views = trial_views(tried, next(working.parameters())).to(self.dtype) if tried else None
            plain = None if views is None else _tried(working, views)
            if self.device.type != "cpu" and self.precision == "bf16":
                replace_by_blocks(working)
            working.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            if views is not None and not same_scores(plain, _tried(working, self.laid_out(views))):
                self.channels_last = False
                return self._copied(source) if self.precision in _DTYPES else source
        return working

    def fit(self, shape: Sequence[int]) -> None:
        """Compile a backend's program for views [rows, ...]; torch takes over where `auto` chose one that cannot run them."""
        if self.runner is not None and not self.runner.fit(tuple(shape)):
            self.backend, self.runner, self.model = "torch", None, self.source
            self.prepare(shape[1:])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into evaluation mode, and restore the mode of each of its modules afterwards."""
        voting = self.model if self.runner is None else self.source
        parts = list(voting.modules()) if isinstance(voting, nn.Module) else []
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
        """The type of the views that the network takes."""
        return torch.float32 if self.runner is not None else _DTYPES.get(self.precision, torch.float32)

    def laid_out(self, views: torch.Tensor) -> torch.Tensor:
        """Views in the network's type and memory layout."""
        views = views.to(self.dtype)
        plain = self.runner is not None or not self.channels_last
        return views if plain else views.contiguous(memory_format=torch.channels_last)

    def making_views(self) -> AbstractContextManager[None]:
        """Held while views are made: with one thread on a GPU, and where a library with threads of its own runs the network."""
        return threads(1) if self.device.type == "cuda" or getattr(self.runner, "own_threads", False) else nullcontext()

    def scores(self, views: torch.Tensor, num_classes: int) -> torch.Tensor:
        """Scores [rows, num_classes] of views in the network's type and layout."""
        return scores_of(self.model, views, num_classes)

    def section(self, **shape: Any) -> ComputeSection:
        """What a manifest says of the network; `shape`: rows, block, compile and rows_differ."""
        return ComputeSection(
            precision=self.precision,
            device=device_name(self.device),
            threads=torch.get_num_threads(),
            channels_last=bool(self.channels_last and self.runner is None),
            torch=str(torch.__version__),
            by_blocks=self.by_blocks or None,
            stochastic=self.stochastic,
            backend=None if self.runner is None else self.runner.describe(),
            **shape,
        )


@contextmanager
def in_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Let matrix products and convolutions on a GPU use TF32 if the precision is "tf32", and not otherwise."""
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
    """Let torch compute with `count` threads, and restore the number afterwards."""
    before = torch.get_num_threads()
    try:
        if count != before:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


def device_name(device: torch.device) -> str:
    """The name of the device, with the details that can change a network's scores."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else device.type


def scores_of(model: Model, views: torch.Tensor, num_classes: int) -> torch.Tensor:
    """The model's scores [rows, num_classes] for a batch of views, or an error that says what it returned instead.

    Scores of 16 bits are converted to float32, which is exact.
    """
    scores = model(views) if torch.compiler.is_compiling() else called(model, views)
    if not isinstance(scores, torch.Tensor):
        scores = scores_in(scores, views, num_classes)
    if scores.shape != (len(views), num_classes):
        raise wrong_shape(scores, len(views), num_classes)
    if scores.is_complex():
        raise BadInput(f"the model returned scores of type {scores.dtype}: numbers that can be compared are needed")
    if not scores.is_floating_point():
        return scores.double()
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def called(model: Model, views: torch.Tensor) -> Any:
    """What the model returns; what it raises, sys.exit too, becomes a `ModelFailed` that says in which call."""
    try:
        return model(views)
    except (VaubanError, torch.cuda.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as problem:
        raise failed_call(model, views, problem) from problem


def votes_of(scores: torch.Tensor) -> torch.Tensor:
    """One vote per view [rows]: the class of the highest score (the first of equals), num_classes where a score is NaN."""
    best, votes = scores.max(dim=1)
    return votes.masked_fill_(best.isnan(), scores.shape[1])


def probe_entries(views: torch.Tensor, scores: torch.Tensor) -> tuple[str, str, str]:
    """What a manifest keeps of probe views: their sha256, that of their scores, and some of these scores; in float32."""
    shown, given = (tensor.float().cpu().contiguous().numpy() for tensor in (views, scores))
    return arrays_sha256(shown), arrays_sha256(given), floats_hex(given)


def refuse_nan(scores: torch.Tensor) -> None:
    """Refuse scores [rows, classes] of which some are NaN."""
    bad = int((votes_of(scores) == scores.shape[1]).sum())
    if bad:
        raise not_comparable(bad)


def check_independence(
    reordered: Callable[[torch.Tensor], torch.Tensor],
    parts: int,
    model: Model,
    check: Callable[[torch.Tensor], None] = lambda scores: None,
    most_repeats: int = 20,
    earlier: dict[Any, Any] | None = None,
    further: int = 0,
) -> bool:
    """Refuse a base classifier whose scores for a view depend on chance or on the other views of a batch: votes would not be
    independent. Returns whether the scores are also the same wherever in the batch a view stands.

    `reordered(order)`: scores [rows, classes] of the shape whose i-th part is part order[i] of 2 * parts + `further`, int64
    [parts]; a part is a view, or a block of views. Shapes are run in which some parts are replaced, so that of any two either
    stays while the other is replaced, and shapes in which one part stands in the place of nearly all, each `further` one too:
    scores of parts that stay must match bit for bit. The same shape is run 3 times, and more often until there were
    `most_repeats` calls or two seconds have passed. `check` may refuse the first scores. `earlier` holds those of an earlier
    check, which must be the same. Where a module asks some networks about some views only (`probing`, `asks_some`), all this is
    done a second time while it asks them about half of all views.
    """
    modules: Any = model.modules() if isinstance(model, nn.Module) else ()
    sometimes = [one for one in modules if getattr(one, "probing", True) is False and getattr(one, "asks_some", True)]
    earlier = {} if earlier is None else earlier
    try:
        for one in sometimes:
            one.probing = True
        kept = earlier.setdefault("probing", {}) if sometimes else None
        agree = not sometimes or check_independence(reordered, parts, model, check, LEAST_REPEATS, kept, further)
    finally:
        for one in sometimes:
            one.probing = False
    own = torch.arange(parts)

    def scores(order: torch.Tensor) -> torch.Tensor:
        found = reordered(order)
        return found.cpu().clone().view(parts, -1, found.shape[1])

    state, began = State.of(model), time.monotonic()
    first = scores(own)
    calls = min(most_repeats, int(_PROBE_SECONDS / max(time.monotonic() - began, 1e-6)))
    check(first.flatten(0, 1))
    state.refuse_change(model)
    known, subsets = earlier.get(parts, first), torch.tensor(separating(parts))
    shifts = max(1, _LEAST_NEIGHBOURS // max(1, len(subsets)))
    repeats = max(LEAST_REPEATS, calls - shifts * len(subsets)) if known is first else 1
    if not all(torch.equal(known, first if i == 0 else scores(own)) for i in range(repeats)):
        raise BadInput(f"the model gave two answers to the same views: {IS_RANDOM}")
    for replaced, shift in itertools.product(subsets, range(shifts)):
        found = scores(torch.where(replaced, (own + shift) % parts + parts, own))
        if not torch.equal(first[~replaced], found[~replaced]):
            raise BadInput(DEPENDS)
    _refuse_crowds(scores, first, own, further, _CROWDS if calls >= most_repeats else _LEAST_CROWDS)
    agree &= _rows_agree(scores, first, own)
    state.refuse_change(model)
    earlier[parts] = first
    return agree


def _refuse_crowds(
    scores: Callable[[torch.Tensor], torch.Tensor], first: torch.Tensor, own: torch.Tensor, further: int, crowds: int
) -> None:
    """Refuse scores that change where all other parts are one and the same: a mean or a majority moves farthest then."""
    parts = len(own)
    stays = (own == 0) | (own == parts // 2)
    unlike = range(2 * parts, 2 * parts + further)
    for neighbour in [*unlike, *(2 * parts * i // crowds for i in range(crowds))]:
        try:
            found = scores(torch.where(stays, own, neighbour))
        except VaubanError:  # a view that no smoothing makes may be refused
            if neighbour in unlike:
                continue
            raise
        if not torch.equal(first[stays], found[stays]):
            raise BadInput(DEPENDS)


def with_extremes(views: torch.Tensor) -> torch.Tensor:
    """The views [n, ...] and two more, of nothing but their smallest and of nothing but their largest value."""
    return torch.cat([views, torch.stack([torch.full_like(views[0], float(value)) for value in views.aminmax()])])


def _rows_agree(scores: Callable[[torch.Tensor], torch.Tensor], first: torch.Tensor, own: torch.Tensor) -> bool:
    """Whether parts in other places have the scores that they had `first`, bit for bit; refused if they differ by more than
    rounding."""
    agree = True
    for order in (own.roll(1), own.flip(0)):
        expected, found = first[order].flatten(0, 1), scores(order).flatten(0, 1)
        agree &= torch.equal(expected, found)
        changed = (votes_of(expected) != votes_of(found)).float().mean()
        if changed > _CHANGED_VOTES or (expected - found).abs().max() > _ROUNDING * (expected.max() - expected.min()):
            raise BadInput(
                "the model's answer to a view depends on the row it is in, by more than rounding: a base classifier that judges "
                "each view by itself is needed"
            )
    return agree


DEPENDS = (
    "the model's answer to a view depends on the other views of the batch: a base classifier that judges each view by itself is "
    "needed (is a normalisation layer still training? call model.eval())"
)
LEAST_REPEATS = 3
_PROBE_SECONDS, _LEAST_NEIGHBOURS = 2.0, 8
_CROWDS, _LEAST_CROWDS = 8, 2  # views each of which once stands in the place of nearly all others; of slow models
_ROUNDING = 1e-2  # of the range of scores: what the rounding of any precision may change from row to row
_CHANGED_VOTES = 1e-2  # of the views: those so close to a tie that rounding decides


def _tried(model: nn.Module, views: torch.Tensor) -> torch.Tensor | None:
    """The scores of a model in evaluation mode, None where it fails; refused if the call changes it."""
    for part in model.modules():
        part.training = False  # not model.eval(), which a class may have made do something else
    state = State.of(model)
    found = trial_scores(model, views)
    state.refuse_change(model)
    return found
