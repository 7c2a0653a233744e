"""Certificates against poisoning: how many training samples may change before an ensemble's vote can. Integers only.

Base classifiers are trained on disjoint buckets of the training set, and a sample's bucket depends on its input alone. So one
sample added, removed or relabelled changes one bucket; one whose input is changed counts twice: it is removed, and another is
added. The functions here count how many buckets may change. (`laws.poisoning.finite`: base classifiers that share buckets.)

A class is *ahead of* another if it has more votes, or as many and a smaller index. `label` [m] holds the label of each input; a
radius of -1 means that nothing is certified.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.laws.exact import Ints, tolerated, tolerated_by_gaps
from vauban.threats import Threat
from vauban.validation import check_k, check_labels, check_num_classes

_MOST = 2**31  # votes for a class; sums of them fit into 64 bits

SAMPLES = Threat(
    "poisoning",
    "symmetric difference from the training set",
    "samples added and removed; a changed sample counts twice, removed and added, but one that is only relabelled counts once",
    "closed",
    integer=True,
)
LABELS = Threat(
    "label-flips",
    "number of relabelled training samples",
    "copies of one input count once together; the unlabelled inputs are trusted",
    "closed",
    integer=True,
)


def tally(votes: ArrayLike, num_classes: int) -> Ints:
    """Votes per class [m, num_classes] from ballots [m, models]."""
    ballots = np.asarray(votes)
    if ballots.ndim != 2 or ballots.size == 0 or ballots.dtype.kind not in "iu":
        raise BadInput(f"votes of shape {ballots.shape}, {ballots.dtype}: whole numbers [inputs, models] are needed")
    check_num_classes(num_classes)
    if ballots.min() < 0 or ballots.max() >= num_classes:
        row, model = np.argwhere((ballots < 0) | (ballots >= num_classes))[0]
        vote = ballots[row, model]
        raise BadInput(
            f"model {model} votes {vote} on input {row}: votes are 0 to {num_classes - 1}, as num_classes says"
        )
    return histogram(ballots, num_classes)


def plurality(counts: ArrayLike) -> Ints:
    """The ensemble's prediction [m]: the class with the most votes, ties to the smaller index. [Levine2023] Equation 7.4"""
    return np.asarray(counts).argmax(axis=1).astype(np.int64)


def plurality_radius(counts: ArrayLike, label: ArrayLike | None = None, k: int = 1) -> Ints:
    """Radius [m] within which `label` (None: the prediction) stays in the top k. [Levine2023] Theorems 7.1 and 7.2

    For k = 1 this is floor((n_l - max over j of (n_j + [j < l])) / 2): `laws.exact.tolerated`, with models instead of views.

    >>> plurality_radius([[40, 35, 25], [35, 40, 25]]).tolist(), plurality_radius([[40, 35, 25]], [0], k=2).tolist()
    ([2, 2], [7])
    """
    table, labels = checked(counts, label, k)
    return tolerated(table, labels, k)


def finalists(counts: ArrayLike) -> tuple[Ints, Ints]:
    """The two classes [m], [m] with the most votes, the one ahead first: round one of Run-Off Election. [Rezaei2023]"""
    order = np.argsort(-np.asarray(counts).astype(np.int64), axis=1, kind="stable")
    return order[:, 0], order[:, 1]


def runoff(counts: ArrayLike, duels: ArrayLike) -> Ints:
    """The prediction [m] of Run-Off Election: the finalist that more models prefer, ties to the smaller class. [Rezaei2023]

    `duels` [m, c, c]: how many models score the first class above the second; ties go to the smaller class.

    >>> runoff([[2, 2, 1]], [[[0, 2, 2], [3, 0, 2], [3, 3, 0]]]).tolist()
    [1]
    """
    first, second = finalists(counts)
    one, other = np.minimum(first, second), np.maximum(first, second)
    table, rows = np.asarray(duels), np.arange(len(first))
    return np.where(table[rows, one, other] >= table[rows, other, one], one, other)


def runoff_radius(counts: ArrayLike, winner: ArrayLike, beats: ArrayLike) -> Ints:
    """Radius [m] of Run-Off Election; `beats` [m, c]: how many models prefer the winner p to class c. [Rezaei2023]

    After T changed models the prediction differs only if (a) p is no finalist: impossible while T is at most the top-2 radius of
    `plurality_radius`; or (b) p and some c are the finalists, and c wins. Then c beats p: a changed model takes at most 2 from
    the margin M = beats - (models - beats) - [c < p], so it is impossible while 2T <= M. And c is ahead of every class j but p:
    c gained at most T votes, j lost b_j >= g_j - T with g_j = n_j - n_c + [j < c], and the b_j add up to at most T; so it is
    impossible while the positive parts of g_j - T add up to more than T. (b) needs both, so for each c the larger of the two
    radii holds; the result is the least over (a) and all c.

    >>> runoff_radius([[40, 35, 25]], [0], [[0, 51, 60]]).tolist(), plurality_radius([[40, 35, 25]]).tolist()
    ([1], [2])
    """
    table, p, preferring = checked_runoff(counts, winner, beats)
    classes, models = np.arange(table.shape[1]), int(table[0].sum())
    keeps_duel = (2 * preferring - models - (classes < p[:, None])) // 2
    gaps = table[:, None, :] - table[:, :, None] + (classes[None, :] < classes[:, None])
    gaps[:, classes, classes] = -models - 2
    np.put_along_axis(gaps, p[:, None, None], -models - 2, axis=2)
    keeps_out = tolerated_by_gaps(-np.sort(-gaps, axis=2))
    radii = rivals(np.maximum(keeps_out, keeps_duel), p).min(axis=1)
    return radii if len(classes) == 2 else np.minimum(radii, plurality_radius(table, p, k=2))


def rivals(table: Ints, label: Ints) -> Ints:
    """The columns [m, c - 1] of all classes but the label."""
    return table[np.arange(table.shape[1]) != label[:, None]].reshape(len(label), -1)


def histogram(values: NDArray[np.integer], bins: int) -> Ints:
    """How often [m, bins] each of 0..bins-1 occurs in every row of `values` [m, n]."""
    shifted = values.astype(np.int64) + bins * np.arange(len(values))[:, None]
    return np.bincount(shifted.reshape(-1), minlength=len(values) * bins).reshape(-1, bins).astype(np.int64)


def checked(counts: ArrayLike, label: ArrayLike | None, k: int) -> tuple[Ints, Ints]:
    """Counts and labels as integers; refuses counts in which some model does not vote exactly once."""
    table = np.asarray(counts)
    if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iu" or (table < 0).any():
        raise BadInput(f"counts of shape {table.shape}, {table.dtype}: numbers of votes [inputs, classes] are needed")
    if table.max() > _MOST:
        raise BadInput(f"a count of {table.max()}: no ensemble has that many models, and their sum could not be held")
    table = table.astype(np.int64)
    models = table.sum(axis=1)
    wrong = np.flatnonzero((models != models[0]) | (models == 0))
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(f"input {row} has {models[row]} votes, and input 0 has {models[0]}: every model votes once")
    check_k(k, table.shape[1])
    return table, plurality(table) if label is None else check_labels(label, len(table), table.shape[1])


def checked_runoff(counts: ArrayLike, winner: ArrayLike, beats: ArrayLike) -> tuple[Ints, Ints, Ints]:
    """As `checked`, for two rounds; refuses second-round votes that contradict the first, and a winner that did not win."""
    table, p = checked(counts, winner, 1)
    preferring, models = np.asarray(beats).astype(np.int64), int(table[0].sum())
    if preferring.shape != table.shape:
        raise BadInput(
            f"second-round votes of shape {preferring.shape} for counts of shape {table.shape}: the shapes must be equal"
        )
    rows, other_class = np.arange(len(p)), np.arange(table.shape[1]) != p[:, None]
    if (other_class & ((preferring < table[rows, p][:, None]) | (preferring > models - table))).any():
        raise BadInput("second-round votes do not fit the first round: a model prefers what it voted for to any other")
    first, second = finalists(table)
    other = np.where(first == p, second, first)
    lost = 2 * preferring[rows, other] - models - (other < p) < 0
    wrong = np.flatnonzero(((p != first) & (p != second)) | lost)
    if len(wrong):
        raise BadInput(f"class {p[wrong[0]]} did not win the run-off of input {wrong[0]}")
    return table, p, preferring
