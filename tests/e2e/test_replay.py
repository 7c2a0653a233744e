"""Replay: an altered count, a swapped model, other inputs and other seeds are found; honest runs pass."""

import copy
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban import other_arithmetic
from vauban.cli import app
from vauban.cli.replaying import show
from vauban.data import Dataset, load
from vauban.engine.network import BaseClassifier, Network, scores_of
from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import arrays_sha256, floats_from_hex, floats_hex, write_json
from vauban.models import build as build_model
from vauban.models import load as load_model
from vauban.models import packaged
from vauban.models import save as save_model
from vauban.replay import Replay, replay, undetected
from vauban.runs.store import read_record, write_claims
from vauban.votes import BallotVotes

RUNS: dict[str, dict[str, Any]] = {
    "fixed": {"smoothing": "gaussian:sigma=0.5", "n": 300, "alpha": 0.01},
    "chosen": {"smoothing": "laplace:sigma=0.4", "n": 200, "n0": 30, "alpha": 0.01},
    "sequential": {"smoothing": "gaussian:sigma=0.5", "n": 2_000, "stop": "target:radius=0.3"},
    "exact": {"smoothing": "splitting:sigma=0.2"},
}


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("mnist:split=test")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, digits: Dataset) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("replayed")
    for name, settings in RUNS.items():
        given = {key: value for key, value in settings.items() if key != "smoothing"}
        smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), settings["smoothing"], rows=50)
        smoothed.certify(digits.select(1_000, 8), out=home / name, progress=False, **given)
    return {name: home / name for name in RUNS}


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.parametrize("name", RUNS)
def test_an_honest_run_is_replayed(name: str, folders: dict[str, Path], digits: Dataset) -> None:
    found = replay(folders[name], load_model(packaged("mnist")), digits, inputs=3)
    assert (found.inputs, len(found.replayed), found.altered) == (8, 3, undetected(8, 3))
    assert found.votes > 0
    whole = replay(folders[name], load_model(packaged("mnist")), digits, inputs=None)
    assert (len(whole.replayed), whole.altered) == (8, 0)
    assert whole.votes == vb.Run.open(folders[name]).votes.votes_cast


def altered(folder: Path, moved: int = 1, position: int = 5, views: Sequence[int] = (7,)) -> Path:
    """Move votes of one input at its last look (in exact runs: of these views), and make checks, claims and seal anew."""
    record, _ = read_record(folder)
    votes = record.votes
    if isinstance(votes, BallotVotes):
        for view in views[:moved]:
            votes.votes[position][view] = (votes.votes[position][view] + 1) % votes.num_classes
    else:
        counts = votes.looks[position][-1]
        best, least = int(counts.argmax()), int(counts.argmin())
        counts[best] -= moved
        counts[least] += moved
    lines = votes.lines(record.manifest.identity)
    (folder / votes.file).write_text("".join(f"{line}\n" for line in lines))
    write_claims(folder, read_record(folder)[0])
    vb.Run.open(folder).verify()
    return folder


@pytest.mark.parametrize("name", ["fixed", "chosen", "sequential"])
def test_an_altered_count_that_verifies_is_found(
    name: str, folders: dict[str, Path], digits: Dataset, tmp_path: Path
) -> None:
    """One vote of one input is moved, and checks, claims and seal are made anew: only replay can see it."""
    folder = altered(copied(folders[name], tmp_path))
    with pytest.raises(Lie, match="input 5000: the votes in the folder are not those of this model"):
        replay(folder, load_model(packaged("mnist")), digits, inputs=None)


def test_a_swapped_model_is_found(folders: dict[str, Path], digits: Dataset) -> None:
    model = load_model(packaged("mnist"))
    assert isinstance(model.module, torch.nn.Module)
    with torch.no_grad():
        next(model.module.parameters()).flatten()[0].add_(1e-3)
    with pytest.raises(Lie, match="another model"):
        replay(folders["fixed"], model.module, digits)


def test_other_inputs_labels_and_data_sets_are_found(folders: dict[str, Path], digits: Dataset) -> None:
    images, labels = digits.images.copy(), digits.labels
    assert labels is not None
    images[3_000, 0, 0, 0] ^= 1
    model = load_model(packaged("mnist"))
    with pytest.raises(Lie, match="not those of the run"):
        replay(folders["fixed"], model, Dataset(images, labels, 10, digits.class_names, "bent"))
    other = labels.copy()
    other[3_000] = (other[3_000] + 1) % 10
    with pytest.raises(Lie, match="true labels in the manifest"):
        replay(folders["fixed"], model, Dataset(digits.images, other, 10, digits.class_names, "bent"))
    with pytest.raises(BadInput, match="has no input 1000"):
        replay(folders["fixed"], model, digits.select(7, 10))


def test_seeds(folders: dict[str, Path], digits: Dataset, tmp_path: Path) -> None:
    folder, model = copied(folders["fixed"], tmp_path), load_model(packaged("mnist"))
    (folder / "seed").write_text("00" * 32 + "\n")
    with pytest.raises(Lie, match="not the seed that the manifest commits to"):
        replay(folder, model, digits)
    (folder / "seed").unlink()
    with pytest.raises(RunRefused, match="cannot be cast again"):
        replay(folder, model, digits)
    raw = json.loads((folders["fixed"] / "manifest.json").read_text())
    assert raw["seed"]["kind"] == "system"


@pytest.fixture
def other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with another arithmetic: it computes the network in float64 and rounds its scores."""

    def scores(network: Network, views: torch.Tensor, num_classes: int) -> torch.Tensor:
        assert isinstance(network.model, torch.nn.Module)
        return scores_of(copy.deepcopy(network.model).double(), views.double(), num_classes).float()

    monkeypatch.setattr(Network, "scores", scores)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("other_machine")
def test_a_machine_with_another_arithmetic_replays_but_for_near_ties(
    name: str, folders: dict[str, Path], digits: Dataset, tmp_path: Path
) -> None:
    found = replay(folders[name], load_model(packaged("mnist")), digits, inputs=None)
    assert found.rounding is not None
    assert 0 < found.rounding.difference < 1e-4
    assert found.rounding.margin == 20 * found.rounding.difference
    assert found.differing <= found.near < found.votes / 1000
    assert found.votes == vb.Run.open(folders[name]).votes.votes_cast
    folder = altered(copied(folders[name], tmp_path))
    with pytest.raises(Lie, match="input 5000: the vote"):
        replay(folder, load_model(packaged("mnist")), digits, inputs=None)


@pytest.mark.usefixtures("other_machine")
def test_a_swapped_model_is_found_on_another_machine(folders: dict[str, Path], digits: Dataset) -> None:
    model = load_model(packaged("mnist"))
    assert isinstance(model.module, torch.nn.Module)
    with torch.no_grad():
        next(model.module.parameters()).flatten()[0].add_(1e-6)
    with pytest.raises(Lie, match="another model"):
        replay(folders["fixed"], model.module, digits)


@pytest.mark.parametrize("smoothing", ["gaussian:sigma=0.5", "splitting:sigma=0.2"])
def test_only_near_ties_may_differ(smoothing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes that are close to a tie at many views: rounding of 2e-4 decides some of them, and only these may be others."""
    x = np.random.default_rng(3).integers(0, 256, (20, 1, 4, 4), dtype=np.uint8)
    data = Dataset(x, np.arange(20) % 2, 2, ("a", "b"), "twenty")
    channels = vb.smoothing.build(smoothing).view_shape(torch.Size([1, 4, 4]))[0]
    tilt = torch.linspace(-1, 1, 16).repeat(channels) * torch.linspace(1, 0.5, 16 * channels)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16 * channels, 2, bias=False))
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([tilt, -tilt]))
    smoothed = vb.SmoothedClassifier(network, smoothing, num_classes=2, rows=50)
    given: Any = {} if smoothed.smoothing.law.exact else {"n": 2_000, "alpha": 0.01, "seed": 1}
    smoothed.certify(data, out=tmp_path / "run", progress=False, **given)
    plain, shift = Network.scores, torch.tensor([2e-4, -2e-4])
    monkeypatch.setattr(Network, "scores", lambda *given: plain(*given) + shift)
    with pytest.raises(Lie, match="by more than rounding"):
        replay(
            tmp_path / "run", network, data, inputs=None
        )  # a machine of the same kind does not round otherwise by so much
    monkeypatch.setattr(other_arithmetic, "device_name", lambda device: "another processor")
    found = replay(tmp_path / "run", network, data, inputs=None)
    assert found.rounding is not None
    assert found.rounding.difference == pytest.approx(2e-4, rel=1e-2)
    assert 0 < found.near < found.votes / 100
    assert (found.differing > 0) == (not smoothed.smoothing.law.exact)
    for votes, caught in ((1, False), (found.near + 1, True)):
        folder = Path(shutil.copytree(tmp_path / "run", tmp_path / str(votes)))
        altered(folder, votes, position=2, views=[150, 0, 1])
        if caught:
            with pytest.raises(Lie, match="rounding could have decided|counting every view"):
                replay(folder, network, data, inputs=None)
        else:
            assert replay(folder, network, data, inputs=None).rounding == found.rounding


def test_kept_scores_cannot_excuse_more_than_rounding(
    folders: dict[str, Path], digits: Dataset, tmp_path: Path
) -> None:
    """Whoever writes other scores into the manifest would make every vote a near tie."""
    own = read_record(folders["fixed"])[0].manifest
    there = floats_from_hex(own.model.kept_scores or "", 50, 10)
    assert arrays_sha256(there) == own.model.scores
    far, model = there + np.float32(0.5), load_model(packaged("mnist"))
    changed = {"scores": arrays_sha256(far), "kept_scores": floats_hex(far)}
    for device, error in ((own.compute.device, Lie), ("cuda NVIDIA", RunRefused)):
        folder = Path(shutil.copytree(folders["fixed"], tmp_path / error.__name__))
        forged(folder, model=changed, compute={"device": device})
        with pytest.raises(error, match="by more than rounding"):
            replay(folder, model, digits)
    folder = copied(folders["fixed"], tmp_path)
    with pytest.raises(Lie, match="not those whose hash it holds"):
        forged(folder, model={"kept_scores": floats_hex(far)})


def test_a_run_without_kept_scores_is_replayed_on_its_own_machine_only(
    folders: dict[str, Path], digits: Dataset, tmp_path: Path
) -> None:
    """Runs of earlier versions: replayed where the hash of scores agrees, resumed as before, and refused elsewhere."""
    folder, model = copied(folders["fixed"], tmp_path), load_model(packaged("mnist"))
    forged(folder, model={"kept_scores": None})
    assert replay(folder, model, digits, inputs=2).rounding is None
    smoothed = vb.SmoothedClassifier(model, "gaussian:sigma=0.5", rows=50)
    smoothed.certify(digits.select(1_000, 8), out=folder, n=300, alpha=0.01, progress=False)
    elsewhere = {"scores": hashlib.sha256(b"elsewhere").hexdigest()}
    forged(folder, model=elsewhere)
    with pytest.raises(Lie, match="another model"):
        replay(folder, model, digits)
    forged(folder, compute={"device": "cuda NVIDIA"})
    with pytest.raises(RunRefused, match="kept no scores to measure the difference by"):
        replay(folder, model, digits)


def forged(folder: Path, **changes: dict[str, Any]) -> None:
    """Change sections of the manifest, and make every check, the claims and the seal anew."""
    record, _ = read_record(folder)
    raw = {**record.manifest.raw, **{key: {**record.manifest.raw[key], **value} for key, value in changes.items()}}
    write_json(folder / "manifest.json", raw)
    votes, run = record.votes, vb.runs.manifest.read(folder).identity
    (folder / votes.file).write_text("".join(f"{line}\n" for line in votes.lines(run)))
    write_claims(folder, read_record(folder)[0])
    vb.Run.open(folder).verify()


def test_forged_labels_and_shapes_are_found(folders: dict[str, Path], digits: Dataset, tmp_path: Path) -> None:
    model = load_model(packaged("mnist"))
    (tmp_path / "a").mkdir()
    folder = copied(folders["fixed"], tmp_path / "a")
    forged(folder, data={"label": [7] * 8})
    with pytest.raises(Lie, match="true labels in the manifest"):
        replay(folder, model, digits)
    folder = copied(folders["fixed"], tmp_path)
    forged(folder, data={"shape": [28, 28]})
    with pytest.raises(Lie, match="inputs of shape"):
        replay(folder, model, digits)


def test_a_claims_file_that_no_seal_names_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["fixed"], tmp_path)
    (folder / "claims-600.csv").write_text((folder / "claims.csv").read_text())
    with pytest.raises(Lie, match=r"claims-600.csv exists, but the seal does not name it"):
        vb.Run.open(folder).verify()


def test_the_draw_is_the_verifiers() -> None:
    assert [undetected(m, 20) for m in (20, 200, 500, 1_000)] == [0, 39, 100, 203]
    assert undetected(5, 1) == 4


def test_the_command_line(folders: dict[str, Path]) -> None:
    done = CliRunner().invoke(app, ["verify", str(folders["fixed"]), "--replay", "--inputs", "4"])
    assert done.exit_code == 0, done.output
    assert "all 1,200 votes of 4 of 8 inputs are those in the folder. If votes of more than" in done.output
    assert "not announced" in done.output
    said = CliRunner().invoke(app, ["verify", str(folders["exact"]), "--json"])
    assert "cast by that model" in json.loads(said.stdout)["unproven"][0]
    assert "seed" not in " ".join(json.loads(said.stdout)["unproven"])  # exact claims have none


def test_a_run_of_arrays_asks_for_its_data(digits: Dataset, tmp_path: Path) -> None:
    run, saved = tmp_path / "run", tmp_path / "inputs.npz"
    smoothed = vb.SmoothedClassifier(load_model(packaged("mnist") or ""), "gaussian:sigma=0.5", num_classes=10)
    smoothed.certify(digits.images[:2], digits.labels[:2], n=100, out=run, progress=False)
    for command in (
        ["verify", str(run), "--replay", "--inputs", "1"],
        ["attack", str(run), "--out", str(tmp_path / "attacked")],
    ):
        refused = CliRunner().invoke(app, [*command, "--device", "cpu"])
        assert refused.exit_code == 2, refused.output
        assert "names no data set that can be read, only 'ndarray'" in refused.stderr
        assert "give --data" in refused.stderr
    np.savez(saved, images=digits.images[:2], labels=digits.labels[:2])
    options = ["--data", f"npz:path={saved},classes=10", "--device", "cpu"]
    replayed = CliRunner().invoke(app, ["verify", str(run), "--replay", "--inputs", "1", *options])
    assert replayed.exit_code == 0, replayed.output


def test_the_model_that_the_manifest_names_is_found_beside_the_run_or_asked_for(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = "mlp:features=784,classes=10,width=4,depth=1"
    for seed, name in enumerate(("other", "own")):
        save_model(tmp_path / f"{name}.safetensors", build_model(spec, seed=seed), spec, {})
    (tmp_path / "broken.safetensors").write_bytes(b"no model")
    smoothed = vb.SmoothedClassifier(load_model(tmp_path / "own.safetensors"), "gaussian:sigma=0.5", rows=50)
    smoothed.certify(digits.select(2_000, 3), n=100, alpha=0.01, out=tmp_path / "run", progress=False)
    command = ["verify", str(tmp_path / "run"), "--replay"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "all 300 votes of 3 of 3 inputs are those in the folder" in done.output
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own.safetensors").rename(tmp_path / "elsewhere" / "own.safetensors")
    missing = CliRunner().invoke(app, command)
    assert missing.exit_code == 2
    assert f"about the model {smoothed.identity()[0]} with fingerprint" in missing.output
    assert "give --model with its file" in missing.output
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert CliRunner().invoke(app, command).exit_code == 0
    lone = CliRunner().invoke(app, [*command, "--weights", "own.safetensors"])
    assert (lone.exit_code, "give --model too" in lone.output) == (2, True)


def test_a_replay_of_all_inputs_leaves_none_open(capsys: pytest.CaptureFixture[str]) -> None:
    show(Replay(inputs=3, replayed=[0, 1, 2], votes=300, altered=0))
    assert capsys.readouterr().out == "Replayed: all 300 votes of 3 of 3 inputs are those in the folder.\n"


def test_a_number_is_a_seed_chosen_by_hand(tmp_path: Path, digits: Dataset) -> None:
    smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), "gaussian:sigma=0.5")
    smoothed.certify(digits.select(2_000, 3), n=100, alpha=0.01, seed=3, out=tmp_path / "run", progress=False)
    assert "chosen by hand" in " ".join(vb.Run.open(tmp_path / "run").verify().unproven)
    assert np.isfinite(replay(tmp_path / "run", load_model(packaged("mnist")), digits, inputs=1).votes)


def test_a_score_far_below_excuses_no_vote(tmp_path: Path) -> None:
    """A class that the model masks makes scores wide; how far the two best may move is measured without it."""
    x = np.random.default_rng(3).integers(0, 256, (6, 1, 4, 4), dtype=np.uint8)
    data = Dataset(x, np.arange(6) % 2, 3, ("a", "b", "c"), "six")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    with torch.no_grad():
        tilt = torch.linspace(-1, 1, 16)
        network[1].weight.copy_(torch.stack([tilt, -tilt, 0 * tilt]))
        network[1].bias.copy_(torch.tensor([0.0, 0.0, -1e9]))
    smoothed = vb.SmoothedClassifier(network, "gaussian:sigma=0.5", num_classes=3, rows=50)
    smoothed.certify(data, out=tmp_path / "run", progress=False, n=200, alpha=0.01, seed=1)
    own = read_record(tmp_path / "run")[0].manifest
    kept = floats_from_hex(own.model.kept_scores or "", 50, 3)
    kept[0, 2] += np.float32(9000)
    forged(tmp_path / "run", model={"scores": arrays_sha256(kept), "kept_scores": floats_hex(kept)})
    folder = Path(shutil.copytree(tmp_path / "run", tmp_path / "votes"))
    assert replay(tmp_path / "run", network, data, inputs=None).near == 0
    altered(folder, 5, position=2, views=[0])
    with pytest.raises(Lie, match="are not those of this model"):
        replay(folder, network, data, inputs=None)


def test_a_replay_that_would_except_most_votes_is_refused() -> None:
    rounding = other_arithmetic.Rounding(1e-3, 50)
    other_arithmetic.refuse_too_many(7, 10, 200, rounding)
    with pytest.raises(RunRefused, match="input 7: 11 of its 200 votes"):
        other_arithmetic.refuse_too_many(7, 11, 200, rounding)


def test_a_moved_data_file_and_another_number_of_classes_are_answered(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    file, run = tmp_path / "inputs.npz", tmp_path / "run"
    np.savez(file, images=rng.integers(0, 256, (3, 1, 28, 28), dtype=np.uint8), labels=np.array([0, 1, 2]))
    words = f"--smoothing gaussian:sigma=0.5 -n 100 --alpha 0.01 --model {packaged('mnist')} --out {run}"
    certified = CliRunner().invoke(app, ["certify", "--data", f"npz:path={file},classes=10", *words.split()])
    assert certified.exit_code == 0, certified.output
    moved = file.rename(tmp_path / "moved.npz")
    answer = CliRunner().invoke(app, ["verify", str(run), "--replay"])
    assert answer.exit_code == 2
    assert "Where it lies now is said by --data" in " ".join(answer.output.split())
    assert (
        CliRunner().invoke(app, ["verify", str(run), "--replay", "--data", f"npz:path={moved},classes=10"]).exit_code
        == 0
    )
    other = BaseClassifier(lambda views: views.flatten(1)[:, :3], num_classes=3)
    with pytest.raises(Lie, match="the model has 3 classes, and the run is about one with 10: another model"):
        replay(run, other, load(f"npz:path={moved},classes=10"))
