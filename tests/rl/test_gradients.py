"""Slopes in the goal and gradients of the whole loss against finite differences, in double precision."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common import policies
from stable_baselines3.common.logger import Logger
from worlds import batch_of, seek_agent

from vauban.rl import ReenGAGEDDPG, ReenGAGEDQN, ReenGAGESAC
from vauban.rl.envs import LinearDense
from vauban.rl.losses import goal_slopes, gradient_loss, soft_value

STEP = 1e-6
KINDS = [
    (ReenGAGEDDPG, {}),
    (ReenGAGEDDPG, {"policy_kwargs": {"n_critics": 2}}),
    (ReenGAGESAC, {"ent_coef": 0.3}),
    (ReenGAGEDQN, {"temperature": 0.5}),
    (ReenGAGEDQN, {"temperature": 0.5, "soft": "both"}),
    (ReenGAGEDQN, {"temperature": 0.0}),
    (ReenGAGEDDPG, {"world": LinearDense(3), "rewards": "dense"}),
]


@pytest.fixture(autouse=True)
def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let observations through as they are: the library makes them single precision."""
    monkeypatch.setattr(policies, "preprocess_obs", lambda obs, *_, **__: obs)


def smooth_agent(kind: Any, **settings: Any) -> Any:
    extra = {"activation_fn": torch.nn.Tanh, **settings.pop("policy_kwargs", {})}
    agent = seek_agent(kind, policy_kwargs=extra, goal_weight=0.7, gamma=0.9, **settings)
    agent.policy.double()
    targets = agent.q_net_target if isinstance(agent, ReenGAGEDQN) else agent.critic_target
    with torch.no_grad():
        for parameter in targets.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return agent


def target_of(agent: Any, batch: Any) -> Any:
    torch.manual_seed(5)
    kept = (1 - batch.dones) * agent.gamma
    if isinstance(agent, ReenGAGESAC):
        return agent._target(batch, kept, agent.ent_coef_tensor.double())
    return agent._target(batch, kept)


def moved(batch: Any, place: tuple[int, int], step: float) -> Any:
    goals = batch.observations["desired_goal"].clone()
    goals[place] += step
    before, after = {**batch.observations, "desired_goal": goals}, {**batch.next_observations, "desired_goal": goals}
    rewards = batch.rewards
    if batch.rewards.unique().numel() > 2:  # dense: the reward moves with the goal
        rewards = (after["achieved_goal"] * goals).sum(-1, keepdim=True)
    return batch._replace(observations=before, next_observations=after, rewards=rewards)


def dense_rewards(agent: Any, batch: Any) -> Any:
    if agent.rewards == "dense":
        product = batch.next_observations["achieved_goal"] * batch.observations["desired_goal"]
        return batch._replace(rewards=product.sum(-1, keepdim=True))
    return batch


@pytest.mark.parametrize(("kind", "settings"), KINDS)
def test_slopes_of_critic_and_target_are_derivatives(kind: Any, settings: dict[str, Any]) -> None:
    agent = smooth_agent(kind, **settings)
    batch = dense_rewards(agent, batch_of(agent))
    discrete = isinstance(agent, ReenGAGEDQN)
    values = agent._value(batch) if discrete else agent._values(batch)
    slopes = values[1] if discrete else values[1][0]
    target, target_slopes = target_of(agent, batch)
    assert not target.requires_grad
    assert not target_slopes.requires_grad
    soft_only_in_slope = discrete and agent.soft == "gradient" and agent.temperature > 0
    for row in range(3):
        for column in range(slopes.shape[1]):
            ahead, behind = (moved(batch, (row, column), sign * STEP) for sign in (1, -1))
            value = [(agent._value(b)[0] if discrete else agent._values(b)[0][0])[row].item() for b in (ahead, behind)]
            assert slopes[row, column].item() == pytest.approx((value[0] - value[1]) / (2 * STEP), abs=1e-6)
            if soft_only_in_slope:
                kept = (1 - batch.dones[row]) * agent.gamma
                height = [
                    (b.rewards[row] + kept * soft_value(agent.q_net_target(b.next_observations), 0.5)[row]).item()
                    for b in (ahead, behind)
                ]
            else:
                height = [target_of(agent, b)[0][row].item() for b in (ahead, behind)]
            difference = (height[0] - height[1]) / (2 * STEP)
            assert target_slopes[row, column].item() == pytest.approx(difference, abs=1e-6)
    assert target_slopes[1].abs().max() == 0 or agent.rewards == "dense", "nothing follows the end of an episode"


@pytest.mark.parametrize(("kind", "settings"), KINDS)
def test_the_loss_differentiates_as_if_targets_were_constants(
    kind: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = smooth_agent(kind, **settings)
    agent.set_logger(Logger(None, []))
    if isinstance(agent, ReenGAGESAC):
        agent.ent_coef_tensor = agent.ent_coef_tensor.double()
    batch = dense_rewards(agent, batch_of(agent))
    monkeypatch.setattr(agent.replay_buffer, "sample", lambda *_, **__: batch)
    module = import_module(kind.__module__)
    seen: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    monkeypatch.setattr(module, "minimise", lambda loss, parameters, *_: seen.append((loss, parameters)))
    monkeypatch.setattr(module, "polyak_update", lambda *_: None, raising=False)

    def critic_loss() -> tuple[torch.Tensor, list[torch.Tensor]]:
        seen.clear()
        torch.manual_seed(7)
        agent.train(1, 6)
        return seen[0]

    loss, parameters = critic_loss()
    gradient = torch.autograd.grad(loss, parameters)
    rng = np.random.default_rng(1)
    for _ in range(3):
        ways = [torch.as_tensor(rng.normal(size=tuple(p.shape))) for p in parameters]
        losses = []
        for sign in (1, -2, 1):
            with torch.no_grad():
                for parameter, way in zip(parameters, ways, strict=True):
                    parameter.add_(sign * STEP * way)
            losses.append(critic_loss()[0].item())
        along = sum((g * w).sum().item() for g, w in zip(gradient, ways, strict=True))
        assert along == pytest.approx((losses[0] - losses[1]) / (2 * STEP), rel=1e-4, abs=1e-6)
    others = agent.q_net_target if isinstance(agent, ReenGAGEDQN) else agent.critic_target
    assert all(parameter.grad is None for parameter in others.parameters())


def test_only_rewards_at_the_low_value_count_and_weights_are_per_coordinate() -> None:
    slopes = torch.tensor([[1.0, 2.0], [10.0, 20.0]])
    counted = torch.tensor([[True], [False]])
    assert gradient_loss(slopes, torch.zeros(2, 2)).item() == (5 + 500) / 2
    assert gradient_loss(slopes, torch.zeros(2, 2), counted).item() == 5 / 2
    assert gradient_loss(slopes, torch.zeros(2, 2), counted, torch.tensor([4.0, 0.0])).item() == 4 / 2
    agent = seek_agent(ReenGAGEDDPG, goal_weight=1.0)
    batch = batch_of(agent, dtype=torch.float32)
    ones = torch.ones(6, 3)
    assert agent._slope_loss(ones, torch.zeros(6, 3), batch).item() == pytest.approx(5 * 3 / 6)


def test_a_target_can_be_bent_by_no_gradient() -> None:
    goals = torch.ones(2, 3, requires_grad=True)
    slopes = goal_slopes((goals**2).sum(1, keepdim=True), goals, train=False)
    assert not slopes.requires_grad
    tracked = goal_slopes((goals**2).sum(1, keepdim=True), goals, train=True)
    assert torch.autograd.grad(gradient_loss(tracked, tracked), goals)[0].abs().max() == 0
    tracked = goal_slopes((goals**2).sum(1, keepdim=True), goals, train=True)
    other = goal_slopes((2 * goals**2).sum(1, keepdim=True), goals, train=True)
    # With slopes s = 2g and t = 4g, d/dg mean |s - t|^2 is 2 (s - t) 2 / n if t is a constant, and -2 (s - t) 2 / n if not.
    assert torch.equal(torch.autograd.grad(gradient_loss(tracked, other), goals)[0], torch.full((2, 3), -4.0))


def test_soft_targets_tend_to_the_maximum() -> None:
    values = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]])
    assert torch.equal(soft_value(values, 0.0), torch.tensor([[4.0], [0.0]]))
    torch.testing.assert_close(soft_value(values, 1e-3), soft_value(values, 0.0))
    weights = np.exp([1, 2, 4]) / np.exp([1, 2, 4]).sum()
    assert soft_value(values, 1.0)[0].item() == pytest.approx(float(weights @ [1, 2, 4]), rel=1e-6)
