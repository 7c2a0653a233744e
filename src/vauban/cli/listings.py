"""vauban data and vauban models: lists the known data sets and architectures."""

from __future__ import annotations

from vauban.cli import common
from vauban.cli.common import example


@example("vauban data", "vauban certify --data cifar10:path=data --smoothing gaussian:sigma=0.25 --out runs/c …")
def data(json: common.JsonOption = False) -> None:
    """List the known data sets and where their files are searched for."""
    from dataclasses import asdict

    from vauban.data import describe

    _show([asdict(row) for row in describe()], json)


@example("vauban models", "vauban train --model resnet18:classes=10,channels=3 --data cifar10:path=data …")
def models(json: common.JsonOption = False) -> None:
    """List the architectures that can be built; any package.module:callable works too."""
    from dataclasses import asdict

    from vauban.models import describe

    _show([asdict(row) for row in describe()], json)


def _show(rows: list[dict[str, object]], json: bool) -> None:
    if json:
        common.print_json(rows)
        return
    words = {True: "yes", False: "no", None: ""}
    table = [[words[v] if v is None or isinstance(v, bool) else str(v) for v in row.values()] for row in rows]
    common.print_table(list(rows[0]), table, numbers=False)
