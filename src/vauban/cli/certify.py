"""vauban certify: cast votes, keep them in a run folder, print what they prove."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example
from vauban.cli.show import show_run

if TYPE_CHECKING:
    from vauban.cli.asked import Asked
    from vauban.runs.certify import Settings
    from vauban.smoothed import SmoothedClassifier

OutOption = Annotated[
    Path, typer.Option("--out", "-o", help="run folder; one that is there is taken up where it ended")
]
BatchOption = Annotated[str, typer.Option(help="how many compute shapes are prepared ahead; changes no result")]
RowsOption = Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")]
BlockOption = Annotated[
    int | None,
    typer.Option(min=1, help="views of one input that stand together in a shape [all; about 100 unless --stop fixed]"),
]
StopOption = Annotated[
    str,
    typer.Option(
        help="when an input has enough votes: fixed (all n), target:radius=0.5, grid:step=0.25 (both at most n), or anytime "
        "(no last vote: until Ctrl-C or --seconds, which keep what was earned). All but fixed watch the label's count alone: "
        "above k = 1 a fixed n with --bounds simuem may certify more"
    ),
]
OnOption = Annotated[
    str,
    typer.Option(
        help="who votes: here, or the workers of a Ray cluster: ray starts one on this machine (or goes to RAY_ADDRESS), "
        "ray:address=host:port goes to that one. The same votes; a run may move"
    ),
]
RadiiOption = Annotated[str | None, typer.Option(help="radii of the table, separated by commas")]


@example(
    "vauban certify --data mnist:split=test --smoothing gaussian:sigma=0.5 -k 1 -n 10000 --every 50 --out runs/mnist",
    "vauban certify --smoothing gaussian:sigma=0.5 --stop target:radius=0.5 -n 100000 --every 50 --out runs/target",
    "vauban certify --model band.safetensors --smoothing band:size=4,threshold=0.3 --every 20 --out runs/band",
    "vauban certify --smoothing gaussian:sigma=0.5 -n 10000 --on ray:address=10.0.0.1:6379 --out runs/mnist",
    "vauban certify --model model.safetensors --data cifar10:path=data --smoothing gaussian:sigma=0.25 -n 100000 --out runs/c",
)
def certify(
    out: OutOption,
    smoothing: common.SmoothingOption,
    data: common.DataOption = "mnist",
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    k: common.KOption = 1,
    n: Annotated[
        int | None, typer.Option("-n", help="votes counted per input, at most; exact: every view votes [100000]")
    ] = None,
    stop: StopOption = "fixed",
    seconds: Annotated[float | None, typer.Option(help="with --stop anytime: how long to go on")] = None,
    alpha: common.AlphaOption = None,
    bounds: common.BoundsOption = None,
    label: Annotated[
        str | None,
        typer.Option(help="given: certify the true label; votes: the one --n0 votes choose, exact: the winner [given]"),
    ] = None,
    n0: Annotated[
        int | None, typer.Option(help="uncounted votes that choose the label (means --label votes) [100]")
    ] = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    batch: BatchOption = "auto",
    rows: RowsOption = None,
    block: BlockOption = None,
    precision: common.PrecisionOption = "fp32",
    compile: common.CompileOption = False,
    tune: common.TuneOption = False,
    arithmetic: Annotated[str, typer.Option(help="auto, grid (8-bit pictures, integer noise) or float")] = "auto",
    device: common.DeviceOption = "auto",
    on: OnOption = "here",
    seed: common.SeedOption = None,
    radii: RadiiOption = None,
    json: common.JsonOption = False,
) -> None:
    """Certify a data set: how far may each input be changed while its label stays in the top k?

    splitting, fractional, sparse, band and block are exact (every view votes) unless they say sampled=true.
    Votes go to a run folder that survives any interruption; the same command takes it up again.
    """
    from vauban.cli.asked import assemble, read_in_flight
    from vauban.cluster import Place
    from vauban.report.summary import parse_radii

    wanted_radii = parse_radii(radii)
    Place.parse(on)
    asked = assemble(
        model=model,
        weights=weights,
        data=data,
        smoothing=smoothing,
        every=every,
        limit=limit,
        device=device,
        in_flight=read_in_flight(batch),
        rows=rows,
        arithmetic=arithmetic,
        block=block,
        precision=precision,
        compile="tuned" if tune else compile,
    )
    settings = read_settings(
        asked.smoothed, k=k, n=n, alpha=alpha, bounds=bounds, label=label, n0=n0, seed=seed, stop=stop, seconds=seconds
    )
    certify_into(out, asked, settings, seed=seed, seconds=seconds, quiet=json, on=on)
    show_run(out, wanted_radii, json)


def read_settings(
    smoothed: SmoothedClassifier,
    *,
    k: int,
    n: int | None,
    alpha: float | None,
    bounds: str | None,
    label: str | None,
    n0: int | None,
    seed: int | None,
    stop: str = "fixed",
    seconds: float | None = None,
) -> Settings:
    """Settings with their defaults; what exact smoothings do not have is refused there."""
    from vauban.asking import CERTIFY_VOTES, CHOOSING_VOTES, DEFAULT_ALPHA
    from vauban.claims import refuse_sampled_settings
    from vauban.runs.certify import Settings
    from vauban.stopping import Anytime, Fixed
    from vauban.stopping import policy as stop_of

    if smoothed.exact:
        spec = str(smoothed.smoothing.spec)
        asked = None if isinstance(stop_of(stop), Fixed) else stop
        refuse_sampled_settings(spec, stop=asked, seconds=seconds, n=n, alpha=alpha, bounds=bounds, n0=n0, seed=seed)
    return Settings(
        k=k,
        n=CERTIFY_VOTES if n is None and not isinstance(stop_of(stop), Anytime) else n,
        alpha=DEFAULT_ALPHA if alpha is None else alpha,
        bounds=bounds,
        label=label or ("given" if n0 is None else "votes"),
        n0=CHOOSING_VOTES if n0 is None else n0,
        stop=stop,
    )


def certify_into(
    out: Path,
    asked: Asked,
    settings: Settings,
    *,
    seed: int | None,
    quiet: bool,
    seconds: float | None = None,
    on: str = "here",
) -> None:
    """Cast the votes that `out` lacks, with a progress bar."""
    from vauban.runs.certify import certify as run
    from vauban.runs.folder import Outlook, Source

    def bar(outlook: Outlook) -> AbstractContextManager[Callable[[int], None]]:
        if outlook.inputs_done and not quiet and not outlook.endless:
            typer.echo(f"{out}: {outlook.inputs_done} of {outlook.inputs} inputs are done already", err=True)
        left = outlook.inputs - outlook.inputs_done
        if outlook.endless:
            until = "until Ctrl-C, which keeps what was earned" if seconds is None else f"for {seconds:g} s"
            return common.counter(f"certifying {outlook.inputs} inputs {until}", "votes", quiet)
        if outlook.votes_left is None:
            return common.progress(f"certifying {left} inputs", left, "inputs", quiet)
        return common.progress(f"certifying {left} inputs", outlook.votes_left, "votes", quiet)

    source = Source(
        asked.data.name,
        asked.data.fingerprint(),
        asked.index.tolist(),
        None if asked.data.labels is None else asked.data.labels.tolist(),
        asked.loaded.spec,
        asked.loaded.fingerprint,
    )
    with common.plain_warnings():
        run(out, asked.smoothed, asked.inputs, source, settings, seed=seed, seconds=seconds, bar=bar, on=on)
