"""Spectral features: where a picture lies in the graph of nearest neighbours among unlabelled pictures [Belkin2003].

Pictures that a chain of near neighbours joins have similar features, however far apart their pixels are, so that a few labels
tell which group of pictures is of which class. Nothing is trained: features are eigenvectors of a matrix.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import linalg
from torch import nn
from torch.nn import functional

from vauban.errors import BadInput

_DAMPING = 2e-3  # added to the eigenvalues of the Laplacian, by whose inverse eigenvectors are weighted
_DECAY = 4.0  # of the logarithm of a weight, from a neighbour at distance 0 to the last one
_TOLERANCE = 1e-3  # of the eigenvectors
_MOST_NUMBERS = 20_000  # of a picture, whose covariance is computed
_LEAST_PICTURES = 4
_DENSE = 600  # pictures up to which all eigenvectors are computed
_AT_ONCE = 1000  # pictures whose neighbours are looked for at once

Tensors = dict[str, torch.Tensor]


class SpectralFeatures(nn.Module):
    """Features [b, m] of pictures, given as maps [b, ...].

    Maps are centred at `middle` [d], projected to `directions` [d, p] and scaled to length 1. The features are the mean of the
    `places` [n, m] of the nearest `points` [n, p], weighted by how near these are.
    """

    middle: torch.Tensor
    directions: torch.Tensor
    points: torch.Tensor
    places: torch.Tensor

    def __init__(self, neighbours: int, tensors: Tensors):
        super().__init__()
        self.neighbours = neighbours
        for name in ("middle", "directions", "points", "places"):
            self.register_buffer(name, tensors[name])

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        with torch.autocast(maps.device.type, enabled=False):
            points = _projected(maps, self.middle, self.directions)
            weights, near = _nearest(points @ self.points.T, min(self.neighbours, len(self.points)))
            shares = weights / weights.sum(1, keepdim=True)
            return (self.places[near] * shares[:, :, None]).sum(1)


def learn_spectral(
    blocks: Callable[[], Iterator[torch.Tensor]],
    neighbours: int,
    directions: int,
    numbers: int,
    tell: Callable[[int], object] = lambda pictures: None,
) -> Tensors:
    """The tensors of `SpectralFeatures` for the unlabelled pictures whose maps [b, ...] each call of `blocks` yields.

    Each picture should be given once: copies would be each other's neighbours, and their graph would say nothing of others.

    `neighbours`, `directions`, `numbers`: k, p and m, fewer where there are too few pictures. `tell` is given numbers of
    pictures, twice as many as there are in all: first as their neighbours are found, then as eigenvectors are.
    """
    middle, axes = _principal(blocks(), directions)
    points = torch.cat([_projected(maps, middle, axes) for maps in blocks()])
    edges, weights = _graph(points, min(neighbours, len(points) - 1), tell)
    places = _eigenvectors(edges, weights, min(numbers, len(points) - 2), tell)
    tensors = {"middle": middle, "directions": axes, "points": points, "places": places.to(points.device)}
    return {name: tensor.float().contiguous() for name, tensor in tensors.items()}


def _principal(blocks: Iterator[torch.Tensor], directions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean [d] of maps, and the directions [d, p] of their largest variance."""
    total: torch.Tensor | None = None
    for maps in blocks:
        x = maps.flatten(1)
        if x.shape[1] > _MOST_NUMBERS:
            raise BadInput(
                f"spectral features of pictures with {x.shape[1]:,} numbers each: {_MOST_NUMBERS:,} are possible; scale the "
                "pictures down (size=), or take features=simclr"
            )
        ones = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        products = (ones.T @ ones).double()
        total = products if total is None else total + products
    count = 0 if total is None else int(total[-1, -1])
    if total is None or count < _LEAST_PICTURES:
        raise BadInput(f"spectral features of {count} different unlabelled pictures: the least is {_LEAST_PICTURES}")
    if not total.isfinite().all():
        raise BadInput("spectral features of pictures with numbers too large to be squared: scale them down")
    middle = total[-1, :-1] / count
    covariance = total[:-1, :-1] / count - middle[:, None] * middle
    return middle.float(), torch.linalg.eigh(covariance)[1].flip(1)[:, :directions].float()


def _projected(maps: torch.Tensor, middle: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
    return functional.normalize((maps.flatten(1) - middle) @ axes, dim=1)


def _nearest(products: torch.Tensor, neighbours: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and numbers [b, k] of the points that are nearest by their scalar products [b, n]."""
    largest, near = products.topk(neighbours, dim=1)
    squared = (2 - 2 * largest).clamp(min=0)
    return torch.exp(-_DECAY * squared / squared[:, -1:].clamp(min=1e-6)), near


def _graph(points: torch.Tensor, neighbours: int, tell: Callable[[int], object]) -> tuple[torch.Tensor, torch.Tensor]:
    """For each point [n, p] its nearest others and their weights, both [n, k]."""
    weights, near = [], []
    for start in range(0, len(points), _AT_ONCE):
        some = torch.arange(start, min(start + _AT_ONCE, len(points)), device=points.device)
        products = points[some] @ points.T
        products[some - start, some] = -2.0  # a point is no neighbour of its own
        found = _nearest(products, neighbours)
        weights.append(found[0])
        near.append(found[1])
        tell(len(some))
    return torch.cat(near), torch.cat(weights)


def _eigenvectors(
    near: torch.Tensor, weights: torch.Tensor, numbers: int, tell: Callable[[int], object]
) -> torch.Tensor:
    """Eigenvectors [n, m] of the normalised Laplacian of the graph, those of the smallest eigenvalues, weighted by the inverse of
    these: linear classifiers on them that have small weights give neighbours like answers."""
    count, k = near.shape
    rows = np.repeat(np.arange(count), k)
    entries = weights.double().cpu().numpy().ravel()
    directed = sparse.csr_matrix((entries, (rows, near.cpu().numpy().ravel())), (count, count))
    graph = directed.maximum(directed.T)
    scale = sparse.diags(1 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    matrix, told = (scale @ graph @ scale).tocsr(), 0

    def multiplied(vector: np.ndarray) -> np.ndarray:
        nonlocal told
        some = (count - told) // (8 * numbers)
        told += some
        tell(some)
        return matrix @ vector

    if count <= _DENSE:
        values, vectors = (found[..., -numbers:] for found in np.linalg.eigh(matrix.toarray()))
    else:
        operator = linalg.LinearOperator(matrix.shape, matvec=multiplied, dtype=matrix.dtype)
        fixed = {"rng": 0} if "rng" in inspect.signature(linalg.eigsh).parameters else {}  # SciPy from 1.17 on
        start = np.random.default_rng(0).normal(size=count)
        try:
            values, vectors = linalg.eigsh(operator, numbers, which="LA", v0=start, tol=_TOLERANCE, **fixed)
        except linalg.ArpackError as problem:
            raise BadInput(
                f"no eigenvectors of the graph of {count:,} pictures were found ({problem}): take fewer, "
                f"numbers={numbers // 2}, or features=simclr"
            ) from problem
    tell(count - told)
    return torch.from_numpy(scale @ vectors / (1 - values.clip(max=1) + _DAMPING))
