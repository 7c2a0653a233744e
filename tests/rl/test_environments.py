"""Environments of other packages are trained by name, with the numbers they recommend."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from foreign_worlds import Line, Points

from vauban.errors import BadInput
from vauban.registry import Registry
from vauban.rl.batched_seeds import check_batched, stack_of
from vauban.rl.curves import read_manifest, read_run
from vauban.rl.envs import ENVIRONMENTS, ContinuousSeek, DriveSeek, World, register
from vauban.rl.evaluating import greedy_levels, play
from vauban.rl.recipes import Plan, make_agent, make_world, plan
from vauban.rl.training import open_run, train_seed

SMALL = {"net_arch": [8], "batch_size": 8, "learning_starts": 20}
TRAIN = "rl train --set net_arch=[8],batch_size=8,learning_starts=20 --seeds 1 --json"


TWICE = """import sys
from vauban.cli import main

for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as over:
        if over.code:
            raise
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with an installed package that brings two environments."""
    folder = tmp_path / "site"
    info = folder / "mypkg-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "mypkg.py").write_text(Path(__file__).with_name("foreign_worlds.py").read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypkg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vauban.environments]\nMyLine-v0 = mypkg:Line\nMyPoints-v0 = mypkg:Points\n"
    )
    return folder


@pytest.mark.slow
def test_another_packages_environments_are_trained_by_the_command_line(package: Path, tmp_path: Path) -> None:
    """One with a goal and one with sets of goals, in a process that finds the package as an installed one."""
    asked = [("reengage-ddpg", "MyLine-v0:size=3", "success"), ("multi-reengage-ddpg", "MyPoints-v0:most=4", "reward")]
    lines = [f"{TRAIN} --algo {algo} --env {env} --out {tmp_path / algo}" for algo, env, _ in asked]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), *sys.path]), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-c", TWICE, *lines]
    done = subprocess.run(program, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    for algo, name, score in asked:
        run, about = read_run(tmp_path / algo), read_manifest(tmp_path / algo)
        assert (run.env, run.what, run.seeds) == (name, score, [0])
        assert run.steps.tolist() == [0, 30, 60]
        assert about["episodes"] == 7
        assert about["versions"]["mypkg"] == "1.0"
        assert name in done.stdout


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[type[World]]]:
    """The registry, which forgets after the test what was registered in it; so does Gymnasium's."""
    before = dict(ENVIRONMENTS)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", registry := dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", registry)
    yield ENVIRONMENTS
    ENVIRONMENTS.clear()
    ENVIRONMENTS.update(before)


def test_a_decorated_world_is_known_to_plans_and_to_gymnasium(registered: Registry[type[World]]) -> None:
    registered.register("Mine-v0")(Line)
    asked = plan("ddpg", "Mine-v0:size=4", SMALL, None, None, None)
    assert (asked.steps, asked.every, asked.episodes) == (60, 30, 7)
    agent: Any = make_agent(asked, 0, "cpu")
    assert agent.action_noise._sigma.tolist() == [0.2]
    env: Any = gymnasium.make("Mine-v0", size=4, disable_env_checker=True)
    assert env.unwrapped.world.size == 4
    assert plan("ddpg", "Mine-v0", SMALL, 90, 45, 2).steps == 90
    with pytest.raises(BadInput, match="registered already"):
        registered.register("Mine-v0")(Line)


def test_worlds_of_sets_train_with_numbers_of_their_own(registered: Registry[type[World]], tmp_path: Path) -> None:
    registered.register("Mine-v0")(Points)
    asked = plan("multi-reengage-ddpg", "Mine-v0", SMALL, None, None, None)
    agent: Any = make_agent(asked, 0, "cpu")
    assert agent.action_noise._sigma.tolist() == [0.2]
    open_run(tmp_path, asked, "x")
    assert train_seed(tmp_path, asked, 0)
    assert read_manifest(tmp_path)["score"] == "reward"


def test_what_another_package_brings_is_checked(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = package / "mypkg-1.0.dist-info" / "entry_points.txt"
    points.write_text(
        "[vauban.environments]\nMyEnv-v0 = mypkg:World.begin\nMyGone-v0 = mypkg:Gone\nDriveSeek-v0 = mypkg:Line\n"
    )
    monkeypatch.syspath_prepend(package)
    monkeypatch.delitem(sys.modules, "mypkg", raising=False)
    with pytest.warns(UserWarning, match="a name that is taken"):
        assert "MyEnv-v0" in ENVIRONMENTS.names()
    assert isinstance(make_world("DriveSeek-v0"), DriveSeek)
    with (
        pytest.warns(UserWarning, match="ignored"),
        pytest.raises(BadInput, match="no subclass of vauban.rl.envs.World"),
    ):
        make_world("MyEnv-v0")
    with pytest.warns(UserWarning, match="ignored"), pytest.raises(BadInput, match="'MyGone-v0' of mypkg 1.0 cannot"):
        make_world("MyGone-v0")
    with pytest.raises(BadInput, match="gymnasium.register instead"):
        ENVIRONMENTS.register("MyEnv-v1")(gymnasium.Env)  # type: ignore[arg-type]
    assert "MyEnv-v1" not in gymnasium.registry


def test_gymnasium_knows_the_environments_of_other_packages_once_told(
    package: Path, registered: Registry[type[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package)
    monkeypatch.delitem(sys.modules, "mypkg", raising=False)
    assert "MyLine-v0" not in gymnasium.registry
    register()
    register()
    env: Any = gymnasium.make("MyLine-v0", size=4, disable_env_checker=True)
    assert env.unwrapped.world.size == 4


class OwnRewards(DriveSeek):
    """Near a goal is enough."""

    def item_rewards(self, achieved: Any, desired: Any) -> Any:
        near = abs(desired[..., :2] - achieved[..., None, :]).max(-1)
        return (getattr(near, "values", near) <= 1) * (desired[..., 2] != 0)


class DummiesFirst(DriveSeek):
    """Packs goals after their dummies."""

    def pack(self, sets: list[np.ndarray]) -> np.ndarray:
        return super().pack(sets)[:, ::-1].copy()


class OwnSuccess(ContinuousSeek):
    """Has another measure of success than its reward."""

    def reached(self, achieved: Any, desired: Any) -> Any:
        return abs(achieved - desired).max(-1) < 1


class Dense(ContinuousSeek):
    """Has no reward that means that no goal is reached."""

    low_reward = None


@pytest.mark.usefixtures("small_encoders")
def test_batched_seeds_refuse_what_they_would_do_otherwise(registered: Registry[type[World]]) -> None:
    registered.register("Line-v0")(Line)
    registered.register("Near-v0")(OwnRewards)
    with pytest.raises(BadInput, match="Line-v0 does not move tensors"):
        check_batched(Plan("ddpg", "Line-v0", SMALL, steps=60))
    with pytest.raises(BadInput, match="Near-v0 has item_rewards of its own"):
        check_batched(Plan("multi-reengage-ddpg", "Near-v0", SMALL, steps=60))
    for name, world in (("Success-v0", OwnSuccess), ("Dense-v0", Dense)):
        registered.register(name)(world)
        with pytest.raises(BadInput, match=f"{name} is not sparse"):
            check_batched(Plan("ddpg", name, SMALL, steps=60))
    registered.register("Last-v0")(DummiesFirst)
    for encoder in ("sets", "pictures"):
        with pytest.raises(BadInput, match="Last-v0:max_goals=5 packs its goals otherwise"):
            stack_of(Plan("ddpg", "Last-v0:max_goals=5", {**SMALL, "encoder": encoder}, steps=60), [0], "cpu")
    with pytest.raises(BadInput, match="num_envs=2"):
        check_batched(replace(Plan("ddpg", "ContinuousSeek-v0:dim=2", SMALL, steps=60), num_envs=2))


def test_only_worlds_that_can_be_drawn_are_seen_as_pictures(registered: Registry[type[World]]) -> None:
    class Other(DriveSeek):
        goal_image = False

    registered.register("Other-v0")(Other)
    with pytest.raises(BadInput, match="goal_image is False"):
        make_agent(Plan("ddpg", "Other-v0", {"encoder": "pictures", "batch_size": 8}, steps=50), 0, "cpu")


def test_the_greedy_agent_plays_the_environment_of_the_run(registered: Registry[type[World]]) -> None:
    few, usual = (greedy_levels([env], 200) for env in ("NoisySeek-v0:horizon=4", "NoisySeek-v0"))
    assert list(few) == list(usual) == ["perfect greedy agent"]
    assert few["perfect greedy agent"] < 0.5 * usual["perfect greedy agent"]
    assert len(greedy_levels(["NoisySeek-v0:horizon=4", "NoisySeek-v0:horizon=3", "NoisySeek-v0:horizon=4"], 10)) == 2
    with pytest.raises(BadInput, match="Drive.* has no greedy agent; environments that have one: NoisySeek-v0$"):
        greedy_levels(["DriveSeek-v0"])

    class Straight(Line):
        def greedy(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            return np.clip(observation["desired_goal"] - observation["observation"], -1, 1)

    registered.register("Straight-v0")(Straight)
    assert greedy_levels(["Straight-v0"]) == {"perfect greedy agent": 1.0}
    assert play(Straight(), Straight().greedy, 50, seed=0)[0].all()
    with pytest.raises(BadInput, match="Line has no greedy agent"):
        Line().greedy({})
