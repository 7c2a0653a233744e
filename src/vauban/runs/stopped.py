"""How a run that stops input by input is written down, and how its rule is found again; no torch."""

from __future__ import annotations

import hashlib
from typing import Any

from vauban.bounds import group_sequential
from vauban.errors import BadInput
from vauban.laws.law import Law
from vauban.runs import manifest as manifests
from vauban.runs.manifest import Manifest
from vauban.stopping import Anytime, Fixed, GridRule, Policy, Rule
from vauban.stopping import policy as stop_of

_FEW = 2_000


def way(manifest: Manifest) -> Policy:
    """How a run stops; runs that do not say cast a fixed number of votes."""
    return stop_of(manifest["statistics"].get("stop", "fixed"))


def is_fixed(manifest: Manifest) -> bool:
    """Whether every input gets the same number of votes."""
    return isinstance(way(manifest), Fixed)


def is_endless(manifest: Manifest) -> bool:
    """Whether only time or somebody's hand ends the run."""
    return isinstance(way(manifest), Anytime)


def rule_of(manifest: Manifest) -> Rule:
    """The rule of a run that stops input by input, computed anew: nothing that is kept on disk is believed."""
    statistics, data = manifest["statistics"], manifest["data"]
    noise = manifests.claimed_law(manifest).for_shape(data["shape"])
    if not isinstance(noise, Law):
        raise BadInput(f"{noise.spec} is exact: every view votes, and nothing stops")
    return way(manifest).rule(
        noise,
        n=statistics["n"],
        alpha=statistics["alpha"],
        k=statistics["k"],
        deviation=manifest["arithmetic"]["deviation_per_view"],
    )


def described(how: Policy, rule: Rule) -> dict[str, Any]:
    """What a manifest says of a rule: the wish, the test, the looks and the least wins that make a claim at each of them.

    Boundaries [radii, looks] are given by their hash where they are more than a page.
    """
    said: dict[str, Any] = {"stop": str(how.spec), "looks": None}
    if not isinstance(rule, GridRule):
        return {**said, "test": "eprocess"}
    test = getattr(how, "test", "group")
    boundaries = rule.least.tolist()
    digest = hashlib.sha256(manifests.canonical(boundaries).encode()).hexdigest()
    said |= {"looks": list(rule.looks), "test": test, "radii": list(rule.radii)}
    if test == "group":
        said["spending"] = f"early={group_sequential.EARLY},power={group_sequential.POWER}"
    return said | {"boundaries": boundaries if rule.least.size <= _FEW else digest}
