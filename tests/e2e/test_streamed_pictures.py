"""Runs on streamed pictures: the same votes for any number of decoding workers; resumed, verified with the folder, replayed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.data import load, load_some
from vauban.errors import BadInput, Lie, RunRefused
from vauban.inputs import StreamedTensor
from vauban.replay import replay
from vauban.runs.verify import verify_run
from vauban.votes import SampledVotes

Image = pytest.importorskip("PIL.Image")

MODEL = """
import torch

class Half(torch.nn.Module):
    def forward(self, views):
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)

def make(classes="2"):
    return Half()
"""
COUNT = 12


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of twelve pictures in two classes, and a model without weights."""
    for number in range(COUNT):
        path = tmp_path / "pictures" / ("black" if number < 6 else "white") / f"{number:02}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(number).integers(15 * number, 15 * number + 60, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(values).save(path)
    (tmp_path / "halves.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


SAMPLED = (
    "--model",
    "halves:make:classes=2",
    "--smoothing",
    "gaussian:sigma=0.25",
    "-n",
    "200",
    "--seed",
    "1",
    "--rows",
    "50",
)


def certified(out: str, *more: str, code: int = 0) -> str:
    return run("certify", *SAMPLED, "--out", out, *more, code=code)


def test_votes_are_the_same_for_every_number_of_decoding_workers(world: Path) -> None:
    for workers in ("1", "8"):
        certified(f"run-{workers}", "--data", "images:path=pictures", "--workers", workers)
    kept = {(world / f"run-{workers}" / SampledVotes.file).read_bytes() for workers in ("1", "8")}
    assert len(kept) == 1
    held = vb.SmoothedClassifier(vb.models.load("halves:make:classes=2"), "gaussian:sigma=0.25", num_classes=2, rows=50)
    certs = held.certify(load("images:path=pictures"), n=200, seed=1, progress=False)
    assert np.array_equal(certs.counts, vb.Run.open(world / "run-8").certificates().counts)


def test_a_shuffled_run_is_verified_replayed_and_resumed(world: Path) -> None:
    taken = ("--data", "images:path=pictures", "--shuffle", "5", "--limit", "7")
    certified("run", *taken)
    manifest = json.loads((world / "run" / "manifest.json").read_text())
    assert manifest["data"]["selection"]["shuffle"] == 5
    assert "data.selection.shuffle" in manifest["requires"]
    before = (world / "run" / "claims.csv").read_bytes()
    certified("run", *taken, "--workers", "8")
    assert (world / "run" / "claims.csv").read_bytes() == before
    said = run("verify", "run", "--data", "images:path=pictures")
    assert "at most 7, of 12 in the order shuffled by 5" in said
    assert "all 1,400 votes of 7 of 7 inputs" in run(
        "verify", "run", "--replay", "--all", "--model", "halves:make:classes=2", "--data", "images:path=pictures"
    )
    assert "other settings" in certified(
        "run", "--data", "images:path=pictures", "--shuffle", "6", "--limit", "7", code=2
    )
    (world / "pictures" / "white" / "99.ppm").write_bytes((world / "pictures" / "white" / "11.ppm").read_bytes())
    assert "another data set" in run("verify", "run", "--data", "images:path=pictures", code=2)


def test_a_changed_picture_is_found_by_verify(world: Path) -> None:
    certified("run", "--data", "images:path=pictures")
    (world / "pictures" / "white" / "11.ppm").write_bytes((world / "pictures" / "white" / "10.ppm").read_bytes())
    assert "sha256 differs" in run("verify", "run", "--data", "images:path=pictures", code=1)


def test_a_corrupt_picture_stops_a_run_or_is_recorded_as_skipped(world: Path) -> None:
    (world / "pictures" / "black" / "03.ppm").write_bytes(b"P6 4")
    refused = certified("run", "--data", "images:path=pictures", code=2)
    assert "03.ppm cannot be read" in refused
    assert "--skip-bad" in refused
    assert not (world / "run" / "manifest.json").exists()
    certified("run", "--data", "images:path=pictures", "--skip-bad")
    manifest = json.loads((world / "run" / "manifest.json").read_text())
    assert manifest["data"]["selection"]["skipped"] == [3]
    assert 3 not in manifest["data"]["index"]
    assert "without 1 whose files cannot be read" in run("verify", "run", "--data", "images:path=pictures")
    replayed = (
        "verify",
        "run",
        "--replay",
        "--all",
        "--model",
        "halves:make:classes=2",
        "--data",
        "images:path=pictures",
    )
    assert "11 of 11 inputs" in run(*replayed)


def test_a_forged_shuffle_or_skip_is_found(world: Path) -> None:
    certified("run", "--data", "images:path=pictures", "--shuffle", "5", "--limit", "7")
    file = world / "run" / "manifest.json"
    manifest = json.loads(file.read_text())
    rule = manifest["data"]["selection"]
    for other in ({"shuffle": 4}, {"skipped": [manifest["data"]["index"][0]]}, {"skipped": "all"}, {"shuffle": "5"}):
        requires = [f"data.selection.{name}" for name in ("shuffle", "skipped") if (rule | other).get(name) is not None]
        forged = manifest | {"requires": requires, "data": manifest["data"] | {"selection": rule | other}}
        file.write_text(json.dumps(forged))
        with pytest.raises((Lie, RunRefused)):
            verify_run(world / "run")
    file.write_text(json.dumps(manifest | {"requires": []}))
    with pytest.raises((Lie, RunRefused)):
        verify_run(world / "run")


def test_one_picture_and_a_folder_without_labels(world: Path) -> None:
    picture = "pictures/white/11.ppm"
    assert "1 of 1 inputs certified" in run("certify", picture, *SAMPLED, "--out", "one")
    assert json.loads((world / "one" / "manifest.json").read_text())["data"]["names"] == ["11.ppm"]
    assert "6 of 6 inputs certified" in run("certify", "pictures/white", *SAMPLED, "--out", "six")
    assert "undecided" in run(
        "predict", picture, "--model", "halves:make:classes=2", "--smoothing", "gaussian:sigma=0.25", "-n", "100"
    )
    assert "give one of them" in run("certify", picture, "--data", "mnist", *SAMPLED, "--out", "x", code=2)
    assert "does not exist" in run("certify", "cat.jpg", *SAMPLED, "--out", "x", code=2)


def test_exact_votes_on_streamed_pictures_are_those_in_memory(world: Path) -> None:
    spec = "images:path=pictures,channels=1"
    model = lambda views: torch.stack([0.5 - views.flatten(1).mean(1), views.flatten(1).mean(1) - 0.5], dim=1)  # noqa: E731
    smoothed = vb.SmoothedClassifier(model, "splitting:sigma=0.2", num_classes=2, rows=20)
    streamed, held = load_some(spec, stream=True), load(spec)
    assert isinstance(smoothed.collect(streamed).inputs.values, StreamedTensor)
    assert np.array_equal(smoothed.ballots(streamed).votes, smoothed.ballots(held).votes)


def test_attacks_and_training_hold_streamed_pictures(world: Path) -> None:
    streamed, held = load_some("images:path=pictures", stream=True), load("images:path=pictures")
    smoothed = vb.SmoothedClassifier(vb.models.load("halves:make:classes=2"), "gaussian:sigma=0.25", num_classes=2)
    inputs = smoothed.collect(streamed).inputs.values
    assert torch.equal(inputs.float(), torch.from_numpy(held.images).float())
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 2))
    trained = [vb.train(network, data, "gaussian:sigma=0.1", epochs=1, batch=4) for data in (streamed, held)]
    one, other = (made.network.state_dict()["1.weight"] for made in trained)
    assert torch.equal(one, other)


def test_checks_of_a_smoothing_name_the_picture(world: Path) -> None:
    Image.new("L", (5, 4), 0).save(world / "pictures" / "black" / "00.ppm")
    smoothed = vb.SmoothedClassifier(lambda views: views.flatten(1)[:, :2], "flow:sigma=0.1", num_classes=2)
    with pytest.raises(BadInput, match=r"black/00\.ppm: .*all black"):
        smoothed.collect(load_some("images:path=pictures,channels=1", stream=True))


class Pairs:
    """A data set in the way of torchvision: pictures of Pillow and their labels."""

    def __init__(self, pictures: list[Any]):
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, number: int) -> Any:
        return self.pictures[number], number % 2


class Rows(Pairs):
    """A data set in the way of Hugging Face: mappings."""

    def __getitem__(self, number: int) -> Any:
        return {"image": self.pictures[number], "label": number % 2}


@pytest.mark.parametrize("kind", [Pairs, Rows])
def test_objects_of_torchvision_and_hugging_face(kind: type[Pairs], world: Path, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    pictures = [Image.fromarray(one) for one in values]
    pictures[4] = pictures[4].convert("L")
    values[4] = np.asarray(pictures[4])[:, :, None]
    smoothed = vb.SmoothedClassifier(vb.models.load("halves:make:classes=2"), "gaussian:sigma=0.25", num_classes=2)
    arrays = values.transpose(0, 3, 1, 2), np.arange(6) % 2
    settings: dict[str, Any] = {"n": 200, "seed": 1, "progress": False}
    streamed = smoothed.certify(kind(pictures), out=tmp_path / "run", **settings)
    held = smoothed.certify(*arrays, **settings)
    assert np.array_equal(streamed.counts, held.counts)
    assert streamed.truth is not None
    assert streamed.record.manifest.data.sha256 == held.record.manifest.data.sha256  # type: ignore[union-attr]
    assert (
        replay(
            tmp_path / "run", vb.models.load("halves:make:classes=2"), kind(pictures), inputs=None, progress=False
        ).inputs
        == 6
    )


def test_objects_that_cannot_be_read_are_refused_in_a_sentence() -> None:
    smoothed = vb.SmoothedClassifier(lambda views: views.flatten(1)[:, :2], "gaussian:sigma=0.25", num_classes=2)
    picture = Image.new("RGB", (4, 4))

    class Named(Pairs):
        def __getitem__(self, number: int) -> Any:
            return {"photo": picture, "label": 0}

    class Changing(Pairs):
        def __getitem__(self, number: int) -> Any:
            return Image.fromarray(np.random.default_rng().integers(0, 256, (4, 4, 3), dtype=np.uint8)), 0

    with pytest.raises(BadInput, match="rename one column to 'image'"):
        smoothed.collect(Named([picture] * 2))
    with pytest.raises(BadInput, match="another input than when it was first read"):
        smoothed.collect(Changing([picture] * 8))
    deep = Pairs([Image.fromarray(np.zeros((4, 4), np.uint16))] * 2)
    with pytest.raises(BadInput, match="more than 8 bits"):
        smoothed.collect(deep)


def test_the_page_of_a_run_shows_shuffled_pictures_without_skipped_ones(world: Path) -> None:
    (world / "pictures" / "black" / "03.ppm").write_bytes(b"P6 4")
    certified("run", "--data", "images:path=pictures", "--shuffle", "5", "--skip-bad")
    run("report", "run", "--out", "page.html")
    assert (world / "page.html").read_text().count("data:image/png") >= COUNT - 1
