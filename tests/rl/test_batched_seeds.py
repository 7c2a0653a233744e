"""Batched seeds: the same update as each single agent's, the same replay, the same evaluations."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from amounts import some_slow
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import DictReplayBufferSamples
from stacks import SMALL, bits, plan, sets

from vauban.errors import BadInput
from vauban.rl.batched_seeds import check_batched, stack_of
from vauban.rl.batched_seeds.replay import Replay
from vauban.rl.envs import BitFlipping, ContinuousSeek, DriveSeek, NoisySeek
from vauban.rl.evaluating import evaluate
from vauban.rl.recipes import Plan

PICTURES = [sets("ddpg", encoder="pictures"), sets(goal_weight=0.3, encoder="pictures")]


def described(asked: Plan) -> str:
    return f"{asked.algo} {asked.env} {sorted(asked.settings.items())}"


@pytest.mark.parametrize(
    "asked",
    some_slow(
        [
            plan(goal_weight=0.4),
            sets(goal_weight=0.3),
            sets("ddpg", share_encoder=False),
            plan("reengage-sac", goal_weight=0.4),
            bits(goal_weight=0.5, soft="both", temperature=1.0),
            plan("ddpg"),
            plan(goal_weight=0.0),
            sets("ddpg"),
            sets(goal_weight=0.3, share_encoder=False),
            sets(env="NoisySeek-v0:max_goals=7", goal_weight=0.3),
            plan("sac"),
            bits("dqn"),
            bits(goal_weight=0.5),
            bits(goal_weight=0.5, soft="actions", temperature=1.0),
            *PICTURES,
        ],
        quick=range(5),
    ),
    ids=described,
)
def test_a_batched_update_is_each_agents_own(asked: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    check_update(asked, monkeypatch)


@pytest.mark.parametrize(
    "asked",
    some_slow(
        [plan(), sets(), plan("reengage-sac"), bits(soft="both", temperature=1.0), sets(encoder="pictures")],
        quick=range(4),
    ),
    ids=described,
)
def test_agents_of_a_batch_have_goal_weights_of_their_own(asked: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    check_update(asked, monkeypatch, goal_weights=[0.1, 0.4, 2.0])


@pytest.mark.slow
@pytest.mark.usefixtures("small_encoders")
@pytest.mark.parametrize("asked", PICTURES, ids=described)
def test_a_batched_update_on_small_pictures_is_each_agents_own(asked: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    check_update(asked, monkeypatch, seeds=2)


def check_update(
    asked: Plan, monkeypatch: pytest.MonkeyPatch, seeds: int = 3, goal_weights: list[float] | None = None
) -> None:
    stack: Any = stack_of(asked, list(range(seeds)), "cpu", goal_weights)
    assert goal_weights is None or [agent.goal_weight for agent in stack.agents] == goal_weights
    if "sac" in asked.algo:  # the same noise for both: none of its two draws in an update is like the other
        draws = itertools.cycle([0.3, -0.2])
        monkeypatch.setattr(stack, "normal", lambda shape: torch.full(shape, next(draws)))
        monkeypatch.setattr(
            torch.distributions.Normal, "rsample", lambda normal: normal.loc + normal.scale * next(draws)
        )
    for _ in range(2 * stack.world.horizon):
        stack.move(at_random=True)
    data, rewards = stack.replay.sample(asked.settings["batch_size"])
    if stack.world.goal_set:  # make some of them reach a goal, and have one twice
        data["goal"][:, 2:5, 1] = data["goal"][:, 2:5, 0]
        data["achieved"][:, :3] = data["goal"][:, :3, 0, :2].float()
    else:
        data["goal"][:, :5] = data["achieved"][:, :5]
    rewards = stack.world.reward(data["achieved"], data["goal"])[..., None].float()
    assert 0 < (rewards == rewards.max()).sum() < rewards.numel()
    before = [parameter.clone() for mine, _ in stack.networks() for parameter in mine.parameters]
    for k, agent in enumerate(stack.agents):
        own = {key: value[k] for key, value in data.items()}
        batch = DictReplayBufferSamples(
            {"observation": own["before"], "achieved_goal": own["achieved_before"], "desired_goal": own["goal"]},
            own["action"],
            {"observation": own["after"], "achieved_goal": own["achieved"], "desired_goal": own["goal"]},
            torch.zeros(len(own["goal"]), 1),
            rewards[k],
        )
        agent.set_logger(Logger(None, []))
        monkeypatch.setattr(agent.replay_buffer, "sample", lambda *_, _batch=batch, **__: _batch)
        agent.train(4, 24)
    for _ in range(4):
        stack.update(data, rewards)
    after = [parameter for mine, _ in stack.networks() for parameter in mine.parameters]
    changed = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert all(changed[: len(changed) // 2]) if "dqn" in asked.algo else all(changed)
    tolerance = 2e-4 if stack.world.goal_set else 2e-5  # of 4e-3
    if "sac" in asked.algo:
        own = torch.cat([agent.log_ent_coef.detach() for agent in stack.agents])
        torch.testing.assert_close(stack.log_temperature.detach().flatten(), own)
        assert (own != 0).all()
    for mine, of in stack.networks():
        copies = [copy.deepcopy(of(agent)) for agent in stack.agents]
        for parameter in (parameter for own in copies for parameter in own.parameters()):
            parameter.data.zero_()
        mine.copy_into(copies)
        for own, agent in zip(copies, stack.agents, strict=True):
            for ours, theirs in zip(own.parameters(), of(agent).parameters(), strict=True):
                off = (ours - theirs).abs()
                assert off.max() < 2e-3, "Adam makes up to a step of slopes near zero, whose sign is rounding"
                few = len(off.flatten()) // 1000 if stack.world.goal_set else 0
                assert (off > tolerance + 1e-3 * theirs.abs()).sum() <= few


def test_hindsight_takes_goals_from_the_rest_of_the_same_episode() -> None:
    world = ContinuousSeek(1, horizon=5)
    goals = torch.full((2, 3, 8, 1), -7.0)
    buffer = Replay(world, goals, 40, 0.8, torch.Generator().manual_seed(0))
    for step in range(18):  # three whole episodes and a part, of three copies for each of two seeds
        value = torch.tensor([[copy * 1000.0 + step] for copy in range(6)])
        buffer.add(before=value, achieved_before=value, after=value, achieved=value, action=value)
    data, rewards = buffer.sample(15_000)
    copies, steps = data["before"][..., 0].long() // 1000, data["before"][..., 0].long() % 1000
    assert [sorted(row.unique().tolist()) for row in copies] == [[0, 1, 2], [3, 4, 5]]
    assert sorted(steps.unique().tolist()) == list(range(15)), "finished episodes only"
    real = data["goal"][..., 0] == -7
    assert real[:, 12_000:].all()
    assert not real[:, :12_000].any()
    ahead = (data["goal"][..., 0] - data["before"][..., 0])[:, :12_000].long()
    left = 4 - steps[:, :12_000] % 5
    assert ((ahead >= 0) & (ahead <= left)).all()
    first = steps[:, :12_000] % 5 == 0
    assert np.bincount(ahead[first]) / first.sum().item() == pytest.approx([0.2] * 5, abs=0.04)
    assert torch.equal(rewards[:, :12_000, 0] == 0, ahead == 0)


def test_a_replay_forgets_the_oldest_episodes_and_knows_the_goals_of_the_others() -> None:
    world = ContinuousSeek(1, horizon=2)
    goals = torch.arange(12.0).view(1, 1, 12, 1)
    buffer = Replay(world, goals, 8, None, torch.Generator().manual_seed(0))
    for step in range(13):
        value = torch.tensor([[float(step)]])
        buffer.add(before=value, achieved_before=value, after=value, achieved=value, action=value)
    data, _ = buffer.sample(2000)
    assert sorted(data["before"].unique().tolist()) == list(range(5, 13))
    assert torch.equal(data["goal"], data["before"] // 2)
    with pytest.raises(BadInput, match="whole episodes"):
        Replay(world, goals, 7, None, torch.Generator())


@pytest.mark.parametrize(
    "world",
    [ContinuousSeek(3), BitFlipping(6), DriveSeek(max_goals=5), NoisySeek(max_goals=5)],
    ids=lambda world: type(world).__name__,
)
def test_worlds_move_tensors_as_they_move_arrays(world: Any) -> None:
    rng = np.random.default_rng(0)
    state = world.begin(7, rng)
    tensors = {key: torch.as_tensor(value) for key, value in state.items()}

    class Same:
        def __init__(self) -> None:
            self.noise = np.random.default_rng(1)

        def normal(self, *, size: Any) -> Any:
            return torch.as_tensor(self.noise.normal(size=tuple(size)))

    noise, same = np.random.default_rng(1), Same()
    for _ in range(12):
        actions = np.stack([world.action_space.sample() for _ in range(7)])
        state = world.move(state, actions, noise)
        tensors = world.move(tensors, torch.as_tensor(actions), same)
        seen = world.look(state)
        np.testing.assert_allclose(world.observe(tensors).numpy(), seen["observation"], atol=1e-6)
        np.testing.assert_array_equal(world.achieved(tensors).float().numpy(), seen["achieved_goal"])
        rewards = world.reward(torch.as_tensor(seen["achieved_goal"]), torch.as_tensor(seen["desired_goal"]))
        np.testing.assert_array_equal(rewards, world.reward(seen["achieved_goal"], seen["desired_goal"]))


@pytest.mark.parametrize(
    "asked",
    [
        plan(),
        plan("reengage-sac"),
        sets(),
        bits(),
        pytest.param(sets(encoder="pictures"), marks=pytest.mark.slow),
    ],
    ids=described,
)
def test_evaluations_play_what_the_agents_themselves_play(asked: Plan) -> None:
    check_evaluation(asked)


@pytest.mark.usefixtures("small_encoders")
def test_evaluations_on_small_pictures_play_what_the_agents_themselves_play() -> None:
    check_evaluation(sets(env="DriveSeek-v0:max_goals=9,horizon=8", encoder="pictures"))


def check_evaluation(asked: Plan) -> None:
    stack = stack_of(asked, [0, 1], "cpu")
    success, reward = stack.play(30, [5, 6])
    for k, agent in enumerate(stack.agents):
        own = evaluate(agent, asked.env, 30, seed=5 + k)
        assert own == pytest.approx((success[k].item(), reward[k].item()), abs=1e-5)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (plan("sac", ent_coef=0.1), "ent_coef: only"),
        (plan("sac", gradient_steps=2), "one update a step"),
        (plan(gradient_steps=-1), "gradient_steps above zero"),
        (plan(train_freq=(1, "episode")), "train_freq in steps"),
        (plan(n_steps=3), "n_steps: only"),
        (plan(normalise_goals=True), "normalise_goals: only"),
        (plan(policy_kwargs={"n_critics": 2}), "policy_kwargs: only"),
        (plan(replay_buffer_kwargs={"goal_selection_strategy": "final"}), "replay_buffer_kwargs: only"),
        (plan(learning_starts=5), "learning_starts=5 is before"),
        (plan(buffer_size=50), "buffer_size=50 is shorter"),
        (sets(encoder="pictures", share_encoder=True), "share_encoder: only"),
        (sets(buffer_size=40, train_freq=40), "buffer_size=40 is shorter"),
        (sets("reengage-ddpg"), "multi-reengage-ddpg is the one"),
        (bits(exploration_final_eps=0.1), "must be the same"),
        (bits(target_update_interval=10), "must be train_freq=64"),
        (Plan("reengage-ddpg", "LinearSparse-v0:dim=2", SMALL, steps=50), "does not move tensors"),
    ],
)
def test_what_a_stack_would_do_otherwise_is_refused(asked: Plan, why: str) -> None:
    with pytest.raises(BadInput, match=f"together: .*{why}.*leave --together out"):
        stack_of(asked, [0], "cpu")


def test_exploring_actions_are_drawn_from_the_soft_target() -> None:
    stack: Any = stack_of(bits(goal_weight=0.5, soft="actions", temperature=0.5), [3, 4], "cpu")
    world, rows = stack.world, 8_000
    state = {
        key: torch.as_tensor(np.repeat(value, rows, 0))
        for key, value in world.begin(2, np.random.default_rng(0)).items()
    }
    with torch.no_grad():
        for network in (stack.net, stack.target):
            for parameter in network.parameters:
                parameter.normal_(generator=torch.Generator().manual_seed(1))
        stack.net.parameters[-1].add_(5 * torch.arange(stack.net.parameters[-1].shape[-1]))  # other best actions
        seen = {"observation": world.observe(state).float(), "achieved_goal": world.achieved(state).float()}
        stack.target.parameters[-1].mul_(0.2)
        drawn = stack.explore(seen, state["goal"]).view(2, rows)
        chances = torch.softmax(stack.target(stack.by_agent(seen, state["goal"]))[:, 0] / 0.5, -1)
    for agent in range(2):
        share = torch.bincount(drawn[agent], minlength=stack.number) / rows
        torch.testing.assert_close(share, chances[agent], atol=0.03, rtol=0)


def test_half_precision_is_refused_where_nothing_would_use_it() -> None:
    with pytest.raises(BadInput, match="precision bf16 is for encoders"):
        check_batched(replace(plan(), precision="bf16"))
