"""Training of one seed: learning curve, checkpoint on Ctrl-C, exact resumption, trained agent on disk."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from threading import Event
from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from vauban.errors import RunRefused
from vauban.files import replace_file
from vauban.interrupts import interruptible
from vauban.rl.checkpoints import read_checkpoint, restore_agent, snapshot_agent, write_checkpoint
from vauban.rl.curves import COLUMNS, MANIFEST, curve_file, read_manifest, read_rows
from vauban.rl.envs import ENVIRONMENTS
from vauban.rl.evaluating import evaluate
from vauban.rl.recipes import Plan, make_agent, make_world
from vauban.specs import Spec

CHECKPOINT_SECONDS = 120.0  # the least time between two checkpoints
CHECKPOINT_RATIO = 20  # and the least ratio of that time to the time that writing one takes
ProgressCallback = Callable[[int], None]  # receives the number of environment steps done since its last call


class Interrupted(Exception):
    """Raised between two environment steps after a request to stop."""


def open_run(folder: Path, plan: Plan, label: str) -> None:
    """Create a run folder, or check that an existing one belongs to the same plan; `label` names it in tables."""
    world = make_world(plan.env)
    score = "reward" if world is not None and world.goal_set else "success"
    manifest = {**asdict(plan), "label": label, "score": score}
    path = folder / MANIFEST
    if path.exists():
        existing = {field.name: field.default for field in fields(Plan)} | read_manifest(folder)
        different = [key for key in asdict(plan) if existing[key] != json.loads(json.dumps(manifest[key], default=str))]
        if different:
            given = ", ".join(f"{key}={manifest[key]} instead of {existing[key]}" for key in different)
            raise RunRefused(f"{folder} holds another training ({given}): give it again, or another --out")
        if existing["label"] != label:
            replace_file(path, json.dumps({**existing, "label": label}, indent=1).encode() + b"\n")
        return
    folder.mkdir(parents=True, exist_ok=True)
    versions = {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
    if world is not None and (origin := ENVIRONMENTS.origin(Spec.parse(plan.env).name)) is not None:
        versions[origin.package] = origin.version
    replace_file(path, json.dumps({**manifest, "versions": versions}, indent=1, default=str).encode() + b"\n")


def train_seed(
    folder: Path,
    plan: Plan,
    seed: int,
    *,
    device: str = "cpu",
    tensorboard: bool = False,
    workers: int = 1,
    on_progress: ProgressCallback = lambda _: None,
) -> bool:
    """Train one seed of a plan to its end; returns False if it was interrupted, after writing a checkpoint.

    Writes the learning curve to `seed-N.csv`, one line for each evaluation, and the trained agent to `seed-N.zip` in
    Stable-Baselines3's format. A checkpoint is resumed; a complete seed is not trained again. Checkpoints are also written in
    between, from which a killed training goes on: `CHECKPOINT_SECONDS` after the last one, later where writing takes long.
    `workers`: processes that simulate the environment, where it is a robot.
    """
    curve = curve_file(folder, seed)
    if is_complete(curve, plan.steps):
        on_progress(plan.steps)
        return True
    rows = read_rows(curve) if curve.exists() else []
    logs = str(folder / "tensorboard") if tensorboard else None
    agent = _resume(curve, plan, seed, device, logs, workers)
    if agent is None:
        agent, rows = make_agent(plan, seed, device, logs, workers), []
    else:
        rows = [row for row in rows if row["steps"] <= agent.num_timesteps]
    write_rows(curve, rows)
    on_progress(agent.num_timesteps)
    with interruptible() as stop:
        callback = _TrainingCallback(CurveWriter(curve, plan, seed, agent, rows), on_progress, stop)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*last trajectory in the replay buffer.*")
                agent.learn(
                    plan.steps - agent.num_timesteps,
                    callback=callback,
                    reset_num_timesteps=agent.num_timesteps == 0,
                    tb_log_name=f"seed-{seed}",
                )
        except Interrupted:
            if agent.num_timesteps:  # a seed without a first step starts again
                write_checkpoint(_checkpoint_file(curve), snapshot_agent(agent))
            return False
    save_agent(agent, curve)
    _checkpoint_file(curve).unlink(missing_ok=True)
    return True


def is_complete(curve: Path, steps: int) -> bool:
    """Whether a seed's curve reaches `steps` and its trained agent exists."""
    rows = read_rows(curve) if curve.exists() else []
    return bool(rows) and rows[-1]["steps"] >= steps and curve.with_suffix(".zip").exists()


class CurveWriter:
    """Evaluates an agent every `plan.every` steps and appends the result to its curve file."""

    def __init__(self, path: Path, plan: Plan, seed: int, agent: Any, rows: Sequence[dict[str, float]] = ()):
        self.path, self.plan, self.seed, self.agent = path, plan, seed, agent
        self.last = int(rows[-1]["steps"]) if rows else -1
        self._started = time.perf_counter() - (rows[-1]["seconds"] if rows else 0.0)

    def due(self, steps: int) -> bool:
        """Whether a multiple of `plan.every` was passed since the last evaluation."""
        return steps // self.plan.every > self.last // self.plan.every

    def evaluate(self, steps: int) -> None:
        """Play `plan.episodes` episodes, which depend on the seed and the step only, and append a line."""
        seconds = round(time.perf_counter() - self._started, 2)
        episodes_seed = evaluation_seed(self.seed, steps)
        success, reward = evaluate(self.agent, self.plan.env, self.plan.episodes, seed=episodes_seed)
        append_row(self.path, {"steps": steps, "success": success, "reward": reward, "seconds": seconds})
        self.last = steps


def evaluation_seed(seed: int, steps: int) -> int:
    """The random seed of the episodes with which a seed is evaluated after `steps`."""
    return 1_000_003 * (seed + 1) + steps


class _TrainingCallback(BaseCallback):
    """Evaluates, reports progress and stops, always after an update and before the next environment step."""

    def __init__(self, curve: CurveWriter, on_progress: ProgressCallback, stop: Event):
        super().__init__()
        self.curve, self.on_progress, self.stop, self.reported = curve, on_progress, stop, 0
        self.checkpointed, self.pause = time.perf_counter(), CHECKPOINT_SECONDS

    def _on_training_start(self) -> None:
        self.reported = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        self._report()
        if self.curve.due(self.reported):
            self.curve.evaluate(self.reported)
        if self.stop.is_set():
            raise Interrupted
        self._keep()

    def _keep(self) -> None:
        """Write a checkpoint if the last one is old, and writing it took a small part of that time."""
        began = time.perf_counter()
        if self.reported and began - self.checkpointed > self.pause:
            write_checkpoint(_checkpoint_file(self.curve.path), snapshot_agent(self.model))
            self.checkpointed = time.perf_counter()
            self.pause = max(CHECKPOINT_SECONDS, CHECKPOINT_RATIO * (self.checkpointed - began))

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._report()
        if self.reported > self.curve.last:
            self.curve.evaluate(self.reported)

    def _report(self) -> None:
        self.on_progress(self.model.num_timesteps - self.reported)
        self.reported = self.model.num_timesteps


def _checkpoint_file(curve: Path) -> Path:
    return curve.with_suffix(".checkpoint.pt")


def _resume(curve: Path, plan: Plan, seed: int, device: str, tensorboard: str | None, workers: int) -> Any:
    """The agent of a seed's checkpoint, or None if there is no checkpoint."""
    path, former = _checkpoint_file(curve), curve.with_suffix(".checkpoint.rest.pkl")
    if not path.exists():
        if former.exists():
            raise RunRefused(
                f"{former} was written by an earlier version as a pickle, and pickles are not read: resume it with that "
                f"version, or remove {curve.stem}.checkpoint.* to train this seed again"
            )
        return None
    agent = make_agent(plan, seed, device, tensorboard, workers)
    try:
        restore_agent(agent, read_checkpoint(path))
    except Exception as problem:
        why = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
        raise RunRefused(
            f"{path} cannot be resumed ({why}): it is damaged, or of another version; remove it to train this seed again"
        ) from None
    agent.tensorboard_log = tensorboard
    return agent


def save_agent(agent: Any, curve: Path) -> None:
    """Write a trained agent beside its curve as Stable-Baselines3 does, and the archive's SHA-256 to `seed-N.json`."""
    write_agent(agent, curve)
    publish_agent(curve)


def write_agent(agent: Any, curve: Path) -> None:
    """Write a trained agent to a file that `publish_agent` gives its name."""
    agent.save(curve.with_suffix(".part.zip"))


def publish_agent(curve: Path) -> None:
    """Let a trained agent that is written be there; from now on its seed is complete."""
    archive, part = curve.with_suffix(".zip"), curve.with_suffix(".part.zip")
    archive.unlink(missing_ok=True)
    replace_file(_record_file(curve), json.dumps({"sha256": _digest(part)}).encode() + b"\n")
    os.replace(part, archive)


def load_agent(
    folder: Path, algo: str, env: str, seed: int, settings: Mapping[str, Any] | None = None
) -> BaseAlgorithm:
    """The trained agent of a seed: a new agent with `settings` (those of `run.json` if None) and the archive's weights.

    Nothing in the archive is executed: its weights are read as tensors. Stable-Baselines3's own `load` unpickles the rest of
    an archive, which can run any code: use it only on archives from people you trust. An archive whose SHA-256 is not the one
    in `seed-N.json` is refused.
    """
    curve = curve_file(folder, seed)
    archive, record = curve.with_suffix(".zip"), _record_file(curve)
    remedy = f"put back what vauban rl train wrote, or remove {curve.stem}.* and train this seed again"
    if not archive.exists():
        raise RunRefused(f"{archive} is missing: {remedy}")
    if record.exists():
        try:
            expected = json.loads(record.read_text())["sha256"]
        except (ValueError, KeyError, TypeError):
            raise RunRefused(f"{record} is damaged: {remedy}") from None
        if _digest(archive) != expected:
            raise RunRefused(f"{archive} is not the archive that was written here (its SHA-256 differs): {remedy}")
    own = read_manifest(folder).get("settings", {}) if settings is None else settings
    agent = make_agent(Plan(algo, env, own, steps=1), seed, "cpu")
    try:
        agent.set_parameters(str(archive), device="cpu")
        with zipfile.ZipFile(archive) as content:
            agent.num_timesteps = int(json.loads(content.read("data"))["num_timesteps"])
    except Exception as problem:
        why = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
        raise RunRefused(f"{archive} holds no agent of {algo} on {env} with these settings ({why}): {remedy}") from None
    return agent


def _record_file(curve: Path) -> Path:
    return curve.with_suffix(".json")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_rows(path: Path, rows: list[dict[str, float]]) -> None:
    """Replace a curve file by these lines."""
    lines = [",".join(COLUMNS), *(",".join(_cell(key, row[key]) for key in COLUMNS) for row in rows)]
    replace_file(path, ("\n".join(lines) + "\n").encode())


def append_row(path: Path, row: dict[str, float]) -> None:
    """Append a line to a curve file and flush it to disk."""
    with open(path, "a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow([_cell(key, row[key]) for key in COLUMNS])
        file.flush()
        os.fsync(file.fileno())


def _cell(key: str, value: float) -> str:
    return str(int(value)) if key == "steps" else f"{value:g}"
