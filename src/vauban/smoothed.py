"""The front door: a base classifier and a smoothing become a classifier whose answers carry proofs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.bounds.ranks import leaders, least_votes
from vauban.certificates.exact import Ballots, ExactLaw
from vauban.certificates.law import AnyLaw, Law
from vauban.claims import (
    Certificates,
    check_alpha,
    check_k,
    check_settings,
    default_bounds,
    derive,
    derive_exact,
    derive_stopped,
    refuse_sampled_settings,
)
from vauban.errors import BadInput
from vauban.inputs import Inputs, check_labels, prepare
from vauban.seed import Seed
from vauban.smoothing import Smoothing, build
from vauban.stopping.rules import Rule
from vauban.stopping.ways import Anytime, Fixed, Stop
from vauban.stopping.ways import stop as stop_of
from vauban.voting.choosing import VoterMaker, choose_in_flight, choose_rows
from vauban.voting.compiled import TUNED
from vauban.voting.enumerator import Enumerator, as_ballots
from vauban.voting.inquiry import Inquiry, counted_at, until_decided
from vauban.voting.poll import Counted, Poll
from vauban.voting.precision import cast, check_precision
from vauban.voting.scores import Model
from vauban.voting.voter import Voter

Tick = Callable[[int], None]

CERTIFY_VOTES, PREDICT_VOTES, CHOOSING_VOTES = 100_000, 1_000, 100
DEFAULT_ALPHA = 1e-3


@dataclass(frozen=True)
class Predictions:
    """The smoothed classifier's top k for m inputs: iterate for a tuple of labels each, or None where undecided.

    `labels` [m, k]: masked where undecided, best first. `abstained` [m]: which inputs are undecided. `counts` [m, c].
    """

    labels: np.ma.MaskedArray
    abstained: NDArray[np.bool_]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.abstained)

    def __getitem__(self, i: int) -> tuple[int, ...] | None:
        return None if self.abstained[i] else tuple(int(label) for label in self.labels[i])

    def __iter__(self) -> Iterator[tuple[int, ...] | None]:
        return (self[i] for i in range(len(self)))


class SmoothedClassifier:
    """The vote's winner among views: the only thing a certificate speaks of.

    `model`: any callable from a batch of views, float32 [rows, ...], to scores [rows, num_classes] that judges each view by
    itself, whatever else is in the batch; a module is put in evaluation mode. `smoothing`: an object or its text. `rows`: the
    compute shape, how many views a forward pass sees; `in_flight`: how many such shapes are made before they vote; None
    chooses both by size (and a GPU's free memory). `block`: how many consecutive views of one input stand together in a
    shape; None is all of it for a fixed number of votes and about 100 otherwise. `arithmetic`: "auto", "grid" or "float" (see
    `inputs.prepare`). `input_range`: what inputs may hold, None for anything. `precision`: "fp32", "tf32", "bf16" or "fp16",
    in which the network answers: views are made in float32 and cast, a module is copied and cast; a claim in one precision
    says nothing of another. `compile`: let torch.compile make one program of a shape's work, "tuned" after timing kernels for
    every convolution (a minute or two on a GPU); where it fails, a warning.

    >>> import torch, vauban as vb
    >>> above = lambda views: torch.stack([0.5 - views.mean(dim=1), views.mean(dim=1) - 0.5], dim=1)
    >>> smoothed = vb.SmoothedClassifier(above, vb.Gaussian(sigma=0.25), num_classes=2)
    >>> certs = smoothed.certify(torch.ones(1, 4), y=[1], n=1_000, seed=1)
    >>> certs.abstained.tolist(), bool(0 < certs.radius[0] < 1)
    ([False], True)
    """

    def __init__(
        self,
        model: Model,
        smoothing: Smoothing | str,
        *,
        num_classes: int,
        device: torch.device | str | None = None,
        rows: int | None = None,
        in_flight: int | None = None,
        arithmetic: str = "auto",
        input_range: tuple[float, float] | None = (0.0, 1.0),
        channels_last: bool = False,
        block: int | None = None,
        precision: str = "fp32",
        compile: bool | str = False,
    ):
        if not callable(model):
            raise BadInput(f"model {model!r} cannot be called: anything that maps a batch of views to scores is needed")
        if not isinstance(smoothing, Smoothing | str):
            raise BadInput(
                f"smoothing {smoothing!r}: a smoothing or its text is needed, for example gaussian:sigma=0.5"
            )
        if rows is not None and rows < 1:
            raise BadInput(f"rows={rows}: a forward pass needs one view or more")
        if num_classes < 2:
            raise BadInput(f"num_classes={num_classes}: at least two classes are needed")
        if isinstance(model, torch.nn.Module):
            model.eval()
            device = device or next((p.device for p in model.parameters()), None)
        self.device = torch.device(device or "cpu")
        self.precision = check_precision(precision, self.device)
        self.model = cast(model, precision)
        self.smoothing = build(smoothing) if isinstance(smoothing, str) else smoothing
        self.num_classes = num_classes
        self.rows = rows
        self.block = block
        if compile not in (False, True, TUNED):
            raise BadInput(f"compile={compile!r}: True, False or {TUNED!r}")
        self.compile = compile
        self.in_flight = in_flight
        self.arithmetic = arithmetic
        self.input_range = input_range
        self.channels_last = channels_last
        self._voters = VoterMaker()

    def predict(
        self,
        x: Any,
        *,
        k: int = 1,
        n: int | None = None,
        alpha: float | None = None,
        seed: int | None = None,
        tick: Tick | None = None,
    ) -> Predictions:
        """The top k labels of each input of `x` [m, ...], or undecided. [Jia2020] PREDICT

        From n votes (1,000) each answer is wrong with probability at most alpha (0.001). Where the smoothing is exact every
        view votes, and every answer is the smoothed classifier's.
        """
        inputs = self.prepare(x)
        self.predict_votes(k=k, n=n, alpha=alpha, seed=seed, inputs=inputs)
        if self.exact:
            counts = self.ballots(inputs, tick).counts
            order = np.argsort(-counts, axis=1, kind="stable")[:, :k]
            return Predictions(np.ma.masked_array(order, False), np.zeros(len(order), dtype=bool), counts)
        n, alpha = PREDICT_VOTES if n is None else n, DEFAULT_ALPHA if alpha is None else alpha
        alpha_left = self.predict_alpha(k=k, n=n, alpha=alpha, inputs=inputs)
        counts = self._count_all(inputs, Seed.of(seed), "predict", n, tick)
        labels, undecided = leaders(counts, k, alpha_left)
        masked: np.ma.MaskedArray = np.ma.masked_array(labels, np.repeat(undecided[:, None], k, axis=1))
        return Predictions(masked, undecided, counts)

    def certify(
        self,
        x: Any,
        y: Any = None,
        *,
        k: int = 1,
        n: int | None = None,
        alpha: float | None = None,
        bounds: str | None = None,
        n0: int | None = None,
        stop: Stop | str = "fixed",
        seconds: float | None = None,
        seed: int | None = None,
        tick: Tick | None = None,
    ) -> Certificates:
        """How far each input of `x` [m, ...] may be changed while its label stays in the top k. [Jia2020] CERTIFY

        With `y` [m] that label is certified. Without (k = 1), `n0` votes (100) that are not counted choose it. From n votes
        (100,000) each claim is wrong with probability at most alpha (0.001). `bounds`: "binocp" (default for k = 1), "simuem"
        (default above) or "half". Where the smoothing is exact every view votes, claims hold without probability, and none of
        these may be given; without `y` the label with the most votes is certified.

        `stop`: "fixed" casts all n votes. "target:radius=0.5" stops each input once that radius is certified or hopeless,
        "grid:step=0.25" once no larger multiple of the step is in sight, after n votes at the latest: the same confidence for
        a small part of the votes, which differ from input to input. "anytime" goes on for so many `seconds`, or until Ctrl-C.
        All three watch the label's count alone (BinoCP): above k = 1 a fixed n with "simuem" may certify more.
        """
        inputs = self.prepare(x)
        how = stop_of(stop) if isinstance(stop, str) else stop
        fixed = isinstance(how, Fixed)
        if self.exact:
            asked = None if fixed else how.spec
            refuse_sampled_settings(
                str(self.smoothing.spec), stop=asked, seconds=seconds, n=n, alpha=alpha, bounds=bounds, n0=n0, seed=seed
            )
            return self._certify_exactly(inputs, y, k, tick)
        n = CERTIFY_VOTES if n is None and not isinstance(how, Anytime) else n
        alpha, n0 = DEFAULT_ALPHA if alpha is None else alpha, CHOOSING_VOTES if n0 is None else n0
        check_seconds(how, seconds, needed=True)
        if y is None and k != 1:
            raise BadInput(f"k={k} without y: give the label to certify, or k=1 to let {n0} votes choose it")
        labels = None if y is None else check_labels(y, len(inputs.values), self.num_classes)
        if labels is None:
            check_n0(n0)
        secret = Seed.of(seed)
        if fixed:
            assert n is not None
            self.check(k=k, n=n, alpha=alpha, bounds=bounds, inputs=inputs)
            if labels is None:
                labels = self._count_all(inputs, secret, "choose", n0, tick).argmax(axis=1)
            counts = self._count_all(inputs, secret, "count", n, tick)
            deviation = self.deviation(inputs)
            certs = derive(
                counts, labels, self.sampled_law(inputs), k=k, alpha=alpha, bounds=bounds, deviation=deviation
            )
        else:
            rule = self.rule(how, inputs, k=k, n=n, alpha=alpha, bounds=bounds)
            certs = self._certify_until_decided(inputs, labels, rule, k, alpha, n0, secret, tick, seconds)
        unit_range = inputs.levels is not None or self.input_range == (0.0, 1.0)
        arithmetic = "grid" if inputs.levels is not None and self.smoothing.law.on_grid else "float"
        certs = replace(certs, arithmetic=arithmetic, unit_range=unit_range)
        return certs if y is not None else replace(certs, truth=None)

    def rule(
        self, how: Stop, inputs: Inputs, *, k: int, n: int | None, alpha: float, bounds: str | None = None
    ) -> Rule:
        """The sequential test behind a way to stop, on these inputs; what it can never decide is refused."""
        check_k(k, self.num_classes)
        if bounds not in (None, "binocp"):
            raise BadInput(
                f"bounds={bounds} with stop={how.spec}: sequential tests watch the label's count alone, which is binocp; "
                "leave bounds out, or stop=fixed"
            )
        return how.rule(self.sampled_law(inputs), n=n, alpha=alpha, k=k, deviation=self.deviation(inputs))

    def _certify_until_decided(
        self,
        inputs: Inputs,
        labels: NDArray[np.int64] | None,
        rule: Rule,
        k: int,
        alpha: float,
        n0: int,
        secret: Seed,
        tick: Tick | None,
        seconds: float | None,
    ) -> Certificates:
        given = [None] * len(inputs.values) if labels is None else labels.tolist()
        looks: list[list[NDArray[np.int64]]] = [[] for _ in given]
        chosen = list(given)
        deadline = None if seconds is None else time.monotonic() + seconds
        asked = ((i, until_decided(rule, label, n0)) for i, label in enumerate(given))
        together = rule.last_look is None
        try:
            for counted in self.poll(
                inputs, asked, secret, share=True, together=together, tick=tick, deadline=deadline
            ):
                if counted.stage == "choose":
                    chosen[counted.number] = int(counted.counts.argmax())
                else:
                    looks[counted.number].append(counted.counts)
        except KeyboardInterrupt:
            if not together or not all(looks):
                raise
        if not all(looks):
            raise BadInput(f"seconds={seconds} were too few for a first look at all {len(looks)} inputs: give more")
        which = np.array(chosen, dtype=np.int64)
        return derive_stopped(
            [np.stack(some) for some in looks], which, self.sampled_law(inputs), rule, k=k, alpha=alpha
        )

    def _certify_exactly(self, inputs: Inputs, y: Any, k: int, tick: Tick | None) -> Certificates:
        labels = None if y is None else check_labels(y, len(inputs.values), self.num_classes)
        self.check_exact(k, inputs)
        ballots = self.ballots(inputs, tick)
        which = ballots.winners if labels is None else labels
        return replace(derive_exact(ballots, which, self.exact_law(inputs), k=k), truth=labels)

    def ballots(self, x: Any, tick: Tick | None = None) -> Ballots:
        """The vote of every view of each input; the smoothing must be exact."""
        inputs = x if isinstance(x, Inputs) else self.prepare(x)
        views = self.exact_law(inputs).views
        enumerator = self.enumerator(inputs.values.shape[1:])
        enumerator.probe(inputs.values, views)
        votes = np.concatenate([votes for _, votes in enumerator.cast(inputs.values, views, tick=tick)])
        return Ballots(as_ballots(votes, len(inputs.values), self.num_classes), self.num_classes)

    @property
    def exact(self) -> bool:
        """Whether every view votes, so that claims hold without probability."""
        return self.smoothing.law.exact

    def prepare(self, x: Any) -> Inputs:
        """Check inputs and put them on their grid."""
        if self.exact and self.arithmetic == "float":
            raise BadInput(
                f"{self.smoothing.spec} is exact, and exact claims are about 8-bit pictures: not arithmetic='float'"
            )
        inputs = prepare(x, "grid" if self.exact else self.arithmetic, self.input_range)
        self.smoothing.check(inputs.values)
        return inputs

    def law(self, inputs: Inputs) -> AnyLaw:
        """The law of the views of these inputs."""
        return self.smoothing.law.for_shape(inputs.values.shape[1:])

    def sampled_law(self, inputs: Inputs) -> Law:
        """The law of sampled views of these inputs."""
        law = self.law(inputs)
        if not isinstance(law, Law):
            raise BadInput(f"{law.spec} is exact: every view votes, and there is nothing to sample")
        return law

    def exact_law(self, inputs: Inputs) -> ExactLaw:
        """The law of listed views of these inputs."""
        law = self.law(inputs)
        if not isinstance(law, ExactLaw):
            raise BadInput(f"{law.spec} is sampled: it has no list of views that could all vote")
        return law

    def check_exact(self, k: int, inputs: Inputs) -> None:
        """Refuse settings that can certify nothing, before any vote is cast."""
        check_k(k, self.num_classes)
        law = self.exact_law(inputs)
        if law.levels != inputs.levels:
            raise BadInput(f"{law.spec} is for a grid of {law.levels} levels; these inputs have {inputs.levels}")

    def deviation(self, inputs: Inputs) -> float:
        """How far, in total variation per view, the noise on these inputs is from the certificate's law."""
        law = self.law(inputs)
        return law.deviation(inputs.values.shape[1:], inputs.levels) if isinstance(law, Law) else 0.0

    def check(self, *, k: int, n: int, alpha: float, bounds: str | None, inputs: Inputs) -> None:
        """Refuse settings that can certify nothing, before any vote is cast."""
        bounds = bounds or default_bounds(k)
        deviation = self.deviation(inputs)
        check_settings(
            k=k,
            alpha=alpha,
            num_classes=self.num_classes,
            n=n,
            bounds=bounds,
            law=self.sampled_law(inputs),
            deviation=deviation,
        )

    def predict_votes(self, *, k: int, n: int | None, alpha: float | None, seed: int | None, inputs: Inputs) -> int:
        """How many votes an input gets in `predict`; settings that can decide nothing are refused."""
        if self.exact:
            refuse_sampled_settings(str(self.smoothing.spec), n=n, alpha=alpha, seed=seed)
            self.check_exact(k, inputs)
            return self.exact_law(inputs).views
        votes = PREDICT_VOTES if n is None else n
        self.predict_alpha(k=k, n=votes, alpha=DEFAULT_ALPHA if alpha is None else alpha, inputs=inputs)
        return votes

    def predict_alpha(self, *, k: int, n: int, alpha: float, inputs: Inputs) -> float:
        """What is left of alpha when all n views are to be those of the exact law: n views deviate n times as far."""
        check_alpha(alpha)
        check_k(k, self.num_classes)
        left = alpha - n * self.deviation(inputs)
        if left <= 0 or n < least_votes(k, left):
            least = least_votes(k, alpha)
            raise BadInput(f"n={n} can decide nothing at alpha={alpha:g} (top-{k}): the least is {least}")
        return left

    def voter(self, inputs: Inputs, *, share: bool = False, rows: int | None = None, block: int | None = None) -> Voter:
        """The voter for these inputs, compiled and tried if that was asked for.

        `share`: whether inputs share a shape, if `block` was not said. `rows`, `block`: those of a run, if it has any.
        """
        return self._voters.make(self, inputs, share, self.rows or rows, self.block or block)

    def poll(
        self,
        inputs: Inputs,
        asked: Iterable[tuple[int, Inquiry]],
        seed: Seed,
        *,
        share: bool = False,
        voter: Voter | None = None,
        numbers: Any = None,
        together: bool = False,
        tick: Tick | None = None,
        deadline: float | None = None,
    ) -> Iterator[Counted]:
        """Hold the inquiries about inputs (position, inquiry), yielding counts as they come in; see `voting.poll.Poll`.

        `numbers` [m]: by which an input's randomness is addressed; its position unless given.
        """
        if voter is None:
            voter = self.voter(inputs, share=share)
            if voter.places > 1:
                voter.probe(inputs.values, inputs.levels)
        poll = Poll(voter, inputs.levels, seed, together=together, tick=tick, deadline=deadline)
        yield from poll.run(
            (position if numbers is None else int(numbers[position]), inputs.values[position], inquiry)
            for position, inquiry in asked
        )

    def enumerator(self, shape: torch.Size) -> Enumerator:
        """What casts every vote on inputs of this shape."""
        rows, in_flight = self._compute_shape(shape)
        return Enumerator(
            self.model,
            self.smoothing,
            self.num_classes,
            rows,
            self.device,
            in_flight,
            self.channels_last,
            getattr(self.smoothing.law, "threshold", None),
            self.precision,
        )

    def _compute_shape(self, shape: torch.Size) -> tuple[int, int]:
        """Views per forward pass, and how many such shapes are cast at a time."""
        rows = self.rows or choose_rows(shape, self.device)
        return rows, self.in_flight or choose_in_flight(rows * shape.numel(), self.device)

    def _count_all(self, inputs: Inputs, seed: Seed, stage: str, n: int, tick: Tick | None) -> NDArray[np.int64]:
        asked = ((i, counted_at(stage, [n])) for i in range(len(inputs.values)))
        counted = {one.number: one.counts for one in self.poll(inputs, asked, seed, tick=tick)}
        return np.stack([counted[i] for i in range(len(inputs.values))])


def check_n0(n0: int) -> None:
    """Refuse to let no votes choose a label."""
    if n0 < 1:
        raise BadInput(f"n0={n0}: at least one uncounted vote is needed to choose the label, 100 is usual")


def check_seconds(how: Stop, seconds: float | None, *, needed: bool) -> None:
    """Refuse a time that nothing stops by, and, where it is `needed`, none where nothing else stops."""
    if isinstance(how, Anytime):
        if seconds is None and needed:
            raise BadInput("stop=anytime has no last vote: say for how many seconds, or use grid or target")
    elif seconds is not None:
        raise BadInput(f"seconds={seconds} with stop={how.spec}, which stops by itself: seconds belong to anytime")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise BadInput(f"seconds={seconds}: a time above zero is needed")
