"""Selections: a run records by which rule its inputs were taken from which data set, and verify --data applies it again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.data import Dataset, load, load_some
from vauban.errors import Lie, RunRefused
from vauban.files import write_json
from vauban.runs.manifest import identity
from vauban.runs.store import read_record, write_claims
from vauban.runs.verify import verify_run
from vauban.votes import SampledVotes

SIZE = 12
SETTINGS: dict[str, Any] = {"n": 100, "alpha": 0.01, "progress": False}


def half(views: torch.Tensor) -> torch.Tensor:
    mean = views.flatten(1).mean(dim=1)
    return torch.stack([0.5 - mean, mean - 0.5], dim=1)


@pytest.fixture
def smoothed() -> vb.SmoothedClassifier:
    return vb.SmoothedClassifier(half, "gaussian:sigma=0.25", num_classes=2)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data set of 12 pictures, each of its own grey."""
    path = tmp_path_factory.mktemp("data") / "greys.npz"
    greys = np.linspace(0, 255, SIZE).astype(np.uint8)
    np.savez(path, images=np.tile(greys[:, None, None, None], (1, 1, 2, 2)), labels=(greys > 127).astype(np.int64))
    return f"npz:path={path},classes=2"


def selection(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())["data"]["selection"]  # type: ignore[no-any-return]


def verified(folder: Path, spec: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["verify", str(folder), "--data", spec])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


def forged(folder: Path, to: Path, keep: list[int], requires: list[str] | None = None, **changes: Any) -> Path:
    """A copy in which only the inputs at these positions exist, with every check, claim and seal made anew."""
    record, _ = read_record(folder)
    raw = json.loads((folder / "manifest.json").read_text())
    raw |= {} if requires is None else {"requires": requires}
    raw["data"] |= {key: [raw["data"][key][i] for i in keep] for key in ("index", "label")} | changes
    votes = record.votes
    assert isinstance(votes, SampledVotes)
    kept = {votes.index[i] for i in keep}
    shutil.copytree(folder, to)
    write_json(to / "manifest.json", raw)
    lines = [votes.line(tally, identity(raw)) for tally in votes.tallies() if tally.input in kept]
    (to / votes.file).write_text("".join(f"{line}\n" for line in lines))
    write_claims(to, read_record(to)[0])
    return to


@pytest.mark.parametrize(
    ("every", "limit", "rule"), [(1, None, (1, None)), (3, None, (3, None)), (2, 4, (2, 4)), (3, 4, (3, None))]
)
def test_the_rule_gives_the_inputs(
    every: int, limit: int | None, rule: tuple[int, int | None], file: str, smoothed: Any, tmp_path: Path
) -> None:
    whole = load(file)
    smoothed.certify(load_some(file, every, limit), out=tmp_path / "run", **SETTINGS)
    said = selection(tmp_path / "run")
    assert said == {"size": SIZE, "sha256": whole.fingerprint(), "every": rule[0], "limit": rule[1]}
    assert "as the manifest's rule selects them" in verified(tmp_path / "run", file)
    assert "as the manifest's rule" in str(verify_run(tmp_path / "run", data=whole).selection)
    assert "vauban verify --data compares" in verify_run(tmp_path / "run").unproven[1]
    smoothed.certify(whole.select(every, limit), out=tmp_path / "run", **SETTINGS)  # the same run


def test_a_dropped_input_is_caught(file: str, smoothed: Any, tmp_path: Path) -> None:
    """Whatever the owner makes anew: the manifest contradicts itself, or the data set."""
    whole, run = load(file), tmp_path / "run"
    smoothed.certify(whole.select(2), out=run, **SETTINGS)
    keep, rule = [0, 1, 3, 4, 5], selection(run)
    with pytest.raises(Lie, match="some were left out or put in"):
        verify_run(forged(run, tmp_path / "a", keep))
    without = Dataset(np.delete(whole.images, 4, 0), np.delete(whole.labels, 4), 2, ("0", "1"), "less")  # type: ignore[arg-type]
    smoothed.certify(without.select(2), out=tmp_path / "less", **SETTINGS)
    verify_run(tmp_path / "less")
    assert "left out before the run" in verified(tmp_path / "less", file, code=2)
    lying = forged(tmp_path / "less", tmp_path / "b", [0, 1, 2, 3, 4, 5], selection=rule)
    verify_run(lying)  # consistent in itself
    assert "not those of" in verified(lying, file, code=1)
    by_hand = forged(run, tmp_path / "c", keep, selection={**rule, "every": None})
    assert "selection by hand" in verify_run(by_hand).unproven[1]
    assert "(sha256 differs)" in verified(by_hand, file, code=1)


def test_a_forged_shuffle_or_skip_is_caught(file: str, smoothed: Any, tmp_path: Path) -> None:
    """Whatever the owner makes anew: another seed gives other inputs, and a skipped input must be unreadable in the data set."""
    run = tmp_path / "run"
    smoothed.certify(load_some(file, 1, 6, shuffle=3), out=run, **SETTINGS)
    rule, index = selection(run), read_record(run)[0].manifest.data.index
    shuffle, skipped = "data.selection.shuffle", "data.selection.skipped"
    assert rule == {"size": SIZE, "sha256": load(file).fingerprint(), "every": 1, "limit": 6, "shuffle": 3}
    assert "in the order shuffled by 3" in verified(run, file)
    every, keep = list(range(6)), [0, 1, 2, 4, 5]
    with pytest.raises(Lie, match="some were left out or put in"):
        verify_run(forged(run, tmp_path / "seed", every, selection={**rule, "shuffle": 4}))
    with pytest.raises(Lie, match="some were left out or put in"):
        verify_run(forged(run, tmp_path / "less", keep))
    lying = forged(run, tmp_path / "skip", keep, [shuffle, skipped], selection={**rule, "skipped": [index[3]]})
    assert "without 1 whose files cannot be read" in verify_run(lying).unproven[1]
    assert "as one that cannot be read, and in" in verified(lying, file, code=1)
    other = next(number for number in range(SIZE) if number not in index)
    with pytest.raises(Lie, match=f"skips input {other}, which its rule does not select"):
        verify_run(forged(run, tmp_path / "o", every, [shuffle, skipped], selection={**rule, "skipped": [other]}))
    for wrong in (
        {"shuffle": "3"},
        {"shuffle": -1},
        {"shuffle": 3, "size": None},
        {"skipped": 7},
        {"shuffle": 3, "size": 10**12},
    ):
        with pytest.raises((Lie, RunRefused)):
            verify_run(forged(run, tmp_path / f"{wrong}", every, [shuffle, skipped], selection={**rule, **wrong}))
    for named in ([], [skipped]):
        with pytest.raises((Lie, RunRefused)):
            verify_run(forged(run, tmp_path / f"names {named}", every, named))


def test_a_selection_by_hand_is_called_so(file: str, smoothed: Any, tmp_path: Path) -> None:
    whole = load(file)
    picked, labels = whole.images[[1, 4, 5]], whole.labels[[1, 4, 5]]  # type: ignore[index]
    smoothed.certify(picked, labels, index=[1, 4, 5], out=tmp_path / "hand", **SETTINGS)
    assert selection(tmp_path / "hand") == {"size": None, "sha256": None, "every": None, "limit": None}
    assert "a selection by hand: 3 of the 12 inputs" in verified(tmp_path / "hand", file)
    smoothed.certify(whole.select(2).select(2), out=tmp_path / "twice", **SETTINGS)
    assert (selection(tmp_path / "twice")["every"], selection(tmp_path / "twice")["size"]) == (None, SIZE)
    assert "a selection by hand: 3 of the 12 inputs" in verified(tmp_path / "twice", file)
    smoothed.certify(whole, np.zeros(SIZE, int), out=tmp_path / "relabelled", **SETTINGS)
    assert selection(tmp_path / "relabelled")["every"] is None
    assert "true labels" in verified(tmp_path / "relabelled", file, code=1)
    smoothed.certify(whole.images, whole.labels, index=range(SIZE), out=tmp_path / "all", **SETTINGS)
    assert "all inputs of 12" in verified(tmp_path / "all", file)
    smoothed.certify(whole.images[:5], whole.labels[:5], out=tmp_path / "some", **SETTINGS)  # type: ignore[index]
    assert "another data set" in verified(tmp_path / "some", file, code=2)


def test_another_data_set_is_refused(file: str, smoothed: Any, tmp_path: Path) -> None:
    whole = load(file)
    smoothed.certify(whole.select(3), out=tmp_path / "run", **SETTINGS)
    bent = whole.images.copy()
    bent[1] ^= 1  # an input that the rule does not select
    for other in (replace(whole, images=bent), Dataset(whole.images[:9], whole.labels[:9], 2, ("0", "1"), "nine")):  # type: ignore[index]
        with pytest.raises(RunRefused, match="another data set"):
            verify_run(tmp_path / "run", data=other)


def test_an_older_run_says_that_its_selection_is_not_recorded_and_is_resumed(
    file: str, smoothed: Any, tmp_path: Path
) -> None:
    whole, run = load(file), tmp_path / "run"
    smoothed.certify(whole.select(3), out=run, **SETTINGS)
    raw = json.loads((run / "manifest.json").read_text())
    del raw["data"]["selection"]
    record, _ = read_record(run)
    write_json(run / "manifest.json", raw)
    (run / "tallies.jsonl").write_text("".join(f"{line}\n" for line in record.votes.lines(identity(raw))))
    write_claims(run, read_record(run)[0])
    assert "the selection is not recorded" in verify_run(run).unproven[1]
    assert "not recorded: 4 of the 12 inputs" in verified(run, file)
    smoothed.certify(whole.select(3), out=run, extend=200, **SETTINGS)
    assert verify_run(run).extensions == (200,)


def test_folders_of_pictures_are_known_by_their_names(smoothed: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    home = tmp_path / "pictures"
    for label, name in enumerate(("dark", "light")):
        (home / name).mkdir(parents=True)
        for i in range(4):
            image.fromarray(np.full((2, 2, 3), 200 * label + i, np.uint8)).save(home / name / f"{i}.png")
    spec = f"images:path={home}"
    smoothed.certify(load_some(spec, 3), out=tmp_path / "run", **SETTINGS)
    assert selection(tmp_path / "run")["size"] == 8
    assert "as the manifest's rule selects them" in verified(tmp_path / "run", spec)
    assert "rule" in str(verify_run(tmp_path / "run", data=load(spec)).selection)
    (home / "dark" / "1.png").unlink()  # not one that was taken
    assert "another data set" in verified(tmp_path / "run", spec, code=2)


def test_a_manifest_with_an_impossible_selection_is_a_lie(file: str, smoothed: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    smoothed.certify(load(file).select(3), out=run, **SETTINGS)
    rule = selection(run)
    for number, bad in enumerate(({"every": 0}, {"size": 9}, {"limit": "x"}, {"every": 2.0}, {"size": True})):
        with pytest.raises(Lie):
            verify_run(forged(run, tmp_path / str(number), [0, 1, 2, 3], selection={**rule, **bad}))
