"""vauban bench serve: the service under load, beside bare forward passes."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example
from vauban.cli.serve import WorkersOption


@example("vauban bench serve", "vauban bench serve --model resnet18:channels=3,classes=10 --data cifar10:path=data")
def serve(
    model: common.ModelOption = None,
    smoothing: common.SmoothingOption = "gaussian:sigma=0.5",
    data: common.DataOption = "mnist",
    clients: Annotated[int, typer.Option(min=1, help="how many clients ask at the same time")] = 32,
    seconds: Annotated[float, typer.Option(min=0.5, help="seconds of each measurement in a round")] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, help="how often each is measured, in turns")] = 3,
    votes: Annotated[int, typer.Option(min=100, help="votes of one request")] = 10_000,
    rows: Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")] = None,
    block: Annotated[
        int | None, typer.Option(min=1, help="consecutive views of one input in a shape [by rows]")
    ] = None,
    workers: WorkersOption = None,
    precision: common.PrecisionOption = "fp32",
    backend: common.BackendOption = None,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Votes per second of many clients beside bare forward passes, and time to a first radius beside one client's.

    An architecture without weights gets random ones. The service and its clients run on this machine, the clients in a
    process of their own.
    """
    from pathlib import Path

    import numpy as np

    from vauban.bench.serve import measure
    from vauban.cli.serve import make_desk
    from vauban.data import load_some
    from vauban.service.settings import Limits

    with TemporaryDirectory() as runs, common.progress("measuring", int(3.5 * seconds * rounds), "s", json) as advance:
        desk = make_desk(
            smoothing=smoothing,
            model=model,
            weights=None,
            data=data,
            input=None,
            input_range="0,1",
            runs=Path(runs),
            on=None,
            limits=Limits(queue=2 * clients, seconds=600.0),
            rows=rows,
            block=block,
            workers=workers,
            precision=precision,
            backend=backend,
            device=common.pick_device(device),
            allow_random=True,
        )
        np.save(inputs := Path(runs) / "inputs.npy", load_some(data, 1, clients).images)
        found = measure(desk, inputs, clients, seconds, rounds, votes, advance)
    if json:
        common.print_json(found)
        return
    table = [
        ["bare forward passes, views per second", f"{found['bare']:,.0f}"],
        [f"{clients} clients, votes per second", f"{found['served']:,.0f}"],
        ["clients / bare", f"{found['served_to_bare']:.3f}"],
        ["the same by processor time of the service's process", f"{found['served_to_bare_cpu']:.3f}"],
        ["the same with the processor time of the clients", f"{found['served_to_bare_cpu_with_clients']:.3f}"],
        ["first radius, one client, median", f"{found['single_first_radius'] * 1000:,.0f} ms"],
        [f"first radius, {clients} clients, 95 % within", f"{found['p95_first_radius'] * 1000:,.0f} ms"],
        ["that / one client", f"{found['p95_to_single']:.2f}"],
        [f"first radius, {clients} at once, 95 % within", f"{found['p95_at_once'] * 1000:,.0f} ms"],
        ["that / one client", f"{found['at_once_to_single']:.2f}"],
    ]
    how = f"{found['rows']} rows in blocks of {found['block']}, {found['workers']} at a time"
    how = f"{how}, with {found['threads']} thread{'s' if found['threads'] > 1 else ''} each, {precision}"
    asked = f"{found['requests']} requests of {found['votes']} votes"
    common.print_table([f"{found['model']} on {found['device']}, {how}", asked], table)
