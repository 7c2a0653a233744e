"""Predictions: the smoothed classifier's top k for each input, right with probability at least 1 - alpha. [Jia2020] PREDICT"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vauban.bounds.ranks import leaders, least_votes, least_votes_with
from vauban.certificates import Certificates
from vauban.errors import BadInput
from vauban.laws.law import AnyLaw
from vauban.methods import DEFAULT_ALPHA, CertifySettings, ExactMethod, Method, SampledMethod
from vauban.validation import check_alpha, check_k, check_votes, refuse_sampled_settings
from vauban.votes import CountRequests, KeptCounts, SampledVotes, VoteTable, counts_at

PREDICT_VOTES = 1_000


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


def predict_method(
    law: AnyLaw,
    num_classes: int,
    shape: Sequence[int],
    deviation: float,
    *,
    k: int,
    n: int | None,
    alpha: float | None,
    seed: int | None,
) -> Method:
    """The method behind `predict`: every view votes where the law is exact, else n; an n that can decide nothing is refused."""
    check_k(k, num_classes)
    fitted = law.for_shape(shape)
    if law.exact:
        refuse_sampled_settings(str(law.spec), n=n, alpha=alpha, seed=seed)
        return ExactMethod(CertifySettings(k=k, label="votes"), fitted, num_classes, tuple(shape))
    settings = CertifySettings(
        k=k,
        n=check_votes(PREDICT_VOTES if n is None else n),
        alpha=check_alpha(DEFAULT_ALPHA if alpha is None else alpha),
        bounds="ranks",
        stop="fixed",
    )
    return RankMethod(settings, fitted, num_classes, tuple(shape), deviation)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RankMethod(SampledMethod):
    """n votes for each input, followed by a test of their ranks."""

    name: ClassVar[str] = "ranks"

    def __post_init__(self) -> None:
        n, k, alpha = self.settings.n or 0, self.settings.k, self.settings.alpha
        if self.alpha_left > 0 and n >= least_votes(k, self.alpha_left):
            return
        least = least_votes_with(self.deviation, k, alpha)
        what = f"can decide nothing at alpha={alpha} (top-{k})"
        taken = f"the noise deviates by {self.deviation:.3g} in each view, which is taken off alpha"
        if least is None:
            raise BadInput(f"n={n} {what}, nor can any other n: {taken}; give a larger alpha")
        advice = f"the least is {least}" if n < least else f"{taken}; give a smaller n, the least is {least}"
        raise BadInput(f"n={n} {what}: {advice}")

    @property
    def alpha_left(self) -> float:
        """alpha less the total variation between n sampled views and n views of the law, at most n times that of one view."""
        return self.settings.alpha - (self.settings.n or 0) * self.deviation

    def look_at(self, number: int) -> int | None:
        return self.settings.n if number == 0 else None

    def requests(self, label: int | None, kept: KeptCounts) -> CountRequests:
        return counts_at("predict", [] if kept.looks else [self.settings.n or 0])

    def empty_votes(self, index: Sequence[int], truth: Sequence[int] | None) -> SampledVotes:
        return SampledVotes(index, self.num_classes, self.look_at)

    def votes_left(self, votes: SampledVotes) -> int | None:
        return (self.settings.n or 0) * len(votes.index) - votes.votes_cast

    def describe(self) -> dict[str, Any]:
        return {}

    def certificates(self, votes: Any, n: int | None = None) -> Certificates:
        raise BadInput("predictions are not certificates: call certify")

    def changed(self, law: AnyLaw, changes: dict[str, Any]) -> Method:
        raise BadInput("predictions are not certificates: call certify")


def predictions(method: Method, votes: VoteTable) -> Predictions:
    """The predictions that the votes prove; where every view voted, no input is undecided."""
    k = method.settings.k
    if isinstance(votes, SampledVotes):
        assert isinstance(method, RankMethod)
        counts = np.stack([looks[0] for looks in votes.looks])
        labels, undecided = leaders(counts, k, method.alpha_left)
        masked: np.ma.MaskedArray = np.ma.masked_array(labels, np.repeat(undecided[:, None], k, axis=1))
        return Predictions(masked, undecided, counts)
    counts = votes.ballots(range(len(votes.index))).counts
    order = np.argsort(-counts, axis=1, kind="stable")[:, :k]
    return Predictions(np.ma.masked_array(order, False), np.zeros(len(order), dtype=bool), counts)
