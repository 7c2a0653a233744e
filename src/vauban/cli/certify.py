"""vauban certify: casts votes, writes them to a run folder and prints the certified accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example
from vauban.cli.show import draw, show_announcement, show_certificates

OutOption = Annotated[Path, common.folder_option("run folder; an existing run is resumed")]
BatchOption = Annotated[str, typer.Option(help="how many compute shapes are prepared ahead; changes no result")]
RowsOption = Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")]
BlockOption = Annotated[
    int | None,
    typer.Option(min=1, help="consecutive views of one input in a shape [all; about 100 unless --stop fixed]"),
]
StopOption = Annotated[
    str,
    typer.Option(
        help="when an input has enough votes: fixed (all n), target:radius=0.5, grid:step=0.25 (both at most n), or anytime "
        "(no last vote: until Ctrl-C or --seconds; what was certified is kept). All but fixed use only the label's count: "
        "above k = 1 a fixed n with --bounds simuem may certify more"
    ),
]
OnOption = Annotated[
    str | None,
    typer.Option(
        help="where votes are cast: here, or on a Ray cluster: ray starts one on this machine (or connects to RAY_ADDRESS), "
        "ray:address=host:port connects to that one. The votes are the same; a run may change place [here]"
    ),
]
ExtendOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="continue a finished run to this many votes per input, 2, 4, 8, … times its n: another claim; the claims at n "
        "and at every doubling up to it fail together with probability at most the sum of their alphas",
    ),
]
AnnounceOption = Annotated[
    bool,
    typer.Option(
        "--announce",
        help="write the manifest, print its hash to be published, and cast no vote: noise then needs a nonce that nobody "
        "knows yet (--nonce-from, and later --nonce)",
    ),
]
NonceFromOption = Annotated[
    str | None,
    typer.Option(
        help="with --announce: which one value will be the nonce, WHO/WHAT, a round of a beacon or what a person will say"
    ),
]
KeepOption = Annotated[
    str | None,
    typer.Option(
        help="exact smoothings: ballots keeps the vote of every view, counts only their numbers, where the proof needs no order "
        "of views; a smaller folder [ballots]. Sampled ones with a fixed n: last keeps the counts at n alone, so that no claims "
        "at a smaller n can be derived"
    ),
]
NonceOption = Annotated[
    str | None, typer.Option(help="of an announced run: its nonce, 16 to 64 bytes in lower-case hex; votes begin")
]
RadiiOption = Annotated[str | None, typer.Option(help="radii of the table, separated by commas")]


@example(
    "vauban certify --data mnist:split=test --smoothing gaussian:sigma=0.5 -k 1 -n 10000 --every 50 --out runs/mnist",
    "vauban certify --smoothing gaussian:sigma=0.5 --stop target:radius=0.5 -n 100000 --every 50 --out runs/target",
    "vauban certify --model band.safetensors --smoothing band:size=4,threshold=0.3 --every 20 --out runs/band",
    "vauban certify --smoothing gaussian:sigma=0.5 -n 10000 --on ray:address=10.0.0.1:6379 --out runs/mnist",
    "vauban certify --smoothing gaussian:sigma=0.5 -n 10000 --every 50 --out runs/mnist --extend 20000",
    'vauban certify --smoothing gaussian:sigma=0.5 --every 50 --out runs/a --announce --nonce-from "beacon/round 4711"',
    "vauban certify --smoothing gaussian:sigma=0.5 --every 50 --out runs/a --nonce 7f3c…  (the value of that round)",
    "vauban certify --model model.safetensors --data cifar10:path=data --smoothing gaussian:sigma=0.25 -n 100000 --out runs/c",
    "vauban certify cat.jpg --model net.onnx --smoothing gaussian:sigma=0.5 -n 1000 --out runs/cat",
    "vauban certify --data images:path=photos,size=224 --shuffle 1 --limit 500 --model net.onnx -s gaussian:sigma=0.5 -o runs/p",
    "vauban certify --model net.onnx --backend openvino --smoothing gaussian:sigma=0.5 -n 10000 --out runs/onnx",
)
def certify(
    out: OutOption,
    smoothing: common.SmoothingOption,
    source: common.SourceArgument = None,
    data: common.MaybeDataOption = None,
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    k: common.KOption = 1,
    n: Annotated[
        int | None, typer.Option("-n", help="votes counted per input, at most; exact: every view votes [100000]")
    ] = None,
    stop: StopOption = "fixed",
    seconds: Annotated[float | None, typer.Option(help="with --stop anytime: how long to cast votes")] = None,
    alpha: common.AlphaOption = None,
    bounds: common.BoundsOption = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="given: certify the true label; votes: the one --n0 votes choose, exact: the winner [given, if known]"
        ),
    ] = None,
    n0: Annotated[
        int | None, typer.Option(help="uncounted votes that choose the label (means --label votes) [100]")
    ] = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    shuffle: common.ShuffleOption = None,
    skip_bad: common.SkipBadOption = False,
    workers: common.WorkersOption = None,
    input_range: common.InputRangeOption = None,
    standardise: common.StandardiseOption = None,
    batch: BatchOption = "auto",
    rows: RowsOption = None,
    block: BlockOption = None,
    precision: common.PrecisionOption = "fp32",
    backend: common.BackendOption = None,
    compile: common.CompileOption = False,
    tune: common.TuneOption = False,
    stochastic: common.StochasticOption = None,
    depends: Annotated[
        list[str] | None,
        typer.Option("--depends", help="a file that the model reads; its hash is kept (repeat for more)"),
    ] = None,
    arithmetic: Annotated[str, typer.Option(help="auto, grid (8-bit pictures, integer noise) or float")] = "auto",
    device: common.DeviceOption = "auto",
    on: OnOption = None,
    extend: ExtendOption = None,
    keep: KeepOption = None,
    seed: common.SeedOption = None,
    announce: AnnounceOption = False,
    nonce_from: NonceFromOption = None,
    nonce: NonceOption = None,
    radii: RadiiOption = None,
    json: common.JsonOption = False,
) -> None:
    """Certify a data set: how far may each input be changed while its label stays in the top k?

    splitting, fractional, sparse, band and block are exact (every view votes) unless they say sampled=true.
    Votes go to a run folder that survives any interruption; the same command resumes it.
    """
    from vauban.cli.build import classifier_and_data, data_of, read_in_flight
    from vauban.report.summary import parse_radii

    shown_radii = parse_radii(radii)
    smoothed, inputs = classifier_and_data(
        model=model,
        weights=weights,
        data=data_of(source, data),
        smoothing=smoothing,
        every=every,
        limit=limit,
        shuffle=shuffle,
        skip_bad=skip_bad,
        workers=workers,
        input_range=input_range,
        standardise=standardise,
        stream=True,
        device=device,
        in_flight=read_in_flight(batch),
        rows=rows,
        arithmetic=arithmetic,
        stochastic=stochastic,
        depends=depends or (),
        block=block,
        precision=precision,
        backend=backend,
        compile="tuned" if tune else compile,
    )
    certs = smoothed.certify(
        inputs,
        k=k,
        n=n,
        alpha=alpha,
        bounds=bounds,
        stop=stop,
        label=label,
        n0=n0,
        seconds=seconds,
        seed=seed,
        out=out,
        extend=extend,
        keep=keep,
        on=on,
        progress=not json,
        announce=announce,
        nonce_from=nonce_from,
        nonce=nonce,
        picture=lambda made: draw([made]),
    )
    if announce:
        show_announcement(out, certs, json)
        return
    show_certificates(out, [certs], shown_radii, json)
