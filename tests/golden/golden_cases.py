"""The runs whose counts and claims are kept: every law, at a fixed number of votes, sequentially, and exactly."""

from __future__ import annotations

from typing import Any

SAMPLED = (
    "gaussian:sigma=0.3",
    "laplace:sigma=0.3",
    "laplace:sigma=0.3,bound=theorem1",
    "laplace:sigma=0.3,bound=lecuyer",
    "uniform:sigma=0.3",
    "splitting:sigma=0.4,sampled=true",
    "fractional:p=1/2,scale=4,sampled=true",
    "ablation:retained=6",
    "ablation:retained=6,null=mean",
    "discrete:keep=0.3,values=256",
    "flow:sigma=0.002",
    "flow:sigma=0.002,law=uniform,ground=l2",
    "band:size=1,sampled=true",
    "block:size=2,sampled=true",
)
EXACT = (
    "splitting:sigma=0.4",
    "fractional:p=1/2,scale=2",
    "fractional:p=1/3,scale=1,coupling=global",
    "sparse:scale=9",
    "sparse:scale=12,unit=feature,offsets=2",
    "band:size=1",
    "band:size=1,axis=row,threshold=0.3",
    "block:size=2",
    "block:size=2,count=2",
)
STOPS = ("target:radius={r}", "target:radius={r},test=eprocess", "grid:step={r}")
RADII = {"ablation": "1", "discrete": "1", "band": "1", "block": "1", "flow": "0.0005", "fractional": "0.01"}


def cases() -> dict[str, dict[str, Any]]:
    """Arguments of every run, by a name that says which it is."""
    found: dict[str, dict[str, Any]] = {}
    for spec in SAMPLED:
        found[f"fixed {spec}"] = {"smoothing": spec, "n": 700, "alpha": 0.01}
        found[f"top 2 {spec}"] = {"smoothing": spec, "k": 2, "n": 300, "alpha": 0.05}
        radius = RADII.get(spec.split(":")[0], "0.05")
        for stop in STOPS:
            name = stop.format(r=radius)
            found[f"{name} {spec}"] = {"smoothing": spec, "n": 900, "alpha": 0.02, "stop": name}
    for spec in SAMPLED[:2]:
        found[f"chosen {spec}"] = {"smoothing": spec, "n": 400, "alpha": 0.01, "label": "votes", "n0": 30}
        found[f"half {spec}"] = {"smoothing": spec, "k": 2, "n": 400, "alpha": 0.01, "bounds": "half"}
        chosen = {"smoothing": spec, "n": 900, "alpha": 0.02, "stop": "target:radius=0.05", "label": "votes", "n0": 30}
        found[f"chosen target {spec}"] = chosen
    for spec in EXACT:
        found[f"exact {spec}"] = {"smoothing": spec}
        found[f"exact top 2 {spec}"] = {"smoothing": spec, "k": 2}
        found[f"exact chosen {spec}"] = {"smoothing": spec, "label": "votes"}
    return found
