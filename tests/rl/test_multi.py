"""Multi-ReenGAGE: gates, dummies, the closed form against autograd, the shared encoder, the picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.type_aliases import DictReplayBufferSamples
from worlds import drive_agent, seek_agent

from vauban.errors import BadInput
from vauban.rl import MultiReenGAGEDDPG, ReenGAGEDDPG
from vauban.rl.encoders import GoalImageEncoder, GoalSetEncoder
from vauban.rl.envs import DriveSeek
from vauban.rl.multi import _with_gates

GOALS = 6


def agent_and_batch(size: int = 5, **settings: Any) -> tuple[Any, DictReplayBufferSamples]:
    agent = drive_agent(MultiReenGAGEDDPG, "MultiInputPolicy", max_goals=GOALS, goal_weight=0.5, **settings)
    world, rng = DriveSeek(max_goals=GOALS), np.random.default_rng(1)
    state = world.begin(size, rng)
    for _ in range(3):
        before = world.look(state)
        actions = rng.uniform(-0.5, 0.5, (size, 1)).astype(np.float32)
        state = world.move(state, actions, rng)
    after = world.look(state)
    after["desired_goal"][0, 0] = before["desired_goal"][0, 0] = [*after["achieved_goal"][0], 1]  # one goal is reached
    rewards = world.reward(after["achieved_goal"], after["desired_goal"])[:, None]
    assert rewards[0] == 1
    tensors = ({k: torch.as_tensor(v) for k, v in seen.items()} for seen in (before, after))
    one, two = tensors
    return agent, DictReplayBufferSamples(
        one, torch.as_tensor(actions), two, torch.zeros(size, 1), torch.as_tensor(rewards)
    )


def without_closed_form(agent: Any) -> Any:
    agent._closed_form = False
    return agent


def dense(batch: Any, packed: torch.Tensor) -> torch.Tensor:
    full = torch.zeros(batch.observations["desired_goal"].shape[:2])
    full[batch.observations["desired_goal"][..., 2] != 0] = packed
    return full


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("critics", [1, 2])
def test_the_closed_form_is_autograd_in_the_gates(share: bool, critics: int) -> None:
    agent, batch = agent_and_batch(policy_kwargs={"share_encoder": share, "n_critics": critics})
    with torch.no_grad():
        for parameter in agent.critic_target.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    kept = torch.full((5, 1), 0.95)
    kept[2] = 0
    target, packed = agent._target(batch, kept)
    values, slopes = agent._values(batch)
    loss = sum(agent._slope_loss(slope, packed, batch) for slope in slopes)
    gradient = torch.autograd.grad(loss, list(agent.critic.parameters()), allow_unused=True)
    slow = without_closed_form(agent)
    target_slow, full = slow._target(batch, kept)
    values_slow, slopes_slow = slow._values(batch)
    loss_slow = sum(slow._slope_loss(slope, full, batch) for slope in slopes_slow)
    torch.testing.assert_close(target, target_slow)
    torch.testing.assert_close(dense(batch, packed), full, rtol=1e-4, atol=1e-5)
    for one, two in zip(values, values_slow, strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(loss, loss_slow, rtol=1e-4, atol=1e-6)
    slow_gradient = torch.autograd.grad(loss_slow, list(agent.critic.parameters()), allow_unused=True)
    for one, two in zip(gradient, slow_gradient, strict=True):
        none = torch.zeros(1)
        torch.testing.assert_close(none if one is None else one, none if two is None else two, rtol=1e-3, atol=1e-5)


def test_gradients_in_the_gates_are_finite_differences_times_two() -> None:
    agent, batch = agent_and_batch()
    slopes = dense(batch, agent._values(batch)[1][0])
    seen = {key: value.double() for key, value in batch.observations.items()}
    agent.critic.double()
    encoder = agent.critic.features_extractor

    def value(gates: torch.Tensor) -> torch.Tensor:
        goals = torch.cat([seen["desired_goal"][..., :2], gates[..., None]], -1)
        rows, places = torch.ones_like(gates).nonzero(as_tuple=True)
        embedded = encoder.net(torch.cat([seen["observation"][rows], goals[rows, places, :2]], 1))
        pooled = torch.zeros(len(gates), encoder.embedding, dtype=torch.float64)
        pooled = pooled.index_add(0, rows, gates[rows, places].square()[:, None] * embedded)
        return agent.critic.q_networks[0](torch.cat([seen["observation"], pooled, batch.actions.double()], 1))

    gates = seen["desired_goal"][..., 2]
    for place in range(GOALS):
        ahead, behind = gates.clone(), gates.clone()
        ahead[:, place] += 1e-5
        behind[:, place] -= 1e-5
        difference = (value(ahead) - value(behind)).detach()[:, 0] / 2e-5
        np.testing.assert_allclose(slopes[:, place].detach(), difference, rtol=2e-3, atol=2e-5)
    assert (slopes[gates == 1] != 0).all()


@pytest.mark.parametrize("closed_form", [True, False])
def test_dummies_receive_exactly_zero_gradient(closed_form: bool) -> None:
    agent, batch = agent_and_batch()
    agent._closed_form = closed_form
    gates = agent._gates(batch.observations)
    value = agent.critic(_with_gates(batch.observations, gates), batch.actions)[0]
    (by_gate,) = torch.autograd.grad(value.sum(), gates)
    dummies = batch.observations["desired_goal"][..., 2] == 0
    assert dummies.any()
    assert (by_gate[dummies] == 0).all()
    assert (by_gate[~dummies] != 0).all()
    changed = {**batch.observations, "desired_goal": batch.observations["desired_goal"].clone()}
    changed["desired_goal"][..., :2][dummies] = 7
    moved = batch._replace(
        observations=changed, next_observations={**batch.next_observations, "desired_goal": changed["desired_goal"]}
    )
    kept = torch.full((5, 1), 0.95)
    for one, two in zip(agent._target(batch, kept), agent._target(moved, kept), strict=True):
        assert torch.equal(one, two), "what a dummy looks like changes nothing"


def test_item_rewards_enter_doubled_where_the_goal_is_reached() -> None:
    agent, batch = agent_and_batch()
    nothing_follows = torch.zeros(5, 1)
    _, slopes = agent._target(batch, nothing_follows)
    reached = dense(batch, slopes)
    assert reached[0, 0] == 2
    assert set(reached.unique().tolist()) == {0, 2}
    same = (batch.observations["desired_goal"][..., :2] == batch.next_observations["achieved_goal"][:, None]).all(-1)
    assert torch.equal(reached != 0, same & (batch.observations["desired_goal"][..., 2] != 0))


def test_the_encoder_is_shared_and_trained_by_the_critic_alone() -> None:
    agent = drive_agent(MultiReenGAGEDDPG, "MultiInputPolicy", goal_weight=0.5)
    encoder = agent.critic.features_extractor
    assert agent.actor.features_extractor is encoder
    assert agent.actor_target.features_extractor is agent.critic_target.features_extractor
    shared = {id(parameter) for parameter in encoder.parameters()}
    assert not shared & {id(p) for group in agent.actor.optimizer.param_groups for p in group["params"]}
    assert shared <= {id(p) for group in agent.critic.optimizer.param_groups for p in group["params"]}
    agent.learn(45)
    for one, two in zip(encoder.parameters(), agent.critic_target.features_extractor.parameters(), strict=True):
        assert not torch.equal(one, two), "the target follows slowly"
    own = drive_agent(MultiReenGAGEDDPG, "MultiInputPolicy", policy_kwargs={"share_encoder": False})
    assert own.actor.features_extractor is not own.critic.features_extractor


def test_the_order_of_goals_does_not_matter() -> None:
    world = DriveSeek(max_goals=GOALS)
    encoder = GoalSetEncoder(world.observation_space, (8, 8), 4)
    seen = {key: torch.as_tensor(value) for key, value in world.look(world.begin(3, np.random.default_rng(0))).items()}
    turned = {**seen, "desired_goal": seen["desired_goal"].flip(1)}
    torch.testing.assert_close(encoder(seen), encoder(turned))


def test_pictures_show_goals_position_and_direction() -> None:
    world = DriveSeek(max_goals=GOALS)
    encoder = GoalImageEncoder(world.observation_space, 8)
    state = {"position": np.array([[2.0, -3.0]]), "angle": np.array([np.pi / 2])}
    goals = world.pack([np.array([[2, -3], [-10, 10]])])
    seen = {key: torch.as_tensor(value) for key, value in world.look({**state, "goal": goals}).items()}
    red, green, blue = encoder.picture(seen)[0]
    assert red.shape == (168, 168)
    assert red.sum() == 2 * 16
    assert torch.equal(red[50:70, 90:110], green[50:70, 90:110])
    assert red[162:166, 2:6].sum() == 16
    assert torch.equal(blue, green.roll(8, 0)), "straight on is one unit up"
    for offset, overlap in ((0.4, True), (0.55, False)):
        state["position"] = np.array([[2.0 + offset, -3.0]])
        seen = {key: torch.as_tensor(value) for key, value in world.look({**state, "goal": goals}).items()}
        red, green, _ = encoder.picture(seen)[0]
        assert bool((red * green).any()) == overlap == bool(world.reward(np.rint(state["position"]), goals)[0])


def test_an_agent_can_look_at_pictures() -> None:
    kwargs = {"features_extractor_class": GoalImageEncoder, "features_extractor_kwargs": {"embedding": 8}}
    agent = drive_agent(MultiReenGAGEDDPG, "MultiInputPolicy", batch_size=4, goal_weight=0.5, policy_kwargs=kwargs)
    agent.learn(42)
    assert agent.logger.name_to_value["train/goal_loss"] > 0


def test_bad_input_is_answered() -> None:
    with pytest.raises(BadInput, match="goals that are sets"):
        seek_agent(MultiReenGAGEDDPG)
    with pytest.raises(BadInput, match="leave it out"):
        drive_agent(MultiReenGAGEDDPG, "MultiInputPolicy", normalise_goals=True)
    with pytest.raises(BadInput, match="share_features_extractor"):
        seek_agent(ReenGAGEDDPG, policy_kwargs={"share_features_extractor": True})
    flat = spaces.Dict(observation=spaces.Box(0, 1, (3,)), desired_goal=spaces.Box(0, 1, (4, 3)))
    with pytest.raises(BadInput, match="DriveSeek"):
        GoalImageEncoder(flat)
