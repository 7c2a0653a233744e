"""Spectral features against a slow second implementation, and what they give to heads of few labels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from vauban.data import load
from vauban.errors import BadInput
from vauban.poisoning.partitioning.samples import content_keys
from vauban.poisoning.training.stacked import neighbour_graph
from vauban.poisoning.training.stacked.feature_heads import HeadTrainer
from vauban.poisoning.training.stacked.neighbour_graph import SpectralFeatures, learn_spectral

RNG = np.random.default_rng(0)


def in_blocks(x: np.ndarray, size: int = 7) -> Any:
    def blocks() -> Iterator[torch.Tensor]:
        return iter(torch.from_numpy(x).float().split(size))

    return blocks


def slow_features(x: np.ndarray, new: np.ndarray, neighbours: int, directions: int, numbers: int) -> np.ndarray:
    """Point by point and pair by pair, with dense matrices."""
    middle = x.mean(0)
    axes = np.linalg.eigh(np.cov(x.T, bias=True))[1][:, ::-1][:, :directions]

    def point(one: np.ndarray) -> np.ndarray:
        own = (one - middle) @ axes
        return own / np.linalg.norm(own)

    points = [point(one) for one in x]

    def weighted(own: np.ndarray, among: list[int]) -> dict[int, float]:
        squared = {j: float(((own - points[j]) ** 2).sum()) for j in among}
        near = sorted(among, key=squared.__getitem__)[:neighbours]
        return {j: float(np.exp(-4 * squared[j] / squared[near[-1]])) for j in near}

    n = len(x)
    graph = np.zeros((n, n))
    for i in range(n):
        for j, weight in weighted(points[i], [j for j in range(n) if j != i]).items():
            graph[i, j] = max(graph[i, j], weight)
            graph[j, i] = max(graph[j, i], weight)
    degrees = graph.sum(1)
    values, vectors = np.linalg.eigh(graph / np.sqrt(np.outer(degrees, degrees)))
    values, vectors = values[::-1][:numbers], vectors[:, ::-1][:, :numbers]
    places = vectors / np.sqrt(degrees)[:, None] / (1 - np.minimum(values, 1) + 2e-3)
    found = []
    for one in new:
        shares = weighted(point(one), list(range(n)))
        found.append(sum(weight * places[j] for j, weight in shares.items()) / sum(shares.values()))
    return np.array(found)


@pytest.mark.parametrize("dense", [0, 600])
def test_features_are_those_of_the_slow_way(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the sign of each eigenvector, so scalar products are compared."""
    monkeypatch.setattr(neighbour_graph, "_DENSE", dense)
    x, new = RNG.normal(size=(60, 9)), RNG.normal(size=(20, 9))
    told: list[int] = []
    tensors = learn_spectral(in_blocks(x), 5, 6, 8, told.append)
    assert sum(told) == 2 * len(x)
    found = SpectralFeatures(5, tensors)(torch.from_numpy(new).float()).double().numpy()
    slow = slow_features(x, new, 5, 6, 8)
    scale = np.abs(slow @ slow.T).max()
    assert np.allclose(found @ found.T, slow @ slow.T, atol=2e-3 * scale)
    assert not np.allclose(found @ found.T, slow_features(x, new, 4, 6, 8) @ slow.T, atol=2e-2 * scale)


def test_a_features_of_a_picture_depend_on_no_other_one_and_on_no_block() -> None:
    x = RNG.normal(size=(40, 6)).astype(np.float32)
    one, other = (learn_spectral(in_blocks(x, size), 5, 4, 6) for size in (40, 7))
    for name in one:
        assert torch.allclose(one[name], other[name], atol=1e-3 * float(one[name].abs().max())), name
    features, maps = SpectralFeatures(5, one), torch.from_numpy(x[:6])
    assert torch.allclose(features(maps)[2:3], features(maps[2:3]), atol=1e-4)


def test_too_few_pictures_and_too_large_ones_are_refused() -> None:
    with pytest.raises(BadInput, match="of 3 different unlabelled pictures: the least is 4"):
        learn_spectral(in_blocks(RNG.normal(size=(3, 5))), 5, 4, 6)
    with pytest.raises(BadInput, match="20,001 numbers each"):
        learn_spectral(in_blocks(np.zeros((4, 20_001))), 5, 4, 6)
    with pytest.raises(BadInput, match="too large to be squared"):
        learn_spectral(in_blocks(np.full((4, 5), 1e30)), 5, 4, 6)
    assert learn_spectral(in_blocks(RNG.normal(size=(4, 5))), 10, 80, 60)["places"].shape == (4, 2)


@pytest.mark.parametrize("copies", [1, 12])
def test_features_repeat_bit_for_bit_also_of_repeated_pictures(copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many copies of each picture as it has neighbours, and more: these alone would be its neighbours."""
    monkeypatch.setattr(neighbour_graph, "_DENSE", 0)
    x = np.repeat(load("mnist:split=train").select(every=300).images, copies, axis=0)
    found, told = [], []
    for _ in range(2):
        heads = HeadTrainer.recipe((1, 28, 28), 10, features="spectral", numbers=30, pool=200)
        heads.prepare(x, told.append)
        found.append(heads.shared)
    assert len(found[0]["places"]) == 200
    assert sum(told) == 2 * 2 * len(x)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_few_labels_are_enough_with_spectral_features() -> None:
    """Two labels of each digit, in two heads; ridge regression on the gradients themselves is far worse."""
    data = load("mnist:split=train").select(every=60)
    x, y = data.images, data.labels
    assert y is not None
    heads = HeadTrainer.recipe((1, 28, 28), 10, features="spectral", numbers=30, pool=500)
    heads.prepare(x[np.argsort(content_keys(x), kind="stable")])
    parts = [np.concatenate([np.flatnonzero(y == c)[i : i + 2] for c in range(10)]) for i in (0, 20)]
    [(_, weights)] = heads.fit([(x[part], y[part]) for part in parts], [0, 1])
    right = (heads.scores(weights, x).argmax(2).numpy() == y).mean()
    assert right > 0.85
