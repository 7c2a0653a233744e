"""Figures that follow from formulas alone: no network, no votes. Each function draws, and compares what the paper says."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.laws.ablation import AblationLaw
from vauban.laws.fractional import ExactFractionalLaw
from vauban.laws.gaussian import GaussianLaw
from vauban.laws.laplace import LaplaceLaw
from vauban.laws.topk import radius
from vauban.report.plots import COLOURS
from vauban.reproduce import label_flips
from vauban.reproduce.comparing import Compared
from vauban.reproduce.drawing import new_figure, written
from vauban.reproduce.entry import Entry

Made = tuple[list[Compared], list[Path]]


def laplace_regions(entry: Entry, out: Path) -> Made:
    """[Teng2020] Figure 4: where the bound of Theorem 1 is above that of [Lecuyer2019], for every lower bound p_A of the top
    class and upper bound p_B of the second; both by the laws that certify."""
    grid = np.linspace(0.005, 0.995, 199)
    label, rival = (axis.ravel() for axis in np.meshgrid(grid, grid))
    inside = (label + rival <= 1) & (label > rival)
    ours, theirs = (np.full(len(label), np.nan) for _ in range(2))
    for values, bound in ((ours, "theorem1"), (theirs, "lecuyer")):
        law = LaplaceLaw(sigma=math.sqrt(2), bound=bound)
        values[inside] = radius(law, label[inside], rival[inside][:, None])
    better = np.where(inside, np.where(ours > theirs * (1 + 1e-9), 1.0, 0.0), np.nan)
    agree = np.mean(better[inside] == _theorem1_wins(label[inside], rival[inside]))
    figure, axes = new_figure()
    axes.pcolormesh(
        grid, grid, better.reshape(199, 199), cmap="RdYlGn_r", vmin=0, vmax=1, shading="nearest", rasterized=True
    )  # as vectors its 40,000 cells are 7 MB
    axes.set(
        xlabel="lower bound of the top class, p_A",
        ylabel="upper bound of the second class, p_B",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.set_title("red: Theorem 1 is larger; green: Lecuyer et al. (2019) is as large", fontsize=10)
    points = np.stack([label, rival, ours, theirs], axis=1)[inside]
    row = _said(
        entry, "points of the grid where the printed condition (remark 2) agrees with the laws, in percent", 100 * agree
    )
    return [row], written(figure, out / "figure-4", ["p_A", "p_B", "theorem 1", "lecuyer"], points[::20])


def _theorem1_wins(label: NDArray[np.float64], rival: NDArray[np.float64]) -> NDArray[np.float64]:
    """The condition of remark 2 in [Teng2020]: between the two roots Theorem 1 is better."""
    root = np.sqrt(np.maximum(1 - 4 * label * (1 - label), 0))
    low, high = ((1 - 2 * label * (1 - label) + sign * root) / (2 * label) for sign in (-1, 1))
    return ((low < rival) & (rival < high)).astype(float)


def laplace_binary(entry: Entry, out: Path) -> Made:
    """[Teng2020] Table 1 and Figure 6: the radius of two classes against the probability of the top one, at the same variance."""
    p = np.linspace(0.501, 0.999, 250)
    laws: list[tuple[str, Any]] = [
        ("Laplace, Theorem 2", LaplaceLaw(1.0)),
        ("Laplace, Lecuyer et al.", LaplaceLaw(1.0, "lecuyer")),
        ("Gaussian, Cohen et al.", GaussianLaw(1.0)),
    ]
    curves = [radius(law, p, (1 - p)[:, None]) for _, law in laws]
    figure, axes = new_figure()
    for (name, _), curve, colour in zip(laws, curves, COLOURS, strict=False):
        axes.plot(p, curve, color=colour, label=name)
    axes.set(
        xlabel="probability of the top class", ylabel="radius at standard deviation 1: L1 (Laplace), L2 (Gaussian)"
    )
    axes.legend(frameon=False)
    table = [-math.log(2 * (1 - 0.9)) / math.sqrt(2), math.log(0.9 / 0.1) / 2 / math.sqrt(2), 1.2815515655446004]
    at = [float(radius(law, np.array([0.9]), np.array([[0.1]]))[0]) for _, law in laws]
    rows = [
        _said(entry, f"{name}: radius at probability 0.9", value, published)
        for (name, _), value, published in zip(laws, at, table, strict=True)
    ]
    return rows, written(figure, out / "figure-6", ["p", *(name for name, _ in laws)], np.stack([p, *curves], axis=1))


def rops(entry: Entry, out: Path) -> Made:
    """[Teng2020] appendix D, Figures 10 and 11: the largest standard deviation at which smoothing a band |x| <= 1 keeps its
    label, at every x, and at x = 0.3 with a radius to be certified."""
    places = np.linspace(0, 0.98, 50)
    first = {name: np.array([_largest_sigma(law, x, 0.0) for x in places]) for name, law in _NOISES.items()}
    radii = np.linspace(0, 0.6, 13)
    second = {name: np.array([_largest_sigma(law, 0.3, r) for r in radii]) for name, law in _NOISES.items()}
    figure, panels = new_figure(2)
    for axes, x, curves, label in (
        (panels[0], places, first, "x"),
        (panels[1], radii, second, "radius to be certified at x = 0.3"),
    ):
        for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
            axes.plot(x, curve, color=colour, label=name)
        axes.set(xlabel=label, ylabel="largest standard deviation")
        axes.legend(frameon=False)
    published = {"Laplace": math.sqrt(2) / math.log(2), "Gaussian": 1 / 0.6744897501960817}
    rows = [_said(entry, f"{name}: supremum at x = 0", float(first[name][0]), published[name]) for name in _NOISES]
    columns = ["x", *first]
    return rows, written(figure, out / "figures-10-11", columns, np.stack([places, *first.values()], axis=1))


def _inside_band(cdf: Callable[[float], float], x: float) -> float:
    """The probability that x plus noise of this distribution function lies in [-1, 1]."""
    return cdf(1 - x) - cdf(-1 - x)


def _laplace_cdf(z: float) -> float:
    return 0.5 * math.exp(z) if z < 0 else 1 - 0.5 * math.exp(-z)


def _gauss_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


_NOISES: dict[str, Any] = {
    "Laplace": (lambda z, sigma: _laplace_cdf(z * math.sqrt(2) / sigma), LaplaceLaw),
    "Gaussian": (lambda z, sigma: _gauss_cdf(z / sigma), GaussianLaw),
}


def _largest_sigma(noise: Any, x: float, wanted: float) -> float:
    """The largest standard deviation, up to 4, at which the band's label is certified at x for the radius wanted."""
    cdf, law = noise

    def holds(sigma: float) -> bool:
        p = _inside_band(lambda z: cdf(z, sigma), x)
        if wanted == 0 or p <= 0.5:
            return p >= 0.5 and wanted == 0
        found = radius(law(sigma), np.array([p]), np.array([[1 - p]]))[0]
        return bool(found >= wanted)

    sigmas = np.linspace(0.02, 4, 400 if wanted == 0 else 80)
    good = [sigma for sigma in sigmas if holds(float(sigma))]
    if not good:
        return math.nan
    low, high = float(good[-1]), float(good[-1] + sigmas[1] - sigmas[0])
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def ablation_delta(entry: Entry, out: Path) -> Made:
    """[Levine2023] Figure 2.2: the share Delta of views that keep one of rho changed pixels, for 784 pixels."""
    distances, kept = np.arange(0, 41), (5, 15, 25, 35, 45, 55, 65, 75, 85, 95)
    laws = {k: AblationLaw(retained=k, features=784) for k in kept}
    curves = {k: np.asarray(law.most(np.zeros(len(distances)), distances)) for k, law in laws.items()}
    figure, axes = new_figure()
    from matplotlib import colormaps

    for number, (k, curve) in enumerate(curves.items()):
        axes.plot(distances, curve, color=colormaps["viridis"](number / len(kept)), label=f"k = {k}")
    axes.axhline(0.5, color="0.6", lw=0.8)
    axes.set(xlabel="changed pixels, rho", ylabel="Delta", ylim=(0, 1))
    axes.legend(frameon=False, fontsize=8, ncols=2)
    worst = max(
        abs(float(curves[k][r]) - float(1 - Fraction(math.comb(784 - r, k), math.comb(784, k))))
        for k in kept
        for r in (1, 8, 40)
    )
    row = _said(entry, "largest difference from 1 - C(d - rho, k) / C(d, k) in whole numbers", worst, 0.0)
    table = np.stack([distances, *curves.values()], axis=1)
    return [row], written(figure, out / "figure-2.2", ["rho", *(f"k={k}" for k in kept)], table)


def designs(entry: Entry, out: Path) -> Made:
    """[Levine2023] Figure 4.5: g(z) = z^p, and the share of 1,000 views that tell two values z apart, for p = 1/2 and 1/3."""
    figure, panels = new_figure(2)
    rows, columns, z = [], [], np.arange(256) / 255
    for axes, p in zip(panels, (Fraction(1, 2), Fraction(1, 3)), strict=True):
        law = ExactFractionalLaw(p)
        apart = law.design.separations() / law.views
        wanted = z ** float(p)
        axes.plot(z, wanted, color=COLOURS[0], label=f"z^{p}")
        axes.plot(z, apart, color=COLOURS[1], ls="--", label="share of views that tell them apart")
        axes.set(xlabel="difference z of two values", ylabel="share of views", ylim=(0, 1.02))
        axes.legend(frameon=False)
        columns += [wanted, apart]
        rows.append(_said(entry, f"p = {p}: largest difference", float(np.max(wanted - apart)), 0.02))
        rows.append(_said(entry, f"p = {p}: most by which it is above z^p", float(np.max(apart - wanted)), 0.0))
    names = ["z", "z^(1/2)", "design 1/2", "z^(1/3)", "design 1/3"]
    return rows, written(figure, out / "figure-4.5", names, np.stack([z, *columns], axis=1))


FIGURES: dict[str, Callable[[Entry, Path], Made]] = {
    "laplace-regions": laplace_regions,
    "laplace-binary": laplace_binary,
    "rops": rops,
    "ablation-delta": ablation_delta,
    "designs": designs,
    **label_flips.FIGURES,
}


def _said(entry: Entry, what: str, ours: float, published: float | None = None) -> Compared:
    """A row of the comparison for a number that is no accuracy."""
    return Compared(entry.source, what, "", published, ours, None, None, "formula", quantity="number")
