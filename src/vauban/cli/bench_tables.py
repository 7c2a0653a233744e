"""vauban bench certify --table: whole tables of votes per second, written as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vauban.cli import common


def refuse_unread(
    table: list[str] | None, with_table: dict[str, tuple[Any, Any]], without: dict[str, tuple[Any, Any]]
) -> None:
    """Refuse an option of `vauban bench certify` that would not be read: one of `with_table` without --table, one of `without`
    with it. Each is given as its value and its default."""
    from vauban.errors import BadInput

    for name, (value, default) in (without if table else with_table).items():
        if value != default:
            why = (
                "with --table, whose rows have their own: leave it out"
                if table
                else "is for --table alone: name a table"
            )
            raise BadInput(f"{name} {value} {why}")


def tables(
    names: list[str], models: list[str] | None, within: float | None, out: Path | None, json: bool, **setting: Any
) -> None:
    """Measure the rows of these tables one after the other; `setting`: of `vauban.bench.tables.Setting`."""
    from vauban.bench.tables import Setting, chosen, measured

    rows = [row for name in names for row in chosen(name, models)]
    with common.progress("measuring", len(rows), "rows", json) as advance:
        results = list(measured(rows, Setting(**setting), within, out, advance))
    if json:
        common.print_json(results)
        return
    headers = [
        "votes per second",
        "(a) bare",
        "(b) fused graph, bare",
        "(c) loop",
        "(d) Vauban",
        "d / a",
        "d / b",
        "d / c",
    ]
    device = next((r["device"] for r in results if "device" in r), setting["device"])
    how = {False: "", True: ", compiled", "tuned": ", compiled and tuned"}[setting["compile"]]
    title = f"{device}, {setting['precision']}{how}; the loop in fp32 as published"
    common.print_table(headers, [_cells(result) for result in results], title=title)


def _cells(result: dict[str, Any]) -> list[str]:
    """A row of the table; one that was not measured says why."""
    name = f"{result['model'].partition(':')[0]}, {result['smoothing']}"
    if "vauban" not in result:
        return [name, result.get("problem", "skipped: no time was left").splitlines()[0][:60], *[""] * 6]
    named = f"{name} ({'exact' if result['exact'] else 'sampled'}, {result['size']}x{result['size']}, {result['rows']} rows)"
    rates = [f"{result[key]:,.0f}" if key in result else "" for key in ("bare", "fused", "loop", "vauban")]
    ratios = (f"vauban_to_{key}" for key in ("bare", "fused", "loop"))
    return [named, *rates, *(f"{result[key]:.3f}" if key in result else "" for key in ratios)]
