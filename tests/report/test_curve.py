"""The curve of certified accuracy: whole radii have whole ticks, and a plot without a curve says why."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vauban.certificates import Certificates, derive
from vauban.errors import VaubanError
from vauban.report.plots import plot

figure = pytest.importorskip("matplotlib.figure") and pytest.importorskip("vauban.report.curve").figure


def claims(radii: list[float], law: Any = "ablation:retained=45,features=784", labels: int = 0) -> Certificates:
    counts = np.tile([900, 60, 40], (len(radii), 1))
    r = np.array(radii)
    return replace(derive(counts, [labels] * len(radii), law), radius=r, abstained=np.isnan(r))


def ticks(*curves: Certificates) -> list[float]:
    axes = figure(curves).axes[0]
    low, high = axes.get_xlim()
    return [tick for tick in axes.get_xticks() if low <= tick <= high]


@pytest.mark.parametrize("radii", [[1.0, 1.0, 0.0], [0.0, 2.0, 3.0], [0.0, 0.0], [np.nan], [7.0, 31.0]])
def test_whole_radii_have_whole_ticks(radii: list[float]) -> None:
    found = ticks(claims(radii))
    assert len(found) >= 2
    assert all(tick == int(tick) for tick in found)


def test_other_radii_have_ticks_between() -> None:
    assert any(tick != int(tick) for tick in ticks(claims([0.2, 0.7, 0.9], "gaussian:sigma=0.5")))


@pytest.mark.parametrize(
    ("curves", "words"),
    [
        ([claims([np.nan, np.nan])], "no input is certified for its true label"),
        ([claims([2.0]).against([1])], "no input is certified for its true label"),
        ([claims([0.0, np.nan, 0.0])], "2 of 3 inputs are certified,\nall at radius 0"),
        ([claims([1.0, np.nan])], ""),
        ([claims([np.nan, np.nan]), claims([1.0, np.nan])], ""),
    ],
)
def test_an_empty_plot_says_why(curves: list[Certificates], words: str) -> None:
    (text,) = figure(curves).axes[0].texts
    assert text.get_text() == words


def test_a_sigma_for_each_feature_fits_the_picture() -> None:
    law = f"gaussian:sigma={'/'.join(['0.25', '0.123456'] * 7)}"
    drawn = figure([claims([0.2, 0.7], law)], title=f"table.csv:label=class,layout=chw, {law}, 10,000 votes per input")
    drawn.draw_without_rendering()
    (axes,) = drawn.axes
    for text in (axes.title, axes.xaxis.label):
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= drawn.bbox.x1
        assert box.y0 >= 0
        assert box.y1 <= drawn.bbox.y1
    shown = axes.title.get_text().replace("\n", " ")
    assert (
        shown
        == "table.csv:label=class,layout=chw, gaussian:sigma=0.25/0.123456/0.25/0.123456/…, 10,000 votes per input"
    )


@pytest.mark.parametrize("name", ["curve.png", "curve.SVG", "curve.pdf"])
def test_a_plot_creates_its_folder(name: str, tmp_path: Path) -> None:
    certs = claims([1.0, 2.0])
    certs.plot(tmp_path / "a" / name)
    plot(certs, path=tmp_path / "b" / name)
    assert (tmp_path / "a" / name).stat().st_size > 1000 < (tmp_path / "b" / name).stat().st_size


@pytest.mark.parametrize("draw", [lambda path: claims([1.0]).plot(path), lambda path: plot(claims([1.0]), path=path)])
def test_a_plot_that_cannot_be_written_says_why(draw: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, said in (
        ("x.xyz", "end the name with .png"),
        ("x", "end the name with .png"),
        ("file/x.png", "cannot be written"),
    ):
        with pytest.raises(VaubanError, match=said):
            draw(tmp_path / name)
    with pytest.raises(VaubanError, match="^path=3: "):
        draw(3)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_plot_of_runs_says_that_all_radii_are_0_too() -> None:
    def texts(*shown: Certificates) -> list[str]:
        return [text.get_text() for text in plot(*shown).axes[0].texts]

    assert texts(claims([0.0, np.nan, 0.0])) == ["2 of 3 inputs are certified,\nall at radius 0"]
    assert texts(claims([np.nan])) == ["no input is certified for its true label"]
    assert texts(claims([0.0]), claims([1.0])) == []
