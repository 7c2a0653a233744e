"""vauban plan: prints what settings can certify at most and what they cost, before any run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.certify import StopOption
from vauban.cli.common import duration, example
from vauban.cli.plan_radius import plan_radius
from vauban.errors import BadInput

if TYPE_CHECKING:
    from vauban.planning import CertifyPlan

_SHOWN = 12
_OWN_COUNT = ("binocp", "exact")  # bounds that do not depend on the number of classes


@example(
    "vauban plan --smoothing gaussian:sigma=0.5 -n 100000 --alpha 0.001",
    "vauban plan --smoothing gaussian:sigma=0.5 -n 100000 --stop target:radius=0.5",
    "vauban plan --radius 0.5 --votes 10000",
    "vauban plan --radius 0.5 --votes 10000 --model resnet110 --shape 3x32x32",
)
def plan(
    smoothing: Annotated[
        str | None,
        typer.Option(
            "--smoothing",
            "-s",
            help="for example gaussian:sigma=0.5; with --radius sigma may be left out: the least one is searched "
            "[with --radius: gaussian]",
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="say what this radius needs: which sigma, how many wins, and what more votes buy"),
    ] = None,
    data: common.DataOption = "mnist",
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    k: common.KOption = 1,
    n: Annotated[
        int | None,
        typer.Option("-n", "--votes", help="votes counted per input; exact: every view votes [100000]"),
    ] = None,
    alpha: common.AlphaOption = None,
    bounds: common.BoundsOption = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="shape of the inputs in place of --data, for example 3x32x32; without --model no speed is measured"
        ),
    ] = None,
    shuffle: common.ShuffleOption = None,
    skip_bad: common.SkipBadOption = False,
    workers: common.WorkersOption = None,
    input_range: common.InputRangeOption = None,
    standardise: common.StandardiseOption = None,
    device: common.DeviceOption = "auto",
    stop: StopOption = "fixed",
    precision: common.PrecisionOption = "fp32",
    backend: common.BackendOption = None,
    seconds: Annotated[float, typer.Option(help="how long to measure the model's speed")] = 2.0,
    json: common.JsonOption = False,
) -> None:
    """Print the largest radius these settings can ever certify, the votes and the time they take, and the least n.

    With --radius, print what that radius needs: the least sigma, the wins among n votes at several sigmas, and what more votes
    buy. The speed is measured here. An architecture may be given without weights: it is as fast with random ones.
    """
    from vauban.cli.build import classifier_and_data, law_and_shape
    from vauban.report.numbers import radius_text

    what: dict[str, Any] = {
        "model": model,
        "weights": weights,
        "data": data,
        "every": every,
        "limit": limit,
        "shape": shape,
        "shuffle": shuffle,
        "skip_bad": skip_bad,
        "workers": workers,
        "input_range": input_range,
        "standardise": standardise,
        "stream": True,
    }
    where: dict[str, Any] = {"device": device, "precision": precision, "backend": backend, "allow_random": True}
    if radius is not None:
        if stop != "fixed" or bounds not in (None, "binocp"):
            raise BadInput("--radius plans a fixed number of votes by the bound binocp: leave --stop and --bounds out")
        plan_radius(radius, smoothing or "gaussian", what, where, k=k, n=n, alpha=alpha, seconds=seconds, json=json)
        return
    if smoothing is None:
        raise BadInput("neither --smoothing nor --radius is given: give one, such as --smoothing gaussian:sigma=0.5")
    measured: float | None = seconds
    if shape is not None and model is None and weights is None:
        unused = {"--every": every != 1, "--shuffle": shuffle is not None, "--standardise": standardise is not None}
        unused |= {"--precision": precision != "fp32", "--backend": backend is not None, "--skip-bad": skip_bad}
        for name in (name for name, said in unused.items() if said):
            raise BadInput(f"{name} plays no part where a shape is given and no model: leave it out, or give --model")
        measured, (smoothed, inputs) = None, law_and_shape(shape, limit, smoothing, data, k, input_range)
    else:
        smoothed, inputs = classifier_and_data(smoothing=smoothing, **what, **where)
    made = smoothed.plan(inputs, k=k, n=n, alpha=alpha, bounds=bounds, stop=stop, seconds=measured)
    if json:
        common.print_json(made.to_json())
        return
    rows: list[list[str]] = []
    if made.least_n is not None:
        rows += [["least n that can certify", f"{made.least_n:,}"]]
        rows += [["least n that can predict", f"{made.least_n_predict:,}" if made.least_n_predict else "none"]]
    if made.method == "exact":
        rows += [["views per input, all of which vote", f"{made.n:,}"]]
    rows += _tests(made) if made.method == "sequential" else []
    if made.method != "sequential" and made.largest_radius is not None:
        threat = smoothed.smoothing.threat
        largest = radius_text(made.largest_radius, threat)
        at = "if all agree" if made.method == "exact" else f"at n = {made.n:,}"
        rows += [[f"largest radius {at}", largest if threat.integer else largest[:-3]]]
    rows += [["inputs", f"{made.inputs:,}"]]
    rows += [] if made.votes is None else [["votes in total, at most", f"{made.votes:,}"]]
    rows += [] if made.votes_per_second is None else [["votes per second, measured", f"{made.votes_per_second:,.0f}"]]
    if made.seconds is not None:
        early = ", if no input were decided early" if made.method == "sequential" else ""
        rows += [[f"time{early}", duration(made.seconds)]]
    how = {"exact": "exact", "fixed": f"alpha {made.alpha}, {made.bounds}"}
    title = f"{made.smoothing}, top {k}, {how.get(made.method, f'alpha {made.alpha}, {made.stop}')}"
    common.print_table([title, ""], rows)
    typer.echo(f"A radius covers {made.threat}.")
    if measured is None:
        classes = (
            f" The bound {made.bounds} is for {smoothed.num_classes} classes." if made.bounds not in _OWN_COUNT else ""
        )
        typer.echo(f"Skipped: speed and time, which need a model: give --model (see: vauban models).{classes}")


def _tests(made: CertifyPlan) -> list[list[str]]:
    """Table rows for the tests of a sequential policy: what each radius needs, and the looks."""
    from vauban.report.numbers import asked_radius, needed_probability

    if not made.tests:
        return [["looks", f"from {made.looks[0]:,} votes on, without end"]]
    rows = []
    shown = made.tests if len(made.tests) <= _SHOWN else [*made.tests[: _SHOWN - 1], made.tests[-1]]
    for test in shown:
        about = f"{test.least_votes:,} votes, all won" if test.least_votes else "no number of votes"
        needs = f"radius {asked_radius(test.radius)}: probability above {needed_probability(test.needed)}"
        rows.append([f"{needs}; least that certifies", about])
    rows.append([f"wins of {made.n:,} that certify the last of them", f"{made.tests[-1].boundaries[-1]:,}"])
    rows.append(["looks", f"{len(made.looks)}, from {made.looks[0]:,} to {made.looks[-1]:,} votes"])
    return rows
