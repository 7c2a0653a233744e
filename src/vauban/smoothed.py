"""The front door: a base classifier and a smoothing become a classifier whose answers carry proofs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.asking import (
    CERTIFY_VOTES,
    CHOOSING_VOTES,
    DEFAULT_ALPHA,
    PREDICT_VOTES,
    Asking,
    Tick,
    check_n0,
    check_seconds,
)
from vauban.bounds.ranks import leaders
from vauban.claims import Certificates, derive, derive_exact, derive_stopped, refuse_sampled_settings
from vauban.errors import BadInput
from vauban.inputs import Inputs, check_labels
from vauban.seed import Seed
from vauban.stopping import Anytime, Fixed, Policy, Rule
from vauban.stopping import policy as stop_of
from vauban.voting.inquiry import until_decided


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


class SmoothedClassifier(Asking):
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
        stop: Policy | str = "fixed",
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
