"""What attacks found beside what certificates prove: distances, accuracy under attack, gaps and alarms."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.certificates import Certificates
from vauban.errors import BadInput
from vauban.threats import Threat

INSIDE = 1e-6
"""Relative distance by which an attack must be inside an open ball to count as inside: more than float rounding."""


@dataclass(frozen=True)
class InputResult:
    """What was found for one input. `distance`: of the nearest input whose other answer fresh votes confirmed, infinity if none.

    `x`: that input as the classifier is given it (uint8 or float32). `attack`: which attack found it. `answer`: the top k
    labels there, empty where an abstention counts. `abstained`: candidates on which fresh votes abstained, `refuted`: on which
    they gave the old label. `cut_short`: whether the budget stopped an attack on it.
    """

    input: int
    distance: float = np.inf
    x: NDArray[Any] | None = None
    attack: str | None = None
    answer: tuple[int, ...] = ()
    abstained: int = 0
    refuted: int = 0
    views: int = 0
    cut_short: bool = False


@dataclass(frozen=True)
class Attacked:
    """Results of attacks on m inputs, beside their certificates if there are any.

    `index`, `label` (which attacks had to remove), `truth` (or None), `radius` (certified, NaN for none) and `results` are of
    length m; a result is None for an input that the budget left out. `alarms`: positions where a confirmed answer contradicts a
    certificate. `folder`: where all this is written, or None.
    """

    index: NDArray[np.int64]
    label: NDArray[np.int64]
    truth: NDArray[np.int64] | None
    radius: NDArray[np.float64]
    results: tuple[InputResult | None, ...]
    originals: NDArray[Any] = field(repr=False)
    threat: Threat
    k: int
    certs: Certificates | None = field(default=None, repr=False)
    alarms: tuple[int, ...] = ()
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.results)

    @property
    def distance(self) -> NDArray[np.float64]:
        """The distance [m] of the nearest confirmed adversarial input, infinity where none was found."""
        return np.array([np.inf if found is None else found.distance for found in self.results])

    @property
    def attacked(self) -> NDArray[np.bool_]:
        """Which inputs [m] were attacked before the budget was spent."""
        return np.array([found is not None for found in self.results])

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which inputs [m] have a confirmed other answer inside their certified radius; abstentions are none."""
        answered = np.array([found is not None and len(found.answer) > 0 for found in self.results])
        steps = self.certs is not None and self.certs.law.name == "splitting" and self.certs.exact
        return answered & inside(self.distance, self.radius, self.threat, edge=steps and self.threat.name == "l1")

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which inputs [m] have their true label as the one that was attacked; all where truth is not known."""
        return np.ones(len(self), dtype=bool) if self.truth is None else self.label == self.truth

    def accuracy_under_attack(self, r: float) -> float:
        """Fraction of attacked inputs with the right label for which no attack of size r was found: an upper bound, for these
        inputs, on the accuracy that any certificate can have at r; NaN where none was attacked.

        An input that has another answer without any change counts nowhere, at r = 0 neither.
        """
        if not self.attacked.any():
            return float("nan")
        return float((self.right & withstands(self.distance, r, self.threat))[self.attacked].mean())

    @property
    def how_many(self) -> str:
        """How many inputs accuracy under attack is about, in words; empty where all were attacked."""
        done = int(self.attacked.sum())
        return "" if done == len(self) else f"{done:,} of {len(self):,} attacked"

    def certified_accuracy(self, r: float) -> float:
        """Fraction of inputs with the right label that are certified at radius r."""
        return float((self.right & (np.nan_to_num(self.radius, nan=-1.0) >= r)).mean())

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Distance less radius of every input that is certified and has a confirmed adversarial one."""
        both = np.isfinite(self.distance) & ~np.isnan(self.radius)
        return self.distance[both] - self.radius[both]

    @property
    def median_gap(self) -> float:
        """The median of `gaps`, NaN if there are none; inputs without a confirmed attack do not count, which makes it smaller."""
        return float(np.median(self.gaps)) if len(self.gaps) else float("nan")

    def summary(self, radii: list[float]) -> dict[str, Any]:
        """Everything a table shows, as plain numbers."""
        found, done = np.isfinite(self.distance), [result for result in self.results if result is not None]
        nearest = self.distance[found & (self.distance > 0)]
        return {
            "inputs": len(self),
            "attacked": len(done),
            "left_out": self.index[~self.attacked].tolist(),
            "threat": self.threat.name,
            "k": self.k,
            "found": int(found.sum()),
            "abstentions": sum(np.isfinite(r.distance) and not r.answer for r in done),
            "cut_short": sum(r.cut_short for r in done),
            "wrong_already": int((self.distance == 0).sum()),
            "only_abstentions": sum(r.abstained > 0 and not np.isfinite(r.distance) for r in done),
            "not_confirmed": sum(r.refuted > 0 and not np.isfinite(r.distance) for r in done),
            "median_distance": float(np.median(nearest)) if len(nearest) else None,
            "median_gap": None if np.isnan(self.median_gap) else self.median_gap,
            "views": sum(result.views for result in done),
            "alarms": [int(self.index[position]) for position in self.alarms],
            "curve": [
                {
                    "radius": r,
                    "certified": self.certified_accuracy(r),
                    "under_attack": self.accuracy_under_attack(r) if done else None,
                }
                for r in radii
            ],
            "notes": list(self.notes),
        }

    def plot(self, path: str | Path | None = None, title: str = "") -> Any:
        """Certified accuracy and accuracy under attack against the radius, as a Matplotlib figure; written to `path` if given."""
        from vauban.report.attack_pictures import curves

        return curves(self, path, title)

    def gallery(self, path: str | Path | None = None, most: int = 8) -> Any:
        """The nearest adversarial pictures beside their originals, as a Matplotlib figure; written to `path` if given."""
        from vauban.report.attack_pictures import gallery

        return gallery(self, path, most)

    def adversarial(self) -> dict[str, NDArray[Any]]:
        """Confirmed adversarial inputs as arrays: images, labels (those that were attacked), index, distance, answer."""
        chosen = [i for i, found in enumerate(self.results) if found is not None and found.x is not None]
        if not chosen:
            raise BadInput("no attack succeeded: there are no adversarial inputs to save")
        results = [self.results[i] for i in chosen]
        return {
            "images": np.stack([r.x for r in results if r is not None and r.x is not None]),
            "labels": self.label[chosen],
            "index": self.index[chosen],
            "distance": self.distance[chosen],
            "answer": np.array([r.answer or (-1,) * self.k for r in results if r is not None], dtype=np.int64),
        }


def withstands(distance: NDArray[np.float64], r: float, threat: Threat) -> NDArray[np.bool_]:
    """Which inputs [m] withstand changes of size r, by the distance [m] of the nearest other answer that was found: one at
    distance 0 is wrong without any change, and withstands none."""
    return (distance > 0) & (distance > r if threat.ball == "closed" else distance >= r)


def inside(
    distance: NDArray[np.float64], radius: NDArray[np.float64], threat: Threat, *, edge: bool = False
) -> NDArray[np.bool_]:
    """Which distances [m] are inside certified radii [m] (NaN: none): below them, by more than rounding; of whole numbers at most
    a closed ball's radius. `edge`: so too where distances and radii are whole numbers of steps of the grid, up to rounding."""
    known = np.nan_to_num(radius, nan=-1.0)
    if threat.ball == "closed" and (threat.integer or edge):
        return distance * (1 - INSIDE) <= known
    return distance * (1 + INSIDE) < known


def false_certificates_note(certified: int, alpha: float | None, alarms: int) -> str | None:
    """What alarms mean where certificates hold with probability: how many false ones alpha allows on average."""
    if not alarms:
        return None
    if alpha is None:
        return f"{alarms} certificates are contradicted; they are exact, and none may be: this is an error in code or model"
    return (
        f"{alarms} of {certified} certificates are contradicted; at alpha = {alpha:g} each, at most {certified * alpha:.3g} "
        "false ones are expected among so many. Fresh votes err with probability at most 1e-06 for each answer"
    )
