"""vauban serve: answers predictions and certificates over HTTP, and certifies batches in the background."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example

if TYPE_CHECKING:
    from vauban.service.desk import Desk
    from vauban.service.settings import Limits

InputOption = Annotated[
    str | None, typer.Option("--input", help="shape of one input, such as 3x32x32 or 20 [that of --data, or 1x28x28]")
]

WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="compute shapes cast at a time; processors are shared among them [by size]"),
]


@example(
    "vauban serve --smoothing gaussian:sigma=0.5",
    "vauban serve --model model.safetensors --smoothing gaussian:sigma=0.25 --input 3x32x32 --port 8000",
    "VAUBAN_TOKEN=… vauban serve --smoothing gaussian:sigma=0.5 --host 0.0.0.0 --runs /srv/runs --on ray:address=10.0.0.1:6379",
)
def serve(
    smoothing: common.SmoothingOption,
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="data set whose inputs have the shape and class names [none]")
    ] = None,
    input: InputOption = None,
    input_range: Annotated[
        str, typer.Option(help="allowed values of inputs that are no pictures: LOW,HIGH, or any")
    ] = "0,1",
    host: Annotated[str, typer.Option(help="address to listen at; 0.0.0.0 is every one of this machine")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to listen at")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="VAUBAN_TOKEN", help="requests need this token (other users see options; the variable is hidden)"
        ),
    ] = None,
    runs: Annotated[
        Path, typer.Option(parser=common.read_folder, metavar="PATH", help="folder of batches and kept records")
    ] = Path("served-runs"),
    on: Annotated[str | None, typer.Option(help="where batches vote: here, or ray:address=host:port [here]")] = None,
    queue: Annotated[int, typer.Option(min=1, help="requests in progress; more are answered with 429")] = 64,
    seconds: Annotated[float, typer.Option(min=0.1, help="the longest that votes are cast for one request")] = 30.0,
    upload: Annotated[int, typer.Option(min=1, help="the largest body of a request, in bytes")] = 8 * 2**20,
    pixels: Annotated[
        int, typer.Option(min=1, help="the largest picture, in pixels, before it is scaled")
    ] = 16_000_000,
    rows: Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")] = None,
    block: Annotated[
        int | None, typer.Option(min=1, help="consecutive views of one input in a shape [by rows]")
    ] = None,
    workers: WorkersOption = None,
    precision: common.PrecisionOption = "fp32",
    backend: common.BackendOption = None,
    device: common.DeviceOption = "auto",
) -> None:
    """Serve a smoothed classifier: POST /predict, /certify (events while the radius grows), /batch; GET / is a page to try it.

    Requests share compute shapes. Replicas with one --runs folder share batches: one that dies is continued by another.
    """
    from vauban.service.settings import Limits

    limits = Limits(queue=queue, seconds=seconds, upload=upload, pixels=pixels)
    desk = make_desk(
        smoothing=smoothing,
        model=model,
        weights=weights,
        data=data,
        input=input,
        input_range=input_range,
        runs=runs,
        on=on,
        limits=limits,
        rows=rows,
        block=block,
        workers=workers,
        precision=precision,
        backend=backend,
        device=common.pick_device(device),
    )
    from vauban.service.running import bind, close, listen, server

    if token is not None and not token.strip():
        raise typer.BadParameter("the token is empty: give one, or none at all")
    if token is None and host not in ("127.0.0.1", "localhost", "::1"):
        typer.echo(
            "warning: whoever reaches this address can ask; give a token (VAUBAN_TOKEN) to change that", err=True
        )
    one, sockets = server(desk, host, port, token), bind(host, port)
    try:
        desk.start()
        listen(sockets, host, port)
        where = f"http://{f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}"
        typer.echo(f"serving {desk.about()['model']}, {smoothing}, at {where} (runs in {runs})", err=True)
        one.run(sockets)
    finally:
        desk.close()
        close(sockets)


def make_desk(
    *,
    smoothing: str,
    model: str | None,
    weights: str | None,
    data: str | None,
    input: str | None,
    input_range: str,
    runs: Path,
    on: str | None,
    limits: Limits,
    rows: int | None,
    block: int | None,
    precision: str,
    backend: str | None,
    device: str,
    allow_random: bool = False,
    workers: int | None = None,
) -> Desk:
    """The service of these options; torch's threads are shared among its workers."""
    from vauban.data import load_some
    from vauban.errors import BadInput, MissingExtra
    from vauban.models import load as load_model
    from vauban.models import packaged
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing import build
    from vauban.standardise import METADATA

    try:
        from vauban.service.desk import Desk
        from vauban.service.served import Served, service_block, service_shape, split_threads
    except ImportError:
        raise MissingExtra("FastAPI, uvicorn and prometheus-client", "serve", "a service") from None
    example = None if data is None else load_some(data, 1, 1)
    chosen = model or packaged(data or "mnist")
    if chosen is None:
        raise BadInput(f"no model is packaged for {data}: give --model (see: vauban models)")
    base = load_model(chosen, weights, device, allow_random=allow_random)
    if METADATA in getattr(base, "metadata", {}):
        raise BadInput(
            f"{chosen} was trained on features scaled by statistics that its file holds, and the service scales none: "
            "use vauban certify, or serve a model with its scaling inside"
        )
    if input is not None:
        shape = read_shape(input)
    elif example is not None:
        shape = tuple(example.images.shape[1:])
    elif model is None:
        shape = (1, 28, 28)
    else:
        raise BadInput("the shape of an input is not known: give --input, such as 3x32x32, or --data")
    classes: Any = base.num_classes or (None if example is None else example.num_classes or None)
    chosen_rows, chosen_block = service_shape(shape, device)
    smoothed = SmoothedClassifier(
        base,
        build(smoothing),
        num_classes=classes,
        device=device,
        rows=rows or chosen_rows,
        block=block or (chosen_block if rows is None else service_block(rows)),
        precision=precision,
        backend=backend,
        input_range=read_range(input_range),
    )
    names = None if example is None or example.num_classes != smoothed.num_classes else example.class_names
    shapes = split_threads(smoothed, shape, workers)
    return Desk(Served(smoothed, shape), runs, limits, on=on, classes=names, workers=shapes)


def read_shape(text: str) -> tuple[int, ...]:
    """Read --input: sides with x between them."""
    from vauban.errors import BadInput

    sides = text.split("x")
    if not all(side.isdecimal() and 0 < int(side[:9]) <= 100_000 for side in sides) or len(sides) > 4:
        raise BadInput(f"--input {text}: the sides of one input with x between them are needed, such as 3x32x32 or 20")
    return tuple(map(int, sides))


def read_range(text: str) -> tuple[float, float] | None:
    """Read --input-range: two numbers, or any."""
    from vauban.errors import BadInput

    if text == "any":
        return None
    try:
        low, high = map(float, text.split(","))
        if not low < high:
            raise ValueError
    except ValueError:
        raise BadInput(f"--input-range {text}: LOW,HIGH, such as 0,1, or any") from None
    return low, high
