"""A linear classifier on fixed features, smoothed over random training labels: the baseline of label-flip certificates.

Ridge regression onto the labels gives class c the score sum over i of alpha_i(x) [y_i = c], with alpha(x) = F (F^T F + ridge
I)^-1 f(x) for the features F [n, d] of the training inputs and f(x) of the input: it is linear in the labels, and alpha does
not depend on them. Under noisy labels (`laws.poisoning.label_noise`) the lead of class c over j is a sum of independent terms
alpha_i s_i with s_i = 1, -1 or 0, so for every t > 0, by Chernoff,

    log P(lead <= 0) <= sum over i of log E exp(-t alpha_i s_i)
    y_i = c:   E = (1 - q) e^-a + q' e^a + (q - q'),   a = t alpha_i
    y_i = j:   E = (1 - q) e^a + q' e^-a + (q - q')
    else:      E = q' (e^a + e^-a) + (1 - 2 q')

and the base classifier does not answer c with probability at most the sum of these bounds over the rivals j, which is delta.
The bound holds for each t; t is searched in floating point and is no part of the proof. [Rosenfeld2020]

Trusted: the inputs, so the features and alpha, and the settings q and ridge, which must not be chosen by the labels that may be
flipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from vauban.errors import BadInput
from vauban.laws.poisoning.label_noise import check_flip, kl_radius, linear_radius, tight_radius
from vauban.validation import check_labels

_ROWS = 4096  # training samples whose products are added up at once
_INPUTS = 64  # inputs whose weights are held at once
_ROUNDING = 1e-9  # relative error of adding up logarithms of a million samples, at most
_TRIED = 10  # values of t


@dataclass(frozen=True, eq=False)
class FlipCertificates:
    """What is certified of m inputs: the answer [m], log delta [m], and the number of label flips [m] that each withstands.

    `radius` is tight for these probabilities, `kl` the paper's bound; -1 is an abstention. `truth` [m]: true labels, if given.
    """

    answer: NDArray[np.int64]
    log_wrong: NDArray[np.float64]
    radius: NDArray[np.int64]
    kl: NDArray[np.int64]
    truth: NDArray[np.int64] | None = None

    def accuracy(self, flips: int, bound: str = "radius") -> float:
        """The share of inputs that are answered correctly whichever `flips` labels are flipped."""
        if self.truth is None:
            raise BadInput("these certificates have no true labels: give them to certify")
        return float(((self.answer == self.truth) & (getattr(self, bound) >= flips)).mean())


class SmoothedLabels:
    """Ridge regression on `features` [n, d] with labels [n], each of which is another one with probability `flip`.

    `ridge` is a multiple of the mean square of a feature column, n times.
    """

    def __init__(self, features: ArrayLike, labels: ArrayLike, num_classes: int, flip: float, ridge: float = 1e-3):
        self.features = np.asarray(features)
        if self.features.ndim != 2 or not ridge > 0:
            raise BadInput(
                f"features of shape {self.features.shape}, ridge={ridge}: [n, d] and a number above 0 are needed"
            )
        gram = _gram(self.features)
        if not np.isfinite(gram).all() or not np.trace(gram) > 0:
            raise BadInput("the features are not finite, all zero, or too large to be squared: standardise them first")
        self.labels = check_labels(np.asarray(labels), len(self.features), num_classes)
        self.num_classes, self.flip, self.other = num_classes, float(flip), check_flip(flip, num_classes)
        self.order = np.argsort(self.labels, kind="stable")
        self.starts = np.searchsorted(self.labels[self.order], np.arange(num_classes))
        scale = ridge * max(float(np.trace(gram)) / len(gram), np.finfo(float).tiny)
        self._factor = cho_factor(gram + scale * np.eye(len(gram)))

    def with_flip(self, flip: float) -> SmoothedLabels:
        """The same regression with other noise."""
        other: SmoothedLabels = object.__new__(SmoothedLabels)
        other.__dict__.update(self.__dict__, flip=float(flip), other=check_flip(flip, self.num_classes))
        return other

    def weights(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """alpha [m, n] for the features [m, d] of inputs."""
        given = np.asarray(features, np.float64)
        solved = cho_solve(self._factor, given.T, check_finite=False)
        alpha = np.asarray(self.features @ solved.astype(self.features.dtype, copy=False), np.float64).T
        if not np.isfinite(alpha).all():
            raise BadInput(
                "features of inputs are not finite or too large: give numbers like those of the training set"
            )
        return alpha

    def certify(self, features: ArrayLike, truth: ArrayLike | None = None) -> FlipCertificates:
        """Certificates of the inputs with these features [m, d] and true labels [m], if known."""
        given = np.asarray(features)
        known = None if truth is None else check_labels(np.asarray(truth), len(given), self.num_classes)
        answers, logs = [], []
        for start in range(0, len(given), _INPUTS):
            for alpha in self.weights(given[start : start + _INPUTS]):
                answer, log_delta = self.bound(alpha)
                answers.append(answer)
                logs.append(log_delta)
        log_wrong = np.array(logs, np.float64)
        radius, kl = (rule(log_wrong, self.flip, self.num_classes) for rule in (tight_radius, kl_radius))
        return FlipCertificates(np.array(answers, np.int64), log_wrong, radius, kl, known)

    def unsmoothed(self, features: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Answers and exact radii [m] of the regression itself, without noise, for inputs with these features [m, d]."""
        given = np.asarray(features)
        found = [
            linear_radius(alpha, self.labels, self.num_classes)
            for start in range(0, len(given), _INPUTS)
            for alpha in self.weights(given[start : start + _INPUTS])
        ]
        pairs = np.array(found, np.int64).reshape(len(given), 2)
        return pairs[:, 0], pairs[:, 1]

    def bound(self, alpha: NDArray[np.float64]) -> tuple[int, float]:
        """The answer whose score is largest on average for weights alpha [n], and log delta: an upper bound on the probability of
        any other; 0 if none."""
        sums = np.bincount(self.labels, alpha, self.num_classes)
        answer, keep = int(sums.argmax()), 1 - self.flip - self.other
        leads = np.delete(keep * (sums[answer] - sums), answer)
        own = float(np.bincount(self.labels, alpha**2, self.num_classes)[answer])
        variance = 2 * self.other * (float(alpha @ alpha) - own) + (keep + 2 * self.other - keep**2) * own
        if not leads.min() > 0 or not variance > 0:
            return answer, 0.0
        best = np.zeros(len(leads))
        steepest = np.log((1 - self.flip) / self.other) / np.abs(alpha).max()  # beyond, a single label decides
        for t in np.geomspace(
            min(leads.min() / variance, steepest) / 2, min(2 * leads.max() / variance, 4 * steepest), _TRIED
        ):
            best = np.minimum(best, self._chernoff(alpha, answer, float(t)))
        top = best.max()
        log_wrong = float(top + np.log(np.exp(best - top).sum()))
        return answer, min(0.0, log_wrong + _ROUNDING * (1 + abs(log_wrong)))

    def _chernoff(self, alpha: NDArray[np.float64], answer: int, t: float) -> NDArray[np.float64]:
        """The bound on log P(lead <= 0) of the answer over each rival, at one t."""
        a = np.clip(t * alpha[self.order], -300, 300)
        up, down, rest = np.exp(a), np.exp(-a), self.flip - self.other
        own, rival, neither = (
            self._sums(np.log((1 - self.flip) * down + self.other * up + rest)),
            self._sums(np.log((1 - self.flip) * up + self.other * down + rest)),
            self._sums(np.log(self.other * (up + down) + (1 - 2 * self.other))),
        )
        clipped = (np.abs(t * alpha) > 300).any()
        bounds = own[answer] + rival + neither.sum() - neither - neither[answer]
        return np.zeros(self.num_classes - 1) if clipped else np.delete(bounds, answer)

    def _sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of sorted values over each class."""
        ends = np.append(self.starts, len(values))
        return np.array([values[a:b].sum() for a, b in pairwise(ends)])


def _gram(features: NDArray[Any]) -> NDArray[np.float64]:
    total = np.zeros((features.shape[1],) * 2)
    for start in range(0, len(features), _ROWS):
        rows = features[start : start + _ROWS].astype(np.float64)
        total += rows.T @ rows
    return total
