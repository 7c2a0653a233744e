"""Checkpoints of trainings: files of tensors and plain values, from which nothing is executed when they are read."""

from __future__ import annotations

import os
import random
import warnings
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.running_mean_std import RunningMeanStd

from vauban.errors import BadInput, CannotWrite
from vauban.files import unique_beside
from vauban.rl.envs import WorldVecEnv


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain values to `path`; a reader sees the old file or the new one and nothing between."""
    part = unique_beside(path)
    try:
        try:
            with open(part, "wb") as file:
                torch.save(dict(content), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as problem:
        raise CannotWrite(f"{path} cannot be written: {problem.strerror or problem}") from problem


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return what `write_checkpoint` wrote, on the CPU; a file that holds anything but tensors and plain values is refused."""
    content: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return content


def snapshot_agent(agent: Any) -> dict[str, Any]:
    """Weights, optimisers, counters, replay buffer, environment and random states of an agent in training.

    Whatever is no plain value (schedules, classes, spaces) is left out: `restore_agent` needs an agent of the same plan.
    """
    _, variables = agent._get_torch_save_params()
    statistics = getattr(agent, "goal_statistics", None)
    return {
        "parameters": agent.get_parameters(),
        "variables": {name: getattr(agent, name).detach() for name in variables},
        "attributes": _plain_items(vars(agent)),
        "goal_statistics": None if statistics is None else _plain_items(vars(statistics)),
        "buffer": _snapshot_buffer(agent.replay_buffer),
        "env": _snapshot_world(agent.env) if isinstance(agent.env, WorldVecEnv) else None,
        "random": _snapshot_random(agent),
    }


def restore_agent(agent: Any, snapshot: Mapping[str, Any]) -> None:
    """Bring a new agent of the same plan to the state of a snapshot.

    A world continues its episode. The state of other environments is unknown: they begin a new episode, and the unfinished one
    is closed in the replay buffer.
    """
    for name, value in snapshot["attributes"].items():
        setattr(agent, name, _unpack(value))
    for name in ("ep_info_buffer", "ep_success_buffer"):
        setattr(agent, name, deque(getattr(agent, name) or (), maxlen=agent._stats_window_size))
    if snapshot["goal_statistics"] is not None:
        agent.goal_statistics = RunningMeanStd()
        vars(agent.goal_statistics).update(_unpack(snapshot["goal_statistics"]))
    agent.set_parameters(snapshot["parameters"], exact_match=True, device=agent.device)
    for name, value in snapshot["variables"].items():
        getattr(agent, name).data.copy_(value)
    _restore_buffer(agent.replay_buffer, snapshot["buffer"])
    if snapshot["env"] is not None:
        agent.env.load_state_dict(_unpack(snapshot["env"]))
    else:
        agent._last_obs = None
        agent.env.seed((agent.seed or 0) + agent.num_timesteps)
        if isinstance(agent.replay_buffer, HerReplayBuffer):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The last trajectory in the replay buffer")
                agent.replay_buffer.truncate_last_trajectory()
    _restore_random(agent, snapshot["random"])


def _snapshot_world(env: WorldVecEnv) -> Any:
    try:
        return _pack(env.state_dict())
    except _NotPlain:
        raise BadInput(
            f"a state of {type(env.world).__name__} cannot be kept: it must be a dictionary of arrays"
        ) from None


def _snapshot_buffer(buffer: Any) -> dict[str, Any]:
    """A replay buffer's plain attributes; of arrays with a row for each transition only the rows that are filled."""
    filled = buffer.buffer_size if buffer.full else buffer.pos
    kept: dict[str, Any] = {}
    for name, value in vars(buffer).items():
        arrays = _arrays(value)
        if any(array.dtype == object and not array.any() for array in arrays.values()):
            continue  # one empty dictionary for each transition
        if arrays:
            rows = {key: array[:filled] if array.ndim > 1 else array for key, array in arrays.items()}
            value = rows if isinstance(value, dict) else rows[""]
        kept[name] = value
    return _plain_items(kept)


def _restore_buffer(buffer: Any, snapshot: Mapping[str, Any]) -> None:
    for name, value in _unpack(snapshot).items():
        arrays = _arrays(getattr(buffer, name))
        if not arrays:
            setattr(buffer, name, value)
        for key, array in arrays.items():
            rows = value[key] if key else value
            array[: len(rows)] = rows


def _arrays(value: Any) -> dict[str, np.ndarray]:
    """A buffer's array by the name "", the arrays of a dictionary by their own names, and nothing for other values."""
    if isinstance(value, np.ndarray):
        return {"": value}
    whole = isinstance(value, dict) and all(isinstance(item, np.ndarray) for item in value.values())
    return dict(value) if whole else {}


def _snapshot_random(agent: Any) -> dict[str, Any]:
    kind, words, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [kind, torch.as_tensor(np.asarray(words, np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "action_space": agent.action_space.np_random.bit_generator.state,
    }


def _restore_random(agent: Any, snapshot: Mapping[str, Any]) -> None:
    kind, words, *rest = snapshot["numpy"]
    random.setstate(snapshot["python"])
    np.random.set_state((kind, words.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(snapshot["torch"])
    if snapshot["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(snapshot["cuda"])
    agent.action_space.np_random.bit_generator.state = snapshot["action_space"]


class _NotPlain(Exception):
    """Raised for a value that is neither a number, text nor an array, nor a container of such."""


def _plain_items(values: Mapping[str, Any]) -> dict[str, Any]:
    """The items that are plain values, packed."""
    packed = {}
    for key, value in values.items():
        try:
            packed[key] = _pack(value)
        except _NotPlain:
            continue
    return packed


def _pack(value: Any) -> Any:
    """A plain value with tensors for its arrays and lists for its queues."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return _pack(value.tolist())
        if value.dtype.kind not in "biuf":
            raise _NotPlain
        return torch.from_numpy(np.require(value, requirements=["C", "W"]))
    if type(value) is dict and all(type(key) in (int, str) for key in value):
        return {key: _pack(item) for key, item in value.items()}
    if type(value) in (list, tuple, deque):
        items = [_pack(item) for item in value]
        return tuple(items) if type(value) is tuple else items
    raise _NotPlain


def _unpack(value: Any) -> Any:
    """The inverse of `_pack`, except that queues stay lists."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: _unpack(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_unpack(item) for item in value)
    return value
