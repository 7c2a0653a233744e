"""vauban plan: what settings can prove and what they cost, before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vauban.cli import common
from vauban.cli.certify import StopOption
from vauban.cli.common import duration, example
from vauban.cli.plan_stopped import plan_stopped

if TYPE_CHECKING:
    from vauban.cli.asked import Asked


@example(
    "vauban plan --smoothing gaussian:sigma=0.5 -n 100000 --alpha 0.001",
    "vauban plan --smoothing gaussian:sigma=0.5 -n 100000 --stop target:radius=0.5",
)
def plan(
    smoothing: common.SmoothingOption,
    data: common.DataOption = "mnist",
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    k: common.KOption = 1,
    n: Annotated[
        int | None, typer.Option("-n", help="votes counted per input; exact: every view votes [100000]")
    ] = None,
    alpha: common.AlphaOption = None,
    bounds: common.BoundsOption = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    device: common.DeviceOption = "auto",
    stop: StopOption = "fixed",
    precision: common.PrecisionOption = "fp32",
    seconds: Annotated[float, typer.Option(help="how long to measure the model's speed")] = 2.0,
    json: common.JsonOption = False,
) -> None:
    """Say the largest radius these settings can ever certify, the votes and the time they take, and the least n."""
    from vauban.asking import CERTIFY_VOTES, DEFAULT_ALPHA
    from vauban.bench.rate import votes_per_second
    from vauban.bounds.ranks import least_votes
    from vauban.claims import check_alpha, check_k, default_bounds, largest_radius, least_n, refuse_sampled_settings
    from vauban.cli.asked import assemble
    from vauban.errors import BadInput
    from vauban.runs.counts import floor_text
    from vauban.stopping import Fixed
    from vauban.stopping import policy as stop_of

    if alpha is not None:
        check_alpha(alpha)
    asked = assemble(
        model=model,
        weights=weights,
        data=data,
        smoothing=smoothing,
        every=every,
        limit=limit,
        device=device,
        precision=precision,
    )
    how = stop_of(stop)
    check_k(k, asked.smoothed.num_classes)
    if asked.smoothed.exact:
        wanted = None if isinstance(how, Fixed) else stop
        refuse_sampled_settings(str(asked.smoothed.smoothing.spec), stop=wanted, n=n, alpha=alpha, bounds=bounds)
        _plan_exactly(asked, k, seconds, json)
        return
    alpha = DEFAULT_ALPHA if alpha is None else alpha
    if not isinstance(how, Fixed):
        plan_stopped(asked, how, k=k, n=n, alpha=alpha, bounds=bounds, seconds=seconds, json=json)
        return
    n = CERTIFY_VOTES if n is None else n
    classes, law, inputs = asked.smoothed.num_classes, asked.smoothed.sampled_law(asked.inputs), len(asked.index)
    way = bounds or default_bounds(k)
    deviation = asked.smoothed.deviation(asked.inputs)
    least = least_n(k, alpha, classes, way, law, deviation)
    farthest = largest_radius(n, k, alpha, classes, way, law, deviation) if n >= 1 else None
    rate = votes_per_second(asked.smoothed, asked.inputs, seconds)
    result = {
        "smoothing": str(asked.smoothed.smoothing.spec),
        "threat": law.threat.sentence("the radius"),
        "k": k,
        "alpha": alpha,
        "bounds": way,
        "n": n,
        "least_n": least,
        "least_n_predict": least_votes(k, alpha),
        "largest_radius": farthest,
        "inputs": inputs,
        "votes": inputs * n,
        "votes_per_second": rate,
        "seconds": inputs * n / rate,
    }
    if json:
        common.print_json(result)
    else:
        rows = [
            ["least n that can certify", f"{least:,}"],
            ["least n that can predict", f"{result['least_n_predict']:,}"],
            [f"largest radius at n = {n:,}", "none" if farthest is None else floor_text(farthest)[:-3]],
            ["inputs", f"{inputs:,}"],
            ["votes in all", f"{inputs * n:,}"],
            ["votes per second, measured", f"{rate:,.0f}"],
            ["time", duration(inputs * n / rate)],
        ]
        common.print_table([f"{result['smoothing']}, top {k}, alpha {alpha:g}, {way}", ""], rows)
        typer.echo(f"A radius covers {law.threat.sentence('it')}.")
    if farthest is None:
        raise BadInput(f"n={n} can certify nothing at alpha={alpha:g}: the least is {least}")


def _plan_exactly(asked: Asked, k: int, seconds: float, json: bool) -> None:
    """Exact: how many views there are, the radius of an input on which they all agree, the time."""
    from vauban.bench.rate import votes_per_second
    from vauban.runs.counts import radius_text

    law, inputs = asked.smoothed.exact_law(asked.inputs), len(asked.index)
    rate = votes_per_second(asked.smoothed, asked.inputs, seconds)
    farthest = law.largest_radius(k, asked.smoothed.num_classes)
    result = {
        "smoothing": str(asked.smoothed.smoothing.spec),
        "exact": True,
        "threat": law.threat.sentence("the radius"),
        "k": k,
        "views": law.views,
        "largest_radius": farthest,
        "inputs": inputs,
        "votes": inputs * law.views,
        "votes_per_second": rate,
        "seconds": inputs * law.views / rate,
    }
    if json:
        common.print_json(result)
        return
    rows = [
        ["views of each input, all of which vote", f"{law.views:,}"],
        ["largest radius, if all agree", radius_text(farthest, law.threat)],
        ["inputs", f"{inputs:,}"],
        ["votes in all", f"{inputs * law.views:,}"],
        ["votes per second, measured", f"{rate:,.0f}"],
        ["time", duration(inputs * law.views / rate)],
    ]
    common.print_table([f"{result['smoothing']}, top {k}, exact", ""], rows)
    typer.echo(f"A radius covers {law.threat.sentence('it')}.")
