"""Our attacks beside those of foolbox 3.3.4 and ART 1.20.1, on an undefended network, at equal numbers of calls.

    pip install 'vauban[attack-peers]'
    python benchmarks/attacks/strength.py l2 linf l1 l0 wasserstein patch --out FOLDER

A call is one picture through the network, with or without a gradient. A peer runs as it is by default but for the numbers in the
table; ours is then given as many calls and stopped there. Distances are measured here, in float64, for all alike. Lines are
appended to FOLDER/strength.jsonl, and printed as a table.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from draw import table
from peers import PEERS, Counted
from pieces import Job
from wasserstein import RECIPES

from vauban.attacks.base import BaseTarget, build
from vauban.attacks.distances import distance
from vauban.threats import Threat, named

ROUNDING = 1e-5
"""By how much a distance may be above a budget: peers project in float32."""


@dataclass(frozen=True)
class Match:
    """A peer's attack and ours for one threat; `budgets`: at which success is compared."""

    threat: str
    peer: str
    ours: str
    budgets: tuple[float, ...]
    inputs: int = 0


WASSERSTEIN = (0.1, 0.2, 0.3, 0.5)
MATCHES = {
    "l2": [
        Match("l2", "foolbox-pgd-l2", "pgd:steps=100000", (0.5, 1.0, 1.5, 2.0, 2.5)),
        Match("l2", "foolbox-ddn-100", "minimal:steps=35,restarts=3", (0.5, 1.0, 1.5, 2.0, 2.5)),
        Match("l2", "foolbox-fmn-l2-30", "minimal:steps=15,restarts=2", (0.5, 1.0, 1.5, 2.0, 2.5)),
        Match("l2", "foolbox-fmn-l2-100", "minimal:steps=35,restarts=3", (0.5, 1.0, 1.5, 2.0, 2.5)),
    ],
    "linf": [
        Match("linf", "foolbox-pgd-linf", "pgd:steps=100000", (0.04, 0.06, 0.08, 0.1, 0.15)),
        Match("linf", "foolbox-fmn-linf-100", "minimal:steps=35,restarts=3", (0.04, 0.06, 0.08, 0.1, 0.15)),
    ],
    "l1": [
        Match("l1", "foolbox-pgd-l1", "pgd:steps=100000", (4.0, 6.0, 8.0, 12.0, 16.0)),
        Match("l1", "foolbox-fmn-l1-100", "minimal:steps=35,restarts=3", (4.0, 6.0, 8.0, 12.0, 16.0)),
    ],
    "l0": [Match("l0", "foolbox-pointwise", "pointwise:restarts=1", (5.0, 10.0, 20.0, 40.0))],
    "wasserstein": [
        Match(
            "wasserstein-l2",
            "art-wasserstein",
            "wasserstein:steps=100000,radius=0.1,every=5,factor=1.3",
            WASSERSTEIN,
            10,
        ),
        Match(
            "wasserstein-l2",
            "art-wasserstein",
            "frank-wolfe:steps=100000,radius=0.1,every=5,factor=1.3",
            WASSERSTEIN,
            10,
        ),
    ],
    "patch": [Match("patch", "art-patch", "patch-ifgsm:size=8,places=1,down=10,right=10,steps=100", (8.0,), 20)],
}
CIFAR_BUDGETS = {
    "l2": (0.05, 0.1, 0.15, 0.25, 0.5),
    "linf": (0.5 / 255, 1 / 255, 1.5 / 255, 2 / 255, 4 / 255),
    "l1": (0.5, 1.0, 2.0, 4.0, 8.0),
    "l0": (2.0, 5.0, 10.0, 20.0),
    "wasserstein": (0.005, 0.01, 0.015, 0.02),
}
"""An undefended network of CIFAR-10 gives way to much smaller changes."""


def matches(part: str, data: str) -> list[Match]:
    """What is compared. In L0 of CIFAR-10 single numbers of a picture count: foolbox's Pointwise knows no pixels, and takes as
    many calls as four restarts of ours."""
    if data == "mnist" or part not in CIFAR_BUDGETS:
        return MATCHES[part]
    budgets, kind = CIFAR_BUDGETS[part], {"l0": {"threat": "l0-features"}}.get(part, {})
    found = [
        replace(match, **kind, budgets=budgets, ours=match.ours.replace("radius=0.1", f"radius={budgets[0]}"))
        for match in MATCHES[part]
    ]
    return [*found, replace(found[0], ours="pointwise:restarts=4")] if part == "l0" else found


@dataclass(frozen=True)
class Outcome:
    """What an attack found for m inputs, and what it took."""

    distance: np.ndarray
    calls: float
    seconds: float

    def row(self, name: str, budgets: tuple[float, ...]) -> dict[str, Any]:
        """A line of results."""
        median = float(np.median(self.distance))
        return {
            "attack": name,
            "median": None if np.isinf(median) else median,
            "success": [float((self.distance <= budget * (1 + ROUNDING)).mean()) for budget in budgets],
            "calls": round(self.calls, 1),
            "seconds": round(self.seconds, 2),
            "pictures_per_second": len(self.distance) / self.seconds,
        }


def by_peer(match: Match, module: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> Outcome:
    """A peer's attack; calls are counted by the network it is given."""
    counted, threat = Counted(module), named(match.threat)
    clock = clock_of(x)
    began = clock()
    made = PEERS[match.peer](counted, x, labels, match.budgets)
    seconds = clock() - began
    nearest = np.full(len(x), np.inf)
    for candidates in made:
        nearest = np.minimum(nearest, judged(module, x, candidates, labels, threat))
    return Outcome(nearest, counted.rows / len(x), seconds)


def by_ours(
    match: Match, module: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, calls: float | None
) -> Outcome:
    """Our attack, with this many calls for each picture; None: as many as it takes."""
    target = BaseTarget(module, 10, device=x.device, levels=None)
    if calls is not None:
        target.allow(views=calls * len(x))
    clock = clock_of(x)
    began = clock()
    found = build(match.ours).run(target, x, labels, named(match.threat), seed=0)
    seconds = clock() - began
    far = judged(module, x, found.x, labels, named(match.threat))
    return Outcome(np.where(np.isfinite(found.distance), far, np.inf), target.views / len(x), seconds)


def clock_of(x: torch.Tensor) -> Callable[[], float]:
    """The time of this process on a CPU, whatever else runs there; the time that passes on a GPU."""
    return time.perf_counter if x.is_cuda else time.process_time


def judged(
    module: torch.nn.Module, x: torch.Tensor, made: torch.Tensor, labels: torch.Tensor, threat: Threat
) -> np.ndarray:
    """The distance of adversarial pictures in [0, 1], infinity of others."""
    made = made.clamp(0, 1) if threat.name != "wasserstein-l2" else made
    with torch.no_grad():
        wrong = (module(made).argmax(1) != labels).cpu().numpy()
    far = np.full(len(x), np.inf)
    if wrong.any():
        far[wrong] = distance(x[wrong], made[wrong], threat)
    return far


def compare(
    match: Match,
    module: torch.nn.Module,
    x: torch.Tensor,
    labels: torch.Tensor,
    write: Callable[[dict[str, Any]], None],
) -> None:
    """Both attacks on the same pictures, one line each."""
    if match.inputs:
        x, labels = x[: match.inputs], labels[: match.inputs]
    theirs = by_peer(match, module, x, labels)
    equal = None if match.threat in ("l0", "l0-features", "patch") else theirs.calls
    ours = by_ours(match, module, x, labels, equal)
    for name, outcome in ((match.peer, theirs), (match.ours, ours)):
        shared = {"threat": match.threat, "inputs": len(x), "budgets": list(match.budgets)}
        write(shared | outcome.row(name, match.budgets))


def main() -> None:
    """Compare, append to the file, print all of it."""
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("parts", nargs="+", choices=list(MATCHES))
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--inputs", type=int, default=100)
    read.add_argument("--device", default="cpu")
    read.add_argument("--data", choices=["mnist", "cifar"], default="mnist")
    read.add_argument("--cifar-train", default="cifar10:split=train")
    read.add_argument("--cifar-test", default="cifar10:split=test")
    read.add_argument("--scale", type=float, default=1.0, help="how much of the training is done")
    read.add_argument("--networks", type=Path, help="where trained networks are kept [FOLDER/networks]")
    given = read.parse_args()
    # For all alike: what lies just beyond the boundary stays there in other batches.
    torch.backends.cudnn.allow_tf32 = False
    networks = given.networks or given.out / "networks"
    count = 2 * given.inputs
    job = Job(given.out, networks, 1e9, given.device, count, given.cifar_train, given.cifar_test, given.scale)
    given.out.mkdir(parents=True, exist_ok=True)
    module, x, labels = prepared(job, given.data, given.inputs)
    lines: list[dict[str, Any]] = []

    def write(line: dict[str, Any]) -> None:
        lines.append(line)
        with (given.out / "strength.jsonl").open("a") as file:
            file.write(json.dumps({"data": given.data, **line}) + "\n")
        print(json.dumps(line), flush=True)

    for part in given.parts:
        for match in matches(part, given.data):
            compare(match, module, x, labels, write)
    print(*shown(lines), sep="\n")


def prepared(job: Job, data: str, inputs: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The undefended network, and pictures that it classifies rightly."""
    if data == "mnist":
        module, held = job.baseline("undefended", "wong-mnist", RECIPES["undefended"]), job.mnist()
    else:
        from patches import NEARLY_CLEAN, cifar_network

        module, held = cifar_network(job, "undefended", NEARLY_CLEAN).module, job.cifar()
    module = module.eval().requires_grad_(False).to(job.device)
    x = torch.from_numpy(np.array(held.images)).float().to(job.device) / 255
    labels = torch.from_numpy(np.array(held.labels)).to(job.device)
    with torch.no_grad():
        right = (module(x).argmax(1) == labels).nonzero()[:, 0][:inputs]
    if not len(right):
        raise SystemExit(f"the network classifies none of {len(x)} pictures rightly: train it for longer (--scale)")
    return module, x[right], labels[right]


def shown(lines: list[dict[str, Any]]) -> list[str]:
    """The lines as a table."""
    rows = []
    for line in lines:
        success = ", ".join(f"{100 * s:.0f} % at {b:g}" for s, b in zip(line["success"], line["budgets"], strict=True))
        median = "none" if line["median"] is None else f"{line['median']:.4g}"
        rate = f"{line['pictures_per_second']:.2f}"
        rows.append([line["threat"], f"`{line['attack']}`", line["inputs"], line["calls"], median, success, rate])
    return table("threat | attack | pictures | calls | median distance | success at budget | pictures / s", rows)


if __name__ == "__main__":
    main()
