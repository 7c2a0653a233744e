"""Environments as the thesis specifies them, as Gymnasium and Stable-Baselines3 want them."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as library_check_env

from vauban.errors import BadInput
from vauban.rl.envs import (
    ENVIRONMENTS,
    BitFlipping,
    ContinuousSeek,
    DriveSeek,
    NoisySeek,
    World,
    WorldVecEnv,
    greedy,
)
from vauban.rl.evaluating import play

SMALL: dict[str, dict[str, Any]] = {"ContinuousSeek-v0": {"dim": 2}, "BitFlipping-v0": {"dim": 6}}
FLAT = [("ContinuousSeek-v0", {"dim": 2}), ("DriveSeek-v0", {}), ("NoisySeek-v0", {})]


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
@pytest.mark.filterwarnings("ignore")
def test_gymnasium_and_the_library_accept_every_environment(name: str) -> None:
    env = gymnasium.make(name, **SMALL.get(name, {}))
    check_env(env.unwrapped, skip_render_check=True)
    library_check_env(env.unwrapped)
    seen, _ = env.reset(seed=1)
    assert env.observation_space.contains(seen)
    over = False
    count = 0
    while not over:
        seen, reward, terminated, over, info = env.step(env.action_space.sample())
        assert not terminated
        assert reward == env.unwrapped.compute_reward(seen["achieved_goal"], seen["desired_goal"], info)
        count += 1
    assert count == env.unwrapped.world.horizon


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_vectors_of_both_libraries_are_the_single_environment_many_times(name: str) -> None:
    settings = SMALL.get(name, {})
    many = gymnasium.make_vec(name, num_envs=4, vectorization_mode="vector_entry_point", **settings)
    first, _ = many.reset(seed=2)
    assert many.observation_space.contains(first)
    ours = WorldVecEnv(ENVIRONMENTS[name](**settings), 4)
    ours.seed(2)
    second = ours.reset()
    many.action_space.seed(0)
    for step in range(2 * ours.world.horizon + 1):
        actions = many.action_space.sample()
        seen, rewards, _, over, info = many.step(actions)
        other, other_rewards, done, infos = ours.step(actions)
        assert (over == done).all()
        assert over.all() == ((step + 1) % ours.world.horizon == 0)
        np.testing.assert_array_equal(rewards, other_rewards)
        if over.all():
            last = infos[1]["terminal_observation"]
            assert infos[1]["TimeLimit.truncated"]
            np.testing.assert_array_equal(info["final_obs"]["observation"][1], last["observation"])
            assert not np.array_equal(last["desired_goal"], other["desired_goal"][1])
    assert set(seen) == set(second)


def test_one_copy_moves_as_many_do() -> None:
    for world in (ContinuousSeek(4), DriveSeek(), BitFlipping(5)):
        rng = np.random.default_rng(0)
        state = world.begin(3, rng)
        for _ in range(12):
            actions = np.stack([world.action_space.sample() for _ in range(3)])
            after = world.move(state, actions, rng)
            for i in range(3):
                alone = world.move({k: v[i : i + 1] for k, v in state.items()}, actions[i : i + 1], rng)
                for key in after:
                    np.testing.assert_array_equal(after[key][i], alone[key][0])
            state = after


def test_continuous_seek_is_that_of_8_3() -> None:
    world = ContinuousSeek(20)
    assert (world.size, world.epsilon, world.horizon, world.low_reward) == (5.0, 0.1, 10, -1.0)
    rng = np.random.default_rng(0)
    state = world.begin(4000, rng)
    assert not state["position"].any()
    assert abs(state["goal"]).max() <= 5
    assert state["goal"].std() == pytest.approx(10 / 12**0.5, rel=0.02)
    for _ in range(7):
        state = world.move(state, np.full((4000, 20), 9.0), rng)
    assert (state["position"] == 5).all(), "actions are clipped to 1, positions to 5"
    goal = np.zeros((3, 20), np.float32)
    near = goal.copy()
    near[1, 4], near[2, 4] = 0.0999, 0.1001
    assert world.reward(near, goal).tolist() == [0, 0, -1]
    assert world.reached(near, goal).tolist() == [True, True, False]


def test_bit_flipping_flips_one_bit_and_pays_only_at_the_goal() -> None:
    world = BitFlipping(40)
    assert world.horizon == 40
    rng = np.random.default_rng(0)
    state = world.begin(500, rng)
    assert set(np.unique(state["bits"])) == {0, 1}
    assert 0.45 < state["goal"].mean() < 0.55
    actions = rng.integers(0, 40, 500)
    after = world.move(state, actions, rng)
    changed = after["bits"] != state["bits"]
    assert (changed.sum(1) == 1).all()
    assert changed[np.arange(500), actions].all()
    goal = state["goal"][:1]
    assert world.reward(goal, goal).tolist() == [0]
    assert world.reward(1 - goal, goal).tolist() == [-1]


def test_drive_seek_turns_then_drives_and_wraps_around() -> None:
    world = DriveSeek()
    rng = np.random.default_rng(0)
    state = world.begin(2000, rng)
    assert not state["position"].any()
    assert not state["angle"].any()
    after = world.move(state, np.full((2000, 1), 0.3), rng)
    np.testing.assert_allclose(after["position"], [[np.cos(0.3), np.sin(0.3)]] * 2000)
    np.testing.assert_allclose(world.move(state, np.full((2000, 1), 3.0), rng)["angle"], 0.5)
    np.testing.assert_allclose(world.observe(after)[0], [np.cos(0.3), np.sin(0.3), 1, 0, np.sin(0.3), np.cos(0.3)])
    edge = {**state, "position": np.full((2000, 2), 9.5)}
    np.testing.assert_allclose(world.move(edge, np.zeros((2000, 1)), rng)["position"], [[-9.5, 9.5]] * 2000)
    wide = DriveSeek(edge=10.5).move(edge, np.zeros((2000, 1)), rng)["position"]
    np.testing.assert_allclose(wide, [[10.5, 9.5]] * 2000)
    counts = state["goal"][..., 2].sum(1)
    assert counts.min() >= 1
    assert counts.max() <= 200
    assert counts.mean() == pytest.approx(100.5, abs=4)
    assert not state["goal"][..., :2][state["goal"][..., 2] == 0].any(), "dummies are zero"
    real = state["goal"][5][: counts[5], :2]
    assert len(np.unique(real, axis=0)) == counts[5]
    assert abs(state["goal"][..., :2]).max() == 10
    rewards = world.reward(real[:1].astype(float), state["goal"][5:6])
    assert rewards.tolist() == [1]
    items = world.item_rewards(real[:1].astype(float), state["goal"][5:6])
    assert items.sum() == 1
    assert items[0, 0]


def test_a_dummy_at_the_origin_pays_nothing() -> None:
    world = DriveSeek()
    goals = world.pack([np.array([[3, 4]])])
    assert world.reward(np.zeros((1, 2)), goals).tolist() == [0]
    assert world.reward(np.array([[3.0, 4.0]]), goals).tolist() == [1]


def test_noisy_seek_adds_unit_noise_to_capped_steps() -> None:
    world = NoisySeek()
    rng = np.random.default_rng(0)
    state = world.begin(3000, rng)
    moved = world.move(state, np.full((3000, 2), 5.0), rng)["position"]
    assert moved.mean(0) == pytest.approx([0.5**0.5] * 2, abs=0.06)
    assert moved.std(0) == pytest.approx([1, 1], abs=0.05)
    goals = state["goal"].astype(float)
    real = goals[..., 2] == 1
    assert real.sum(1).min() >= 1
    assert real.sum(1).max() <= 200
    assert goals[..., :2][real].std() == pytest.approx((100 + 4) ** 0.5, rel=0.1)
    one = goals[7][real[7], :2]
    assert len(np.unique(one, axis=0)) == len(one)
    success, reward = play(world, greedy, 300, seed=1)
    idle = play(world, lambda seen: np.zeros((300, 2)), 300, seed=1)[1]
    assert reward.mean() > 2 * idle.mean()
    assert success.mean() > 0.8


def test_the_greedy_agent_goes_straight_to_the_nearest_goal() -> None:
    goals = NoisySeek().pack([np.array([[3, 4], [-9, 0]]), np.array([[0, 0]])])
    seen = {"observation": np.array([[0, 0, 0, 0], [0.2, 0.1, 0, 0]]), "desired_goal": goals}
    np.testing.assert_allclose(greedy(seen), [[0.6, 0.8], [-0.2, -0.1]])


@pytest.mark.parametrize(("name", "settings"), FLAT)
def test_two_dimensional_worlds_have_pictures(name: str, settings: dict[str, Any]) -> None:
    env = gymnasium.make(name, render_mode="rgb_array", **settings)
    env.reset(seed=0)
    before = env.render()
    assert before.dtype == np.uint8
    assert before.shape[2] == 3
    for _ in range(5):
        env.step(env.action_space.sample())
    after = env.render()
    assert (before != after).any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(gymnasium.make(name, render_mode="rgb_array", **settings).unwrapped)


def test_a_reached_goal_turns_blue_in_the_picture() -> None:
    world = DriveSeek()
    state = world.begin(1, np.random.default_rng(0))
    for goal, blue in ((np.array([[1, 0]]), True), (np.array([[0, 7]]), False)):
        first = {**state, "goal": world.pack([goal])}
        picture = world.draw([first, world.move(first, np.zeros((1, 1)), np.random.default_rng(0))])
        assert (picture == (30, 60, 220)).all(-1).any() == blue
        assert (picture == (0, 200, 220)).all(-1).any() != blue


def test_bad_worlds_are_refused_with_reasons() -> None:
    with pytest.raises(BadInput, match="dim=0"):
        ContinuousSeek(0)
    with pytest.raises(BadInput, match="dim=2.5"):
        BitFlipping(2.5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="edge=11"):
        DriveSeek(edge=11)
    with pytest.raises(BadInput, match="above zero"):
        ContinuousSeek(2, epsilon=0)
    with pytest.raises(BadInput, match="needs dim=2"):
        ContinuousSeek(3).draw([])
    with pytest.raises(BadInput, match="two-dimensional"):
        BitFlipping(3).draw([])
    with pytest.raises(BadInput, match="render_mode"):
        gymnasium.make("DriveSeek-v0", render_mode="human", disable_env_checker=True)
    with pytest.raises(BadInput, match="one goal"):
        ContinuousSeek(3).item_rewards(None, None)
    assert issubclass(DriveSeek, World)
