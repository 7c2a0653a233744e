"""Figure 7.1 and appendix F.7 of the thesis: smoothed labels as the baseline of SS-DPA, and pictures that occur twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data import load
from vauban.report.plots import COLOURS
from vauban.reproduce.comparing import Compared, finished
from vauban.reproduce.drawing import new_figure, written
from vauban.reproduce.entry import Entry, find
from vauban.reproduce.steps import Step
from vauban.runs.run import Run

FLIPS = (0.1, 0.3, 0.5, 0.8)
"""Probabilities q that a training label becomes another one."""
RIDGE = 1.0
EVERY = 50
"""Every so many of the test digits are certified."""

_BESIDE = "ss-dpa-mnist"  # the entry whose runs are drawn where they lie in a folder beside
_BLOCK = 1000
_STYLES = ("--", "-", ":")  # of the lines of these runs

Made = tuple[list[Compared], list[Path]]


def label_flips(entry: Entry, out: Path) -> Made:
    """[Levine2023] Figure 7.1: certified accuracy of smoothed labels on MNIST against flipped labels, beside SS-DPA.

    Features are histograms of gradients of upright digits, pooled: a fixed function of each picture. Features and ridge of the
    thesis are not known, so that its curves are not what is drawn here.
    """
    train, test = load("mnist:split=train"), load("mnist:split=test").select(EVERY)
    assert train.labels is not None
    assert test.labels is not None
    flips = np.arange(0, 2001, 10)
    found = certified_curves(train.images, train.labels, test.images, test.labels, flips)
    figure, axes = new_figure()
    for (name, (curve, _)), colour in zip(found.items(), COLOURS, strict=False):
        axes.plot(flips, 100 * curve, color=colour, label=name)
    others = _runs_beside(out, flips)
    for (name, curve), style in zip(others.items(), cycle(_STYLES)):
        axes.plot(flips, 100 * curve, color="0.2", ls=style, label=f"SS-DPA, {name.replace('partitions-', '')} parts")
    axes.set(xlabel="flipped labels", ylabel="certified accuracy (%)", ylim=(0, 100))
    axes.legend(frameon=False, fontsize=8, bbox_to_anchor=(1, 1), loc="upper left")
    rows = [
        Compared(entry.source, f"{name}: {what}", "", None, value, None, None, "computed", quantity="number")
        for name, (curve, median) in found.items()
        for what, value in (("accuracy without flips, percent", 100 * float(curve[0])), ("median of certified flips", median))
    ]  # fmt: skip
    names = ["flips", *(name.replace(",", "") for name in found), *others]
    table = np.stack([flips, *(curve for curve, _ in found.values()), *others.values()], axis=1)
    return rows, written(figure, out / "figure-7.1", names, table)


def certified_curves(
    train_x: NDArray[np.uint8],
    train_y: NDArray[np.int64],
    x: NDArray[np.uint8],
    y: NDArray[np.int64],
    flips: Sequence[int] | NDArray[np.int64],
) -> dict[str, tuple[NDArray[np.float64], float]]:
    """For each q, and for the regression without noise: certified accuracy at each number of flips, and the median radius, which
    is -1 if fewer than half are correct."""
    from vauban.poisoning.smoothed_labels import SmoothedLabels

    model = SmoothedLabels(digit_features(train_x), train_y, 10, FLIPS[0], RIDGE)
    asked, radii = digit_features(x), {}
    for q in FLIPS:
        certs = model.with_flip(q).certify(asked, y)
        radii[f"smoothed labels, q = {q:g}"] = np.where(certs.answer == y, certs.radius, -1)
    answer, radius = model.unsmoothed(asked)
    radii["the regression itself"] = np.where(answer == y, radius, -1)
    return {
        name: (np.array([(right >= number).mean() for number in flips]), float(np.sort(right)[len(right) // 2]))
        for name, right in radii.items()
    }


def digit_features(x: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Gradient histograms of upright digits, pooled to 7 x 7, and a constant: [n, 393], a function of each picture alone."""
    import torch

    from vauban.poisoning.training.input_transforms import gradients, upright

    made = []
    for start in range(0, len(x), _BLOCK):
        pictures = torch.from_numpy(np.ascontiguousarray(x[start : start + _BLOCK])).float() / 255
        made.append(torch.nn.functional.avg_pool2d(gradients(upright(pictures)), 2).flatten(1).numpy())
    features = np.concatenate(made)
    return np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1)


def _runs_beside(out: Path, flips: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Certified accuracy of the runs of SS-DPA in the folder beside, by name; none if there is no such folder."""
    beside = find(_BESIDE)
    curves = {}
    for step in finished([Step(beside, out.resolve().parent / _BESIDE, point) for point in beside.points()]):
        certs: Any = Run.open(step.run).certificates()
        curves[step.name] = np.array([certs.accuracy(int(number)) for number in flips])
    return curves


def repeated_samples(entry: Entry, out: Path) -> Made:
    """[Levine2023] appendix F.7: pictures that occur twice in the training set, and that all labels of one are in one part."""
    from vauban.poisoning.partitioning.partition import Partition
    from vauban.poisoning.partitioning.samples import content_keys

    digits = load("mnist:split=train")
    assert digits.labels is not None
    repeated = len(digits) - len(np.unique(content_keys(digits.images)))
    again = slice(0, None, 100)
    twice = np.concatenate([digits.images, digits.images[again]])
    buckets = Partition(1200, by="sort").buckets(twice)
    apart = int((buckets[len(digits) :] != buckets[: len(digits)][again]).sum())
    said = {
        "training digits that repeat another one's picture": (float(repeated), 0.0),
        "of 600 digits that are repeated with another label, those of which two parts have a copy": (float(apart), 0.0),
    }
    rows = [
        Compared(entry.source, what, "", published, ours, None, None, "computed", quantity="number")
        for what, (ours, published) in said.items()
    ]
    return rows, []


FIGURES: dict[str, Callable[[Entry, Path], Made]] = {"label-flips": label_flips, "repeated-samples": repeated_samples}
