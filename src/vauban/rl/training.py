"""Training several seeds: curves that survive a kill, checkpoints that go on as if nothing had happened."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from vauban.errors import RunRefused
from vauban.files import replace_file
from vauban.rl.checkpoints import read_checkpoint, restore_agent, snapshot_agent, write_checkpoint
from vauban.rl.curves import COLUMNS, MANIFEST, curve_file, read_manifest, read_rows
from vauban.rl.envs import ENVIRONMENTS
from vauban.rl.evaluating import evaluate
from vauban.rl.recipes import Plan, make_agent, make_world
from vauban.specs import Spec

ProgressCallback = Callable[[int], None]


class Interrupted(Exception):
    """Raised between two steps when the user asked to stop."""


def open_run(folder: Path, plan: Plan, label: str) -> None:
    """Make a run folder, or check that the one that is there belongs to this plan."""
    world = make_world(plan.env)
    score = "reward" if world is not None and world.goal_set else "success"
    wanted = {**asdict(plan), "label": label, "score": score}
    path = folder / MANIFEST
    if path.exists():
        there = {field.name: field.default for field in fields(Plan)} | read_manifest(folder)
        different = [key for key in asdict(plan) if there[key] != json.loads(json.dumps(wanted[key]))]
        if different:
            given = ", ".join(f"{key}={wanted[key]} instead of {there[key]}" for key in different)
            raise RunRefused(f"{folder} holds another training ({given}): give it again, or another --out")
        if there["label"] != label:
            replace_file(path, json.dumps({**there, "label": label}, indent=1).encode() + b"\n")
        return
    folder.mkdir(parents=True, exist_ok=True)
    versions = {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
    if world is not None and (origin := ENVIRONMENTS.origin(Spec.parse(plan.env).name)) is not None:
        versions[origin.package] = origin.version
    replace_file(path, json.dumps({**wanted, "versions": versions}, indent=1, default=str).encode() + b"\n")


def train_seed(
    folder: Path,
    plan: Plan,
    seed: int,
    *,
    device: str = "cpu",
    tensorboard: bool = False,
    on_progress: ProgressCallback = lambda _: None,
) -> bool:
    """Train one seed of a plan to its end; returns False if it was interrupted, with a checkpoint to go on from.

    The curve is `seed-N.csv`, a line for each look; the trained agent `seed-N.zip`, as the library saves it. A seed that is
    complete is left alone.
    """
    path = curve_file(folder, seed)
    if is_complete(path, plan.steps):
        on_progress(plan.steps)
        return True
    rows = read_rows(path) if path.exists() else []
    logs = str(folder / "tensorboard") if tensorboard else None
    agent = _resume(path, plan, seed, device, logs)
    if agent is None:
        agent, rows = make_agent(plan, seed, device, logs), []
    else:
        rows = [row for row in rows if row["steps"] <= agent.num_timesteps]
    write_rows(path, rows)
    on_progress(agent.num_timesteps)
    with interruptible() as asked:
        between = _Between(Looks(path, plan, seed, agent, rows), on_progress, asked)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*last trajectory in the replay buffer.*")
                agent.learn(
                    plan.steps - agent.num_timesteps,
                    callback=between,
                    reset_num_timesteps=agent.num_timesteps == 0,
                    tb_log_name=f"seed-{seed}",
                )
        except Interrupted:
            if agent.num_timesteps:  # before its first step a training begins anew, with its first episode
                write_checkpoint(_checkpoint_file(path), snapshot_agent(agent))
            return False
    save_agent(agent, path)
    _checkpoint_file(path).unlink(missing_ok=True)
    return True


def is_complete(curve: Path, steps: int) -> bool:
    """Whether a seed has been trained for so many steps, and its agent is there."""
    rows = read_rows(curve) if curve.exists() else []
    return bool(rows) and rows[-1]["steps"] >= steps and curve.with_suffix(".zip").exists()


class Looks:
    """Evaluates an agent and adds a line to its curve."""

    def __init__(self, path: Path, plan: Plan, seed: int, agent: Any, rows: Sequence[dict[str, float]] = ()):
        self.path, self.plan, self.seed, self.agent = path, plan, seed, agent
        self.last = int(rows[-1]["steps"]) if rows else -1
        self._began = time.perf_counter() - (rows[-1]["seconds"] if rows else 0.0)

    def due(self, steps: int) -> bool:
        """Whether a multiple of `plan.every` was passed since the last look."""
        return steps // self.plan.every > self.last // self.plan.every

    def look(self, steps: int) -> None:
        """Play `plan.episodes` episodes that depend on seed and step alone."""
        spent = time.perf_counter() - self._began
        success, reward = evaluate(self.agent, self.plan.env, self.plan.episodes, seed=look_seed(self.seed, steps))
        append_row(self.path, {"steps": steps, "success": success, "reward": reward, "seconds": round(spent, 2)})
        self.last = steps


def look_seed(seed: int, steps: int) -> int:
    """The seed of the episodes played at a look."""
    return 1_000_003 * (seed + 1) + steps


class _Between(BaseCallback):
    """Looks, tells of progress and stops: always between an update and the next step, where nothing is half done."""

    def __init__(self, looks: Looks, on_progress: ProgressCallback, asked: list[bool]):
        super().__init__()
        self.looks, self.on_progress, self.asked, self.told = looks, on_progress, asked, 0

    def _on_training_start(self) -> None:
        self.told = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        self._tell()
        if self.looks.due(self.told):
            self.looks.look(self.told)
        if self.asked:
            raise Interrupted

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._tell()
        if self.told > self.looks.last:
            self.looks.look(self.told)

    def _tell(self) -> None:
        self.on_progress(self.model.num_timesteps - self.told)
        self.told = self.model.num_timesteps


@contextmanager
def interruptible() -> Iterator[list[bool]]:
    """The first Ctrl-C, or a request to end, is remembered, so that training stops where nothing is half done; the second one
    stops at once."""
    asked: list[bool] = []

    def remember(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)

    try:
        before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: nobody can press Ctrl-C here
        before = {}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _checkpoint_file(curve: Path) -> Path:
    return curve.with_suffix(".checkpoint.pt")


def _resume(curve: Path, plan: Plan, seed: int, device: str, tensorboard: str | None) -> Any:
    """The agent of a seed's checkpoint, or None where there is none."""
    path, former = _checkpoint_file(curve), curve.with_suffix(".checkpoint.rest.pkl")
    if not path.exists():
        if former.exists():
            raise RunRefused(
                f"{former} was written by an earlier version as a pickle, and pickles are not read: resume it with that "
                f"version, or remove {curve.stem}.checkpoint.* to train this seed anew"
            )
        return None
    agent = make_agent(plan, seed, device, tensorboard)
    try:
        restore_agent(agent, read_checkpoint(path))
    except Exception as problem:
        why = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
        raise RunRefused(
            f"{path} cannot be resumed ({why}): it is damaged, or of another version; remove it to train this seed anew"
        ) from None
    agent.tensorboard_log = tensorboard
    return agent


def save_agent(agent: Any, curve: Path) -> None:
    """Write a trained agent beside its curve as Stable-Baselines3 does, and the archive's SHA-256 to `seed-N.json`."""
    archive, part = curve.with_suffix(".zip"), curve.with_suffix(".part.zip")
    agent.save(part)
    archive.unlink(missing_ok=True)
    replace_file(_record_file(curve), json.dumps({"sha256": _digest(part)}).encode() + b"\n")
    os.replace(part, archive)


def load_agent(
    folder: Path, algo: str, env: str, seed: int, settings: Mapping[str, Any] | None = None
) -> BaseAlgorithm:
    """The trained agent of a seed: made anew with the settings of `run.json`, or those given, and the archive's weights.

    Nothing in the archive is executed: its weights are read as tensors. Stable-Baselines3's own `load` unpickles the rest of an
    archive, which can run any code: give it archives from people you trust only. An archive whose SHA-256 is not the one in
    `seed-N.json` is refused.
    """
    curve = curve_file(folder, seed)
    archive, record = curve.with_suffix(".zip"), _record_file(curve)
    anew = f"put back what vauban rl train wrote, or remove {curve.stem}.* and train this seed anew"
    if record.exists():
        try:
            expected = json.loads(record.read_text())["sha256"]
        except (ValueError, KeyError, TypeError):
            raise RunRefused(f"{record} is damaged: {anew}") from None
        if _digest(archive) != expected:
            raise RunRefused(f"{archive} is not the archive that was written here (its SHA-256 differs): {anew}")
    own = read_manifest(folder).get("settings", {}) if settings is None else settings
    agent = make_agent(Plan(algo, env, own, steps=1), seed, "cpu")
    try:
        agent.set_parameters(str(archive), device="cpu")
        with zipfile.ZipFile(archive) as content:
            agent.num_timesteps = int(json.loads(content.read("data"))["num_timesteps"])
    except Exception as problem:
        why = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
        raise RunRefused(f"{archive} holds no agent of {algo} on {env} with these settings ({why}): {anew}") from None
    return agent


def _record_file(curve: Path) -> Path:
    return curve.with_suffix(".json")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_rows(path: Path, rows: list[dict[str, float]]) -> None:
    lines = [",".join(COLUMNS), *(",".join(_cell(key, row[key]) for key in COLUMNS) for row in rows)]
    replace_file(path, ("\n".join(lines) + "\n").encode())


def append_row(path: Path, row: dict[str, float]) -> None:
    with open(path, "a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow([_cell(key, row[key]) for key in COLUMNS])
        file.flush()
        os.fsync(file.fileno())


def _cell(key: str, value: float) -> str:
    return str(int(value)) if key == "steps" else f"{value:g}"
