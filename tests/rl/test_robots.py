"""Robots: the recipe of Plappert et al., its parts on a small world, and the simulated hand where it is installed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import HerReplayBuffer
from worlds import batch_of

from vauban.errors import BadInput, VaubanError
from vauban.rl.curves import curve_file, read_rows
from vauban.rl.envs import ContinuousSeek, WorldVecEnv
from vauban.rl.evaluating import _play_others
from vauban.rl.recipes import Plan, make_agent, make_env, plan
from vauban.rl.robots import NormalisedGoals, RobotDDPG, robot_defaults, robot_lengths
from vauban.rl.seeds import train_seeds, workers_each
from vauban.rl.training import open_run, train_seed

HAND = "HandReach-v3:max_episode_steps=5"


def robot(**settings: Any) -> Any:
    """An agent of the recipe with small networks on a small world of five steps."""
    usual = {
        "train_freq": 5, "gradient_steps": 2, "learning_starts": 0, "batch_size": 16, "buffer_size": 400, "gamma": 0.8,
        "tau": 0.05, "seed": 3, "device": "cpu", "policy_kwargs": {"net_arch": [16, 16]},
    }  # fmt: skip
    env = WorldVecEnv(ContinuousSeek(3, horizon=5), 4)
    return RobotDDPG("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, **{**usual, **settings})


def test_inputs_are_normalised_by_what_was_collected() -> None:
    agent = robot()
    agent.learn(60)
    extractors = [
        net.features_extractor for net in (agent.actor, agent.critic, agent.actor_target, agent.critic_target)
    ]
    assert all(isinstance(one, NormalisedGoals) for one in extractors)
    assert all(torch.equal(one.running_sum, extractors[0].running_sum) for one in extractors)
    assert extractors[0].running_count.item() == 60
    seen = agent.replay_buffer.observations["observation"][:15].reshape(60, 3)
    assert np.allclose(extractors[0].running_sum[:3].numpy() / 60, seen.mean(0), atol=1e-5)
    rows = extractors[0]({"observation": torch.tensor(seen), "desired_goal": torch.full((60, 3), 1e6)})
    assert rows[:, :3].mean().abs() < 1e-4
    assert rows[:, 3:].unique().tolist() == [5.0]


def test_targets_are_clipped_and_their_slopes_with_them() -> None:
    agent = robot(goal_weight=0.3)
    batch = batch_of(agent, dtype=torch.float32)
    agent._next_value = lambda seen: seen["desired_goal"].sum(1, keepdim=True) * torch.linspace(-9, 9, 6)[:, None]
    target, slopes = agent._target(batch, torch.full((6, 1), 0.8))
    assert target.min() == pytest.approx(-5)
    assert target.max() <= 0
    outside = (target == -5) | (target == 0)
    assert outside.any()
    assert not outside.all()
    assert (slopes[outside.flatten()] == 0).all()
    assert (slopes[~outside.flatten()] != 0).any()


def test_target_networks_follow_once_a_cycle_and_actions_are_paid_for() -> None:
    agent = robot(gradient_steps=0)
    agent.learn(20)
    before = [p.clone() for p in agent.critic_target.parameters()]
    agent.train(7, 16)
    now = zip(before, agent.critic_target.parameters(), agent.critic.parameters(), strict=True)
    assert all(torch.allclose(new, old + 0.05 * (own - old)) for old, new, own in now)
    seen = batch_of(agent, dtype=torch.float32).observations
    free, paid = (robot(action_penalty=weight, seed=5)._actor_loss(seen) for weight in (0.0, 2.0))
    squares = robot(seed=5).actor(seen).square().mean()
    assert torch.allclose(paid - free, 2 * squares)


def test_a_share_of_actions_is_uniform() -> None:
    agent = robot(random_actions=1.0)
    agent.learn(20)
    drawn = np.concatenate([agent._sample_action(0, None, 4)[1] for _ in range(200)])
    assert drawn.std(0) == pytest.approx(np.full(3, 3**-0.5), abs=0.05)
    never = robot(random_actions=0.0)
    never.learn(20)
    assert np.array_equal(never._sample_action(0, None, 4)[1], never._sample_action(0, None, 4)[1])


def test_the_gradient_loss_changes_the_critic_and_other_rewards_are_refused() -> None:
    with_loss, without = robot(goal_weight=0.5), robot(goal_weight=0.0)
    for agent in (with_loss, without):
        agent.learn(20)
    pairs = zip(with_loss.critic.parameters(), without.critic.parameters(), strict=True)
    assert any(not torch.equal(one, two) for one, two in pairs)
    with pytest.raises(BadInput, match="rewards of -1 and 0"):
        robot(low_reward=-2.0)
    with pytest.raises(BadInput, match="a share from 0 to 1"):
        robot(random_actions=1.5)
    with pytest.raises(BadInput, match="it is for robots"):
        plan("robot-ddpg", "ContinuousSeek-v0:dim=2", {}, None, None, None)


class TwoCopies:
    """Two copies whose episodes take two and three steps of reward 1; every second episode of a copy succeeds."""

    num_envs = 2

    def __init__(self) -> None:
        self.steps, self.episodes = np.zeros(2, int), np.zeros(2, int)

    def seed(self, seed: int) -> None:
        self.seeded = seed

    def reset(self) -> np.ndarray:
        return self.steps

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.steps += 1
        over = self.steps == [2, 3]
        self.steps[over] = 0
        self.episodes += over
        infos = [{"is_success": self.episodes[copy] % 2} if over[copy] else {} for copy in range(2)]
        return self.steps, np.ones(2), over, infos


def test_copies_share_the_episodes_of_an_evaluation() -> None:
    """Five episodes: two of the first copy, of which one succeeds, and three of the second, of which two do."""
    env, agent = TwoCopies(), SimpleNamespace(predict=lambda seen, deterministic: (seen, None))
    assert _play_others(agent, env, 5, 7) == (3 / 5, (2 * 2 + 3 * 3) / 5)  # type: ignore[arg-type]
    assert env.seeded == 7


def test_lengths_and_settings_are_those_of_the_paper() -> None:
    assert robot_lengths(50) == (4_750_000, 95_000, 190, 38)
    found = robot_defaults(50)
    assert (found["gamma"], found["batch_size"], found["gradient_steps"]) == (0.98, 4_864, 40)
    assert (found["tau"], found["noise"], found["net_arch"]) == (0.05, 0.2, [256, 256, 256])


def test_cores_are_divided_among_robots_that_are_trained_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert [workers_each(HAND, at_once) for at_once in (1, 3, 9, 16, 40)] == [16, 5, 2, 1, 1]
    assert workers_each("ContinuousSeek-v0", 1) == 1


@pytest.mark.slow
def test_copies_in_processes_are_those_of_one_process() -> None:
    pytest.importorskip("gymnasium_robotics", reason="the extra robotics is not installed")
    ones: Any = make_env(HAND, 3)
    several: Any = make_env(HAND, 3, workers=2)
    try:
        for env in (ones, several):
            env.seed(4)
        seen, also = ones.reset(), several.reset()
        rng = np.random.default_rng(0)
        for _ in range(7):
            assert all(np.allclose(seen[key], also[key]) for key in seen)
            actions = rng.uniform(-1, 1, (3, 20)).astype(np.float32)
            (seen, rewards, over, infos), (also, *others) = ones.step(actions), several.step(actions)
            assert np.array_equal(rewards, others[0])
            assert np.array_equal(over, others[1])
            assert [info["TimeLimit.truncated"] for info in infos] == [
                info["TimeLimit.truncated"] for info in others[2]
            ]
        achieved = seen["achieved_goal"]
        assert np.array_equal(
            several.env_method("compute_reward", achieved, achieved, [{}] * 3, indices=[0])[0], np.zeros(3)
        )
    finally:
        several.close()


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_training_in_words() -> None:
    pytest.importorskip("gymnasium_robotics", reason="the extra robotics is not installed")
    for call in ("step", "reset"):
        env: Any = make_env(HAND, 2, workers=2)
        try:
            env.reset()
            env._processes[1].kill()
            env._processes[1].join()
            with pytest.raises(VaubanError, match="goes on from the last checkpoint"):
                env.step(np.zeros((2, 20), np.float32)) if call == "step" else env.reset()
        finally:
            env.close()


@pytest.mark.slow
@pytest.mark.parametrize("env", [HAND, "HandManipulateBlock-v1:max_episode_steps=5"])
def test_a_hand_is_trained_stopped_and_resumed(env: str, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics", reason="the extra robotics is not installed")
    small = {"batch_size": 32, "gradient_steps": 2, "net_arch": [16, 16], "goal_weight": 1e-5, "normalise_goals": True}
    asked = Plan("reengage-robot-ddpg", env, small, steps=120, every=60, episodes=4, num_envs=4)
    agent: Any = make_agent(asked, 0, "cpu")
    assert agent.gamma == pytest.approx(0.8)
    assert agent.observation_space["observation"].dtype == np.float32
    open_run(tmp_path, asked, "hand")
    done = 0

    def stop(steps: int) -> None:
        nonlocal done
        done += steps
        if done >= 70:
            os.kill(os.getpid(), signal.SIGINT)

    assert not train_seed(tmp_path, asked, 0, workers=2, on_progress=stop)
    assert (tmp_path / "seed-0.checkpoint.pt").exists()
    assert train_seeds(tmp_path, asked, [0, 1], jobs=2, workers=2)
    for seed in (0, 1):
        assert [row["steps"] for row in read_rows(curve_file(tmp_path, seed))] == [0, 60, 120]
