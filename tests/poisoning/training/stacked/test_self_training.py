"""Heads in closed form: against slow ones written from the formulas, and what unlabelled pictures give them."""

import numpy as np
import pytest
import torch

from vauban.poisoning.training.stacked.self_training import SelfTraining


def clusters(
    seed: int, count: int, spread: float = 1.0, d: int = 12, classes: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around `classes` centres, long in one direction that tells nothing."""
    centres = np.random.default_rng(0).normal(size=(classes, d)) * 1.5
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, count)
    x = centres[y] + draw.normal(size=(count, d)) * spread
    x[:, 0] *= 6
    return torch.from_numpy(x).float(), torch.from_numpy(y)


def test_ridge_is_the_solution_of_its_normal_equations() -> None:
    x, y = clusters(1, 9)
    pool, _ = clusters(2, 50)
    weight, bias = SelfTraining(0.1, 0, 0.03, 2.0).fit([(x, y)], 4, pool)
    centred = (x - pool.mean(0)).double().numpy()
    targets = np.eye(4)[y.numpy()] - 0.25
    penalty = 0.1 * (centred**2).sum(1).mean() + 1e-6
    slow = np.linalg.solve(centred.T @ centred + penalty * np.eye(12), centred.T @ targets)
    assert np.allclose(weight[0].numpy(), slow, atol=1e-4)
    assert np.allclose(bias[0].numpy(), -pool.mean(0).double().numpy() @ slow, atol=1e-4)


def test_one_round_is_the_discriminant_of_the_labels_it_gave() -> None:
    x, y = clusters(1, 8)
    pool, _ = clusters(2, 60)
    first, _ = SelfTraining(0.1, 0, 0.5, 2.0).fit([(x, y)], 4, pool)
    weight, bias = SelfTraining(0.1, 1, 0.5, 2.0).fit([(x, y)], 4, pool)
    middle = pool.double().numpy().mean(0)
    p, own = pool.double().numpy() - middle, x.double().numpy() - middle
    scores = p @ first[0].double().numpy()
    scores = scores * 4 / scores.std(ddof=1)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    for _ in range(3):
        shares = shares / shares.sum(0)
        shares = shares / shares.sum(1, keepdims=True)
    hot = np.eye(4)[y.numpy()]
    means = (own.T @ hot + p.T @ shares) / (hot.sum(0) + shares.sum(0))
    covariance = p.T @ p / len(p)
    covariance += (0.5 * covariance.diagonal().mean() + 1e-6) * np.eye(12)
    slow = np.linalg.solve(covariance, means)
    assert np.allclose(weight[0].numpy(), slow, atol=1e-3)
    assert np.allclose(bias[0].numpy(), -(slow * means).sum(0) / 2 - middle @ slow, atol=1e-2)


def test_pictures_without_labels_make_heads_of_few_samples_better() -> None:
    pool, _ = clusters(2, 2000, spread=2.0)
    x, y = clusters(3, 500, spread=2.0)
    parts = [clusters(10 + i, 12, spread=2.0) for i in range(20)]

    def accuracy(rounds: int) -> float:
        weight, bias = SelfTraining(0.1, rounds, 0.03, 2.0).fit(parts, 4, pool)
        return float(((x @ weight + bias[:, None]).argmax(2) == y).float().mean())

    assert accuracy(10) > accuracy(0) + 0.05


def test_a_class_without_samples_is_found_by_elimination() -> None:
    pool, _ = clusters(2, 400, spread=0.5)
    x, y = clusters(1, 300, spread=0.5)
    kept = (y != 2).nonzero()[:20, 0]
    [weight], [bias] = SelfTraining(0.1, 4, 0.03, 2.0, unseen=True).fit([(x[kept], y[kept])], 4, pool)
    answers = (x @ weight + bias).argmax(1)
    assert (answers[y == 2] == 2).float().mean() > 0.9
    assert (answers[y != 2] == y[y != 2]).float().mean() > 0.9


@pytest.mark.parametrize("rounds", [0, 3])
def test_a_head_is_the_same_among_others_and_without_samples_it_votes_for_the_first_class(rounds: int) -> None:
    pool, _ = clusters(2, 40)
    parts = [clusters(10 + i, 5 + i) for i in range(3)]
    how = SelfTraining(0.1, rounds, 0.03, 2.0)
    empty = (torch.zeros(0, 12), torch.zeros(0, dtype=torch.int64))
    together, alone = how.fit(parts, 4, pool), how.fit([empty, parts[1], empty], 4, pool)
    assert torch.equal(together[0][1], alone[0][1])
    assert torch.equal(together[1][1], alone[1][1])
    scores = pool @ alone[0][0] + alone[1][0]
    assert scores.isfinite().all()
    assert (scores.argmax(1) == 0).all()


def test_a_class_of_which_a_head_has_no_sample_gets_no_vote() -> None:
    pool, _ = clusters(2, 200)
    x, y = clusters(1, 30)
    kept = y != 2
    weight, bias = SelfTraining(0.1, 4, 0.03, 2.0).fit([(x[kept], y[kept])], 4, pool)
    assert not ((pool @ weight[0] + bias[0]).argmax(1) == 2).any()
