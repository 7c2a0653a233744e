"""Features learned without labels, and heads on them: a flipped label reaches one head and no feature."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from vauban.data import load
from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.partitioning.samples import content_keys
from vauban.poisoning.training.stacked.feature_heads import HeadTrainer

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


@pytest.mark.parametrize("features", ["rotnet", "simclr"])
def test_a_flipped_label_changes_one_head_and_no_feature(features: str, digits: tuple[Array, Array]) -> None:
    x, y = digits
    heads = trainer(features)
    told: list[int] = []
    heads.prepare(in_order(x), told.append)
    assert sum(told) == len(x)
    clean = hashes(heads, x, y)
    flipped = y.copy()
    flipped[17] = (flipped[17] + 1) % 10
    [owner] = [i for i, places in enumerate(Partition(6, by="sort").members(x, y)) if 17 in places]
    after = hashes(heads, x, flipped)
    assert [i for i in range(6) if clean[i] != after[i]] == [owner]
    assert hashes(heads, x, y, [4, 1]) == [clean[1], clean[4]]


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
    with pytest.raises(BadInput, match="grey or colour"):
        HeadTrainer.recipe((5,), 2)
