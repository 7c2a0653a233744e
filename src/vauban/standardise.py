"""Standardisation of features by statistics of training data, which a run records; imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.files import arrays_sha256

if TYPE_CHECKING:
    from vauban.runs.sections import Selection

METADATA = "standardised"
"""The entry of a model file that holds the standardisation its network was trained with."""


@dataclass(frozen=True)
class Standardisation:
    """Every feature minus its `mean` and divided by its `scale`, both [features].

    `source`, `sha256`: text form and fingerprint of the training data that they are statistics of. They are never those of the
    inputs that are certified: an attacker who changes an input must not change what it is divided by.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    source: str
    sha256: str

    @classmethod
    def of(cls, training: Any, y: Any = None) -> Standardisation:
        """Mean and standard deviation of every feature of `training`, a data set of `vauban.data` or an array [m, features].

        A feature that is constant there is divided by 1. `y`: the labels of an array, which are part of its fingerprint.

        >>> stats = Standardisation.of(np.array([[0.0, 5.0], [2.0, 5.0]]))
        >>> stats.mean, stats.scale
        ((1.0, 5.0), (1.0, 1.0))
        """
        if hasattr(training, "images") and hasattr(training, "fingerprint"):
            values, source, sha256 = training.images, training.name, training.selection.sha256 or training.fingerprint()
        else:
            values, source = np.asarray(training), type(training).__name__
            sha256 = arrays_sha256(values, None if y is None else np.asarray(y, dtype=np.int64))
        if values.ndim != 2 or values.dtype.kind != "f":
            raise BadInput(
                f"{source}: inputs of shape {tuple(values.shape)} and type {values.dtype} cannot be standardised: a table of "
                "floats [m, features] is needed"
            )
        numbers = np.asarray(values, dtype=np.float64)
        spread = numbers.std(axis=0)
        if not np.isfinite(spread).all():
            raise BadInput(f"{source}: feature {int(np.argmin(np.isfinite(spread)))} has no finite standard deviation")
        constant = spread <= 1e-12 * np.abs(numbers).max(axis=0)
        scale = np.where(constant, 1.0, spread)
        return cls(tuple(numbers.mean(axis=0).tolist()), tuple(scale.tolist()), source, sha256)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any] | str) -> Standardisation:
        """Read what a manifest or a model file holds; ValueError where no run could have written it."""
        found = json.loads(entry) if isinstance(entry, str) else entry
        mean, scale = tuple(found["mean"]), tuple(found["scale"])
        numbers = [*mean, *scale]
        if (
            len(mean) != len(scale)
            or not mean
            or any(type(one) is not float or not math.isfinite(one) for one in numbers)
        ):
            raise ValueError("the standardisation, which has a mean and a scale for each feature")
        if min(scale) <= 0:
            raise ValueError("the standardisation, whose scales are above zero")
        return cls(mean, scale, str(found["from"]), str(found["sha256"]))

    def to_json(self) -> dict[str, Any]:
        """What a manifest holds."""
        return {"mean": list(self.mean), "scale": list(self.scale), "from": self.source, "sha256": self.sha256}

    def metadata(self) -> dict[str, str]:
        """What a file of weights holds, so that the command line finds it: `vb.train(…, metadata=stats.metadata())`."""
        return {METADATA: json.dumps(self.to_json())}

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse inputs of another shape than the table the statistics are of."""
        if tuple(shape) != (len(self.mean),):
            raise BadInput(
                f"inputs of shape {tuple(shape)}, and {self.source} has {len(self.mean)} features: the statistics of a table "
                "with the same columns are needed"
            )

    def refuse_own(self, selection: Selection | None, sha256: str, source: str) -> None:
        """Refuse statistics of the certified inputs, whose hash is `sha256`, or of the data set from which they were taken."""
        if self.sha256 in (sha256, None if selection is None else selection.sha256):
            raise BadInput(
                f"{source} is certified, and the statistics to standardise it are its own: an attacker who changes inputs would "
                "change them too; give training data (--standardise DATA), such as split=train where split=test is certified"
            )

    def applied(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Standardised values [m, features]."""
        self.check_shape(values.shape[1:])
        with np.errstate(over="ignore"):  # beyond float32 they are infinite, which whoever asked refuses
            return ((values.astype(np.float64) - np.array(self.mean)) / np.array(self.scale)).astype(np.float32)

    def undone(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """The features [m, features] whose standardised values these are, up to the rounding of float32.

        >>> stats = Standardisation.of(np.array([[0.0, 5.0], [2.0, 5.0]]))
        >>> stats.undone(np.array([[-1.0, 0.5]])).tolist()
        [[0.0, 5.5]]
        """
        self.check_shape(values.shape[1:])
        return (values.astype(np.float64) * np.array(self.scale) + np.array(self.mean)).astype(np.float32)
