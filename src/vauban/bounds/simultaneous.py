"""Simultaneous bounds on the probability of a label and of its strongest rivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats, lower_bound, upper_bound
from vauban.errors import BadInput
from vauban.specs import choose
from vauban.validation import check_k, check_labels

ALPHA_SPLIT = {
    "binocp": "alpha on the label's lower bound; a rival has at most what the label leaves",
    "simuem": "alpha / classes on the label's lower bound and on each rival's upper bound",
    "half": "alpha / 2 on the label's lower bound, alpha / 2 shared equally by the rivals' upper bounds",
}
"""Every method of simultaneous bounds, and how it splits alpha. Manifests store these texts and `verify` compares them."""


def default_bounds(k: int) -> str:
    """BinoCP for top-1, as [Cohen2019]; SimuEM for top-k, as the experiments of [Jia2020]."""
    return "binocp" if k == 1 else "simuem"


@dataclass(frozen=True)
class ProbabilityBounds:
    """`label` [m]: lower bounds of the label; `rivals` [m, k]: upper bounds of its k strongest rivals, ascending."""

    label: Floats
    rivals: Floats

    def widened(self, deviation: float) -> ProbabilityBounds:
        """Bounds under the ideal law, when the votes came from a law at most `deviation` away in total variation."""
        if deviation == 0.0:
            return self
        return ProbabilityBounds(np.maximum(self.label - deviation, 0.0), np.minimum(self.rivals + deviation, 1.0))

    def sums(self) -> Floats:
        """Upper bounds [m, k] on the summed probability of the t weakest of the k rivals, t = 1..k.

        [Jia2020] section 3.2.1: the sum of the t bounds, and never more than 1 - label.
        """
        return np.minimum(np.cumsum(self.rivals, axis=1), (1.0 - self.label)[:, None])


def probability_bounds(
    counts: ArrayLike, labels: ArrayLike, *, k: int, alpha: float, method: str = "simuem"
) -> ProbabilityBounds:
    """Bound the label from below and its k strongest rivals from above, simultaneously with confidence 1 - alpha.

    `counts` [m, c] integers, every row the same number of votes; `labels` [m], fixed before these votes were drawn.
    - "binocp": alpha on the label; a rival has at most 1 - the label's bound. [Jia2020] Eq. 4
    - "simuem": alpha / c for each class. [Jia2020] Eq. 5 and 6
    - "half": alpha / 2 on the label, alpha / 2 shared by the c - 1 rivals.
    """
    choose("method for probability bounds", method, ALPHA_SPLIT)
    counts, labels, n = checked_counts(counts, labels)
    classes = counts.shape[1]
    check_k(k, classes)
    rows = np.arange(len(counts))
    wins = counts[rows, labels]
    if method == "binocp":
        label = lower_bound(wins, n, alpha)
        return ProbabilityBounds(label, np.repeat((1.0 - label)[:, None], k, axis=1))
    for_label, for_rival = {
        "simuem": (alpha / classes, alpha / classes),
        "half": (alpha / 2, alpha / (2 * (classes - 1))),
    }[method]
    others = counts.copy()
    others[rows, labels] = -1
    strongest = np.sort(np.partition(others, classes - k, axis=1)[:, classes - k :], axis=1)
    return ProbabilityBounds(lower_bound(wins, n, for_label), upper_bound(strongest, n, for_rival))


def checked_counts(
    counts: ArrayLike, labels: ArrayLike, *, equal_totals: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Checked counts [m, c], checked labels [m] and the votes of row 0; of every row, if `equal_totals` are required."""
    try:
        table = np.asarray(counts)
    except ValueError:
        raise BadInput("counts have rows of different lengths: every input needs one count per class") from None
    if table.ndim != 2 or table.shape[1] < 2:
        raise BadInput(f"counts of shape {table.shape}: a row per input and a column per class (two or more) is needed")
    if table.dtype.kind not in "iu":
        if table.dtype.kind != "f" or not np.array_equal(table, np.floor(table)):
            raise BadInput("counts must be whole numbers: give the votes themselves, not their averages")
        table = table.astype(np.int64)
    table = table.astype(np.int64, copy=False)
    checked_labels = check_labels(labels, len(table), table.shape[1])
    if len(table) and table.max() > 2**62 // table.shape[1]:
        raise BadInput(
            f"input {int(table.max(axis=1).argmax())} has a count of {table.max()}: too many votes for 64-bit counts"
        )
    if (table < 0).any():
        raise BadInput(f"input {np.argwhere(table < 0)[0][0]} has a negative count")
    votes = table.sum(axis=1)
    if len(votes) == 0 or (equal_totals and votes[0] == 0):
        raise BadInput("there are no votes to count")
    if equal_totals and (votes != votes[0]).any():
        odd = int(np.flatnonzero(votes != votes[0])[0])
        raise BadInput(
            f"input {odd} has {votes[odd]} votes where input 0 has {votes[0]}: every row needs the same number"
        )
    return table, checked_labels, int(votes[0])
