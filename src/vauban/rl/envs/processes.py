"""Copies of a Gymnasium environment in several processes, for simulators that compute one copy at a time."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from vauban.errors import BadInput, MissingExtra, VaubanError

_ENDED = (
    "a process that simulates copies of the environment ended: what it printed above says why, or the system ended it for want "
    "of memory; the same command goes on from the last checkpoint"
)


class SinglePrecision(gymnasium.ObservationWrapper):
    """Observations and goals as float32, half of what simulators give: a replay buffer of a million transitions halves too."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        self.observation_space = spaces.Dict(
            {key: spaces.Box(-np.inf, np.inf, space.shape, np.float32) for key, space in env.observation_space.items()}
        )

    def observation(self, observation: Any) -> dict[str, np.ndarray]:
        return {key: np.asarray(value, np.float32) for key, value in observation.items()}


def register_robots(name: str) -> None:
    """Register the environments of Gymnasium-Robotics, to which `name` must belong."""
    try:
        with redirect_stderr(StringIO()):  # it prints a notice about other environments in every process
            import gymnasium_robotics
    except ImportError:
        raise MissingExtra("gymnasium-robotics", "robotics", name) from None
    gymnasium.register_envs(gymnasium_robotics)
    if name not in gymnasium.registry:
        raise BadInput(f"{name!r} is no environment of Gymnasium-Robotics; HandReach-v3 and HandManipulateBlock-v1 are")


def make_robot(name: str, settings: dict[str, Any]) -> gymnasium.Env:
    """An environment of Gymnasium-Robotics in single precision."""
    register_robots(name)
    return SinglePrecision(gymnasium.make(name, **settings))


class ProcessVecEnv(VecEnv):
    """`copies` of a robot, divided over `workers` processes; methods and attributes are those of a further copy here.

    Which worker simulates a copy does not matter: each copy has its own random generator, seeded by `seed` with its number.
    """

    def __init__(self, name: str, settings: dict[str, Any], copies: int, workers: int):
        self.workers = min(workers, copies)
        self._local = make_robot(name, settings)
        self.render_mode = None
        super().__init__(copies, self._local.observation_space, self._local.action_space)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        parts = np.array_split(np.arange(copies), self.workers)
        self._parts = [(int(part[0]), int(part[-1]) + 1) for part in parts]
        self._pipes, self._processes = [], []
        for first, last in self._parts:
            ours, theirs = context.Pipe()
            process = context.Process(target=_simulate, args=(theirs, name, settings, last - first), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def reset(self) -> Any:
        self._ask("reset", self._seeds)
        self._reset_seeds()
        return _joined([self._answer(pipe) for pipe in self._pipes])

    def step_async(self, actions: np.ndarray) -> None:
        self._ask("step", actions)

    def step_wait(self) -> Any:
        answers = [self._answer(pipe) for pipe in self._pipes]
        seen, rewards, over, infos = zip(*answers, strict=True)
        return (
            _joined(list(seen)),
            np.concatenate(rewards),
            np.concatenate(over),
            [info for some in infos for info in some],
        )

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
        self._local.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [self._local.get_wrapper_attr(attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise VaubanError("copies in other processes keep their attributes: make another environment instead")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        method = self._local.get_wrapper_attr(method_name)
        return [method(*args, **kwargs)] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[np.ndarray | None]:
        return [None] * self.num_envs

    def _ask(self, what: str, given: Any) -> None:
        """Send each process its part of what is given for all copies."""
        try:
            for pipe, (first, last) in zip(self._pipes, self._parts, strict=True):
                pipe.send((what, given[first:last]))
        except OSError:
            raise VaubanError(_ENDED) from None

    def _answer(self, pipe: Any) -> Any:
        try:
            return pipe.recv()
        except (EOFError, OSError):
            raise VaubanError(_ENDED) from None


def _joined(seen: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {key: np.concatenate([some[key] for some in seen]) for key in seen[0]}


def _simulate(pipe: Any, name: str, settings: dict[str, Any], copies: int) -> None:
    """Simulate copies in a process of its own until the pipe is closed; Ctrl-C is left to the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    env = DummyVecEnv([lambda: make_robot(name, settings)] * copies)
    while True:
        try:
            what, given = pipe.recv()
        except (EOFError, OSError):
            env.close()
            return
        if what == "reset":
            env._seeds = list(given)
            pipe.send(env.reset())
        else:
            pipe.send(env.step(given))
