"""Results of m inputs in no tool's layout: what files of results have in common; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.certificates import Claims
from vauban.errors import BadInput
from vauban.report.wording import threat_of
from vauban.threats import L2_SCALED

if TYPE_CHECKING:
    from vauban.poisoning.votes.poisoning_run import PoisoningRun

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Results:
    """What a file says of m inputs; None where it says nothing.

    `index` [m]: the number of each input. `label` [m]: the label that a radius is about, -1 where none is known. `radius` [m]:
    NaN where nothing is claimed. `threat`: what radii are distances in (l1, l2, linf, …). `truth` [m]: true labels. `counts`
    [m, c]: votes per class. `shares` [m, c]: fractions of votes. `p_lower` [m]: lower bound on the probability of the label.
    `ballots` [m, models]: the vote of every base classifier. `run`: the poisoning run whose votes these are. `times`: how long
    each input took, as text. `notes`: what a reader must know.
    """

    index: Ints
    label: Ints | None = None
    radius: Floats | None = None
    threat: str | None = None
    truth: Ints | None = None
    counts: Ints | None = None
    shares: Floats | None = None
    p_lower: Floats | None = None
    ballots: Ints | None = None
    run: PoisoningRun | None = None
    times: Sequence[str] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Where nothing is claimed [m]."""
        return np.isnan(self.needed("radius"))

    @property
    def num_classes(self) -> int:
        """The number of classes, as far as it follows from what there is."""
        for table in (self.counts, self.shares):
            if table is not None:
                return int(table.shape[1])
        known = [values for values in (self.truth, self.label, self.ballots) if values is not None]
        return 1 + max(int(values.max()) for values in known)

    def needed(self, what: str) -> Any:
        """What a layout cannot do without; refused where it is missing."""
        value = getattr(self, what)
        if value is None:
            names = {"truth": "true labels", "radius": "radii", "label": "labels", "counts": "counts of votes"}
            raise BadInput(f"there are no {names.get(what, what)}, which this layout needs: write another one (--to)")
        return value

    def accuracy(self, r: float) -> float:
        """The fraction of inputs whose label is the true one and whose radius is at least r, by what the file says."""
        right = self.needed("label") == self.needed("truth")
        return float((right & (np.nan_to_num(self.needed("radius"), nan=-1.0) >= r)).mean())


def of_claims(certs: Claims) -> Results:
    """The results of certificates: of a run, of a votes file, or of counts. Other tools' layouts have a place for the top 1."""
    if certs.k != 1:
        raise BadInput(
            f"these claims are about the top {certs.k}, and layouts of other tools hold one label per input: derive claims with "
            "k = 1, or write the counts (--to topk)"
        )
    return Results(
        index=certs.index,
        label=certs.label,
        radius=np.where(certs.abstained, np.nan, certs.radius),
        threat=certs.threat.name,
        truth=certs.truth,
        counts=certs.counts,
        notes=(*certs.notes, *units(certs)),
    )


def units(certs: Claims) -> tuple[str, ...]:
    """What radii are measured in, where that is not the plain unit that a reader of another layout would take them for."""
    threat = threat_of(certs)
    if (
        threat.unit.replace("inputs in [0,1]", "pictures in [0,1]") == certs.threat.unit
        and threat.name != L2_SCALED.name
    ):
        return ()
    return (f"the file cannot say what its radii measure: the {threat.metric.rstrip(',')} in {threat.unit}",)


def of_counts(certs: Claims) -> Results:
    """The counts of certificates and the labels that they are about, whatever k is."""
    return Results(index=certs.index, label=certs.label, truth=certs.truth, counts=certs.counts)
