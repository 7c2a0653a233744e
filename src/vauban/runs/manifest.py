"""The manifest: everything a claim depends on, written before the first vote and never changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import replace_file
from vauban.laws import law
from vauban.laws.law import AnyLaw

SCHEMA = 1
FILE = "manifest.json"
EXACT = "exact"
ALPHA_SPLIT = {
    "binocp": "alpha on the label's lower bound; a rival has at most what the label leaves",
    "simuem": "alpha / classes on the label's lower bound and on each rival's upper bound",
    "half": "alpha / 2 on the label's lower bound, alpha / 2 shared equally by the rivals' upper bounds",
}

Manifest = dict[str, Any]

_SPREAD_NUMBERS = re.compile(r"\[[\s\d,-]+\]")


def exact(manifest: Manifest) -> bool:
    """Whether every view voted, so that claims hold without probability."""
    return manifest["statistics"].get("method") == EXACT


def claimed_law(manifest: Manifest, smoothing: str | None = None) -> AnyLaw:
    """The law of a run, or `smoothing`, if it asks for another proof about the same views."""
    cast_under = law(manifest["smoothing"])
    claimed = cast_under if smoothing is None else law(smoothing)
    if not claimed.same_views(cast_under):
        raise BadInput(f"the run was voted on under {manifest['smoothing']}, not {smoothing}: leave --smoothing out")
    return claimed


def wording(manifest: Manifest) -> str:
    """The claim in words: what a radius in this run says, and of what."""
    if exact(manifest):
        return _exact_wording(manifest)
    statistics, arithmetic = manifest["statistics"], manifest["arithmetic"]
    threat = law(manifest["smoothing"]).threat
    attacks = (
        "Inputs are 8-bit pictures; the claim covers attacks that are pictures on that grid."
        if arithmetic["mode"] == "grid"
        else "Views are made in floating point, and its rounding is not accounted for."
    )
    label = (
        "the given label"
        if statistics["label"] == "given"
        else f"the label chosen by {statistics['n0']} uncounted votes"
    )
    return (
        f"For each input that is not abstained, with probability at least 1 - {statistics['alpha']!r} over the votes, "
        f"{label} is among the top {statistics['k']} of the smoothed classifier ({manifest['smoothing']}, over the base "
        f"classifier {manifest['model']['sha256'][:12]} in the arithmetic recorded here) for {threat.sentence('its radius')}. "
        f"{attacks}" + (f" Votes stopped by {statistics['stop']}." if statistics.get("stop") else "")
    )


def _exact_wording(manifest: Manifest) -> str:
    statistics = manifest["statistics"]
    threat = law(manifest["smoothing"]).threat
    label = "the given label" if statistics["label"] == "given" else "the label with the most votes"
    return (
        f"For each input that is not abstained, {label} is among the top {statistics['k']} of the smoothed classifier "
        f"({manifest['smoothing']}: {statistics['n']} views, each with its vote, over the base classifier "
        f"{manifest['model']['sha256'][:12]} in the arithmetic recorded here) for {threat.sentence('its radius')}. "
        "This is exact: no probability is left. Inputs are 8-bit pictures; the claim covers attacks that are pictures on that "
        "grid."
    )


def arithmetic(noise: AnyLaw, levels: int | None) -> str:
    """In which arithmetic views are made: "grid", exact integers divided once, or "float"."""
    return "grid" if levels is not None and noise.on_grid else "float"


def looks_up_to(n: int) -> list[int]:
    """Sample sizes at which counts are kept: 100, 200, 500, 1,000, … and n, so that the impact of n costs no new votes.

    >>> looks_up_to(1_500)
    [100, 200, 500, 1000, 1500]
    """
    steps = [digit * 10**power for power in range(2, 19) for digit in (1, 2, 5)]
    return [look for look in steps if look < n] + [n]


def identity(manifest: Manifest) -> str:
    """A hash of the whole manifest; every tally line is bound to it."""
    return hashlib.sha256(canonical(manifest).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with one way of writing everything."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(folder / FILE, (_SPREAD_NUMBERS.sub(lambda spread: "".join(spread[0].split()), text) + "\n").encode())


def read(folder: Path) -> Manifest:
    """Read a manifest of a schema this version understands."""
    path = folder / FILE
    if not path.is_file():
        raise RunRefused(f"{folder} is not a run: it has no {FILE}")
    try:
        manifest = json.loads(path.read_bytes())
        schema = manifest["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Lie(f"{path} cannot be read as a manifest") from None
    if schema != SCHEMA:
        raise RunRefused(f"{path} has schema {schema}; this version of Vauban reads schema {SCHEMA}")
    return manifest


def differences(old: Any, new: Any, path: str = "", ignore: tuple[str, ...] = ()) -> Iterator[str]:
    """The fields in which two manifests differ, as lines of text, but for those named in `ignore`."""
    if path in ignore:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key, ignore)
    elif old != new:
        yield f"{path}: the run has {_short(old)}, now {_short(new)}"


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 80 else text[:77] + "…"
