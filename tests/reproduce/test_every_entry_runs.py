"""Every entry on CIFAR-10 and MNIST from training to picture, on made pictures: a step of training, two inputs, few votes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_cifar import binary_batches

from vauban.errors import Incomplete
from vauban.reproduce.entry import Entry, shipped
from vauban.reproduce.running import Options
from vauban.reproduce.running import reproduce as run_entry
from vauban.specs import Spec
from vauban.training.recipes import named

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow

ENTRIES = [
    one for one in shipped().values() if one.kind == "runs" and Spec.parse(one.data).name in ("cifar10", "mnist")
]
VOTES = {"n": 100, "n0": 20}


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data sets with a made CIFAR-10."""
    folder = tmp_path_factory.mktemp("data")
    binary_batches(folder / "cifar-10-batches-bin")
    return folder


def tried(entry: Entry) -> Entry:
    """The same experiment with two inputs, few votes, a narrow network and one step of training; at most two points of the grid,
    which are its first along every axis, or those with the fewest views."""
    order = {
        axis: sorted(values) if axis == "scale" else list(values) for axis, values in entry.grid.items()
    }  # fewest views
    grid = {axis: values[:1] for axis, values in order.items()}
    if grid and not entry.choose:
        last = list(order)[-1]
        grid[last] = order[last][: 1 if last == "scale" else 2]
    point = replace(entry, grid=grid).points()[0]
    certify: dict[str, Any] = (
        {**entry.certify, "inputs": "::20"} if entry.data == "cifar10" else {**entry.certify, "inputs": "::5000"}
    )
    certify |= {key: value for key, value in VOTES.items() if key in certify}
    smoothing = str(entry.train.get("smoothing", entry.smoothing)).format(**point)
    recipe = entry.train.get("recipe") or entry.train.get("printed")
    model = entry.train.get("model") or named(recipe, smoothing=smoothing, data=entry.data).model
    if Spec.parse(model).name in ("resnet18", "resnet50-cifar"):
        model = re.sub(r":?width=[0-9]+", "", model)
        model = f"{model}{',' if ':' in model else ':'}width=4"
    settings = {**entry.train.get("settings", {}), "epochs": 1, "batch": 4}
    train = {**entry.train, "model": model, "settings": settings, "limit": 8, "validate": 0}
    if entry.together:
        train["together"] = list(entry.together)  # the values of this grid alone
    choose = {**entry.choose, "inputs": "1::20" if entry.data == "cifar10" else "1::5000"} if entry.choose else {}
    pictures = tuple(
        replace(one, lines=tuple({**line, **({"n": VOTES["n"]} if "n" in line else {})} for line in one.lines))
        for one in entry.pictures
    )
    return replace(entry, grid=grid, certify=certify, train=train, choose=choose, pictures=pictures)


@pytest.mark.parametrize("entry", ENTRIES, ids=[one.name for one in ENTRIES])
def test_entry_runs_stops_and_goes_on(
    entry: Entry, cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAUBAN_DATA", str(cifar))
    small, quiet = tried(entry), Options(progress=False, say=lambda text: None)
    with pytest.raises(Incomplete, match="the same command goes on"):
        run_entry(small, tmp_path / "out", replace(quiet, budget=0.001))
    outcome = run_entry(small, tmp_path / "out", quiet)
    assert not outcome.missing
    assert len(outcome.verified) == len(small.points()) + bool(small.choose)
    assert outcome.pictures
    assert all(path.stat().st_size for path in outcome.pictures)
    assert any(row.done for row in outcome.rows) or not entry.published
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*") if path.is_file()}
    run_entry(small, tmp_path / "out", quiet)
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*") if path.is_file()}
