"""Denoisers in front of a classifier that stays as it is: trained without labels, saved and certified as one model."""

import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import vauban as run_words
from torch import nn

import vauban as vb
from vauban import models
from vauban.data import Dataset, load
from vauban.errors import BadInput, RunRefused
from vauban.models.denoised import Denoised
from vauban.training import Validation
from vauban.training.losses import Batch
from vauban.training.losses import build as build_loss
from vauban.training.origins import initial
from vauban.training.recipes import RECIPES

UNET, DNCNN = "unet:channels=1,depth=1,width=4", "dncnn:channels=1,depth=3,width=4"
CLASSIFIER = "resnet18:channels=1,classes=3,width=2"
QUICK = {"epochs": 2, "batch": 16}
PAIRS = {"mse": "mse", "stability": "denoised-stability"}


def pictures(count: int = 64, labelled: bool = True) -> Dataset:
    """Bars at one of three heights, on a noisy ground."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, count)
    x = draw.integers(0, 60, (count, 1, 8, 8), dtype=np.uint8)
    for i, label in enumerate(labels):
        x[i, 0, 1 + 2 * label : 3 + 2 * label] += 180
    return Dataset(x, labels if labelled else None, 3 if labelled else 0, ("0", "1", "2") if labelled else (), "bars")


class Dropping(nn.Module):
    """A classifier with all that changes in training mode: statistics with and without parameters, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.Dropout(), nn.Flatten(), nn.Linear(144, 3)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def state(module: nn.Module) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()}


def test_mse_brings_views_nearer_to_their_pictures() -> None:
    data, smoothing = pictures(256), vb.Gaussian(0.25)
    trained = vb.train(UNET, data, smoothing, loss="mse", epochs=12, batch=16, lr=3e-3, ema=0.9)
    x = torch.from_numpy(data.images).float() / 255
    views = smoothing.sample(x, torch.Generator().manual_seed(1))
    assert vb.losses.mse(trained.network(views), x) < 0.5 * vb.losses.mse(views, x)
    assert all(math.isnan(entry.accuracy) for entry in trained.history)


def test_mse_is_the_mean_over_all_numbers() -> None:
    denoised, x = torch.rand(3, 5, 1, 4, 4), torch.rand(5, 1, 4, 4)
    slow = np.mean(
        [(float(a) - float(b)) ** 2 for view in denoised for a, b in zip(view.flatten(), x.flatten(), strict=True)]
    )
    assert float(vb.losses.mse(denoised, x)) == pytest.approx(slow, rel=1e-5)
    with pytest.raises(BadInput, match=r"mse compares views \[1, 5, 3\] with pictures"):
        vb.losses.mse(torch.rand(1, 5, 3), x)
    assert float(vb.losses.mse(denoised[0], x)) == pytest.approx(float(((denoised[0] - x) ** 2).mean()), rel=1e-5)


class Level(nn.Module):
    """The nearest of three levels of brightness to that of the first row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -((x[:, 0, 0].mean(1)[:, None] - torch.tensor([0.2, 0.5, 0.8])) ** 2)


def test_denoised_stability_asks_the_classifier_about_the_clean_picture() -> None:
    smoothing, levels, generator = vb.Gaussian(1.0), 255, torch.Generator().manual_seed(0)
    pair = Denoised(models.build(UNET, seed=1), Level()).eval()
    x = torch.linspace(0, 255, 12).to(torch.uint8)[:, None, None, None].repeat(1, 1, 8, 8)
    words = smoothing.random_words(x.float(), generator)[None]
    batch = Batch(pair, x, torch.full((12,), -1), smoothing, levels, lambda count: words)
    loss, scores = build_loss("denoised-stability")(batch)
    views, clean = smoothing.views(x, words[0], levels), Level()(x.float() / 255)
    assert clean.argmax(1).bincount().tolist() == [4, 4, 4]
    assert not torch.equal(Level()(views).argmax(1), clean.argmax(1))
    assert torch.allclose(loss, nn.functional.cross_entropy(pair(views), clean.argmax(1)))
    assert torch.equal(loss, vb.losses.denoised_stability(scores, clean))


@pytest.mark.parametrize("loss", PAIRS.values())
def test_the_classifier_stays_as_it_is_bit_for_bit(loss: str) -> None:
    torch.manual_seed(0)
    classifier = Dropping()
    classifier(torch.rand(32, 1, 8, 8))
    before = state(classifier)
    trained = vb.train(
        UNET, pictures(), "gaussian:sigma=0.25", loss=loss, classifier=classifier, ema=0.9, weight_decay=0.1, **QUICK
    )
    assert isinstance(trained.network, Denoised)
    assert classifier.training
    assert state(classifier) == state(trained.network.classifier) == before
    assert state(trained.network.denoiser) != state(models.build(UNET, seed=0))
    assert not trained.network.classifier.net[3].training


@pytest.mark.parametrize("loss", PAIRS.values())
def test_labels_are_never_used(loss: str) -> None:
    classifier, found = models.build(CLASSIFIER, seed=0).eval(), []
    for labelled in (True, False):
        trained = vb.train(
            UNET, pictures(labelled=labelled), "gaussian:sigma=0.25", loss=loss, classifier=classifier, **QUICK
        )
        found.append((state(trained.network), trained.accuracy))
    assert found[0][0] == found[1][0]
    assert math.isnan(found[1][1])
    for data in (pictures().images, torch.from_numpy(pictures().images), list(pictures().images)):
        trained = vb.train(UNET, data, "gaussian:sigma=0.25", loss=loss, classifier=classifier, workers=0, **QUICK)
        assert state(trained.network) == found[0][0]
    with pytest.raises(BadInput, match="has no labels to train on"):
        vb.train(CLASSIFIER, pictures(labelled=False), "gaussian:sigma=0.25", **QUICK)


class Brightest(nn.Module):
    """Right about every clean picture, and easily misled by noise: where the brightest pixel is."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * torch.stack([x[:, 0, row : row + 2].flatten(1).amax(1) for row in (1, 3, 5)], 1)


@pytest.mark.slow
def test_a_denoiser_learns_to_keep_the_answers_of_the_classifier() -> None:
    data, smoothing, classifier = pictures(256), vb.Gaussian(0.7), Brightest()
    x = torch.from_numpy(data.images).float() / 255
    own = classifier(x).argmax(1)
    assert torch.equal(own, torch.from_numpy(data.labels))
    views = smoothing.sample(x, torch.Generator().manual_seed(1))
    alone = (classifier(views).argmax(1) == own).float().mean()
    for loss in PAIRS.values():
        pair = vb.train(UNET, data, smoothing, loss=loss, classifier=classifier, epochs=8, batch=16, lr=1e-2).network
        assert (pair(views).argmax(1) == own).float().mean() > alone + 0.05, loss


def test_held_out_pictures_are_certified_with_the_pair() -> None:
    held = Validation(pictures(12), votes=20, times=2)
    for loss in PAIRS.values():
        trained = vb.train(
            UNET,
            pictures(),
            "gaussian:sigma=0.25",
            loss=loss,
            validation=held,
            classifier=models.build(CLASSIFIER),
            **QUICK,
        )
        assert [entry.validated is not None for entry in trained.history].count(True) == 2
    with pytest.raises(BadInput, match="loss=mse trains no classifier .* classifier= "):
        vb.train(UNET, pictures(), "gaussian:sigma=0.25", loss="mse", validation=held, **QUICK)


@pytest.mark.parametrize("loss", PAIRS.values())
def test_stopped_and_resumed_training_of_a_denoiser_gives_the_same_file(tmp_path: Path, loss: str) -> None:
    models.save(tmp_path / "c.safetensors", models.build(CLASSIFIER, seed=3), CLASSIFIER, {})
    given = {"loss": loss, "classifier": str(tmp_path / "c.safetensors"), **QUICK}
    data = pictures(labelled=False)
    vb.train(UNET, data, "gaussian:sigma=0.25", out=tmp_path / "whole.safetensors", **given)
    for _ in range(4):
        vb.train(UNET, data, "gaussian:sigma=0.25", out=tmp_path / "parts.safetensors", stop_after=2, **given)
    assert (tmp_path / "whole.safetensors").read_bytes() == (tmp_path / "parts.safetensors").read_bytes()
    pair, alone = models.load(tmp_path / "whole.safetensors"), models.load(tmp_path / "c.safetensors")
    assert pair.spec == f"{models.canonical(UNET)} > {models.canonical(CLASSIFIER)}"
    assert state(pair.module.classifier) == state(alone.module)
    assert pair.metadata["classifier"] == alone.spec


def test_another_classifier_does_not_resume_a_checkpoint(tmp_path: Path) -> None:
    for seed, sentence in ((1, None), (2, "classifier_sha256")):
        given = {"loss": "mse", "classifier": models.build(CLASSIFIER, seed=seed), "stop_after": 1, **QUICK}
        if sentence is None:
            vb.train(UNET, pictures(), "gaussian:sigma=0.25", out=tmp_path / "d.safetensors", **given)
        else:
            with pytest.raises(RunRefused, match=sentence):
                vb.train(UNET, pictures(), "gaussian:sigma=0.25", out=tmp_path / "d.safetensors", **given)


def test_a_pair_starts_from_a_trained_denoiser_and_a_new_classifier(tmp_path: Path) -> None:
    """The third form of B.4: then both learn, with labels."""
    out, whole = tmp_path / "d.safetensors", f"{UNET} > {CLASSIFIER}"
    denoiser = vb.train(UNET, pictures(), "gaussian:sigma=0.25", loss="mse", out=out, **QUICK).network
    fresh = models.build(whole, seed=5)
    scratch = state(fresh.classifier)
    fresh = initial(whole, 5, out)
    assert (state(fresh.denoiser), state(fresh.classifier)) == (state(denoiser), scratch)
    trained = vb.train(whole, pictures(), "gaussian:sigma=0.25", init=out, **QUICK)
    assert state(trained.network.denoiser) != state(denoiser)
    assert trained.accuracy >= 0
    models.save(tmp_path / "pair.safetensors", trained.network, whole, {})
    assert state(initial(UNET, 6, tmp_path / "pair.safetensors")) == state(trained.network.denoiser)


class NoGradient(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach().flatten(1)[:, :3]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"loss": "mse", "smoothing": "ablation:retained=9"}, r"are \[2, 8, 8\] where pictures are \[1, 8, 8\]: a denoiser"),
        ({"loss": "denoised-stability", "smoothing": "ablation:retained=9"}, "a denoiser returns a picture for a view"),
        ({"loss": "mse", "network": CLASSIFIER}, r"the network returned \[2, 3\] for views \[2, 1, 8, 8\]: a denoiser is needed"),
        ({"loss": "denoised-stability"}, "give the classifier"),
        ({"loss": "denoised-stability", "network": f"{UNET} > {CLASSIFIER}"}, "is trained too"),
        ({"loss": "denoised-stability", "classifier": NoGradient()}, "no gradient passes the classifier"),
        ({"loss": "noise", "classifier": NoGradient()}, "loss=noise uses labels, .* give mse or denoised-stability"),
        ({"loss": "stability", "classifier": NoGradient()}, "loss=stability uses labels, .* give mse or denoised-stability"),
        ({"loss": "mse+noise"}, "losses without labels are not added to others"),
        ({"loss": "mse", "mixup": 1.0}, "leave these out"),
        ({"loss": "mse", "network": nn.Identity()}, "no parameter of Identity is to be trained"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(given: dict, sentence: str) -> None:
    given = {"network": UNET, "smoothing": "gaussian:sigma=0.25", **given}
    with pytest.raises(BadInput, match=sentence):
        vb.train(given.pop("network"), pictures(), given.pop("smoothing"), **QUICK, **given)


def test_a_classifier_in_front_and_an_ensemble_behind_are_refused(tmp_path: Path) -> None:
    for name, spec in (("a", CLASSIFIER), ("b", CLASSIFIER), ("d", UNET)):
        models.save(tmp_path / f"{name}.safetensors", models.build(spec, seed=ord(name)), spec, {})
    a, b, d = (models.load(tmp_path / f"{name}.safetensors") for name in "abd")
    with pytest.raises(BadInput, match="a denoiser is needed"):
        vb.train(CLASSIFIER, pictures(), "gaussian:sigma=0.25", loss="mse", classifier=a, **QUICK)
    for classifier in (vb.ensemble([a, b]), f"{tmp_path / 'a.safetensors'}+{tmp_path / 'b.safetensors'}"):
        with pytest.raises(BadInput, match="the classifier is an ensemble, .* join the pairs by"):
            vb.train(UNET, pictures(), "gaussian:sigma=0.25", loss="mse", classifier=classifier, **QUICK)
    with pytest.raises(BadInput, match="put the denoiser in front of each of its members"):
        vb.denoise(d, vb.ensemble([a, b]))
    with pytest.raises(BadInput, match="join all members in one ensemble"):
        vb.ensemble([vb.ensemble([a, b]), a])
    with pytest.raises(BadInput, match="one denoiser in front of one classifier"):
        vb.denoise(d, vb.denoise(d, a))
    instead, x = vb.ensemble([vb.denoise(d, a), vb.denoise(d, b)]), torch.rand(4, 1, 8, 8)
    whole = vb.denoise(d.module, vb.ensemble([a, b]).module)
    assert torch.allclose(instead.module(x), whole.module(x), atol=1e-6)
    assert models.load(instead.spec, _saved(tmp_path / "e.safetensors", instead)).fingerprint == instead.fingerprint


def _saved(path: Path, model: models.LoadedModel) -> Path:
    models.save(path, model.module, model.spec, {})
    return path


# The command line


def vauban(command: str, code: int = 0) -> str:
    return run_words(*shlex.split(command), code=code)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures without labels, pictures to certify, a classifier of one's own with weights, and one of Vauban's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = pictures(32)
    np.savez("train.npz", images=data.images)
    np.savez("held.npz", images=data.images[:2], labels=data.labels[:2])
    Path("bar_nets.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))\n\n\n"
        "def front():\n    return torch.nn.Conv2d(1, 1, 3, padding=1)\n"
    )
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).state_dict(), "own.pt")
    models.save("c.safetensors", models.build(CLASSIFIER, seed=3), CLASSIFIER, {})
    return tmp_path


TRAIN = "train --data npz:path=train.npz -s gaussian:sigma=0.25 --epochs 1 --out d.safetensors"
CERTIFY = "certify --data npz:path=held.npz,classes=3 -s gaussian:sigma=0.25 -n 100 --out run"


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ("--model dncnn:depth=2,width=2 --classifier c.safetensors --loss mse", "--model d.safetensors"),
        ("--model unet:depth=1,width=2 --classifier c.safetensors --loss denoised-stability", "--model d.safetensors"),
        (
            "--model unet:depth=1,width=2 --classifier bar_nets:make --loss denoised-stability",
            "--model 'd.safetensors > bar_nets:make'",
        ),
        (
            "--model unet:depth=1,width=2 --classifier bar_nets:make --weights own.pt --loss mse",
            "--model 'd.safetensors > bar_nets:make' --weights own.pt",
        ),
        (
            "--model bar_nets:front --classifier c.safetensors --loss mse",
            "--model 'bar_nets:front > c.safetensors' --weights d.safetensors",
        ),
    ],
)
def test_what_training_prints_is_what_certify_takes(folder: Path, options: str, printed: str) -> None:
    out = vauban(f"{TRAIN} {options}")
    assert "accuracy" not in out
    told, following, *_ = out.rpartition("certify with ")[2].splitlines()
    assert told == printed
    assert following.startswith(f"next: vauban certify {printed} --data ")
    vauban(f"{CERTIFY} {printed}")
    vauban("verify run")


def test_a_denoiser_alone_and_json(folder: Path) -> None:
    out = vauban(f"{TRAIN} --model unet:depth=1,width=2 --loss mse")
    assert out.rpartition("certify with ")[2].strip() == "--model 'd.safetensors > CLASSIFIER'"
    vauban(f"{CERTIFY} --model 'd.safetensors > c.safetensors'")
    found = json.loads(vauban(f"{TRAIN} --model unet:depth=1,width=2 --loss mse --overwrite --json"))
    assert found["base_accuracy_on_training_views"] is None
    assert models.read_metadata("d.safetensors").keys() == {"trained", "trained_smoothing", "step"}
    assert json.loads(Path("d.train.jsonl").read_text().splitlines()[-1])["accuracy"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--loss mse", "give --model dncnn or --model unet"),
        ("--loss mse --model unet --weights own.pt", "--weights own.pt are those of --classifier, which is missing"),
        (
            "--loss mse --model unet --classifier bar_nets:make --validate 4 -s ablation:retained=9",
            "where pictures are",
        ),
        ("--loss mse --model unet --classifier resnet18", "resnet18 has no weights"),
    ],
)
def test_commands_that_lack_something_say_what(folder: Path, options: str, sentence: str) -> None:
    assert sentence in vauban(f"{TRAIN} {options}", code=2)


def test_the_recipes_of_b_4_can_be_run(folder: Path) -> None:
    small = "--epochs 0.5 --batch-size 16"
    models.save("c3.safetensors", models.build("resnet18:width=2,classes=3"), "resnet18:width=2,classes=3", {})
    x = np.repeat(pictures(32).images, 3, axis=1)
    np.savez("cifar.npz", images=np.pad(x, ((0, 0), (0, 0), (12, 12), (12, 12))), labels=pictures(32).labels)
    start = f"train --data npz:path=cifar.npz -s uniform:sigma=0.5 {small} --validate 0"
    for loss in PAIRS:
        model = "--model dncnn:depth=2,width=2 --classifier c3.safetensors"
        vauban(f"{start} --recipe section-B.4-{loss} {model} --out {loss}.safetensors")
    vauban(f"{start} --recipe section-B.4-mse --model dncnn:depth=2,width=2 --out alone.safetensors")
    pair = "--model 'dncnn:depth=2,width=2 > resnet18:width=2'"
    vauban(f"{start} --recipe section-B.4-retrained {pair} --init alone.safetensors --out pair.safetensors")
    assert models.load("pair.safetensors").num_classes == 3
    assert not [one.name for one in RECIPES.values() if one.missing and one.name.startswith("section-B.4")]


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "denoisers.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, commands = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("python", "sh"))
    Path("clean.py").write_text(code)
    torch.save(models.build("clean:make", seed=0).state_dict(), "clean.pt")
    digits = load("mnist:split=train").select(limit=8)
    np.savez("unlabelled.npz", images=digits.images)
    for name in ("held", "labelled"):
        np.savez(f"{name}.npz", images=digits.images, labels=digits.labels)
    texts = dict(re.findall(r'^(\w+)="(.*)"$', commands, re.MULTILINE))
    for command in re.findall(r"^vauban \$(.*)$", commands, re.MULTILINE):
        name, _, rest = command.partition(" ")
        vauban(f"{texts[name]} {rest} --limit 8 " + ("-n 100" if name == "certify" else "--batch-size 4"))
    assert len(list(Path("runs").iterdir())) == 4
