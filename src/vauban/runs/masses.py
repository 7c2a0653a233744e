"""Claims in Wasserstein distance from claims in L1, with the mass of the pictures given, or taken from the run's data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.certificates import Certificates
from vauban.errors import BadInput
from vauban.runs.sections import DataSection
from vauban.runs.selection import check_data


def with_mass(certs: Certificates, threat: str, data: DataSection, mass: Any) -> Certificates:
    """The claims in another threat; `mass`: None (the largest possible), a number, or the whole data set of the run."""
    if mass is None:
        return certs.in_threat(threat, data.shape)
    if isinstance(mass, int | float):
        note = f"presupposed: the numbers of no picture add up to more than {float(mass)!r}, before and after an attack"
        converted = certs.in_threat(threat, data.shape, np.full(len(certs), float(mass)))
    else:
        note = "the mass of every picture is that of the run's inputs; an attack leaves it as it is"
        converted = certs.in_threat(threat, data.shape, _masses(certs, data, mass))
    return replace(converted, notes=(*converted.notes, note))


def _masses(certs: Certificates, data: DataSection, whole: Any) -> NDArray[np.float64]:
    """What the numbers of each certified input add up to, rounded up; the largest possible for a picture without mass. The
    data set must be the run's."""
    images = getattr(whole, "images", None)
    if images is None:
        raise BadInput(f"mass={whole!r}: a number is needed, or the run's data set as vauban.data.load returns it")
    check_data(data, whole)
    where = {int(number): position for position, number in enumerate(whole.index)}
    numbers = np.asarray(images)[[where[int(number)] for number in certs.index]].reshape(len(certs), -1)
    if numbers.dtype == np.uint8:
        sums = np.nextafter(numbers.sum(axis=1, dtype=np.int64) / 255, np.inf)
    else:
        sums = numbers.astype(np.float64).sum(axis=1) * (1 + 1e-12)
    return np.where(sums > 1e-9, sums, float(numbers.shape[1]))
