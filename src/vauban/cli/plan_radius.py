"""vauban plan --radius: prints which noise a radius needs, how many votes must be won, and what that costs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from vauban.cli import common
from vauban.cli.common import duration
from vauban.errors import BadInput, needs_torch

if TYPE_CHECKING:
    from vauban.radius_planning import Need, RadiusPlan

_INPUTS = 500


def plan_radius(
    radius: float,
    smoothing: str,
    what: dict[str, Any],
    where: dict[str, Any],
    *,
    k: int,
    n: int | None,
    alpha: float | None,
    seconds: float,
    json: bool,
) -> None:
    """Print what a radius needs, and the speed of the model `what` measured as `where` says."""
    from vauban.radius_planning import plan_radius as made_for

    shape, levels = _inputs(what)
    settings: dict[str, Any] = {"n": 10_000 if n is None else n, "k": k, "alpha": 0.001 if alpha is None else alpha}
    made = made_for(radius, smoothing, **settings, shape=shape, levels=levels)
    rate, unmeasured = _votes_per_second(made, what, where, seconds)
    if json:
        common.print_json(made.to_json() | {"votes_per_second": rate, "shape": list(shape)})
        return
    _show(made)
    if rate is None:
        typer.echo(f"cost: not measured; {unmeasured}")
        return
    each = made.n / rate
    typer.echo(
        f"cost here: {rate:,.0f} votes per second of {what['model'] or 'the packaged model'} on {'x'.join(map(str, shape))}, "
        f"{duration(each)} an input, {duration(_INPUTS * each)} for {_INPUTS}, at {made.n:,} votes each"
    )


def _inputs(what: dict[str, Any]) -> tuple[tuple[int, ...], int | None]:
    """The shape of an input, and the levels of its grid (None: floats)."""
    from vauban.cli.claim import read_shape
    from vauban.data import load_some

    if what["shape"] is not None:
        return read_shape(what["shape"]), 255
    images = load_some(what["data"], limit=1).images
    return images.shape[1:], 255 if images.dtype == "uint8" else None


def _votes_per_second(
    made: RadiusPlan, what: dict[str, Any], where: dict[str, Any], seconds: float
) -> tuple[float | None, str]:
    """The speed; None, and why, where torch is not installed or where the packaged model cannot take these views."""
    from vauban.cli.build import classifier_and_data

    enough = max(
        need.n for need in made.votes
    )  # settings that can certify nothing are refused, and the speed is the same
    try:
        smoothed, inputs = classifier_and_data(smoothing=made.votes[0].smoothing, **what, **where)
        cost = smoothed.plan(inputs, k=made.k, n=enough, alpha=made.alpha, bounds="binocp", seconds=seconds)
    except ModuleNotFoundError as problem:
        if (missing := needs_torch(problem, "measuring the speed")) is None:
            raise
        return None, str(missing)
    except BadInput as problem:
        if what["model"] is not None:
            raise
        return None, str(problem)
    return cost.votes_per_second, ""


def _show(made: RadiusPlan) -> None:
    from vauban.laws import law
    from vauban.report.numbers import asked_radius

    asked = asked_radius(made.radius)
    threat = law(made.levels[0].smoothing).threat
    title = f"radius {asked} ({threat.name}), top {made.k}, alpha {made.alpha}, {made.n:,} votes"
    headers = ["noise", "probability of the label above", f"least wins of {made.n:,}", "largest radius"]
    common.print_table(headers, [[need.smoothing, *_cells(need)] for need in made.levels], title=title)
    if len(made.levels) > 1:
        typer.echo(
            f"The first is the least sigma that can reach {asked} with {made.n:,} votes. A small sigma asks for a surer model, a "
            "large one for a model that bears more noise: train at two or three of them and compare what is certified."
        )
    headers = [
        f"votes at {made.votes[0].smoothing}",
        f"least wins that certify {asked}",
        "as a share",
        "largest radius",
    ]
    common.print_table(headers, [[f"{need.n:,}", *_cells(need, share=True)] for need in made.votes])


def _cells(need: Need, share: bool = False) -> list[str]:
    from vauban.report.numbers import needed_probability, short_radius

    largest = "nothing" if need.largest_radius is None else short_radius(need.largest_radius)
    wins = "not even all" if need.wins is None else f"{need.wins:,}"
    if share:
        return [wins, "" if need.wins is None else _percent_up(need.wins, need.n), largest]
    probability = "none below 1" if need.probability != need.probability else needed_probability(need.probability)
    return [probability, wins, largest]


def _percent_up(wins: int, n: int) -> str:
    """A share of votes in percent, rounded up."""
    return f"{-(-wins * 10_000 // n) / 100:.2f} %"
