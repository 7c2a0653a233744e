"""Runs: plans, curves, interruption at any step, resumption that ends as an uninterrupted training does."""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import signal
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DDPG, DQN, SAC, HerReplayBuffer
from stable_baselines3.common.save_util import load_from_zip_file

from vauban.errors import BadInput, RunRefused
from vauban.rl import MultiReenGAGEDDPG, ReenGAGEDDPG, ReenGAGEDQN, ReenGAGESAC
from vauban.rl.checkpoints import snapshot_agent
from vauban.rl.curves import Curves, curve_file, draw, read_rows, read_run
from vauban.rl.encoders import GoalImageEncoder
from vauban.rl.envs import ContinuousSeek, WorldEnv
from vauban.rl.recipes import ALGORITHMS, Plan, make_agent, plan, read_settings
from vauban.rl.seeds import train_seeds
from vauban.rl.training import load_agent, open_run, train_seed

SMALL = {"net_arch": [16, 16], "batch_size": 16, "learning_starts": 30}
SEEK = Plan("reengage-ddpg", "ContinuousSeek-v0:dim=2", SMALL, steps=90, every=30, episodes=5)
PLANS = [
    SEEK,
    Plan("reengage-sac", "ContinuousSeek-v0:dim=2", {**SMALL, "normalise_goals": True}, steps=90, every=30, episodes=5),
    Plan(
        "reengage-dqn",
        "BitFlipping-v0:dim=3",
        {**SMALL, "train_freq": 3, "gradient_steps": 4},
        steps=90,
        every=30,
        episodes=5,
    ),
    Plan(
        "multi-reengage-ddpg",
        "NoisySeek-v0",
        {**SMALL, "policy_kwargs": {"features_extractor_kwargs": {"hidden": (8,), "embedding": 3}}},
        steps=90,
        every=30,
        episodes=5,
    ),
]


def curve(folder: Path, seed: int = 0) -> list[tuple[float, ...]]:
    return [(row["steps"], row["success"], row["reward"]) for row in read_rows(curve_file(folder, seed))]


def weights(folder: Path, plan: Plan, seed: int = 0) -> list[torch.Tensor]:
    return list(load_agent(folder, plan.algo, plan.env, seed).policy.state_dict().values())


def stop_after(steps: int) -> Callable[[int], None]:
    """A progress callback that sends Ctrl-C once so many steps are done."""
    done = 0

    def on_progress(more: int) -> None:
        nonlocal done
        done += more
        if done >= steps:
            os.kill(os.getpid(), signal.SIGINT)

    return on_progress


@pytest.mark.parametrize("asked", PLANS, ids=lambda p: p.algo)
def test_a_run_stopped_at_any_step_ends_as_one_that_was_not(asked: Plan, tmp_path: Path) -> None:
    check_resumed(asked, tmp_path, (17,), (48, 63))


@pytest.mark.parametrize(
    "asked",
    [
        replace(SEEK, settings={**SMALL, "buffer_size": 40, "replay_buffer_kwargs": {"copy_info_dict": True}}),
        replace(SEEK, num_envs=2),
        Plan("sac", SEEK.env, {**SMALL, "ent_coef": 0.1}, steps=90, every=30, episodes=5),
    ],
    ids=["a buffer that wraps", "two copies", "a fixed temperature"],
)
def test_so_does_a_run_with_more_to_keep(asked: Plan, tmp_path: Path) -> None:
    check_resumed(asked, tmp_path, (66,))


def check_resumed(asked: Plan, tmp_path: Path, *trainings: tuple[int, ...]) -> None:
    """Each training is stopped at the steps given, resumed, and ends as one that was not."""
    whole = tmp_path / "whole"
    open_run(whole, asked, "x")
    assert train_seed(whole, asked, 0)
    for stops in trainings:
        parts = tmp_path / str(stops)
        open_run(parts, asked, "x")
        for stop in stops:
            told: list[int] = []
            send = stop_after(stop)
            assert not train_seed(
                parts, asked, 0, on_progress=lambda more, told=told, send=send: (told.append(more), send(more))
            )
            assert sorted(p.suffix for p in parts.glob("*seed-0.checkpoint.*")) == [".pt"]
            assert stop <= sum(told) < 90
        assert train_seed(parts, asked, 0)
        assert curve(parts) == curve(whole)
        assert all(torch.equal(a, b) for a, b in zip(weights(parts, asked), weights(whole, asked), strict=True))
        assert not list(parts.glob("*checkpoint*"))


def test_a_run_stopped_before_its_first_step_begins_anew(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for folder in (whole, stopped):
        open_run(folder, SEEK, "x")
    assert train_seed(whole, SEEK, 0)
    calls = itertools.count()
    send = stop_after(0)
    assert not train_seed(stopped, SEEK, 0, on_progress=lambda more: send(more) if next(calls) else None)
    assert next(calls) == 2, "stopped before the first step"
    assert train_seed(stopped, SEEK, 0)
    assert curve(stopped) == curve(whole)
    assert all(torch.equal(a, b) for a, b in zip(weights(stopped, SEEK), weights(whole, SEEK), strict=True))


@pytest.mark.filterwarnings("error:.*last trajectory")
def test_an_environment_of_gymnasium_goes_on_with_a_new_episode(tmp_path: Path) -> None:
    gymnasium.register("Theirs-v0", entry_point=lambda **settings: WorldEnv(ContinuousSeek(**settings)))
    asked = replace(SEEK, env="Theirs-v0:dim=2")
    try:
        open_run(tmp_path, asked, "x")
        assert not train_seed(tmp_path, asked, 0, on_progress=stop_after(48))
        assert train_seed(tmp_path, asked, 0)
        assert [row[0] for row in curve(tmp_path)] == [0, 30, 60, 90]
    finally:
        gymnasium.registry.pop("Theirs-v0")


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def stopped(folder: Path) -> Path:
    """The checkpoint of a training that was stopped."""
    open_run(folder, SEEK, "x")
    assert not train_seed(folder, SEEK, 0, on_progress=stop_after(48))
    return folder / "seed-0.checkpoint.pt"


@pytest.mark.parametrize("damage", ["cut", "empty", "evil", "key", "earlier"])
def test_a_checkpoint_that_is_damaged_or_a_pickle_is_refused_and_not_executed(damage: str, tmp_path: Path) -> None:
    path, touched = stopped(tmp_path), tmp_path / "touched"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "evil":
        torch.save({"attributes": Evil(touched)}, path)
    elif damage == "key":
        kept = torch.load(path, weights_only=True)
        del kept["buffer"]
        torch.save(kept, path)
    else:
        path.rename(path.with_suffix(".rest.pkl"))
        path.with_suffix(".rest.pkl").write_bytes(pickle.dumps(Evil(touched)))
    with pytest.raises(RunRefused, match="remove .*train this seed again"):
        train_seed(tmp_path, SEEK, 0)
    assert not touched.exists()


def test_an_archive_that_is_not_the_runs_own_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        open_run(tmp_path / name, SEEK, "x")
    assert train_seed(tmp_path / "one", SEEK, 0)
    assert train_seed(tmp_path / "two", SEEK, 1)
    archive, other = tmp_path / "one" / "seed-0.zip", tmp_path / "two" / "seed-1.zip"
    own = archive.read_bytes()
    archive.write_bytes(other.read_bytes())
    with pytest.raises(RunRefused, match=r"seed-0.zip is not the archive .*: put back .* or remove seed-0\.\*"):
        weights(tmp_path / "one", SEEK)
    archive.write_bytes(own)
    assert weights(tmp_path / "one", SEEK)
    archive.with_suffix(".json").write_text("{}")
    with pytest.raises(RunRefused, match="seed-0.json is damaged"):
        weights(tmp_path / "one", SEEK)
    archive.unlink()
    with pytest.raises(RunRefused, match="seed-0.zip is missing"):
        weights(tmp_path / "one", SEEK)


def test_nothing_in_an_archive_is_executed(tmp_path: Path) -> None:
    open_run(tmp_path, SEEK, "x")
    assert train_seed(tmp_path, SEEK, 0)
    first, touched = weights(tmp_path, SEEK), tmp_path / "touched"
    archive, record = tmp_path / "seed-0.zip", tmp_path / "seed-0.json"
    with zipfile.ZipFile(archive) as file:
        content = {name: file.read(name) for name in file.namelist()}
    data = json.loads(content["data"])
    evil = base64.b64encode(pickle.dumps(Evil(touched))).decode()
    data["lr_schedule"] = {":type:": "x", ":serialized:": evil}
    with zipfile.ZipFile(archive, "w") as file:
        for name, part in {**content, "data": json.dumps(data).encode()}.items():
            file.writestr(name, part)
    record.unlink()  # a run folder of somebody else may say of its archives what it likes
    assert all(torch.equal(a, b) for a, b in zip(weights(tmp_path, SEEK), first, strict=True))
    assert not touched.exists()
    load_from_zip_file(archive)
    assert touched.exists(), "the library itself unpickles"


def test_settings_that_json_cannot_write_are_resumed_and_loaded_too(tmp_path: Path) -> None:
    asked = replace(SEEK, settings={**SMALL, "policy_kwargs": {"activation_fn": torch.nn.Tanh}})
    open_run(tmp_path, asked, "x")
    assert not train_seed(tmp_path, asked, 0, on_progress=stop_after(48))
    open_run(tmp_path, asked, "x")
    assert train_seed(tmp_path, asked, 0)
    assert load_agent(tmp_path, asked.algo, asked.env, 0, asked.settings).num_timesteps == 90
    with pytest.raises(BadInput, match="cannot be made with these settings"):
        load_agent(tmp_path, asked.algo, asked.env, 0)


class Unkept(ContinuousSeek):
    """Has something in its state that is no array."""

    def begin(self, copies: int, rng: np.random.Generator) -> dict[str, Any]:
        return {**super().begin(copies, rng), "map": np.array(["north"] * copies)}

    def move(self, state: Any, actions: Any, rng: Any) -> Any:
        return {**super().move(state, actions, rng), "map": state["map"]}


def test_a_state_that_cannot_be_kept_is_named() -> None:
    agent: Any = make_agent(SEEK, 0, "cpu")
    agent.env.world = Unkept(2)
    agent.learn(5)
    with pytest.raises(BadInput, match="a state of Unkept cannot be kept: it must be a dictionary of arrays"):
        snapshot_agent(agent)


def test_an_agent_of_other_settings_is_refused(tmp_path: Path) -> None:
    open_run(tmp_path, SEEK, "x")
    assert train_seed(tmp_path, SEEK, 0)
    assert load_agent(tmp_path, SEEK.algo, SEEK.env, 0, SMALL).num_timesteps == 90
    with pytest.raises(RunRefused, match="holds no agent of reengage-ddpg .* with these settings"):
        load_agent(tmp_path, SEEK.algo, SEEK.env, 0, {**SMALL, "net_arch": [8]})


def test_ctrl_c_twice_stops_at_once_and_the_usual_handler_comes_back(tmp_path: Path) -> None:
    open_run(tmp_path, SEEK, "x")
    before = signal.getsignal(signal.SIGINT)

    def twice(_: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_seed(tmp_path, SEEK, 0, on_progress=lambda more: twice(more) if more else None)
    assert signal.getsignal(signal.SIGINT) is before


def test_seeds_differ_are_repeatable_and_complete_ones_are_left_alone(tmp_path: Path) -> None:
    open_run(tmp_path, SEEK, "x")
    assert train_seeds(tmp_path, SEEK, [0, 1], on_progress=lambda _: None)
    first, second = weights(tmp_path, SEEK, 0), weights(tmp_path, SEEK, 1)
    assert not torch.equal(first[0], second[0])
    stamp = curve_file(tmp_path, 0).stat().st_mtime_ns
    told: list[int] = []
    assert train_seeds(tmp_path, SEEK, [0, 1], on_progress=told.append)
    assert told == [90, 90]
    assert curve_file(tmp_path, 0).stat().st_mtime_ns == stamp
    curve_file(tmp_path, 0).unlink()
    assert train_seed(tmp_path, SEEK, 0)
    assert all(torch.equal(a, b) for a, b in zip(weights(tmp_path, SEEK, 0), first, strict=True))


@pytest.mark.slow
def test_processes_give_the_same_curves_as_one_after_the_other(tmp_path: Path) -> None:
    serial, parallel = tmp_path / "serial", tmp_path / "parallel"
    for folder, jobs in ((serial, 1), (parallel, 2)):
        open_run(folder, SEEK, "x")
        told: list[int] = []
        assert train_seeds(folder, SEEK, [0, 1], jobs=jobs, on_progress=told.append)
        assert sum(told) == 180
    assert curve(serial, 0) == curve(parallel, 0)
    assert curve(serial, 1) == curve(parallel, 1)


def test_a_problem_in_a_process_reaches_the_caller(tmp_path: Path) -> None:
    wrong = Plan("ddpg", "BitFlipping-v0:dim=3", {}, steps=20)
    with pytest.raises(BadInput, match="does not fit"):
        train_seeds(tmp_path, wrong, [0, 1], jobs=2, on_progress=lambda _: None)


def test_evaluations_are_at_the_multiples_and_at_the_end(tmp_path: Path) -> None:
    asked = Plan("ddpg", "ContinuousSeek-v0:dim=2", SMALL, steps=70, every=20, episodes=4)
    open_run(tmp_path, asked, "DDPG")
    assert train_seed(tmp_path, asked, 0)
    assert [row[0] for row in curve(tmp_path)] == [0, 20, 40, 60, 70]


def test_a_folder_of_another_training_is_refused(tmp_path: Path) -> None:
    open_run(tmp_path, SEEK, "x")
    open_run(tmp_path, SEEK, "another name is no other training")
    other = Plan("ddpg", SEEK.env, SMALL, steps=90, every=30, episodes=5)
    with pytest.raises(RunRefused, match="algo=ddpg instead of reengage-ddpg"):
        open_run(tmp_path, other, "x")


def test_curves_lose_only_a_line_that_a_kill_cut(tmp_path: Path) -> None:
    path = tmp_path / "seed-0.csv"
    path.write_text("steps,success,reward,seconds\n0,0,-10,0\n10,0.5,-5,1\n20,0.7")
    assert [row["steps"] for row in read_rows(path)] == [0, 10]
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(BadInput, match="no learning curve"):
        read_rows(path)
    with pytest.raises(BadInput, match="no run of vauban rl train"):
        read_run(tmp_path)


def test_runs_of_different_length_are_compared_over_the_same_steps() -> None:
    values = np.array([[0.0, 1.0, 1.0, 0.0]])
    curves = Curves("x", "y", [0], np.array([0.0, 10, 20, 30]), values, np.array([1.0]), "success")
    assert curves.until(25).summary()["steps"] == 20
    assert curves.until(25).areas == pytest.approx([0.75])
    assert curves.until(30).areas == pytest.approx(curves.areas)
    with pytest.raises(BadInput, match="first evaluation"):
        curves.until(-1)


def test_curves_are_compared_at_steps_at_which_all_seeds_were_evaluated(tmp_path: Path) -> None:
    open_run(tmp_path, Plan("ddpg", "ContinuousSeek-v0:dim=2", steps=30, every=10), "x")
    head = "steps,success,reward,seconds\n"
    curve_file(tmp_path, 0).write_text(head + "0,0,-9,0\n10,0.1,-8,1\n30,0.3,-6,3\n")
    curve_file(tmp_path, 1).write_text(head + "0,0,-9,0\n10,0.5,-8,1\n20,0.6,-7,2\n30,0.7,-6,4\n40,0.")
    run = read_run(tmp_path)
    assert run.steps.tolist() == [0, 10, 30]
    np.testing.assert_allclose(run.values, [[0, 0.1, 0.3], [0, 0.5, 0.7]])
    assert run.seconds.tolist() == [3, 4]
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BadInput, match="no readable run.json"):
        read_run(tmp_path)
    with pytest.raises(BadInput, match="no readable run.json"):
        open_run(tmp_path, Plan("ddpg", "ContinuousSeek-v0:dim=2", steps=30, every=10), "x")


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


RESULTS = Path(__file__).parents[2] / "results" / "rl"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RESULTS.glob("*/run.json")))
def test_the_runs_of_the_results_are_read_and_could_be_resumed(name: str, tmp_path: Path) -> None:
    """Their manifests were written by earlier versions, some before there were batched trainings."""
    assert len(read_run(RESULTS / name).steps) > 5
    manifest = json.loads((RESULTS / name / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    again = Plan(**{field.name: manifest[field.name] for field in fields(Plan) if field.name in manifest})
    assert again.together == manifest.get("together", False)
    open_run(tmp_path, again, manifest["label"])


def test_areas_are_mean_heights() -> None:
    steps, values = np.array([0.0, 10, 30]), np.array([[0, 1, 1], [0, 0, 1.0]])
    run = Curves("a", "E", [0, 1], steps, values, np.array([3.0, 5.0]), "success")
    np.testing.assert_allclose(run.areas, [25 / 30, 10 / 30])
    line = run.summary()
    assert line["area"] == pytest.approx(35 / 60)
    assert line["spread"] == pytest.approx(0.5 / 2**0.5)
    assert (line["seeds"], line["steps"], line["last"], line["seconds"]) == (2, 30, 1, 4)


def test_pictures_of_curves_are_written(tmp_path: Path) -> None:
    run = Curves("a", "E", [0, 1], np.array([0.0, 1]), np.array([[0, 0.5], [0, 1]]), np.zeros(2), "reward")
    draw(tmp_path / "p.png", [run], title="T", levels={"greedy": 0.7})
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


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
    kinds = [DDPG, SAC, DQN, ReenGAGEDDPG, ReenGAGESAC, ReenGAGEDQN, MultiReenGAGEDDPG]
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
