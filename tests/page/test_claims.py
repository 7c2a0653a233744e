"""How the page judges claims: a label is chosen by votes of its own; a radius of 0 is a claim where radii are whole numbers."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from javascript import needs_node, run

from vauban.certificates import derive

pytestmark = needs_node

SAMPLED = {
    "schema": 2,
    "kind": "smoothing",
    "smoothing": "gaussian:sigma=0.5",
    "settings": {"k": 1, "n": 40, "alpha": 0.05, "bounds": "binocp", "stop": "fixed", "label": "votes", "n0": 20},
    "inputs": {"arithmetic": "float", "levels": None, "deviation_per_view": 0.0},
    "compute": {"stochastic": None, "rows_differ": False},
    "method": {"name": "fixed"},
    "data": {"index": [0], "label": None, "num_classes": 2, "shape": [4]},
}
POISONED = {
    "schema": 2,
    "kind": "poisoning",
    "models": 13,
    "partition": "hash:partitions=13",
    "settings": {"aggregate": "plurality", "k": 1, "label": "given"},
    "data": {"index": [0], "label": [1], "num_classes": 3},
}


def state(manifest: dict[str, Any], claim: str, lines: list[dict[str, Any]] | None = None, **held: Any) -> str:
    """What a page with this one claim says of it; `lines` of votes get their checks."""
    text = json.dumps(manifest)
    binding = hashlib.sha256(text.encode()).hexdigest()

    def checked(line: dict[str, Any]) -> str:
        body = json.dumps(line, separators=(",", ":"))
        check = hashlib.sha256(f"{binding}\n{body}".encode()).hexdigest()[:16]
        return f'{body[:-1]},"check":"{check}"}}'

    page = {
        "manifest": text,
        "claims": f"index,label,radius,abstained,truth\n0,{claim}\n",
        "claimsFile": "claims.csv",
        "seal": None,
        "nonce": None,
        "binding": binding,
        "finished": True,
        "lines": [checked(line) for line in lines or []],
        **held,
    }
    return str(run("return (await V.verifyRun(given)).rows[0].state", page))


def line(stage: str, *counts: int) -> dict[str, Any]:
    return {
        "input": 0,
        "stage": stage,
        "votes": sum(counts),
        "counts": {str(i): votes for i, votes in enumerate(counts)},
    }


def test_a_label_is_chosen_by_votes_of_its_own() -> None:
    counted = line("count", 13, 27)
    radius = float(derive([[13, 27]], [1], "gaussian:sigma=0.5", alpha=0.05).radius[0])
    claim = f"1,{radius!r},false,"
    assert state(SAMPLED, claim, [line("choose", 8, 12), counted]) == "proven"
    assert state(SAMPLED, claim, [line("choose", 12, 8), counted]) == "wrong"
    assert state(SAMPLED, claim, [counted]) == "wrong"
    assert state(SAMPLED, claim, [line("choose", 0, 1), counted]) == "wrong"


@pytest.mark.parametrize(("votes", "expected"), [([3, 10, 0], "wrong"), ([6, 7, 0], "proven"), ([10, 3, 0], "wrong")])
def test_a_radius_of_0_must_be_proven_where_radii_count_samples(votes: list[int], expected: str) -> None:
    assert state(POISONED, "1,0,false,1", counts=[[0, votes]]) == expected


def test_nothing_is_claimed_where_votes_prove_nothing() -> None:
    lines = [line("choose", 8, 12), line("count", 20, 20)]
    assert state(SAMPLED, "1,,true,", lines) == "proven"
    assert state(SAMPLED, "1,0,false,", lines) == "wrong"
    assert state(SAMPLED, "1,1e-10,false,", lines) == "wrong"
    assert state(SAMPLED | {"smoothing": "ablation:retained=2"}, "1,0,false,", lines) == "wrong"
