"""Votes are counted exactly, and nothing about how they are cast changes them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import norm

from vauban.engine.network import Network
from vauban.engine.sampler import Sampler
from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothing import Gaussian
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")
STREAM = Stream(Seed.of(1), "count", 3)
X = torch.randint(0, 256, (4,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
Model = Callable[[torch.Tensor], torch.Tensor]


def sampler(model: Model, rows: int = 50, in_flight: int = 1, num_classes: int = 3) -> Sampler:
    return Sampler(Network(model, CPU), Gaussian(0.5), num_classes, 255, rows, in_flight)


def cast(v: Sampler, looks: list[int], after: int = 0) -> list[tuple[int, list[int]]]:
    return [(look, counts.tolist()) for look, counts in v.cast(X, STREAM, looks, after=after)]


def test_counts_are_those_of_counting_by_hand(half_spaces: Model) -> None:
    words = STREAM.words(0, 130, Gaussian(0.5).words(X.shape, 255), CPU)
    by_hand = half_spaces(Gaussian(0.5).views(X[None], words, 255)).argmax(1)
    for look, counts in cast(sampler(half_spaces), [1, 49, 50, 51, 130]):
        assert counts == torch.bincount(by_hand[:look], minlength=3).tolist()


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_shape_and_flight_change_no_count(half_spaces: Model, rows: int, in_flight: int) -> None:
    looks = [10, 137, 400]
    assert cast(sampler(half_spaces, rows, in_flight), looks) == cast(sampler(half_spaces), looks)


@pytest.mark.parametrize("after", [1, 50, 99, 123])
def test_going_on_from_a_look_adds_up(half_spaces: Model, after: int) -> None:
    whole = dict(cast(sampler(half_spaces), [after, 300]))
    rest = dict(cast(sampler(half_spaces), [300], after=after))
    assert np.array_equal(np.add(whole[after], rest[300]), whole[300])


def test_every_forward_pass_has_the_same_shape_and_no_view_is_voted_twice(half_spaces: Model) -> None:
    seen: list[torch.Tensor] = []

    def spy(views: torch.Tensor) -> torch.Tensor:
        seen.append(views.clone())
        return half_spaces(views)

    told: list[int] = []
    list(sampler(spy).cast(X, STREAM, [30, 120], on_votes=told.append))
    assert [len(batch) for batch in seen] == [50, 50, 50]
    assert sum(told) == 120
    assert len(torch.unique(torch.cat(seen), dim=0)) == 150


def test_frequencies_are_those_of_the_closed_form(half_spaces: Model) -> None:
    n = 40_000
    counts = dict(cast(sampler(half_spaces, rows=1000), [n]))[n]
    mean, spread = float(X.double().mean() / 255), 0.5 / 2
    cuts = norm.cdf([0.25, 0.75], loc=mean, scale=spread)
    expected = np.diff([0, *cuts, 1])
    assert np.allclose(np.array(counts) / n, expected, atol=4.5 * 0.5 / n**0.5)


def test_first_of_equal_scores_wins() -> None:
    assert cast(sampler(lambda views: torch.zeros(len(views), 3)), [10]) == [(10, [10, 0, 0])]


def test_scores_need_not_be_a_tensor() -> None:
    assert cast(sampler(lambda views: np.eye(3)[np.full(len(views), 2)]), [10]) == [(10, [0, 0, 10])]  # type: ignore


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (lambda views: torch.zeros(len(views), 4), r"\(50, 4\).*\(50, 3\)"),
        (lambda views: torch.zeros(len(views)), r"\(50,\).*\(50, 3\)"),
        (lambda views: torch.full((len(views), 3), float("nan")), "NaN on"),
    ],
)
def test_wrong_answers_are_refused(model: Model, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        cast(sampler(model), [100])


def test_one_nan_among_many_views_is_noticed(half_spaces: Model) -> None:
    def sometimes(views: torch.Tensor) -> torch.Tensor:
        scores = half_spaces(views)
        scores[13, 1] = float("nan")
        return scores

    with pytest.raises(BadInput, match="NaN on 2 views"):
        cast(sampler(sometimes), [100])
