"""goal_weight = 0 is the library's own update, to the last bit; so is a weight too small for any bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from stable_baselines3 import DDPG, DQN, SAC
from worlds import drive_agent, same_weights, seek_agent

from vauban.rl import GoalSetPolicy, MultiReenGAGEDDPG, ReenGAGEDDPG, ReenGAGEDQN, ReenGAGESAC
from vauban.rl.envs import LinearSparse

PAIRS = [(DDPG, ReenGAGEDDPG), (SAC, ReenGAGESAC), (DQN, ReenGAGEDQN)]
FIXED = {"ent_coef": 0.2}


def trained(kind: Any, **settings: Any) -> Any:
    agent = seek_agent(kind, **settings)
    agent.learn(90)
    return agent


@cache
def trained_once(kind: Any, **settings: Any) -> Any:
    """An agent that several tests compare others with."""
    return trained(kind, **settings)


@pytest.mark.parametrize(("library", "ours"), PAIRS)
@pytest.mark.parametrize("weight", [0.0, 1e-30])
def test_without_weight_every_bit_is_the_librarys(library: Any, ours: Any, weight: float) -> None:
    one, two = trained_once(library), trained(ours, goal_weight=weight)
    assert same_weights(one, two)
    assert not same_weights(one, trained_once(ours, goal_weight=0.1))


def test_a_fixed_temperature_and_several_copies_of_the_world_too() -> None:
    assert same_weights(trained(SAC, **FIXED), trained(ReenGAGESAC, goal_weight=0, **FIXED))
    assert same_weights(trained(DDPG, num_envs=4), trained(ReenGAGEDDPG, num_envs=4, goal_weight=0))
    several = {"policy_kwargs": {"n_critics": 2}}
    assert same_weights(trained(DDPG, **several), trained(ReenGAGEDDPG, goal_weight=1e-30, **several))


def test_ends_of_episodes_are_kept_in_the_target() -> None:
    world = LinearSparse(3)
    one = trained(DDPG, world=world)
    assert same_weights(one, trained(ReenGAGEDDPG, world=LinearSparse(3), goal_weight=0))


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("weight", [0.0, 1e-30])
def test_goal_sets_without_weight_are_the_librarys_ddpg_too(share: bool, weight: float) -> None:
    settings = {"policy_kwargs": {"share_encoder": share}}
    library = drive_agent(DDPG, GoalSetPolicy, **settings)
    library.learn(70)
    ours = drive_agent(MultiReenGAGEDDPG, "MultiInputPolicy", goal_weight=weight, **settings)
    ours.learn(70)
    assert weight or same_weights(library, ours)
    # The closed form adds in another order: equal up to rounding, not to the bit.
    for one, two in zip(library.policy.parameters(), ours.policy.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=2e-3, atol=2e-4)


def test_the_loss_is_one_of_the_numbers_that_are_logged() -> None:
    agent = trained(ReenGAGEDDPG, goal_weight=0.2)
    assert agent.logger.name_to_value["train/goal_loss"] > 0
    assert {"train/actor_loss", "train/critic_loss"} <= set(agent.logger.name_to_value)
