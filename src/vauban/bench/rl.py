"""Benchmark of the gradient loss: updates per second of Stable-Baselines3's agents and of Vauban's [Levine2023, G.7]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vauban.bench.turns import in_turns
from vauban.engine.network import device_name
from vauban.rl.recipes import Plan, make_agent, make_world

PAIRS = (("ddpg", "ContinuousSeek-v0:dim=20"), ("sac", "ContinuousSeek-v0:dim=20"), ("dqn", "BitFlipping-v0:dim=40"))
FILLED = 1_000


def measure(
    algo: str, env: str, batch: int, goal_weight: float, seconds: float, device: str, on_progress: Callable[[int], None]
) -> dict[str, Any]:
    """Milliseconds per update of the library ("library_ms"), of Vauban without gradient loss ("plain_ms") and with it
    ("vauban_ms").

    `overhead` is the time of an update with the gradient loss divided by that of the library's, median over rounds; sampling
    the replay buffer is part of an update in all three.
    """
    world = make_world(env)
    goal_set = world is not None and world.goal_set
    ours = f"multi-reengage-{algo}" if goal_set else f"reengage-{algo}"
    shared: dict[str, Any] = {"batch_size": batch, "learning_starts": 10 * FILLED}
    if algo == "dqn":
        shared["train_freq"] = 1
    agents = {
        "library": _filled(Plan(algo, env, shared, steps=FILLED), device),
        "plain": _filled(Plan(ours, env, {**shared, "goal_weight": 0.0}, steps=FILLED), device),
        "vauban": _filled(Plan(ours, env, {**shared, "goal_weight": goal_weight}, steps=FILLED), device),
    }
    updates = {name: _updates(agent, batch) for name, agent in agents.items()}
    rates: dict[str, Any] = dict(in_turns(updates, 1, seconds, torch.device(device), on_progress))
    return {
        "algo": algo,
        "env": env,
        "batch": batch,
        "device": device_name(torch.device(device)),
        "threads": torch.get_num_threads(),
        **{f"{name}_ms": 1e3 / rates[name] for name in updates},
        "overhead": 1 / rates["vauban_to_library"],
        "overhead_to_plain": 1 / rates["vauban_to_plain"],
    }


def _filled(plan: Plan, device: str) -> Any:
    agent: Any = make_agent(plan, 0, device)
    agent.learn(FILLED)
    return agent


def _updates(agent: Any, batch: int) -> Callable[[int], None]:
    return lambda count: agent.train(count, batch)
