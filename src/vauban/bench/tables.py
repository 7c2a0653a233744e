"""Tables of votes per second, in turns with bare forward passes: every smoothing with one network, and several networks."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vauban.bench.apart import Apart, Failed
from vauban.bench.turns import in_turns
from vauban.engine.compiled import compiled
from vauban.engine.enumerator import Enumerator
from vauban.engine.network import Network, device_name, in_precision
from vauban.errors import BadInput
from vauban.methods import CertifySettings, method_for
from vauban.models import fitting, load
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build
from vauban.smoothing.random import Stream

_INPUTS = {"cuda": 3200, "cpu": 200}  # of an exact smoothing: their views fill many shapes, as those of a run do
_LONGEST = 180.0  # seconds that a row may take on a GPU, compilation included
_GRACE = 30.0  # seconds after `within` in which a row that has begun may still end
_WARNINGS = 5  # that a row keeps


@dataclass(frozen=True)
class Row:
    """One row: a network with random weights, a smoothing, the side of 3-channel pictures, and rows in a shape on a GPU."""

    model: str
    smoothing: str
    size: int = 32
    rows: int = 1000
    backend: str = "torch"
    with_loop: bool = False


_SMALL = "resnet18"
TABLES: dict[str, tuple[Row, ...]] = {
    "networks": (
        Row("resnet50", "gaussian:sigma=0.25", 224, 1024, "fused", True),
        Row("resnet50", "gaussian:sigma=0.25", 224, 1024),
        Row("wideresnet40-2", "gaussian:sigma=0.25", 32, 4096),
        Row("vit", "gaussian:sigma=0.25", 32, 1024),
        Row("vit:patch=16,classes=1000", "gaussian:sigma=0.25", 224, 1024),
        Row("resnet110", "gaussian:sigma=0.25", 32, 4096, "torch", True),
    ),
    "smoothings": (
        Row(_SMALL, "gaussian:sigma=0.5"),
        Row(_SMALL, "band:size=4"),
        Row(_SMALL, "block:size=10"),
        Row(_SMALL, "splitting:sigma=1"),
        Row(_SMALL, "fractional:p=1/2,scale=6"),
        Row(_SMALL, "sparse:scale=20"),
        Row(_SMALL, "ablation:retained=75"),
        Row(_SMALL, "discrete:keep=0.8"),
        Row(_SMALL, "laplace:sigma=0.5"),
        Row(_SMALL, "uniform:sigma=0.5"),
        Row(_SMALL, "flow:sigma=0.05"),
        Row(_SMALL, "splitting:sigma=1,sampled=true"),
        Row(_SMALL, "fractional:p=1/2,scale=6,sampled=true"),
        Row(_SMALL, "band:size=4,sampled=true"),
        Row(_SMALL, "block:size=10,sampled=true"),
    ),
}
"""The rows of each table, those of which most is expected first: a table may be cut off by its time."""


@dataclass(frozen=True)
class Setting:
    """What all rows have in common; `rows`, `size`, `backend`: in place of each row's, None for its own."""

    device: str
    precision: str = "fp32"
    compile: bool | str = False
    seconds: float = 2.0
    rows: int | None = None
    size: int | None = None
    backend: str | None = None


def chosen(table: str, models: Sequence[str] | None) -> list[Row]:
    """The rows of a table; with `models` those of these networks, which the table of smoothings takes in place of its own."""
    if table not in TABLES:
        raise BadInput(f"there is no table {table!r}: give {' or '.join(TABLES)}")
    rows = TABLES[table]
    if not models:
        return list(rows)
    if table == "smoothings":
        return [replace(row, model=model) for model in models for row in rows]
    found = [row for row in rows if row.model.partition(":")[0] in {model.partition(":")[0] for model in models}]
    if not found:
        known = ", ".join(dict.fromkeys(row.model.partition(":")[0] for row in rows))
        raise BadInput(
            f"--model {', '.join(models)} with --table networks, whose networks are {known}: give one of these"
        )
    return found


def measured(
    rows: Sequence[Row], setting: Setting, within: float | None, out: Path | None, on_progress: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """A result for each row, appended to `out` as a line of JSON as soon as it is there.

    A row that fails has its "problem" in place of figures; one that would begin after `within` seconds is "skipped". On a GPU
    rows are measured in a process of their own: one that ends it, or makes the GPU unusable, costs no other row, and one that
    takes too long is ended.
    """
    began, apart = time.monotonic(), Apart() if setting.device.startswith("cuda") else None
    try:
        for row in rows:
            about: dict[str, Any] = {"model": row.model, "smoothing": row.smoothing}
            start = time.monotonic()
            if within is not None and start - began > within:
                result = {**about, "skipped": True}
            else:
                limit = _LONGEST if within is None else min(_LONGEST, within - (start - began) + _GRACE)
                result = _one(row, setting, apart, limit, about) | {"took": round(time.monotonic() - start, 1)}
            if out is not None:
                with out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
            on_progress(1)
            yield result
    finally:
        if apart is not None:
            apart.stop()


def _one(row: Row, setting: Setting, apart: Apart | None, limit: float, about: dict[str, Any]) -> dict[str, Any]:
    """The result of a row, or its problem."""
    try:
        found = _warned(row, setting) if apart is None else apart.call(_warned, row, setting, limit=limit)
        return dict(found)
    except Failed as problem:
        return {**about, "problem": str(problem)}
    except Exception as problem:
        return {**about, "problem": f"{type(problem).__name__}: {problem}"[:2000]}


def _warned(row: Row, setting: Setting) -> dict[str, Any]:
    """`measure` with what was warned of meanwhile: what was not compiled, not fused, not recorded."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        result = measure(row, setting)
    said = dict.fromkeys(str(one.message)[:300] for one in caught if issubclass(one.category, UserWarning))
    return result | ({"warnings": list(said)[:_WARNINGS]} if said else {})


def measure(row: Row, setting: Setting) -> dict[str, Any]:
    """Votes per second of bare passes and of Vauban, and the medians of their ratios over rounds in turns.

    "bare": forward passes of the network in torch, in the layout that Vauban chooses, compiled if `compile` says so; "fused":
    bare passes of its fused graph, where that runs it; "loop": the published one in fp32, where the row asks for it.
    """
    if setting.compile:
        torch.compiler.reset()  # the compiler gives up on code that it has compiled for several networks
    smoothing, size = build(row.smoothing), setting.size or row.size
    shape = torch.Size((3, size, size))
    spec = fitting(row.model, channels=smoothing.view_shape(shape)[0], classes=None, size=size)
    loaded = load(spec, device=setting.device, allow_random=True)
    smoothed = SmoothedClassifier(
        loaded,
        smoothing,
        device=setting.device,
        rows=setting.rows or (row.rows if setting.device == "cuda" else None),
        precision=setting.precision,
        compile=setting.compile,
        backend=setting.backend or row.backend,
    )
    law, classes = smoothing.law, smoothed.num_classes
    pictures = torch.randint(
        0, 256, (_INPUTS[torch.device(setting.device).type] if law.exact else 1, *shape), dtype=torch.uint8
    )
    inputs = smoothed.prepare(pictures)
    with smoothed.ready(inputs):
        method = method_for(CertifySettings.of(law, classes), law, classes, shape, smoothed.deviation(inputs))
        sampler = smoothed.sampler(inputs, method)
        runner, views = smoothed.network.runner, smoothing.view_shape(shape)
        timed = {"bare": _bare(loaded.module, sampler, views, setting)}
        if hasattr(runner, "passes"):
            with torch.inference_mode(), in_precision(setting.precision, sampler.device):  # compares it with the module
                smoothed.network.scores(torch.rand(sampler.rows, *views, device=sampler.device), classes)
            timed["fused"] = _fused(runner.passes((sampler.rows, *views)))
        if row.with_loop:
            timed["loop"] = _loop(spec, sampler, pictures[0], setting)
        timed["vauban"] = _vauban(sampler, inputs.values)
        about = {
            "model": loaded.spec,
            "smoothing": row.smoothing,
            "exact": law.exact,
            "size": size,
            "rows": sampler.rows,
            "device": device_name(sampler.device),
            "precision": setting.precision,
            "compiled": sampler.compiled,
            "backend": "torch" if runner is None else runner.backend.name,
            "threads": torch.get_num_threads(),
        }
        return {**about, **in_turns(timed, sampler.rows, setting.seconds, sampler.device, lambda done: None)}


def _bare(module: torch.nn.Module, sampler: Any, views: torch.Size, setting: Setting) -> Callable[[int], None]:
    """Passes of a module in torch over one batch of `views`."""
    network = Network(module.eval(), sampler.device, setting.precision)
    network.prepare(views)
    batch = network.laid_out(torch.rand(sampler.rows, *views, device=sampler.device))
    model: Any = compiled(network.model, how=setting.compile) if setting.compile else network.model

    def bare(shapes: int) -> None:
        with torch.inference_mode(), in_precision(setting.precision, sampler.device):
            for _ in range(shapes):
                model(batch)

    return bare


def _fused(scores: Callable[[], torch.Tensor]) -> Callable[[int], None]:
    def fused(shapes: int) -> None:
        with torch.inference_mode():
            for _ in range(shapes):
                scores()

    return fused


def _loop(spec: str, sampler: Any, picture: torch.Tensor, setting: Setting) -> Callable[[int], None]:
    """The loop of published scripts: repeat, add noise, classify in fp32, copy every vote to the host, count in Python."""
    plain, there = load(spec, device=setting.device, allow_random=True), (picture.float() / 255).to(sampler.device)

    def loop(shapes: int) -> None:
        counts = [0] * sampler.num_classes
        with torch.inference_mode(), in_precision("fp32", sampler.device):
            for _ in range(shapes):
                copies = there.repeat((sampler.rows, 1, 1, 1))
                votes = plain.module(copies + torch.randn_like(copies) * sampler.smoothing.sigma).argmax(1)
                for vote in votes.cpu().numpy():
                    counts[vote] += 1

    return loop


def _vauban(sampler: Any, inputs: torch.Tensor) -> Callable[[int], None]:
    """Votes as a run casts them."""
    stream = Stream(Seed.of(0), "count", 0)

    def sampled(shapes: int) -> None:
        for _ in sampler.cast(inputs[0], stream, [shapes * sampler.rows]):
            pass

    def exact(shapes: int) -> None:
        most = len(inputs) * sampler.views
        while shapes > 0:
            now = max(1, min(shapes, most // sampler.rows))
            for _ in sampler.cast(inputs, 0, min(now * sampler.rows, most)):
                pass
            shapes -= now

    return exact if isinstance(sampler, Enumerator) else sampled
