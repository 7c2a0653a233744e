"""Propositions 8.1 and 8.2: with the gradient loss d transitions teach the rotation, without it about d^2 / 2 are needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vauban.rl.envs import LinearDense, LinearSparse
from vauban.rl.losses import goal_slopes, gradient_loss

GAMMA = 0.9
DIMS = [4, 6]


def transitions(world: LinearDense, count: int, seed: int) -> dict[str, torch.Tensor]:
    """(s, a, g, s', R) in general position, from the world itself."""
    rng = np.random.default_rng(seed)
    state = world.begin(count, rng)
    actions = rng.normal(size=(count, world.dim))
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    after = world.move(state, actions, rng)
    table = {
        "state": world.observe(state),
        "action": actions,
        "goal": state["goal"],
        "after": world.observe(after),
        "reward": world.reward(world.achieved(after), state["goal"]),
    }
    return {key: torch.as_tensor(value) for key, value in table.items()}


def losses(world: LinearDense, data: dict[str, torch.Tensor], rotation: torch.Tensor, believed: torch.Tensor) -> tuple:
    """Residuals of the value (n,) and of the slope (n, d) against the target that `believed` makes [Eq. 8.8, 8.9]."""
    goal = data["goal"].clone().requires_grad_()
    value = world.value(rotation, data["state"], data["action"], goal, GAMMA)
    slopes = goal_slopes(value, goal, train=True)
    leaf = data["goal"].clone().requires_grad_()
    following = world.value(believed, data["after"], world.policy(believed, leaf), leaf, GAMMA)
    target_slopes = GAMMA * goal_slopes(following, leaf, train=False)
    if not isinstance(world, LinearSparse):
        target_slopes = target_slopes + data["after"]
    else:
        assert (data["reward"] == 0).all(), (
            "the sparse loss uses no gradient of a reward, and every reward here is c_low"
        )
    return value - (data["reward"] + GAMMA * following.detach()), slopes - target_slopes


def tangent(dim: int) -> torch.Tensor:
    """A basis of the skew matrices, (d (d - 1) / 2, d, d): the directions in which a rotation can be wrong."""
    rows, columns = np.triu_indices(dim, 1)
    basis = torch.zeros(len(rows), dim, dim, dtype=torch.float64)
    basis[np.arange(len(rows)), rows, columns] = 1
    return basis - basis.transpose(1, 2)


def freedom(world: LinearDense, data: dict[str, torch.Tensor], which: int) -> int:
    """How many directions of rotations a loss cannot tell from the truth, to first order."""
    truth, basis = torch.as_tensor(world.rotation), tangent(world.dim)
    weights = torch.zeros(len(basis), dtype=torch.float64)

    def residuals(w: torch.Tensor) -> torch.Tensor:
        rotation = truth @ torch.matrix_exp((w[:, None, None] * basis).sum(0))
        return losses(world, data, rotation, truth)[which].flatten()

    jacobian = torch.autograd.functional.jacobian(residuals, weights)
    return len(basis) - int(torch.linalg.matrix_rank(jacobian, tol=1e-9))


@pytest.mark.parametrize("kind", [LinearDense, LinearSparse])
@pytest.mark.parametrize("dim", DIMS)
def test_the_truth_has_no_bellman_error_whatever_the_target_believes(kind: type[LinearDense], dim: int) -> None:
    world, other = kind(dim), kind(dim, rotation_seed=9)
    data = transitions(world, 7, seed=1)
    value, slopes = losses(world, data, torch.as_tensor(world.rotation), torch.as_tensor(other.rotation))
    assert value.abs().max() < 1e-9
    assert slopes.abs().max() < 1e-9
    wrong = losses(world, data, torch.as_tensor(other.rotation), torch.as_tensor(other.rotation))
    assert wrong[0].abs().max() > 0.1
    assert wrong[1].abs().max() > 0.1


@pytest.mark.parametrize("kind", [LinearDense, LinearSparse])
@pytest.mark.parametrize("dim", DIMS)
def test_d_transitions_suffice_with_the_slope_and_d_squared_over_two_without(kind: type[LinearDense], dim: int) -> None:
    world, degrees = kind(dim), dim * (dim - 1) // 2
    for seed in range(3):
        assert freedom(world, transitions(world, dim, seed), 1) == 0
        for count in (dim, degrees - 1, degrees):
            assert freedom(world, transitions(world, count, seed), 0) == degrees - count


def learned_rotation(world: LinearDense, data: dict[str, torch.Tensor], weight: float) -> torch.Tensor:
    """Minimise the Bellman error over rotations, from a wrong one, targets made by the current estimate."""
    truth, basis = torch.as_tensor(world.rotation), tangent(world.dim)
    torch.manual_seed(0)
    start = truth @ torch.matrix_exp(
        0.7 * (basis * torch.randn(len(basis), 1, 1, dtype=torch.float64)).sum(0) / world.dim**0.5
    )
    weights = torch.zeros(len(basis), dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([weights], lr=1, max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def rotation() -> torch.Tensor:
        return start @ torch.matrix_exp((weights[:, None, None] * basis).sum(0))

    def closure() -> torch.Tensor:
        search.zero_grad()
        value, slopes = losses(world, data, rotation(), rotation().detach())
        loss = value.square().mean() + weight * gradient_loss(slopes, torch.zeros_like(slopes))
        loss.backward()
        return loss

    search.step(closure)
    assert closure().item() < 1e-6, "the loss is fitted"
    return rotation().detach()


@pytest.mark.parametrize("kind", [LinearDense, LinearSparse])
def test_descent_on_d_transitions_finds_the_policy_only_with_the_slope(kind: type[LinearDense]) -> None:
    world = kind(6)
    data, goals = transitions(world, 6, seed=4), transitions(world, 200, seed=5)["goal"]
    best = world.policy(torch.as_tensor(world.rotation), goals)
    error = [
        (best - world.policy(learned_rotation(world, data, weight), goals)).norm(dim=1).mean().item()
        for weight in (0, 1)
    ]
    assert error[0] > 0.1
    assert error[1] < 1e-3


def test_half_of_the_sparse_worlds_steps_show_the_reward_late() -> None:
    world = LinearSparse(3)
    rng = np.random.default_rng(0)
    state = world.begin(5, rng)
    action = np.eye(3)[:1].repeat(5, 0)
    first = world.move(state, action, rng)
    assert not first["position"].any()
    np.testing.assert_allclose(first["stored"], state["position"] + world.rotation[:, 0])
    second = world.move(first, rng.normal(size=(5, 3)), rng)
    np.testing.assert_allclose(second["position"], first["stored"])
    assert not second["stored"].any()


@pytest.mark.parametrize("kind", [LinearDense, LinearSparse])
def test_the_value_is_the_discounted_reward_of_the_best_policy(kind: type[LinearDense]) -> None:
    world = kind(4)
    rng = np.random.default_rng(3)
    state = world.begin(6, rng)
    goal, truth = torch.as_tensor(state["goal"]), torch.as_tensor(world.rotation)
    actions = rng.normal(size=(6, 4))
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    expected = world.value(truth, torch.as_tensor(world.observe(state)), torch.as_tensor(actions), goal, GAMMA)
    total, act = np.zeros(6), actions
    for step in range(400):
        state = world.move(state, act, rng)
        total += GAMMA**step * world.reward(world.achieved(state), state["goal"])
        act = world.policy(truth, goal).numpy()
    np.testing.assert_allclose(total, expected, rtol=1e-6)
