"""Published numbers beside ours: the same quantity from a run's certificates, the difference, and its standard error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vauban.attacks.results import withstands
from vauban.bounds.ranks import leaders
from vauban.certificates import Claims
from vauban.report.comparing import standard_error
from vauban.report.lines import ATTACK_TABLE, attack_distances
from vauban.report.numbers import asked_radius, short_median, short_radius
from vauban.reproduce.entry import Entry, Published
from vauban.reproduce.steps import Step
from vauban.runs.run import Run
from vauban.runs.store import SEAL

_NAMES = {
    "certified": "certified accuracy",
    "median": "median radius",
    "predicted": "accuracy, abstentions as errors",
    "clean": "accuracy",
    "base": "base classifier on views",
    "attack-median": "median distance of attacks",
    "under-attack": "accuracy under attack",
}


@dataclass(frozen=True)
class Compared:
    """One published number and ours, in percent or as a radius; None where the paper has none, or the run is not there yet.

    `error`: the standard error of ours: over trainings where there are several seeds, else over inputs. `published_error`:
    that of the published accuracy over the inputs it was measured on, where they are known. `run`: where ours comes from.
    `part`: of the data, test inputs or those that choose.
    """

    source: str
    what: str
    at: str
    published: float | None
    ours: float | None
    error: float | None
    published_error: float | None
    run: str
    seeds: int = 1
    radius: float = 0.0
    axis: str = ""
    x: Any = None
    quantity: str = ""
    done: bool = True
    part: str = "test"

    @property
    def difference(self) -> float | None:
        """Ours less the published number."""
        return None if self.ours is None or self.published is None else self.ours - self.published


def measured(claims: Claims, what: str, radius: float) -> tuple[float | None, float]:
    """A quantity of these claims, in percent or as a radius (None for no median), and its standard error over inputs."""
    if what == "median":
        return _median(claims)
    if what == "certified":
        right = claims.certified(radius).astype(float)
    elif what == "base":
        own = claims.counts[np.arange(len(claims)), claims.truth]
        right = own / np.maximum(claims.counts.sum(axis=1), 1)
    elif what == "predicted" and not claims.exact:
        labels, undecided = leaders(claims.counts, 1, claims.alpha)  # type: ignore[attr-defined]
        right = (~undecided & (labels[:, 0] == claims.truth)).astype(float)
    else:
        share = claims.clean_accuracy
        return 100 * share, 100 * math.sqrt(share * (1 - share) / len(claims))
    return 100 * float(right.mean()), 100 * standard_error(right)


def _median(claims: Claims) -> tuple[float | None, float]:
    """The median radius, and half the distance between the radii one standard error of a rank to either side."""
    value = claims.median_radius
    if math.isnan(value):
        return None, 0.0
    ranked = np.sort(np.where(claims.certified(), claims.radius, -np.inf))[::-1]
    middle, step = (len(ranked) + 1) // 2 - 1, math.sqrt(len(ranked)) / 2
    low = ranked[min(len(ranked) - 1, round(middle + step))]
    high = ranked[max(0, round(middle - step))]
    return value, float((high - max(low, 0.0)) / 2)


def finished(steps: Sequence[Step]) -> list[Step]:
    """The steps whose runs are sealed, or whose attacks are done."""
    return [s for s in steps if (s.run / SEAL).exists() or (s.run / ATTACK_TABLE).exists()]


def attacked(folder: Path, what: str, radius: float) -> tuple[float | None, float]:
    """What attacks found: the median distance over attacked inputs, 0 for wrong ones (None where more than half withstand), or
    the accuracy under attack in percent; with its standard error over inputs, 0 for a median."""
    distance, right, threat, _ = attack_distances(folder)
    if not len(distance):
        return None, 0.0
    if what == "attack-median":
        middle = float(np.median(np.where(right, distance, 0.0)))
        return (None if math.isinf(middle) else middle), 0.0
    holds = right & withstands(distance, radius, threat)
    return 100 * float(holds.mean()), 100 * standard_error(holds.astype(float))


class Opened:
    """The claims of finished runs, each derived once."""

    def __init__(self) -> None:
        self._claims: dict[Any, Claims] = {}
        self._runs: dict[Any, Any] = {}

    def claims(self, step: Step, changes: Mapping[str, Any]) -> Claims:
        """The certificates of a step's run, with these changes of k, n, alpha, bounds, labels or threat."""
        asked = {key: value.format(**step.point) if isinstance(value, str) else value for key, value in changes.items()}
        key = (step.run, *sorted((name, str(value)) for name, value in asked.items()))
        if key not in self._claims:
            if step.run not in self._runs:
                self._runs[step.run] = Run.open(step.run)
            if asked.get("mass") == "inputs":
                asked["mass"] = self._data(step)
            if "labels" in asked:
                asked["label"] = asked.pop("labels")
            self._claims[key] = self._runs[step.run].certificates(**asked)
        return self._claims[key]

    def _data(self, step: Step) -> Any:
        """The whole test set of an entry."""
        from vauban.data import load
        from vauban.data.registry import with_split

        spec = str(with_split(str(step.entry.certify.get("data", step.entry.data)), "test"))
        if spec not in self._runs:
            self._runs[spec] = load(spec)
        return self._runs[spec]


def compare(entry: Entry, steps: Sequence[Step], opened: Opened) -> list[Compared]:
    """Every published number of an entry beside ours."""
    return [row for one in entry.published for row in _rows(one, steps, opened)]


def _rows(one: Published, steps: Sequence[Step], opened: Opened) -> list[Compared]:
    rows = []
    for (published, radius, at), x in zip(one.rows(), one.x or (None,), strict=True):
        fitting = [s for s in steps if s.part == one.part and _fits(s.point, at)]
        found = _best(one, fitting, opened, radius)
        said = one.setting(at)
        said += [f"radius {asked_radius(radius)}"] if one.what == "certified" else []
        said += [one.part] if one.part != "test" else []
        spread = None
        if published is not None and "median" not in one.what and one.inputs:
            spread = math.sqrt(published * (100 - published) / one.inputs)
        name = _NAMES[one.what] if not one.who else f"{_NAMES[one.what]} ({one.who})"
        ours, error, run, seeds = found or (None, None, "", 0)
        rows.append(
            Compared(
                one.source, name, ", ".join(said), published, ours, error, spread, run, seeds, radius, one.over or "", x,
                one.what, found is not None, one.part,
            )
        )  # fmt: skip
    return rows


def _fits(point: Mapping[str, Any], at: Mapping[str, Any]) -> bool:
    return all(str(point.get(axis)) == str(value) for axis, value in at.items())


def _best(
    one: Published, steps: Sequence[Step], opened: Opened, radius: float
) -> tuple[float | None, float, str, int] | None:
    """Ours at the best of the points that are finished: its mean over seeds, standard error, name and number of seeds."""
    by_point: dict[str, list[tuple[float | None, float]]] = {}
    for step in finished(steps):
        name = ", ".join(f"{axis} = {value}" for axis, value in step.point.items())
        if one.what in ("attack-median", "under-attack"):
            found = attacked(step.run, one.what, radius)
        else:
            found = measured(opened.claims(step, one.claim), one.what, radius)
        by_point.setdefault(name, []).append(found)
    averaged = [(*_averaged(values), name, len(values)) for name, values in by_point.items()]
    return max(averaged, key=lambda found: -1.0 if found[0] is None else found[0], default=None)


def _averaged(values: Sequence[tuple[float | None, float]]) -> tuple[float | None, float]:
    """The mean over seeds and its standard error; of one seed, its own. Without a median for one seed there is none for all."""
    if len(values) == 1 or any(value is None for value, _ in values):
        return values[0] if len(values) == 1 else (None, 0.0)
    numbers = np.array([value for value, _ in values], dtype=float)
    return float(numbers.mean()), standard_error(numbers)


def headers() -> list[str]:
    """The columns of `table_rows`."""
    return ["what", "published", "ours", "difference", "run"]


def table_rows(rows: Sequence[Compared]) -> list[list[str]]:
    """The comparison as text: differences in points (of percent) or in units of the radius."""
    return [[f"{row.what}, {row.at}" if row.at else row.what, *cells(row), row.run] for row in rows]


def cells(row: Compared) -> list[str]:
    """Published number, ours and the difference, as text."""
    median = row.quantity in ("median", "attack-median")
    if row.quantity == "number":
        gap = "" if row.difference is None else f"{row.difference:+.3g}"
        return ["not printed" if row.published is None else f"{row.published:.5g}", f"{row.ours:.5g}", gap]
    unit = "" if median else " %"
    none = "none" if median else "not printed"
    published = none if row.published is None else f"{row.published:g}" if median else f"{row.published:.2f}{unit}"
    if not row.done:
        return [published, "not run", ""]
    if row.ours is None:
        return [published, "none", ""]
    spread = f" ± {row.error:.2g}" if row.error else ""
    radius = short_median if row.quantity == "median" else short_radius
    ours = f"{radius(row.ours)}{spread}" if median else f"{row.ours:.2f}{unit}{spread}"
    by = row.difference
    return [published, ours, "" if by is None else f"{by:+.4g}" if median else f"{by:+.2f}"]
