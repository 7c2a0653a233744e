"""vauban plan for votes that stop input by input: where the test looks, and the least and most that a claim can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from vauban.cli import common

if TYPE_CHECKING:
    from vauban.cli.asked import Asked
    from vauban.stopping import Policy

_SHOWN = 12


def plan_stopped(
    asked: Asked, how: Policy, *, k: int, n: int | None, alpha: float, bounds: str | None, seconds: float, json: bool
) -> None:
    """Print what this way to stop can certify; a radius that n votes can never certify is refused with the n that could."""
    from vauban.asking import CERTIFY_VOTES
    from vauban.bench.rate import votes_per_second
    from vauban.runs.counts import floor_text
    from vauban.stopping import Anytime, GridRule

    n = CERTIFY_VOTES if n is None and not isinstance(how, Anytime) else n
    smoothed, inputs = asked.smoothed, len(asked.index)
    rule = smoothed.rule(how, asked.inputs, k=k, n=n, alpha=alpha, bounds=bounds)
    rate = votes_per_second(smoothed, asked.inputs, seconds)
    threat = smoothed.sampled_law(asked.inputs).threat
    spec = str(smoothed.smoothing.spec)
    result: dict[str, Any] = {"smoothing": spec, "stop": str(how.spec), "threat": threat.sentence("the radius")}
    result |= {"k": k, "alpha": alpha, "bounds": "binocp", "n": n, "inputs": inputs, "votes_per_second": rate}
    rows: list[list[str]] = []
    if isinstance(rule, GridRule):
        assert n is not None
        tests = [_test(rule, i) for i in range(len(rule.radii))]
        result |= {"looks": list(rule.looks), "radii": tests, "seconds_at_most": inputs * n / rate}
        shown = tests if len(tests) <= _SHOWN else [*tests[: _SHOWN - 1], tests[-1]]
        for test in shown:
            about = f"{test['least_votes']:,} votes, all won" if test["least_votes"] else "no number of votes"
            radius = floor_text(test["radius"]).rstrip("0").rstrip(".") or "0"
            rows.append([f"radius {radius}: probability above {test['needed']:.6g}; least that certifies", about])
        last = tests[-1]["boundaries"][-1]
        rows.append([f"wins of {n:,} that certify the last of them", f"{last:,}"])
        rows.append(["looks", f"{len(rule.looks)}, from {rule.looks[0]:,} to {rule.looks[-1]:,} votes"])
    else:
        rows.append(["looks", f"from {rule.next_look(0):,} votes on, without end"])
    rows += [["inputs", f"{inputs:,}"], ["votes per second, measured", f"{rate:,.0f}"]]
    if n is not None:
        rows.append(["time at most, if no input were decided early", common.duration(inputs * n / rate)])
    if json:
        common.print_json(result)
        return
    common.print_table([f"{spec}, top {k}, alpha {alpha:g}, {how.spec}", ""], rows)
    typer.echo(f"A radius covers {threat.sentence('it')}.")


def _test(rule: Any, i: int) -> dict[str, Any]:
    """The test at one radius of a grid."""
    pairs = zip(rule.looks, rule.least[i].tolist(), strict=True)
    return {
        "radius": rule.radii[i],
        "needed": rule.p[i],
        "boundaries": rule.least[i].tolist(),
        "least_votes": next((look for look, least in pairs if least <= look), None),
    }
