"""Runs: interruption at any step, and resumption that ends as an uninterrupted training does."""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import signal
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from amounts import few_then_all, some_slow
from stable_baselines3.common.save_util import load_from_zip_file

from vauban.errors import BadInput, RunRefused
from vauban.rl import training
from vauban.rl.checkpoints import read_checkpoint, snapshot_agent
from vauban.rl.curves import curve_file, read_rows
from vauban.rl.envs import ContinuousSeek, WorldEnv
from vauban.rl.recipes import Plan, make_agent
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


def test_training_leaves_nothing_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.delenv("SB3_LOGDIR")
    open_run(tmp_path / "run", SEEK, "seek")
    assert not train_seed(tmp_path / "run", SEEK, 0, on_progress=stop_after(48))
    assert train_seed(tmp_path / "run", SEEK, 0)
    assert [path for path in temporary.iterdir() if not path.name.startswith("torchinductor")] == []


def test_a_talkative_agent_prints_its_losses(capsys: pytest.CaptureFixture[str]) -> None:
    plan = replace(SEEK, settings={**SMALL, "verbose": 1})
    make_agent(plan, 0, "cpu").learn(80, log_interval=1)
    assert "critic_loss" in capsys.readouterr().out


@pytest.mark.parametrize("trainings", few_then_all([(48,)], [(17,), (48, 63)]), ids=str)
@pytest.mark.parametrize("asked", PLANS, ids=lambda p: p.algo)
def test_a_run_stopped_at_any_step_ends_as_one_that_was_not(
    asked: Plan, trainings: list[tuple[int, ...]], tmp_path: Path
) -> None:
    check_resumed(asked, tmp_path, *trainings)


@pytest.mark.parametrize(
    "asked",
    some_slow(
        [
            replace(SEEK, settings={**SMALL, "buffer_size": 40, "replay_buffer_kwargs": {"copy_info_dict": True}}),
            replace(SEEK, num_envs=2),
            Plan("sac", SEEK.env, {**SMALL, "ent_coef": 0.1}, steps=90, every=30, episodes=5),
        ],
        quick=[1],
    ),
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


def test_a_killed_run_goes_on_from_its_last_checkpoint_and_ends_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        open_run(folder, SEEK, "x")
    assert train_seed(whole, SEEK, 0)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(training, "CHECKPOINT_RATIO", 0.0)
    done = 0

    def die(more: int) -> None:
        nonlocal done
        done += more
        if done > 75:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train_seed(killed, SEEK, 0, on_progress=die)
    assert 70 <= read_checkpoint(killed / "seed-0.checkpoint.pt")["attributes"]["num_timesteps"] <= 75
    assert train_seed(killed, SEEK, 0)
    assert curve(killed) == curve(whole)
    assert all(torch.equal(a, b) for a, b in zip(weights(killed, SEEK), weights(whole, SEEK), strict=True))


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


@pytest.mark.slow
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
