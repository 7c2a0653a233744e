"""Smoothed labels: every flip of every label set in small worlds, with the probability of every answer summed over all noise."""

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.laws.poisoning.label_noise import linear_radius
from vauban.poisoning.smoothed_labels import SmoothedLabels

INPUTS = 4


def answers(alpha: NDArray[np.float64], seen: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """What the base classifier answers for each row of labels; -1 where two classes have the highest score."""
    scores = np.stack([((seen == label) * alpha).sum(axis=1) for label in range(classes)], axis=1)
    two = np.sort(scores, axis=1)[:, -2:]
    return np.where(two[:, 1] - two[:, 0] > 1e-12, scores.argmax(axis=1), -1)


def probability(
    right: NDArray[np.bool_], seen: NDArray[np.int64], labels: NDArray[np.int64], flip: float, classes: int
) -> float:
    """The probability of the rows of `seen` that are right, under noise around these labels."""
    return float(np.where(seen == labels, 1 - flip, flip / (classes - 1)).prod(axis=1)[right].sum())


@pytest.mark.parametrize("given", [[0, 1] * 4, [0] * 5 + [1, 1, 2, 2]])
def test_no_flip_within_the_radius_moves_an_answer(given: list[int], cases_tried: Callable[[int], None]) -> None:
    labels, samples, classes = np.array(given), len(given), max(given) + 1
    random, tried, reached = np.random.default_rng(classes), 0, 0
    seen = np.array(list(product(range(classes), repeat=samples)))
    for world in range(12):
        flip = (0.01, 0.03, 0.1)[world % 3]
        features = np.eye(classes)[labels] * 2 + random.normal(size=(samples, classes)) * 0.2
        inputs = np.eye(classes)[random.integers(0, classes, INPUTS)] * 2
        model = SmoothedLabels(features, labels, classes, flip, ridge=0.1)
        certs = model.certify(inputs)
        for alpha, answer, log_wrong, radius in zip(
            model.weights(inputs), certs.answer, certs.log_wrong, certs.radius, strict=True
        ):
            right = answers(alpha, seen, classes) == answer
            assert 1 - probability(right, seen, labels, flip, classes) <= np.exp(log_wrong) + 1e-12
            tried += 1
            for number in range(radius + 1):
                for rows in combinations(range(samples), number):
                    for new in product(range(classes), repeat=number):
                        flipped = labels.copy()
                        flipped[list(rows)] = new
                        tried += 1
                        assert probability(right, seen, flipped, flip, classes) > 0.5
            reached += int(radius > 0)
    assert reached > 3
    cases_tried(tried)


def test_labels_of_a_third_class_with_negative_weights_count() -> None:
    """Two of them, flipped to the answer, take more from it than its whole lead."""
    alpha, labels = np.array([1.0] * 10 + [-6.0] * 5), np.array([0] * 10 + [2] * 5)
    assert linear_radius(alpha, labels, 3) == (0, 1)
    flipped = labels.copy()
    flipped[10:12] = 0
    assert np.bincount(flipped, alpha, 3).argmax() == 1


@pytest.mark.parametrize("classes", [2, 3])
def test_the_bound_at_one_t_is_the_mean_of_all_outcomes(classes: int, cases_tried: Callable[[int], None]) -> None:
    random = np.random.default_rng(classes)
    seen = np.array(list(product(range(classes), repeat=5)))
    for flip in (0.1, 0.3):
        labels, alpha = random.integers(0, classes, 5), random.normal(size=5)
        model = SmoothedLabels(np.eye(5), labels, classes, flip)
        chance = np.where(seen == labels, 1 - flip, flip / (classes - 1)).prod(axis=1)
        for answer, t in product(range(classes), (0.2, 1.0, 3.0)):
            lead = {
                rival: ((seen == answer) * alpha - (seen == rival) * alpha).sum(axis=1)
                for rival in range(classes)
                if rival != answer
            }
            exact = [np.log((chance * np.exp(-t * lead[rival])).sum()) for rival in lead]
            assert np.allclose(model._chernoff(alpha, answer, t), exact, rtol=1e-9, atol=1e-9)
    cases_tried(2 * 3 * classes * len(seen))


@pytest.mark.parametrize(("classes", "samples", "flip"), [(10, 6, 0.5), (50, 20, 0.8), (50, 40, 0.6)])
def test_the_bound_holds_with_many_rivals(classes: int, samples: int, flip: float) -> None:
    """All samples are of the answer, with weight 1: it wins if it keeps more of them than any rival gets."""
    model = SmoothedLabels(np.eye(samples), np.zeros(samples, int), classes, flip)
    answer, log_wrong = model.bound(np.ones(samples))
    wins = 0.0
    for kept in range(1, samples + 1):
        below = np.array([1 / math.factorial(i) for i in range(kept)])  # of one rival, with fewer than `kept` labels
        ways = np.ones(1)
        for _ in range(classes - 1):
            ways = np.convolve(ways, below)[: samples + 1]
        lost = samples - kept
        even = ways[lost] * math.factorial(lost) / (classes - 1) ** lost if lost < len(ways) else 0.0
        wins += math.comb(samples, kept) * (1 - flip) ** kept * flip**lost * even
    assert answer == 0
    assert 1 - wins <= np.exp(log_wrong) + 1e-9
    assert 1 - wins > 1e-6


@pytest.mark.parametrize("classes", [2, 3])
def test_the_regression_itself_withstands_exactly_its_radius(classes: int, cases_tried: Callable[[int], None]) -> None:
    random, tried = np.random.default_rng(classes), 0
    for _ in range(60):
        labels = random.integers(0, classes, 6)
        alpha = random.integers(-2, 6, 6) / 4 + random.random(6) / 100
        answer, radius = linear_radius(alpha, labels, classes)
        moved = [0] * 7  # whether some flip of so many labels moves the answer
        for flipped in product(range(classes), repeat=6):
            scores = np.bincount(flipped, alpha, classes)
            moved[int((np.array(flipped) != labels).sum())] |= int(scores.argmax() != answer)
            tried += 1
        first = next((number for number, found in enumerate(moved) if found), 7)
        assert radius == first - 1
    cases_tried(tried)


def test_weights_are_those_of_ridge_regression_and_noise_may_be_changed() -> None:
    random = np.random.default_rng(0)
    features, labels, inputs = random.normal(size=(50, 4)), random.integers(0, 3, 50), random.normal(size=(5, 4))
    model = SmoothedLabels(features, labels, 3, 0.3, ridge=0.5)
    ridge = 0.5 * np.trace(features.T @ features) / 4
    scores = inputs @ np.linalg.solve(features.T @ features + ridge * np.eye(4), features.T @ np.eye(3)[labels])
    assert np.allclose(model.weights(inputs) @ np.eye(3)[labels], scores)
    certs, other = model.certify(inputs, scores.argmax(axis=1)), model.with_flip(0.1)
    assert np.array_equal(certs.answer, scores.argmax(axis=1))
    assert other.flip == 0.1
    assert (other.certify(inputs).log_wrong <= certs.log_wrong).all()
    assert certs.accuracy(0) == (certs.radius >= 0).mean()
    assert [len(some) for some in model.unsmoothed(inputs[:0])] == [0, 0]
    assert len(model.certify(inputs[:0]).radius) == 0


@pytest.mark.parametrize(
    "features", [np.zeros((5, 2)), np.full((5, 2), np.nan), np.full((5, 2), np.inf), np.full((5, 2), 1e200)]
)
def test_features_that_give_no_regression_are_refused(features: np.ndarray) -> None:
    with pytest.raises(BadInput, match="standardise"):
        SmoothedLabels(features, [0, 0, 0, 0, 1], 2, 0.05)


def test_inputs_without_finite_weights_get_no_radius() -> None:
    model = SmoothedLabels(np.eye(5), [0, 0, 0, 0, 1], 2, 0.05)
    for ask in (model.unsmoothed, model.certify):
        with pytest.raises(BadInput, match="features of inputs"):
            ask(np.full((1, 5), np.nan))
