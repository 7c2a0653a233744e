"""A base classifier under a smoothing, ready to be asked: which inputs it takes, the law of their views, who votes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.bounds.ranks import least_votes
from vauban.claims import (
    check_alpha,
    check_k,
    check_settings,
    default_bounds,
    refuse_sampled_settings,
)
from vauban.errors import BadInput
from vauban.inputs import Inputs, prepare
from vauban.laws.exact import Ballots, ExactLaw
from vauban.laws.law import AnyLaw, Law
from vauban.seed import Seed
from vauban.smoothing import Smoothing, build
from vauban.stopping import Anytime, Policy, Rule
from vauban.voting.choosing import VoterMaker, choose_in_flight, choose_rows
from vauban.voting.compiled import TUNED
from vauban.voting.enumerator import Enumerator, as_ballots
from vauban.voting.inquiry import Inquiry, counted_at
from vauban.voting.poll import Counted, Poll
from vauban.voting.precision import cast, check_precision
from vauban.voting.scores import Model
from vauban.voting.voter import Voter

Tick = Callable[[int], None]

CERTIFY_VOTES, PREDICT_VOTES, CHOOSING_VOTES = 100_000, 1_000, 100
DEFAULT_ALPHA = 1e-3


class Asking:
    """What `SmoothedClassifier` stands on; its arguments are explained there."""

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

    def rule(
        self, how: Policy, inputs: Inputs, *, k: int, n: int | None, alpha: float, bounds: str | None = None
    ) -> Rule:
        """The sequential test behind a way to stop, on these inputs; what it can never decide is refused."""
        check_k(k, self.num_classes)
        if bounds not in (None, "binocp"):
            raise BadInput(
                f"bounds={bounds} with stop={how.spec}: sequential tests watch the label's count alone, which is binocp; "
                "leave bounds out, or stop=fixed"
            )
        return how.rule(self.sampled_law(inputs), n=n, alpha=alpha, k=k, deviation=self.deviation(inputs))


def check_n0(n0: int) -> None:
    """Refuse to let no votes choose a label."""
    if n0 < 1:
        raise BadInput(f"n0={n0}: at least one uncounted vote is needed to choose the label, 100 is usual")


def check_seconds(how: Policy, seconds: float | None, *, needed: bool) -> None:
    """Refuse a time that nothing stops by, and, where it is `needed`, none where nothing else stops."""
    if isinstance(how, Anytime):
        if seconds is None and needed:
            raise BadInput("stop=anytime has no last vote: say for how many seconds, or use grid or target")
    elif seconds is not None:
        raise BadInput(f"seconds={seconds} with stop={how.spec}, which stops by itself: seconds belong to anytime")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise BadInput(f"seconds={seconds}: a time above zero is needed")
