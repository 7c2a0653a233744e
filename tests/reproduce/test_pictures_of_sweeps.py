"""Pictures along an axis of the grid: one line for each setting of the other axes."""

from pathlib import Path
from typing import Any

import pytest

from vauban.reproduce.comparing import Compared
from vauban.reproduce.pictures import _panel, draw_sweeps

figures = pytest.importorskip("matplotlib.figure")


def rows() -> list[Compared]:
    made: dict[str, Any] = {
        "source": "s",
        "what": "accuracy",
        "error": 1.0,
        "published_error": None,
        "run": "r",
        "axis": "size",
    }
    return [
        Compared(at=f"vote = {vote}, size = {size}", published=50.0 + size, ours=60.0 + size, x=size, **made)
        for vote in ("a", "b")
        for size in (4, 1, 2)
    ]


def test_each_setting_of_the_other_axes_has_its_own_line_in_order() -> None:
    axes = figures.Figure().subplots()
    _panel(axes, rows(), "size")
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 3 and line.get_linestyle() != "None"]
    assert [list(line.get_xdata()) for line in lines] == [[1, 2, 4]] * 4
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        f"{who}, vote = {vote}" for who in ("published", "ours") for vote in ("a", "b")
    }


def test_a_sweep_is_written(tmp_path: Path) -> None:
    assert [path.name for path in draw_sweeps(rows(), "Title", tmp_path)] == ["sweep-size.png"]
