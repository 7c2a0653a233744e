"""Plans of trainings and the agents they describe, with the thesis's settings as defaults."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3 import DDPG, DQN, SAC, HerReplayBuffer
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import HumanOutputFormat, Logger
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from vauban.errors import BadInput
from vauban.rl.ddpg import ReenGAGEDDPG
from vauban.rl.dqn import ReenGAGEDQN
from vauban.rl.encoders import GoalImageEncoder, GoalSetEncoder
from vauban.rl.envs import ENVIRONMENTS, World, WorldVecEnv
from vauban.rl.envs.processes import ProcessVecEnv, make_robot, register_robots
from vauban.rl.multi import GoalSetPolicy, MultiReenGAGEDDPG
from vauban.rl.robots import RobotDDPG, horizon_of, is_robot, robot_defaults, robot_lengths
from vauban.rl.sac import ReenGAGESAC
from vauban.specs import Spec, choose

ALGORITHMS: dict[str, type[BaseAlgorithm]] = {
    "ddpg": DDPG,
    "sac": SAC,
    "dqn": DQN,
    "reengage-ddpg": ReenGAGEDDPG,
    "reengage-sac": ReenGAGESAC,
    "reengage-dqn": ReenGAGEDQN,
    "multi-reengage-ddpg": MultiReenGAGEDDPG,
    "robot-ddpg": RobotDDPG,
    "reengage-robot-ddpg": RobotDDPG,
}

ENCODERS: dict[str, type[BaseFeaturesExtractor]] = {"sets": GoalSetEncoder, "pictures": GoalImageEncoder}


@dataclass(frozen=True)
class Plan:
    """Everything that defines a training except its seed.

    algo: a name of `ALGORITHMS`.
    env: `Name-v0:key=value,…`.
    settings: the agent's settings that differ from the defaults.
    steps: environment steps of each seed.
    every: steps between two evaluations, of `episodes` episodes each.
    num_envs: copies of the environment in one agent's training.
    precision: of a batched training; "tf32" lets matrix products on a GPU use TF32, "bf16" encoders of goal sets bfloat16.
    together: train all seeds as one batched program (`--together`).
    """

    algo: str
    env: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 200_000
    every: int = 2_000
    episodes: int = 50
    num_envs: int = 1
    precision: str = "fp32"
    together: bool = False

    def __post_init__(self) -> None:
        choose("algorithm", self.algo, ALGORITHMS)
        choose("precision", self.precision, ("fp32", "tf32", "bf16"))
        for name in ("steps", "every", "episodes", "num_envs"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name}={getattr(self, name)}: a whole number above zero is needed")
        if self.every % self.num_envs or self.steps % self.num_envs:
            raise BadInput(f"num_envs={self.num_envs} must divide steps={self.steps} and every={self.every}")


def plan(
    algo: str,
    env: str,
    settings: Mapping[str, Any],
    steps: int | None,
    every: int | None,
    episodes: int | None,
    precision: str = "fp32",
    together: bool = False,
    num_envs: int | None = None,
) -> Plan:
    """A plan with the environment's recommended length and evaluations where none are given (the thesis's: Tables G.1, G.4)."""
    advice = make_world(env) or World
    lengths = (advice.training_steps, advice.evaluation_interval, advice.evaluation_episodes, 1)
    if algo.endswith("robot-ddpg"):
        lengths = robot_lengths(_robot_horizon(algo, env))
    return Plan(
        algo,
        env,
        dict(settings),
        steps or lengths[0],
        every or lengths[1],
        episodes or lengths[2],
        num_envs or lengths[3],
        precision=precision,
        together=together,
    )


def _robot_horizon(algo: str, env: str) -> int:
    spec = Spec.parse(env)
    if not is_robot(env):
        raise BadInput(f"{algo} does not fit {env}: it is for robots, such as HandReach-v3; use ddpg or reengage-ddpg")
    return horizon_of(spec.name, {key: _literal(value) for key, value in spec.params.items()})


def read_settings(text: str) -> dict[str, Any]:
    """Settings of an agent from `key=value,key=value`.

    >>> read_settings("batch_size=128,learning_rate=5e-4,soft=both")
    {'batch_size': 128, 'learning_rate': 0.0005, 'soft': 'both'}
    """
    return {key: _literal(value) for key, value in Spec.parse(f"settings:{text}").params.items()} if text else {}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def make_world(env: str) -> World | None:
    """The world of `Name-v0:key=value,…`, or None if no world of that name is registered."""
    spec = Spec.parse(env)
    if spec.name not in ENVIRONMENTS.names():
        return None
    settings = {key: _literal(value) for key, value in spec.params.items()}
    try:
        return ENVIRONMENTS[spec.name](**settings)
    except BadInput:
        raise
    except (TypeError, ValueError, OverflowError, MemoryError) as problem:
        raise BadInput(f"{env}: {problem}") from None


def make_env(env: str, copies: int = 1, workers: int = 1) -> VecEnv:
    """Copies of an environment for Stable-Baselines3: registered worlds as arrays, robots in `workers` processes, others one by
    one."""
    world = make_world(env)
    if world is not None:
        return WorldVecEnv(world, copies)
    spec = Spec.parse(env)
    settings = {key: _literal(value) for key, value in spec.params.items()}
    if is_robot(env):
        register_robots(spec.name)
        if workers > 1 and copies > 1:
            return ProcessVecEnv(spec.name, settings, copies, workers)
        return DummyVecEnv([lambda: make_robot(spec.name, settings)] * copies)
    if spec.name not in gymnasium.registry:
        raise BadInput(
            f"{spec.name!r} is no environment Gymnasium knows; Vauban's are {', '.join(ENVIRONMENTS.names())}"
        )
    return DummyVecEnv([lambda: gymnasium.make(spec.name, **settings)] * copies)


def make_agent(
    plan: Plan, seed: int, device: str = "auto", tensorboard: str | None = None, workers: int = 1
) -> BaseAlgorithm:
    """A new agent of a plan; `workers` processes simulate its environment, where that is a robot.

    Besides arguments of the agent's class, settings may hold `noise` (standard deviation of the noise on actions), `net_arch`
    and, for sets of goals, `share_encoder` (G.6.2) and `encoder`: sets or pictures (G.6.6).
    """
    env = make_env(plan.env, plan.num_envs, workers)
    settings = {**_defaults(plan, env), **plan.settings}
    _check_numbers(settings)
    noise = settings.pop("noise", None)
    if noise is not None:
        shape = tuple(env.action_space.shape or ())
        settings["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, noise))
    network: dict[str, Any] = {key: settings.pop(key) for key in ("net_arch", "share_encoder") if key in settings}
    if "encoder" in settings:
        if settings["encoder"] == "pictures" and not _drawable(plan.env):
            raise BadInput(f"{plan.env} cannot be drawn by encoder=pictures (goal_image is False): leave encoder out")
        network["features_extractor_class"] = ENCODERS[choose("encoder", settings.pop("encoder"), ENCODERS)]
    if network:
        settings["policy_kwargs"] = {**network, **settings.get("policy_kwargs", {})}
    # A buffer longer than the training never wraps: the shorter one holds the same transitions and is searched faster.
    settings["buffer_size"] = max(settings["batch_size"], min(settings["buffer_size"], plan.steps))
    policy = settings.pop("policy", "MultiInputPolicy")
    try:
        agent = ALGORITHMS[plan.algo](policy, env, seed=seed, device=device, tensorboard_log=tensorboard, **settings)
    except BadInput:
        raise
    except MemoryError:
        raise BadInput(
            f"{plan.algo} with {plan.steps:,} steps does not fit into memory: fewer, or a smaller buffer_size"
        ) from None
    except (TypeError, ValueError, KeyError) as problem:
        raise BadInput(f"{plan.algo} cannot be made with these settings: {problem}") from None
    except AssertionError as problem:
        raise BadInput(f"{plan.algo} does not fit {plan.env}: {problem}") from None
    if tensorboard is None:
        # The library's own logger makes a folder in the temporary one for every training.
        agent.set_logger(Logger(None, [HumanOutputFormat(sys.stdout)] if agent.verbose else []))
    return agent


def _drawable(env: str) -> bool:
    world = make_world(env)
    return world is not None and world.goal_image


_RANGES: dict[str, tuple[float, float]] = {
    "batch_size": (1, float("inf")),
    "buffer_size": (1, float("inf")),
    "learning_starts": (0, float("inf")),
    "learning_rate": (0, float("inf")),
    "gamma": (0, 1),
    "tau": (0, 1),
    "noise": (0, float("inf")),
}


def _check_numbers(settings: Mapping[str, Any]) -> None:
    for name, (least, most) in _RANGES.items():
        value = settings.get(name)
        if value is None or callable(value):
            continue
        counts = name in ("batch_size", "buffer_size", "learning_starts")
        number = isinstance(value, int if counts else (int, float)) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            kind, range_ = (
                "a whole number" if counts else "a number",
                f"{least:g} or more" if most > 1 else "from 0 to 1",
            )
            raise BadInput(f"{name}={value!r}: {kind}, {range_}, is needed")
    widths = settings.get("net_arch", [])
    if not isinstance(widths, dict) and not (
        isinstance(widths, list) and all(type(w) is int and w > 0 for w in widths)
    ):
        raise BadInput(f"net_arch={widths!r}: the widths of hidden layers are needed, for example net_arch=[256,256]")


def _defaults(plan: Plan, env: VecEnv) -> dict[str, Any]:
    """[Levine2023] Tables G.1, G.2 and G.4 and, for dqn, the settings of hindsight experience replay named in G.2."""
    world = make_world(plan.env)
    advice = world or World
    if plan.algo.endswith("robot-ddpg"):
        weight = {} if plan.algo.startswith("reengage") else {"goal_weight": 0.0}
        return {**robot_defaults(_robot_horizon(plan.algo, plan.env)), **weight}
    base = plan.algo.rsplit("-", 1)[-1]
    gradient = plan.algo != base
    if world is not None and world.goal_set:
        if base != "ddpg":
            raise BadInput(f"{plan.algo} does not fit {plan.env}: sets of goals are for ddpg and multi-reengage-ddpg")
        common = {
            "learning_rate": 1e-3,
            "batch_size": 256,
            "noise": advice.exploration_noise,
            "replay_buffer_class": None,
            "net_arch": [400],
        }
        return {**_SHARED, **common, "policy": GoalSetPolicy}
    if base == "dqn":
        horizon = world.horizon if world is not None else 50
        return {**_SHARED, **_DQN, "train_freq": 16 * horizon, "target_update_interval": 16 * horizon,
                "learning_starts": 16 * horizon}  # fmt: skip
    space: Any = env.observation_space
    dim = spaces.flatdim(space["desired_goal"]) if isinstance(space, spaces.Dict) else 0
    table = _SAC if base == "sac" else _DDPG
    size = next((d for d in (5, 10) if dim <= d), 20)
    batch, rate = table[size][gradient]
    own = {"noise": advice.exploration_noise} if base == "ddpg" else {}
    return {**_SHARED, **own, "batch_size": batch, "learning_rate": rate, "net_arch": [256, 256]}


_SHARED = {
    "buffer_size": 1_000_000,
    "learning_starts": 1_000,
    "gamma": 0.95,
    "tau": 0.005,
    "train_freq": 1,
    "gradient_steps": 1,
    "replay_buffer_class": HerReplayBuffer,
}
_DQN = {
    "gamma": 0.98,
    "tau": 0.05,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "net_arch": [256],
    "gradient_steps": 40,
    "exploration_initial_eps": 0.2,
    "exploration_final_eps": 0.2,
}
# (batch, learning rate) of the baseline and of the gradient loss, by goal dimension: Tables G.2 and G.3.
_DDPG = {5: ((512, 1e-3), (512, 1.5e-3)), 10: ((256, 5e-4), (512, 1e-3)), 20: ((256, 5e-4), (128, 5e-4))}
_SAC = {5: ((8192, 2.5e-3), (2048, 2.5e-3)), 10: ((1024, 1.5e-3), (512, 2.5e-3)), 20: ((4096, 5e-4), (8192, 2.5e-3))}
