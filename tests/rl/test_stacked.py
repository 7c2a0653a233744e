"""Seeds trained together: the same update as each agent's own, the same replay, the same files."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import DictReplayBufferSamples

from vauban.errors import BadInput
from vauban.rl.curves import curve_file, read_rows
from vauban.rl.envs import ContinuousSeek
from vauban.rl.recipes import Plan
from vauban.rl.stacked import Hindsight, Stack, train_together
from vauban.rl.training import load_agent, open_run

SMALL = {"net_arch": [16, 16], "batch_size": 24, "learning_starts": 30}


def plan(algo: str = "reengage-ddpg", **settings: Any) -> Plan:
    return Plan(algo, "ContinuousSeek-v0:dim=3", {**SMALL, **settings}, steps=100, every=50, episodes=4)


@pytest.mark.parametrize("asked", [plan("ddpg"), plan(goal_weight=0.0), plan(goal_weight=0.4)], ids=str)
def test_an_update_together_is_each_agents_own(asked: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(asked, [0, 1, 2], "cpu")
    rng = np.random.default_rng(0)
    data = {
        key: torch.as_tensor(rng.uniform(-1, 1, (3, 24, 3)), dtype=torch.float32)
        for key in ("before", "achieved_before", "after", "achieved", "goal", "action")
    }
    data["goal"][:, :5] = data["achieved"][:, :5]
    rewards = stack.world.reward(data["achieved"], data["goal"])[..., None]
    assert (rewards == 0).sum() == 15
    before = [parameter.clone() for parameter in stack.critic.parameters]
    for k, agent in enumerate(stack.agents):
        own = {key: value[k] for key, value in data.items()}
        batch = DictReplayBufferSamples(
            {"observation": own["before"], "achieved_goal": own["achieved_before"], "desired_goal": own["goal"]},
            own["action"],
            {"observation": own["after"], "achieved_goal": own["achieved"], "desired_goal": own["goal"]},
            torch.zeros(24, 1),
            rewards[k],
        )
        agent.set_logger(configure(None, []))
        monkeypatch.setattr(agent.replay_buffer, "sample", lambda *_, _batch=batch, **__: _batch)
        agent.train(4, 24)
    for _ in range(4):
        stack.step(data, rewards)
    assert not torch.equal(before[0], stack.critic.parameters[0])
    for mine, of in (
        (stack.actor, lambda a: a.actor.mu),
        (stack.critic, lambda a: a.critic.q_networks[0]),
        (stack.actor_target, lambda a: a.actor_target.mu),
        (stack.critic_target, lambda a: a.critic_target.q_networks[0]),
    ):
        for k, agent in enumerate(stack.agents):
            linear = [m for m in of(agent) if isinstance(m, torch.nn.Linear)]
            for (weight, bias), module in zip(mine.layers, linear, strict=True):
                torch.testing.assert_close(weight[k].T, module.weight, rtol=1e-3, atol=2e-5)
                torch.testing.assert_close(bias[k, 0], module.bias, rtol=1e-3, atol=2e-5)


def test_hindsight_takes_goals_from_the_rest_of_the_same_episode() -> None:
    world = ContinuousSeek(1, horizon=5)
    buffer = Hindsight(world, 2, 40, 0.8, "cpu")
    for step in range(18):  # three whole episodes and a part
        names = ("before", "achieved_before", "after", "achieved", "action")
        value = np.array([[step], [100.0 + step]])
        buffer.add(**dict.fromkeys(names, value), goal=np.full((2, 1), -7.0))
    data, rewards = buffer.sample(5000)
    steps = data["before"][..., 0].long()
    assert sorted(steps[0].unique().tolist()) == list(range(15)), "finished episodes only"
    assert steps[1].min() == 100
    real = data["goal"][..., 0] == -7
    assert real[:, 4000:].all()
    assert not real[:, :4000].any()
    ahead = data["goal"][0, :4000, 0].long() - steps[0, :4000]
    left = 4 - steps[0, :4000] % 5
    assert ((ahead >= 0) & (ahead <= left)).all()
    first = steps[0, :4000] % 5 == 0
    assert np.bincount(ahead[first]) / first.sum().item() == pytest.approx([0.2] * 5, abs=0.06)
    assert torch.equal(rewards[0, :4000, 0] == 0, ahead == 0)


def test_a_stack_keeps_curves_and_agents_like_single_seeds_and_learns(tmp_path: Path) -> None:
    settings = {
        "net_arch": [32, 32],
        "batch_size": 64,
        "learning_starts": 100,
        "learning_rate": 3e-3,
        "goal_weight": 0.1,
    }
    asked = Plan("reengage-ddpg", "ContinuousSeek-v0:dim=1,epsilon=0.4", settings, steps=600, every=200, episodes=50)
    open_run(tmp_path, asked, "x")
    told: list[int] = []
    assert train_together(tmp_path, asked, [0, 1], device="cpu", tick=told.append)
    assert sum(told) == 1200
    ends = []
    for seed in (0, 1):
        rows = read_rows(curve_file(tmp_path, seed))
        assert [row["steps"] for row in rows] == [0, 200, 400, 600]
        assert rows[0]["success"] < 0.5
        ends.append(rows[-1]["success"])
        agent = load_agent(tmp_path, asked.algo, asked.env, seed)
        assert agent.num_timesteps == 600
    assert min(ends) > 0.9
    stamp = curve_file(tmp_path, 0).stat().st_mtime_ns
    assert train_together(tmp_path, asked, [0, 1], device="cpu", tick=told.append)
    assert curve_file(tmp_path, 0).stat().st_mtime_ns == stamp


def test_ctrl_c_stops_a_stack(tmp_path: Path) -> None:
    open_run(tmp_path, plan(), "x")
    stop = lambda _: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    assert not train_together(tmp_path, plan(), [0], device="cpu", tick=stop)
    assert not curve_file(tmp_path, 0).with_suffix(".zip").exists()


@pytest.mark.parametrize(
    "asked",
    [
        Plan("reengage-sac", "ContinuousSeek-v0:dim=2", SMALL, steps=50),
        Plan("multi-reengage-ddpg", "DriveSeek-v0", {"batch_size": 8}, steps=50),
        plan(normalise_goals=True),
        plan(gradient_steps=2),
    ],
    ids=lambda p: p.algo,
)
def test_what_cannot_be_stacked_is_refused(asked: Plan) -> None:
    with pytest.raises(BadInput, match="together"):
        Stack(asked, [0], "cpu")
