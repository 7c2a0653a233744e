"""Agents as users of the library use them: save, load, continue, normalise, and what is answered to bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from worlds import batch_of, drive_agent, same_weights, seek_agent

from vauban.errors import BadInput, MissingExtra
from vauban.rl import MultiReenGAGEDDPG, ReenGAGEDDPG, ReenGAGEDQN, ReenGAGESAC
from vauban.rl.envs import ContinuousSeek, LinearDense, WorldVecEnv
from vauban.rl.recipes import make_env

KINDS = [ReenGAGEDDPG, ReenGAGESAC, ReenGAGEDQN]


@pytest.mark.parametrize("kind", KINDS)
def test_save_load_and_continue_give_the_same_next_action(kind: Any, tmp_path: Path) -> None:
    agent = seek_agent(kind, goal_weight=0.3, normalise_goals=True)
    agent.learn(80)
    agent.save(tmp_path / "agent")
    agent.save_replay_buffer(tmp_path / "buffer")
    again = kind.load(tmp_path / "agent", env=WorldVecEnv(agent.env.world))
    again.load_replay_buffer(tmp_path / "buffer")
    assert again.goal_weight == 0.3
    assert again.low_reward == -1
    np.testing.assert_array_equal(again.goal_statistics.var, agent.goal_statistics.var)
    assert same_weights(agent, again)
    seen = agent.env.reset()
    for deterministic in (True, False):
        actions = []
        for one in (agent, again):
            one.set_random_seed(5)
            actions.append(one.predict(seen, deterministic=deterministic)[0])
        np.testing.assert_array_equal(*actions)
    for one in (agent, again):
        one.set_random_seed(6)
        one.set_logger(agent.logger)
        one.train(3, 32)
    assert same_weights(agent, again), "the optimiser goes on too"


def test_an_agent_of_goal_sets_is_loaded_with_its_shared_encoder(tmp_path: Path) -> None:
    agent = drive_agent(MultiReenGAGEDDPG, "MultiInputPolicy", goal_weight=0.3)
    agent.learn(60)
    agent.save(tmp_path / "agent")
    again = MultiReenGAGEDDPG.load(tmp_path / "agent")
    assert again.actor.features_extractor is again.critic.features_extractor
    seen = agent.env.reset()
    np.testing.assert_array_equal(agent.predict(seen)[0], again.predict(seen)[0])


def test_it_drops_in_with_an_ordinary_environment_and_a_progress_bar(tmp_path: Path) -> None:
    env = gymnasium.make("ContinuousSeek-v0", dim=3)
    agent = ReenGAGEDDPG(
        "MultiInputPolicy",
        env,
        goal_weight=0.2,
        replay_buffer_class=HerReplayBuffer,
        learning_starts=20,
        buffer_size=200,
        tensorboard_log=str(tmp_path),
        device="cpu",
    )
    agent.learn(45, progress_bar=True, log_interval=1)
    assert agent.low_reward == -1
    assert list(tmp_path.glob("DDPG_1/events*"))


def test_goals_are_weighed_by_their_running_variance() -> None:
    agent = seek_agent(ReenGAGEDDPG, normalise_goals=True, goal_weight=1.0)
    batch = batch_of(agent, size=400, dtype=torch.float32)
    batch.observations["desired_goal"][:, 1] *= 10
    agent._update_goal_statistics(batch)
    scale = agent._goal_scale(batch)
    torch.testing.assert_close(scale, batch.observations["desired_goal"].var(0, unbiased=False), rtol=1e-3, atol=1e-4)
    ones = torch.ones(400, 3)
    assert agent._slope_loss(ones, 0 * ones, batch).item() == pytest.approx(scale.sum().item() * 399 / 400, rel=1e-3)


def test_dense_rewards_by_autograd_or_by_a_given_function_are_the_same() -> None:
    def slope(achieved: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
        return achieved

    agents = []
    for given in (None, slope):
        agent = seek_agent(ReenGAGEDDPG, LinearDense(3), rewards="dense", reward_gradient=given, goal_weight=0.1)
        agent.learn(60)
        agents.append(agent)
    assert same_weights(*agents)
    nothing = seek_agent(
        ReenGAGEDDPG, LinearDense(3), rewards="dense", reward_gradient=lambda a, g: 0 * a, goal_weight=0.1
    )
    nothing.learn(60)
    assert not same_weights(agents[0], nothing)


def test_the_three_uses_of_soft_targets_differ() -> None:
    agents = [seek_agent(ReenGAGEDQN, goal_weight=0.5, soft=soft) for soft in ("gradient", "both", "actions")]
    targets = []
    for agent in agents:
        torch.manual_seed(0)
        batch = batch_of(agent, dtype=torch.float32)
        targets.append(agent._target(batch, (1 - batch.dones) * 0.98))
    assert not torch.equal(targets[0][0], targets[1][0])
    assert torch.equal(targets[1][0], targets[2][0])
    assert torch.equal(targets[0][1], targets[1][1])
    seen = agents[2].env.reset()
    many = {key: np.repeat(value, 4000, 0) for key, value in seen.items()}
    drawn = np.bincount(agents[2].predict(many)[0], minlength=4) / 4000
    values = agents[2].q_net_target(agents[2].policy.obs_to_tensor(seen)[0])
    chances = torch.softmax(values / 0.5, 1)[0].detach().numpy()
    np.testing.assert_allclose(drawn, chances, atol=0.03)
    assert agents[2].predict(many, deterministic=True)[0].std() == 0
    assert np.ndim(agents[2].predict({key: value[0] for key, value in seen.items()})[0]) == 0


class NotDense(ContinuousSeek):
    """A world whose reward steps: its gradient says nothing."""


def test_bad_input_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="environment with goals"):
        ReenGAGEDDPG("MlpPolicy", "Pendulum-v1")
    with pytest.raises(BadInput, match="can be differentiated"):
        seek_agent(ReenGAGEDDPG, NotDense(3), rewards="dense")
    with pytest.raises(BadInput, match="goal_weight=-1"):
        seek_agent(ReenGAGESAC, goal_weight=-1)
    with pytest.raises(BadInput, match="'sparse' or 'dense'"):
        seek_agent(ReenGAGESAC, rewards="shaped")
    with pytest.raises(BadInput, match="rewards='dense' uses it"):
        seek_agent(ReenGAGEDDPG, reward_gradient=lambda a, g: g)
    with pytest.raises(BadInput, match="not sparse"):
        seek_agent(ReenGAGEDDPG, LinearDense(3))
    with pytest.raises(BadInput, match="one of gradient, both, actions"):
        seek_agent(ReenGAGEDQN, soft="all")
    with pytest.raises(BadInput, match="above zero to draw"):
        seek_agent(ReenGAGEDQN, soft="actions", temperature=0.0)
    agent = seek_agent(ReenGAGEDDPG, LinearDense(3), rewards="dense", reward_gradient=lambda a, g: a[:, :1])
    with pytest.raises(BadInput, match=r"gave shape \(2, 1\)"):
        agent._reward_slopes(torch.ones(2, 3), torch.ones(2, 3))
    normal = VecNormalize(DummyVecEnv([lambda: gymnasium.make("ContinuousSeek-v0", dim=2)]))
    with pytest.raises(BadInput, match="norm_reward=False"):
        ReenGAGEDDPG("MultiInputPolicy", normal, buffer_size=100)
    with pytest.raises(BadInput, match="no environment Gymnasium knows"):
        make_env("NowhereSeek-v0")
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(MissingExtra, match=r"vauban\[robotics\]"):
        make_env("HandReach-v3")


def test_importing_vauban_imports_none_of_it_and_a_missing_library_is_named() -> None:
    code = "import vauban, vauban.cli, sys; print(sorted({'gymnasium', 'stable_baselines3'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    hidden = "import sys; sys.modules['stable_baselines3'] = None\nimport vauban.rl"
    failed = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert "pip install 'vauban[rl]'" in failed.stderr


def test_robots_learn_too() -> None:
    pytest.importorskip("gymnasium_robotics")
    agent = ReenGAGEDDPG(
        "MultiInputPolicy",
        make_env("HandReach-v3:max_episode_steps=10"),
        replay_buffer_class=HerReplayBuffer,
        learning_starts=10,
        batch_size=16,
        buffer_size=100,
        normalise_goals=True,
        device="cpu",
    )
    agent.learn(14)
    assert agent.low_reward == -1
    assert agent.goal_statistics.var.shape == (15,)
