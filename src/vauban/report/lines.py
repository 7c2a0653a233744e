"""Lines of a picture of several runs: accuracy as a function of the radius, and labels that tell the lines apart."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.certificates import Certificates, Claims
from vauban.errors import BadInput
from vauban.files import read_json
from vauban.report.wording import scale_of, threat_of
from vauban.threats import Threat, named

ATTACK_SETTINGS, ATTACK_TABLE = "attack.json", "table.csv"
_SHOWN = ("smoothing", "partition", "model", "data", "k", "votes", "alpha", "bounds", "aggregate", "inputs", "folder")


@dataclass(frozen=True, eq=False)
class Line:
    """A function of the radius that never rises: `accuracy[i]` for radii up to `corners[i]` and above the corner before, `beyond`
    after the last corner.

    `kind`: "certified", "attack" (no attack was found: an upper bound) or "best" (the largest of several lines). `radii`: of
    the inputs certified for their true label, for histograms. `facts`: what a label can be made of. `group`: lines of one run.
    """

    label: str
    corners: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    threat: Threat
    kind: str = "certified"
    beyond: float = 0.0
    claims: Claims | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    group: int = 0

    def at(self, r: float) -> float:
        """The accuracy at radius r."""
        return float(self.values(np.array([r]))[0])

    def values(self, radii: NDArray[np.float64]) -> NDArray[np.float64]:
        """The accuracy at each of these radii [n]."""
        return np.append(self.accuracy, self.beyond)[np.searchsorted(self.corners, radii, side="left")]

    @property
    def radii(self) -> NDArray[np.float64]:
        """The radii of the inputs that are certified for their true label."""
        return np.empty(0) if self.claims is None else self.claims.radius[self.claims.certified()]


def line_of_reach(reach: NDArray[np.float64], **about: Any) -> Line:
    """The line of the share of inputs [m] whose reach is at least the radius; -1 for those that count nowhere."""
    finite = reach[np.isfinite(reach) & (reach >= 0)]
    corners = np.unique(np.concatenate([[0.0], finite]))
    ranked = np.sort(reach)
    accuracy = (len(reach) - np.searchsorted(ranked, corners, side="left")) / len(reach)
    return Line(corners=corners, accuracy=accuracy, beyond=float(np.isinf(reach).mean()), **about)


def line_of_claims(claims: Claims, facts: Mapping[str, str], group: int = 0) -> Line:
    """The certified accuracy of claims with true labels."""
    reach = np.where(claims.certified(), claims.radius, -1.0)
    return line_of_reach(reach, label="", threat=threat_of(claims), claims=claims, facts=facts, group=group)


def line_of_attack(folder: Path, group: int = 0) -> Line:
    """The accuracy of attacked inputs that an attack's folder holds: an upper bound on what any certificate can reach."""
    distance, right, threat, given = attack_distances(folder)
    if not len(distance):
        raise BadInput(f"{folder} holds no attacked input: give the same vauban attack command a larger --budget")
    count = f"{given:,}" if len(distance) == given else f"{len(distance):,} of {given:,}"
    return line_of_reach(
        np.where(right, _reach_of_attack(distance, threat), -1.0),
        label="",
        threat=threat,
        kind="attack",
        facts={"folder": f"{folder.name}, {count} inputs under attack"},
        group=group,
    )


def attack_distances(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.bool_], Threat, int]:
    """Of the m inputs in an attack's folder that were attacked before the budget was spent: the distance [m] of the nearest
    confirmed other answer, infinity for none; and which labels [m] are the true ones. The threat, and how many inputs there are
    in all."""
    threat = named(str(read_json(folder / ATTACK_SETTINGS)["threat"]))
    with open(folder / ATTACK_TABLE, newline="") as file:
        given = list(csv.DictReader(file))
    rows = [row for row in given if row.get("views") != ""]
    distance = np.array([float(row["distance"] or np.inf) for row in rows])
    return distance, np.array([row["truth"] in ("", row["label"]) for row in rows]), threat, len(given)


def _reach_of_attack(distance: NDArray[np.float64], threat: Threat) -> NDArray[np.float64]:
    """The largest radius at which an attack found at this distance does not count: it counts at its distance in a closed ball.
    -1 for an input that is wrong without any change."""
    before = distance
    if threat.ball == "closed":
        before = distance - 1 if threat.integer else np.nextafter(distance, -np.inf)
    return np.where(distance == 0, -1.0, before)


def best_of(lines: Sequence[Line], label: str = "best") -> Line:
    """The largest of several lines at every radius."""
    corners = np.unique(np.concatenate([line.corners for line in lines]))
    accuracy = np.max([line.values(corners) for line in lines], axis=0)
    return Line(label, corners, accuracy, lines[0].threat, "best", max(line.beyond for line in lines), group=len(lines))


def read_lines(
    sources: Iterable[Any], changes: Mapping[str, Sequence[Any]], labels: Sequence[str] | None = None
) -> list[Line]:
    """The lines of runs (folders, opened ones or claims) and of folders of attacks, labelled.

    `changes`: values of k, n, alpha, bounds, threat, smoothing or aggregate to try with every run; each combination is a line.
    """
    found = [line for group, source in enumerate(sources) for line in _lines_of(source, changes, group)]
    if not found:
        raise BadInput("there is nothing to draw: name one run folder or more")
    _refuse_other_threats(found)
    return labelled(found, labels)


def _lines_of(source: Any, changes: Mapping[str, Sequence[Any]], group: int) -> Iterator[Line]:
    if isinstance(source, Claims):
        yield line_of_claims(_with_truth(source, "these claims"), _facts(source, "", f"claims {group + 1}"), group)
        return
    source = Path(source).expanduser() if isinstance(source, str) else source
    if isinstance(source, Path) and (source / ATTACK_SETTINGS).is_file():
        yield line_of_attack(Path(source), group)
        return
    run = _opened(source)
    given = {key: list(values) for key, values in changes.items() if len(values)}
    for values in product(*given.values()):
        claims = run.certificates(**dict(zip(given, values, strict=True)))
        _with_truth(claims, str(run.path))
        yield line_of_claims(claims, _facts(claims, run.manifest.data.spec, run.path.name), group)


def _opened(source: Any) -> Any:
    from vauban.runs.opened import OpenedRun
    from vauban.runs.run import Run

    if isinstance(source, OpenedRun):
        return source
    if isinstance(source, list | tuple):
        raise BadInput(f"a {type(source).__name__} of {len(source)} cannot be drawn as one run: write plot(*runs)")
    if not isinstance(source, str | Path):
        raise BadInput(
            f"{source!r} cannot be drawn: a run folder, an opened run, certificates or an attack's folder can"
        )
    if not Path(source).is_dir():
        raise BadInput(f"{source} is no folder: name a run folder, such as runs/mnist, or the folder of an attack")
    return Run.open(source)


def _with_truth(claims: Claims, name: str) -> Claims:
    if claims.truth is None:
        raise BadInput(f"{name} has no true labels: certified accuracy needs them; its radii are in claims.csv")
    return claims


def _facts(claims: Claims, data: str, folder: str) -> dict[str, str]:
    """What can be said of claims in a label, by name."""
    facts = {"data": data, "k": f"top {claims.k}", "inputs": f"{len(claims):,} inputs", "folder": folder}
    if isinstance(claims, Certificates):
        record = claims.record
        facts["smoothing"] = str(claims.law.spec if record is None else record.manifest.smoothing)
        if record is not None and str(claims.law.spec) != str(record.method.law.spec):
            facts["smoothing"] = str(claims.law.spec)
        if record is not None:
            facts["model"] = f"model {record.manifest.model.sha256[:8]}"
        if not claims.exact:
            facts["votes"] = f"{claims.votes_per_input:,.0f} votes"
            facts |= {"alpha": f"alpha {claims.alpha:g}", "bounds": claims.bounds}
        else:
            facts["alpha"] = "exact"
    else:
        facts |= {
            "partition": f"{getattr(claims, 'models', 0):,} models",
            "aggregate": getattr(claims, "aggregate", ""),
        }
    return facts


def _refuse_other_threats(lines: Sequence[Line]) -> None:
    first = lines[0]
    if len({scale_of(line.claims) for line in lines if line.claims is not None}) > 1:
        raise BadInput(
            "these runs measure radii in different units: their features are standardised by other statistics, or have other "
            "sigmas of their own; draw them apart"
        )
    other = next((line for line in lines if line.threat.name != first.threat.name), None)
    if other is not None:
        names = " and ".join(f"{line.facts.get('folder', '')} ({line.threat.name})" for line in (first, other))
        raise BadInput(
            f"{names} measure different threats, which share no axis: draw them apart, or convert both with --threat "
            "(threat=), where a conversion exists"
        )


def labelled(lines: Sequence[Line], labels: Sequence[str] | None) -> list[Line]:
    """Lines with labels that all differ: as given, or made of the facts in which the lines differ."""
    if labels is not None:
        if len(labels) != len(lines) or len(set(labels)) != len(labels):
            raise BadInput(
                f"{len(labels)} labels ({', '.join(labels)}) for {len(lines)} lines: give one for each, all different"
            )
        return [replace(line, label=label) for line, label in zip(lines, labels, strict=True)]
    claimed = [line for line in lines if line.kind != "attack"]  # of an attack only its folder is known
    differ = [name for name in _SHOWN if len({line.facts.get(name) for line in claimed}) > 1]
    told = [name for name in differ if name not in ("model", "inputs", "folder")]
    tries = [told, *([*told, name] for name in ("folder", "model", "inputs") if name in differ), differ]
    chosen = next((names for names in tries if _tell_apart(lines, names)), differ)
    texts = [_text(line, chosen) for line in lines]
    counted, seen = Counter(texts), Counter[str]()
    for i, text in enumerate(texts):
        seen[text] += 1
        if counted[text] > 1:
            texts[i] = f"{text} ({seen[text]})"
    return [replace(line, label=text) for line, text in zip(lines, texts, strict=True)]


def _tell_apart(lines: Sequence[Line], names: Sequence[str]) -> bool:
    return len({_text(line, names) for line in lines}) == len(lines)


def _text(line: Line, names: Sequence[str]) -> str:
    said = [line.facts[name] for name in names if line.facts.get(name)]
    if not said:
        said = [line.facts.get("smoothing") or line.facts.get("partition") or line.facts.get("folder", "")]
    text = ", ".join(said)
    return f"{text}, under attack" if line.kind == "attack" and "attack" not in text else text
