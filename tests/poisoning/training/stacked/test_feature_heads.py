"""Features learned without labels, and heads on them: a flipped label reaches one head and no feature."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban import models
from vauban.data import Dataset, load
from vauban.errors import BadInput, RunRefused
from vauban.poisoning.ensemble_training import load_ensemble, train
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.partitioning.samples import content_keys
from vauban.poisoning.training.stacked.build_trainer import build_trainer
from vauban.poisoning.training.stacked.feature_heads import POOL, HeadTrainer

Array = np.ndarray[Any, Any]
SMALL = {"steps": 5, "views": 1, "batch": 64, "group": 3, "learning_epochs": 1, "learning_batch": 60}


@pytest.fixture(scope="module")
def whole_digits() -> tuple[Array, Array]:
    data = load("mnist:split=train").select(every=100, limit=120)
    assert data.labels is not None
    return data.images, data.labels


@pytest.fixture(scope="module")
def digits(whole_digits: tuple[Array, Array]) -> tuple[Array, Array]:
    """Digits of 14 x 14 pixels, for what does not depend on how well they are told apart."""
    return whole_digits[0][:, :, ::2, ::2].copy(), whole_digits[1]


def trainer(features: str = "rotnet", **changes: Any) -> HeadTrainer:
    return HeadTrainer.recipe((1, 14, 14), 10, features=features, **{**SMALL, **changes})


def in_order(x: Array) -> Array:
    return x[np.argsort(content_keys(x), kind="stable")]


def hashes(heads: HeadTrainer, x: Array, y: Array, numbers: Sequence[int] = range(6)) -> list[str]:
    members = Partition(6, by="sort").members(x, y)
    made = []
    for _, weights in heads.fit([(x[members[i]], y[members[i]]) for i in numbers], numbers):
        for i in range(len(weights["fc1.bias"])):
            made.append(hashlib.sha256(b"".join(w[i].numpy().tobytes() for w in weights.values())).hexdigest())
    return made


def check_that_a_flipped_label_changes_one_head(heads: HeadTrainer, x: Array, y: Array) -> None:
    clean = hashes(heads, x, y)
    flipped = y.copy()
    flipped[17] = (flipped[17] + 1) % 10
    [owner] = [i for i, places in enumerate(Partition(6, by="sort").members(x, y)) if 17 in places]
    after = hashes(heads, x, flipped)
    assert [i for i in range(6) if clean[i] != after[i]] == [owner]
    assert hashes(heads, x, y, [4, 1]) == [clean[1], clean[4]]


@pytest.mark.parametrize("features", ["rotnet", "simclr", "spectral"])
def test_a_flipped_label_changes_one_head_and_no_feature(features: str, digits: tuple[Array, Array]) -> None:
    x, y = digits
    heads = trainer(features)
    told: list[int] = []
    heads.prepare(in_order(x), told.append)
    assert sum(told) == (2 if features == "spectral" else 1) * len(x)
    check_that_a_flipped_label_changes_one_head(heads, x, y)


def test_learning_does_not_depend_on_the_order_of_the_data(digits: tuple[Array, Array]) -> None:
    x, y = digits
    order = np.random.default_rng(0).permutation(len(x))
    first, second = trainer(), trainer()
    first.prepare(in_order(x))
    second.prepare(in_order(x[order]))
    assert all(torch.equal(first.shared[name], second.shared[name]) for name in first.shared)
    assert hashes(first, x, y) == hashes(second, x[order], y[order])


def test_features_learned_before_are_taken_up(digits: tuple[Array, Array]) -> None:
    x, y = digits
    heads = trainer()
    heads.prepare(in_order(x))
    [(_, weights)] = heads.fit([(x[:40], y[:40])], [0])
    again = HeadTrainer.from_spec(heads.spec)
    assert again == heads
    again.shared.update({name: value.clone() for name, value in heads.shared.items()})
    again.prepare(in_order(x)[:10])
    assert torch.equal(again.scores(weights, x), heads.scores(weights, x))
    before = again.scores(weights, x)
    again.shared["0.weight"] = again.shared["0.weight"] * 1.5
    again.shared["3.weight"] = -again.shared["3.weight"]
    assert not torch.equal(again.scores(weights, x), before)


@pytest.mark.slow
def test_rotnet_learns_to_tell_turned_digits(whole_digits: tuple[Array, Array]) -> None:
    """A head on what RotNet learned from 120 pictures is far better than chance with 50 labels."""
    x, y = whole_digits
    heads = trainer(learning_epochs=3, steps=40, group=1)
    heads.prepare(in_order(x))
    [(_, weights)] = heads.fit([(x[:50], y[:50])], [0])
    assert (heads.scores(weights, x[50:]).argmax(dim=2)[0].numpy() == y[50:]).mean() > 0.6


def test_colour_pictures_go_through_a_residual_network() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (12, 3, 16, 16), dtype=np.uint8), rng.integers(0, 2, 12)
    heads = HeadTrainer.recipe((3, 16, 16), 2, learning_epochs=1, learning_batch=6, group=2, steps=2, batch=4)
    assert heads.features == "simclr"
    heads.prepare(in_order(x))
    [(_, weights)] = heads.fit([(x[:6], y[:6]), (x[6:], y[6:])], [0, 1])
    assert heads.scores(weights, x).shape == (2, 12, 2)
    assert weights["fc1.weight"].shape == (2, 512, 2)


def test_bad_input_is_refused(digits: tuple[Array, Array]) -> None:
    x, y = digits
    with pytest.raises(BadInput, match="not learned yet"):
        next(iter(trainer().fit([(x[:9], y[:9])], [0])))
    with pytest.raises(BadInput, match="way to learn features"):
        trainer("rotnett")
    with pytest.raises(BadInput, match="fits linear heads, not dense"):
        trainer(solver="ridge", network="dense")
    with pytest.raises(BadInput, match="sharpness above 0"):
        trainer(sharpness=0.0)
    with pytest.raises(BadInput, match="copies are made beforehand"):
        trainer(solver="ridge", views=0)
    with pytest.raises(BadInput, match="grey or colour"):
        HeadTrainer.recipe((5,), 2)
    for setting in ("solver=ridge", "learned=FILE"):
        with pytest.raises(BadInput, match=f"--model linear:{setting}: .* take --defense ss-dpa"):
            build_trainer((1, 14, 14), 10, model=f"linear:{setting}")
    with pytest.raises(BadInput, match="'solve' is not a known setting"):
        build_trainer((1, 14, 14), 10, model="linear:solve=ridge")


def test_maps_of_a_network_in_network_get_its_last_block_as_head(digits: tuple[Array, Array]) -> None:
    """RotNet on network in network, as the thesis has it: two blocks learn turns, the third is trained on each part."""
    x, y = digits
    heads = trainer(trunk="nin", learning_batch=12, group=2, steps=1, batch=4, views=1)
    assert heads.network == "nin-top"
    assert heads.front == "none"
    heads.prepare(in_order(x[:12]))
    [(_, weights)] = heads.fit([(x[:9], y[:9]), (x[9:20], y[9:20])], [0, 1])
    assert weights["block3a.weight"].shape == (2, 192, 192, 3, 3)
    assert "block1a.weight" not in weights
    assert heads.scores(weights, x[:5]).shape == (2, 5, 10)
    assert HeadTrainer.from_spec(heads.spec) == heads


@pytest.mark.parametrize("solver", ["ridge", "self-training"])
def test_heads_in_closed_form_are_functions_of_their_own_labels(solver: str, digits: tuple[Array, Array]) -> None:
    x, y = digits
    heads = trainer(solver=solver, pool=50, rounds=3)
    heads.prepare(in_order(x))
    assert (POOL in heads.shared) == (solver == "self-training")
    check_that_a_flipped_label_changes_one_head(heads, x, y)


def test_unlabelled_pictures_are_those_of_the_whole_set_whatever_their_labels(digits: tuple[Array, Array]) -> None:
    x, _y = digits
    order = np.random.default_rng(0).permutation(len(x))
    pools = []
    for some in (x, x[order]):
        heads = trainer(solver="self-training", pool=30)
        heads.prepare(in_order(some))
        pools.append(heads.shared[POOL])
    assert torch.equal(*pools)
    assert len(pools[0]) == 30


def test_mirrored_features_do_not_see_which_side_is_left(digits: tuple[Array, Array]) -> None:
    x, y = digits
    heads = trainer(mirrored=True, front="none", trunk="resnet18:channels=1,classes=10,width=4", solver="ridge")
    heads.prepare(in_order(x))
    [(_, weights)] = heads.fit([(x[:40], y[:40])], [0])
    there, mirrored = heads.scores(weights, x[:9]), heads.scores(weights, x[:9, :, :, ::-1].copy())
    assert torch.allclose(there, mirrored, atol=1e-4)


def test_features_of_parts_are_the_mean_of_each_ones_own(digits: tuple[Array, Array]) -> None:
    """Parts as they are cut by hand: the corners, of half the height and width, at twice the size."""
    x, _ = digits
    network = {"front": "none", "trunk": "resnet18:channels=1,classes=10,width=4"}
    whole, parts = trainer(**network), trainer(**network, crops=2)
    whole.prepare(in_order(x))
    parts.shared.update(whole.shared)
    trunk, small = whole._trunk(1), torch.from_numpy(x[:3]).float() / 255
    height, width = small.shape[2] // 2, small.shape[3] // 2
    corners = [small[:, :, i : i + height, j : j + width] for i in (0, height) for j in (0, width)]
    with torch.no_grad():
        mean = sum(trunk(torch.nn.functional.interpolate(one, scale_factor=2, mode="bilinear")) for one in corners) / 4
    expected = torch.nn.functional.normalize(mean, dim=1) * mean.shape[1] ** 0.5
    assert torch.allclose(parts.features_of(x[:3]), expected, atol=1e-4)
    assert not torch.allclose(whole.features_of(x[:3]), expected, atol=1e-2)
    with pytest.raises(BadInput, match="crops=-1"):
        trainer(crops=-1)


def test_features_that_vauban_train_wrote_are_taken_up(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (24, 3, 8, 8), dtype=np.uint8)
    y = np.arange(24) % 3
    file = tmp_path / "features.safetensors"
    network = "resnet18:channels=3,classes=10,width=4"
    vb.train(network, x, loss="simclr:width=8", epochs=1, batch=12, out=file)
    defense, model = "ss-dpa:features=learned", f"linear:learned={file},solver=self-training,pool=20,group=2"
    data = Dataset(x, y, 3, tuple("abc"), "made", classes_fixed=True)
    ensemble = train(data, defense, 4, out=tmp_path / "ens", model=model)
    about = ensemble.manifest["trainer"]
    assert about["trunk"] == network
    assert len(about["trunk_sha256"]) == 64
    assert about["features"] == "learned"
    assert ensemble.manifest["against"] == "labels"
    file.unlink()
    again = load_ensemble(tmp_path / "ens")
    assert np.array_equal(again.predict(x), ensemble.predict(x))
    for bad in (
        {"defense": "ss-dpa:features=learned", "model": None},
        {"defense": "ss-dpa:features=simclr", "model": model},
    ):
        with pytest.raises(BadInput, match="belong together"):
            train(data, bad["defense"], 4, model=bad["model"])
    models.save(tmp_path / "mlp.safetensors", models.build("mlp:features=4,classes=2"), "mlp:features=4,classes=2", {})
    with pytest.raises(BadInput, match="last layer is called fc"):
        train(data, defense, 4, model=f"linear:learned={tmp_path / 'mlp.safetensors'}")


def test_each_ensemble_keeps_the_features_it_was_trained_on(digits: tuple[Array, Array], tmp_path: Path) -> None:
    """Also where several are trained by one trainer, or the features in a folder are others; the manifest has their hash."""
    x, y = digits
    one = trainer("spectral", numbers=20, pool=60)

    def fit(rows: slice, given: HeadTrainer = one, folder: Path | None = None) -> vb.Ensemble:
        return vb.Ensemble.fit(
            x[rows], y[rows], Partition(4, by="sort"), given, against="labels", folder=folder, progress=False
        )

    first, anew = fit(slice(0, 80)), fit(slice(40, 120))
    again = fit(slice(40, 120), trainer("spectral", numbers=20, pool=60))
    assert np.array_equal(anew.votes(x), again.votes(x))
    assert anew.fingerprints == again.fingerprints
    votes = first.votes(x)
    fit(slice(40, 120), folder=tmp_path / "ens")
    assert np.array_equal(first.votes(x), votes)
    for ensemble, name in ((first, "first"), (anew, "anew")):
        ensemble.certify(x, y, out=tmp_path / name, progress=False)
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("first", "anew")]
    hashes = {manifest["training"]["features_sha256"] for manifest in manifests}
    assert len(hashes) == 2
    given = trainer("spectral", numbers=20, pool=60)
    given.shared.update(first.trainer.shared)
    with pytest.raises(RunRefused, match="on other features"):
        fit(slice(40, 120), given, tmp_path / "ens")
    (tmp_path / "ens" / "shared.safetensors").unlink()
    with pytest.raises(RunRefused, match="without the features that they were trained on"):
        fit(slice(40, 120), folder=tmp_path / "ens")
