"""Plans and settings of trainings: the thesis's defaults, encoders by name, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from stable_baselines3 import DDPG, DQN, SAC, HerReplayBuffer

from vauban.errors import BadInput
from vauban.rl import MultiReenGAGEDDPG, ReenGAGEDDPG, ReenGAGEDQN, ReenGAGESAC
from vauban.rl.encoders import GoalImageEncoder
from vauban.rl.recipes import ALGORITHMS, Plan, make_agent, plan, read_settings
from vauban.rl.robots import RobotDDPG


@pytest.mark.parametrize(
    ("env", "settings", "why"),
    [
        ("ContinuousSeek-v0:dim=abc", {}, "dim=abc: a whole number"),
        ("DriveSeek-v0:max_goals=500", {}, "DriveSeek has 441 points"),
        ("ContinuousSeek-v0:dim=2", {"batch_size": 0}, "batch_size=0: a whole number, 1 or more"),
        ("ContinuousSeek-v0:dim=2", {"net_arch": 16}, "net_arch=16: the widths of hidden layers are needed"),
        ("ContinuousSeek-v0:dim=2", {"net_arch": [16, 0]}, "net_arch=.16, 0.: the widths"),
        ("ContinuousSeek-v0:dim=2", {"batch_size": "abc"}, "batch_size='abc'"),
        ("ContinuousSeek-v0:dim=2", {"gamma": 2}, "gamma=2: a number, from 0 to 1"),
        ("ContinuousSeek-v0:dim=2", {"noise": -1}, "noise=-1"),
        ("ContinuousSeek-v0:dim=2", {"policy": "foo"}, "cannot be made with these settings"),
    ],
)
def test_values_that_make_no_sense_are_refused(env: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        make_agent(Plan("ddpg", env, settings, steps=50), 0, "cpu")


def test_sets_of_goals_are_for_ddpg() -> None:
    with pytest.raises(BadInput, match="sac does not fit DriveSeek-v0: sets of goals are for ddpg"):
        make_agent(Plan("sac", "DriveSeek-v0", steps=50), 0, "cpu")


def test_the_thesiss_settings_are_the_defaults() -> None:
    seek = plan("reengage-ddpg", "ContinuousSeek-v0:dim=20", {}, None, None, None)
    assert (seek.steps, seek.every, seek.episodes) == (200_000, 2_000, 50)
    agent: Any = make_agent(seek, 0, "cpu")
    assert isinstance(agent, ReenGAGEDDPG)
    assert (agent.batch_size, agent.learning_rate, agent.gamma, agent.tau) == (128, 5e-4, 0.95, 0.005)
    assert (agent.learning_starts, agent.goal_weight, agent.action_noise._sigma[0]) == (1000, 0.2, 0.03)
    assert agent.policy.net_arch == [256, 256]
    assert isinstance(agent.replay_buffer, HerReplayBuffer)
    assert agent.replay_buffer.n_sampled_goal == 4
    for dim, algo, batch, rate in (
        (20, "ddpg", 256, 5e-4),
        (10, "ddpg", 256, 5e-4),
        (10, "reengage-ddpg", 512, 1e-3),
        (5, "ddpg", 512, 1e-3),
        (5, "reengage-ddpg", 512, 1.5e-3),
        (10, "sac", 1024, 1.5e-3),
        (20, "reengage-sac", 8192, 2.5e-3),
    ):
        made: Any = make_agent(Plan(algo, f"ContinuousSeek-v0:dim={dim}", steps=2000), 0, "cpu")
        assert (made.batch_size, made.learning_rate) == (batch, rate)
    drive = plan("multi-reengage-ddpg", "DriveSeek-v0", {}, None, None, None)
    assert (drive.steps, drive.every, drive.episodes) == (160_000, 4_000, 100)
    many: Any = make_agent(Plan(drive.algo, drive.env, steps=500), 0, "cpu")
    assert isinstance(many, MultiReenGAGEDDPG)
    assert [m.out_features for m in many.critic.features_extractor.net if hasattr(m, "out_features")] == [400, 400, 20]
    assert many.policy.net_arch == [400]
    assert many.action_noise._sigma[0] == 0.05
    bits: Any = make_agent(Plan("reengage-dqn", "BitFlipping-v0:dim=40", steps=2000), 0, "cpu")
    assert (bits.batch_size, bits.gamma, bits.gradient_steps, bits.exploration_schedule(0.5)) == (128, 0.98, 40, 0.2)
    kinds = [DDPG, SAC, DQN, ReenGAGEDDPG, ReenGAGESAC, ReenGAGEDQN, MultiReenGAGEDDPG, RobotDDPG, RobotDDPG]
    assert list(ALGORITHMS.values()) == kinds


def test_encoders_are_chosen_by_name() -> None:
    small = {"batch_size": 8, "encoder": "pictures", "share_encoder": False}
    agent: Any = make_agent(Plan("multi-reengage-ddpg", "DriveSeek-v0", small, steps=50), 0, "cpu")
    assert isinstance(agent.critic.features_extractor, GoalImageEncoder)
    assert agent.actor.features_extractor is not agent.critic.features_extractor
    library: Any = make_agent(Plan("ddpg", "DriveSeek-v0", {"batch_size": 8}, steps=50), 0, "cpu")
    assert library.actor.features_extractor is library.critic.features_extractor
    with pytest.raises(BadInput, match="not a known encoder"):
        make_agent(Plan("ddpg", "DriveSeek-v0", {"encoder": "words"}, steps=50), 0, "cpu")


def test_bad_plans_are_answered() -> None:
    with pytest.raises(BadInput, match="'ppo' is not a known algorithm"):
        Plan("ppo", "ContinuousSeek-v0")
    with pytest.raises(BadInput, match="steps=0"):
        Plan("ddpg", "ContinuousSeek-v0", steps=0)
    with pytest.raises(BadInput, match="must divide"):
        Plan("ddpg", "ContinuousSeek-v0", num_envs=3, steps=10)
    with pytest.raises(BadInput, match="size_of_dim"):
        make_agent(Plan("ddpg", "ContinuousSeek-v0:size_of_dim=3"), 0)
    with pytest.raises(BadInput, match="colour"):
        make_agent(Plan("ddpg", "ContinuousSeek-v0:dim=2", {"colour": 3}, steps=10), 0)
    assert read_settings("net_arch=[8,8],soft=both") == {"net_arch": [8, 8], "soft": "both"}
