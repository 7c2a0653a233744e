"""Base class of certificates: label, radius and abstention of m inputs, judged by true labels, as text, table and curve."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.laws.exact import Ballots
from vauban.laws.law import AnyLaw
from vauban.threats import Threat
from vauban.validation import check_rho

COLUMNS = ("index", "label", "radius", "abstained", "truth")

_RADIUS_STEP = Decimal("1e-9")


class Claims(ABC):
    """Claims about m inputs; `vauban.certificates.Certificates` and `vauban.poisoning.PoisoningCertificates` are such.

    `label` [m]: the label each claim is about. `radius` [m]: how far it stays in the top k, NaN where abstained.
    `abstained` [m]: where nothing is claimed. `counts` [m, c]: the votes. `truth` [m]: the true labels, if known. `index` [m]:
    the number of each input in its data set.
    """

    label: NDArray[np.int64]
    radius: NDArray[np.float64]
    abstained: NDArray[np.bool_]
    counts: NDArray[np.int64]
    truth: NDArray[np.int64] | None
    k: int
    index: NDArray[np.int64]

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the claims hold without probability."""

    @property
    @abstractmethod
    def threat(self) -> Threat:
        """What the radii speak of."""

    @property
    @abstractmethod
    def claim(self) -> str:
        """In words, what a radius says of its input."""

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def __len__(self) -> int:
        return len(self.label)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(value, getattr(other, name)) for name, value in vars(self).items() if name != "record")

    __hash__ = None  # type: ignore[assignment]

    def certified(self, r: float = 0.0) -> NDArray[np.bool_]:
        """Which inputs [m] are certified for their true label at radius r: decided, correct, and radius >= r."""
        right = self.label == self._truth()
        return right & ~self.abstained & (np.nan_to_num(self.radius, nan=-1.0) >= r)

    def accuracy(self, r: float = 0.0) -> float:
        """Fraction of all inputs certified for their true label at radius r."""
        return float(self.certified(r).mean())

    def accuracy_claim(self, r: float = 0.0, rho: float = 1e-3, method: str = "binomial") -> float:
        """Lower bound, with confidence 1 - rho, on the true certified accuracy at radius r; for exact claims the accuracy."""
        check_rho(rho)
        return self.accuracy(r)

    @property
    def median_radius(self) -> float:
        """Largest radius at which at least half of all inputs are certified; NaN if fewer than half ever are."""
        radii = np.sort(np.where(self.certified(), self.radius, -np.inf))[::-1]
        middle = float(radii[(len(radii) + 1) // 2 - 1])
        return middle if middle >= 0 else float("nan")

    @property
    def clean_accuracy(self) -> float:
        """Fraction of inputs whose true label is among the k most voted (ties to the smaller label); an estimate, no bound."""
        truth = self._truth()
        own = self.counts[np.arange(len(self)), truth][:, None]
        smaller = np.arange(self.counts.shape[1])[None, :] < truth[:, None]
        ahead = (self.counts > own) | ((self.counts == own) & smaller)
        return float((ahead.sum(axis=1) < self.k).mean())

    @property
    def base_accuracy(self) -> float:
        """Fraction of votes for the true label: the accuracy of the base classifier on views.

        Every input has the same weight, whatever its number of votes.
        """
        own, votes = self.counts[np.arange(len(self)), self._truth()], self.counts.sum(axis=1)
        if (votes == votes[:1]).all():
            return float(own.sum() / max(1, votes.sum()))
        return float((own / np.maximum(votes, 1)).mean())

    @property
    def undecided(self) -> float:
        """Fraction of inputs for which nothing is claimed."""
        return float(self.abstained.mean())

    @property
    def certified_elsewhere(self) -> float:
        """Fraction of inputs certified for a label that is not the true one."""
        return float((~self.abstained & (self.label != self._truth())).mean())

    def to_csv(self, columns: Sequence[str] = COLUMNS) -> str:
        """Claims as CSV text: radii rounded down, empty where abstained; truth empty where it is not known."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        for i, number in enumerate(self.index):
            abstained = bool(self.abstained[i])
            row = {
                "index": number,
                "label": self.label[i],
                "radius": "" if abstained else radius_text(float(self.radius[i]), self.threat),
                "abstained": "true" if abstained else "false",
                "truth": "" if self.truth is None else self.truth[i],
            }
            writer.writerow([row[column] for column in columns])
        return out.getvalue()

    def to_pandas(self, names: Sequence[str] | None = None) -> Any:
        """A pandas table: index, truth, label, radius, abstained, counts per class; file names where there are any."""
        from vauban.report.tables import data_frame

        return data_frame(self, names)

    def plot(self, path: str | Path | None = None, **options: Any) -> Any:
        """The curve of certified accuracy against the radius, as a Matplotlib figure; written to `path` if given."""
        from vauban.report.curve import figure

        return figure([self], path, **options)

    def _truth(self) -> NDArray[np.int64]:
        if self.truth is None:
            raise BadInput("accuracy needs the true labels: give y to certify, or use certs.radius directly")
        return self.truth


def radius_text(radius: float, threat: Threat) -> str:
    """A radius as it is written: a whole number where the threat counts, else rounded down."""
    return str(int(radius)) if threat.integer else floor_text(radius)


def floor_text(radius: float, step: Decimal = _RADIUS_STEP) -> str:
    """A radius in decimal, rounded down.

    >>> floor_text(0.99999999999)
    '0.999999999'
    """
    return format(Decimal(radius).quantize(step, rounding=ROUND_FLOOR), "f")


def _same(mine: Any, other: Any) -> bool:
    """Whether two fields are equal, bit for bit; NaN equals NaN, and laws are equal if their text forms are."""
    if isinstance(mine, AnyLaw) and isinstance(other, AnyLaw):
        return bool(mine.spec == other.spec)
    if isinstance(mine, Ballots) and isinstance(other, Ballots):
        return mine.num_classes == other.num_classes and np.array_equal(mine.votes, other.votes)
    if isinstance(mine, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f")
    return mine is other or (mine is not None and other is not None and bool(mine == other))
