"""Whole batched trainings: curves, agents, interruption, resumption, damaged files."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from amounts import some_slow
from stacks import bits, plan, sets

from vauban.errors import BadInput, RunRefused
from vauban.rl.batched_seeds import batch_key, loop, stack_of, train_batched, train_jobs_batched
from vauban.rl.batched_seeds.loop import CHECKPOINT
from vauban.rl.curves import curve_file, read_rows
from vauban.rl.evaluating import evaluate
from vauban.rl.recipes import Plan
from vauban.rl.seeds import Job
from vauban.rl.training import evaluation_seed, load_agent, open_run


def first_quick(plans: list[Plan]) -> list[Any]:
    return some_slow(plans, quick=[0])


def test_a_stack_keeps_curves_and_agents_like_single_seeds_and_learns(tmp_path: Path) -> None:
    settings = {
        "net_arch": [32, 32],
        "batch_size": 64,
        "learning_starts": 100,
        "learning_rate": 3e-3,
        "goal_weight": 0.1,
    }
    asked = Plan("reengage-ddpg", "ContinuousSeek-v0:dim=1,epsilon=0.4", settings, steps=600, every=200, episodes=50)
    open_run(tmp_path, asked, "x")
    told: list[int] = []
    assert train_batched(tmp_path, asked, [0, 1], device="cpu", on_progress=told.append)
    assert sum(told) == 1200
    ends = []
    for seed in (0, 1):
        rows = read_rows(curve_file(tmp_path, seed))
        assert [row["steps"] for row in rows] == [0, 200, 400, 600]
        assert rows[0]["success"] < 0.5
        ends.append(rows[-1]["success"])
        agent = load_agent(tmp_path, asked.algo, asked.env, seed)
        assert agent.num_timesteps == 600
        again = evaluate(agent, asked.env, 50, seed=1_000_003 * (seed + 1) + 600)
        assert again[0] == pytest.approx(rows[-1]["success"])
    assert min(ends) > 0.9
    stamp = curve_file(tmp_path, 0).stat().st_mtime_ns
    assert train_batched(tmp_path, asked, [0, 1], device="cpu", on_progress=told.append)
    assert curve_file(tmp_path, 0).stat().st_mtime_ns == stamp


def test_many_steps_with_one_policy_are_taken_by_copies_side_by_side(tmp_path: Path) -> None:
    stack: Any = stack_of(bits(), [0, 1], "cpu")
    assert (stack.copies, stack.moves_per_round, stack.updates_per_round, stack.steps_per_round) == (16, 4, 40, 64)
    open_run(tmp_path, bits(), "x")
    assert train_batched(tmp_path, bits(), [0, 1], device="cpu", on_progress=lambda _: None)
    rows = read_rows(curve_file(tmp_path, 1))
    assert [row["steps"] for row in rows] == [0, 320, 640]
    assert rows[-1]["success"] >= rows[0]["success"]


def described(asked: Plan) -> str:
    return f"{asked.algo} {asked.precision} {asked.settings.get('encoder', '')}"


@pytest.mark.parametrize(
    "asked",
    first_quick(
        [
            plan(goal_weight=0.2),
            plan("sac"),
            bits(),
            sets(),
            replace(sets(batch_size=256), precision="bf16"),
            sets(encoder="pictures"),
        ]
    ),
    ids=described,
)
def test_ctrl_c_leaves_a_checkpoint_that_goes_on_as_if_nothing_had_happened(asked: Plan, tmp_path: Path) -> None:
    check_resumed(asked, tmp_path)


@pytest.mark.usefixtures("small_encoders")
@pytest.mark.parametrize(
    "asked",
    first_quick(
        [
            sets(encoder="sets"),
            replace(sets(batch_size=256, encoder="sets"), precision="bf16"),
            replace(
                sets(env="DriveSeek-v0:max_goals=9,horizon=7", encoder="pictures", batch_size=4, learning_starts=7),
                steps=14,
                every=7,
            ),
        ]
    ),
    ids=described,
)
def test_ctrl_c_leaves_such_a_checkpoint_of_small_networks_too(asked: Plan, tmp_path: Path) -> None:
    check_resumed(asked, tmp_path)


def check_resumed(asked: Plan, tmp_path: Path) -> None:
    ends: list[Any] = []
    for name, stops in (("whole", False), ("halves", True)):
        folder, rounds = tmp_path / name, itertools.count()
        open_run(folder, asked, "x")

        def stop(rounds: Any = rounds, stops: bool = stops) -> bool:
            if stops and next(rounds) == asked.steps // 2 // (64 if "dqn" in asked.algo else 1):
                os.kill(os.getpid(), signal.SIGINT)
            return False

        complete = train_batched(folder, asked, [0, 1], device="cpu", on_progress=lambda _: None, stop=stop)
        assert complete != stops
        if stops:
            with pytest.raises(RunRefused, match="stopped with --seeds 2"):
                train_batched(folder, asked, [0], device="cpu", on_progress=lambda _: None)
            again: list[int] = []
            assert train_batched(folder, asked, [0, 1], device="cpu", on_progress=again.append)
            assert again[0] > asked.steps
            assert sum(again) == 2 * asked.steps
        assert not list(folder.glob("*.pt"))
        rows = [{**row, "seconds": 0} for row in read_rows(curve_file(folder, 1))]
        agent: Any = load_agent(folder, asked.algo, asked.env, 1)
        if asked.precision == "fp32":
            played = evaluate(agent, asked.env, asked.episodes, seed=evaluation_seed(1, int(rows[-1]["steps"])))
            assert played == pytest.approx((rows[-1]["success"], rows[-1]["reward"]), abs=1e-5)
        ends.append((rows, torch.cat([p.detach().flatten() for p in agent.policy.parameters()])))
    assert ends[0][0] == ends[1][0]
    assert torch.equal(ends[0][1], ends[1][1])


def weights_at_once(folder: Path) -> list[Job]:
    """Two seeds of a training and one of another, which has another goal weight."""
    plans = {name: plan(goal_weight=weight) for name, weight in (("small", 0.1), ("large", 3.0))}
    for name, asked in plans.items():
        open_run(folder / name, asked, name)
    return [Job(folder / name, plans[name], seed) for name, seed in (("small", 0), ("small", 1), ("large", 0))]


@pytest.mark.slow
def test_trainings_that_differ_in_the_goal_weight_are_one_program_and_resume_as_one(tmp_path: Path) -> None:
    ends = []
    for name, stops in (("whole", False), ("halves", True)):
        jobs, rounds = weights_at_once(tmp_path / name), itertools.count()
        assert (
            train_jobs_batched(jobs, device="cpu", stop=lambda n=rounds, stops=stops: stops and next(n) == 60) != stops
        )
        if stops:
            with pytest.raises(RunRefused, match=r"2 trainings were one program \(\., \.\./large from there\)"):
                train_jobs_batched(jobs[:2], device="cpu")
            told: list[int] = []
            assert train_jobs_batched(jobs, device="cpu", on_progress=told.append)
            assert sum(told) == 3 * jobs[0].plan.steps
        assert not list((tmp_path / name).rglob("*.pt"))
        agents: list[Any] = [load_agent(job.folder, job.plan.algo, job.plan.env, job.seed) for job in jobs]
        assert [agent.goal_weight for agent in agents] == [0.1, 0.1, 3.0]
        ends.append(
            torch.stack([torch.cat([p.detach().flatten() for p in agent.policy.parameters()]) for agent in agents])
        )
        assert [read_rows(job.curve)[-1]["steps"] for job in jobs] == [jobs[0].plan.steps] * 3
    assert torch.equal(*ends)
    assert not torch.equal(ends[0][0], ends[0][2])


def test_only_plans_that_differ_in_a_goal_weight_above_zero_are_one_program() -> None:
    one = plan(goal_weight=0.1)
    assert batch_key(one) == batch_key(plan(goal_weight=0.2))
    others = [
        plan(goal_weight=0.0),
        plan(),
        plan(goal_weight=0.1, gamma=0.5),
        replace(one, steps=99),
        replace(one, every=7),
    ]
    assert len({batch_key(other) for other in [one, *others, plan("reengage-sac", goal_weight=0.1)]}) == 7


@pytest.mark.usefixtures("small_encoders")
def test_a_training_stopped_before_its_first_step_is_evaluated_once_there(tmp_path: Path) -> None:
    asked, curves = sets(env="NoisySeek-v0:max_goals=5", encoder="sets"), []
    for name, stops in (("whole", False), ("stopped", True)):
        open_run(tmp_path / name, asked, "x")
        if stops:
            assert not train_batched(
                tmp_path / name, asked, [0, 1], device="cpu", on_progress=lambda _: None, stop=lambda: True
            )
        assert train_batched(tmp_path / name, asked, [0, 1], device="cpu", on_progress=lambda _: None)
        curves.append([{**row, "seconds": 0} for row in read_rows(curve_file(tmp_path / name, 0))])
    assert [row["steps"] for row in curves[0]] == [0, 40, 80]
    assert curves[0] == curves[1]


@pytest.mark.parametrize(
    "asked",
    first_quick(
        [
            replace(plan(), steps=47),
            replace(sets(), steps=20, every=20),
            replace(bits(), steps=30),
            replace(plan(), steps=20, every=20),
        ]
    ),
    ids=str,
)
def test_trainings_of_odd_and_short_lengths(asked: Plan, tmp_path: Path) -> None:
    open_run(tmp_path, asked, "x")
    assert train_batched(tmp_path, asked, [0], device="cpu", on_progress=lambda _: None)
    assert read_rows(curve_file(tmp_path, 0))[-1]["steps"] >= asked.steps


def test_complete_seeds_are_never_trained_over(tmp_path: Path) -> None:
    open_run(tmp_path, plan(), "x")
    assert train_batched(tmp_path, plan(), [0, 1], device="cpu", on_progress=lambda _: None)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunRefused, match="2 complete seeds of 3.*--seeds 2"):
        train_batched(tmp_path, plan(), [0, 1, 2], device="cpu", on_progress=lambda _: None)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(RunRefused, match="together=True instead of False"):
        open_run(tmp_path, replace(plan(), together=True), "x")


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was stopped."""
    folder, rounds = tmp_path_factory.mktemp("stopped"), itertools.count()
    open_run(folder, plan(), "x")
    assert not train_batched(
        folder, plan(), [0], device="cpu", on_progress=lambda _: None, stop=lambda: next(rounds) == 60
    )
    return folder


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "evil", "key", "device", "no curve", "curve"])
def test_damage_is_said_in_a_line(damage: str, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    path, curve = tmp_path / CHECKPOINT, curve_file(tmp_path, 0)
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other":
        path.write_bytes(b"no checkpoint at all")
    elif damage == "evil":
        torch.save({"seeds": Evil(tmp_path / "touched")}, path)
    elif damage in ("key", "device"):
        kept = torch.load(path, weights_only=True)
        if damage == "key":
            del kept["stack"]
        else:
            kept["device"] = "cuda"
        torch.save(kept, path)
    elif damage == "no curve":
        curve.unlink()
    else:
        curve.write_text("steps,success,reward,seconds\n0,zero,-10,0\n50,0,-10,1\n")
    with pytest.raises(BadInput if damage == "curve" else RunRefused, match="no learning curve|remove|--device cuda"):
        train_batched(tmp_path, plan(), [0], device="cpu", on_progress=lambda _: None)
    assert not (tmp_path / "touched").exists()


def test_a_training_that_is_killed_goes_on_from_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(loop, "CHECKPOINT_RATIO", 0)
    open_run(tmp_path, plan(), "x")
    rounds = itertools.count()

    def killed() -> bool:
        if next(rounds) == 70:
            raise RuntimeError("killed")
        return False

    with pytest.raises(RuntimeError, match="killed"):
        train_batched(tmp_path, plan(), [0], device="cpu", on_progress=lambda _: None, stop=killed)
    told: list[int] = []
    assert train_batched(tmp_path, plan(), [0], device="cpu", on_progress=told.append)
    assert told[0] == 50
    whole = tmp_path / "whole"
    open_run(whole, plan(), "x")
    assert train_batched(whole, plan(), [0], device="cpu", on_progress=lambda _: None)
    one, two = (load_agent(folder, plan().algo, plan().env, 0) for folder in (tmp_path, whole))
    for a, b in zip(one.policy.parameters(), two.policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_training_killed_between_its_agents_goes_on_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One seed is complete, the others are not, and no checkpoint was due before."""
    open_run(tmp_path, plan(), "x")
    own, published = loop.publish_agent, []

    def killed(curve: Path) -> None:
        if published:
            raise RuntimeError("killed")
        published.append(curve)
        own(curve)

    monkeypatch.setattr(loop, "publish_agent", killed)
    with pytest.raises(RuntimeError, match="killed"):
        train_batched(tmp_path, plan(), [0, 1], device="cpu")
    monkeypatch.setattr(loop, "publish_agent", own)
    assert [path.name for path in tmp_path.glob("seed-?.zip")] == ["seed-0.zip"]
    rows = read_rows(curve_file(tmp_path, 1))
    assert train_batched(tmp_path, plan(), [0, 1], device="cpu")
    assert read_rows(curve_file(tmp_path, 1)) == rows
    assert load_agent(tmp_path, plan().algo, plan().env, 1).num_timesteps == plan().steps
    assert not list(tmp_path.glob("*.pt"))


def test_agents_made_in_several_threads_are_those_made_alone() -> None:
    """Stable-Baselines3 seeds the generators of the whole process and draws first weights from them."""

    def weights(_: object = None) -> torch.Tensor:
        stack: Any = stack_of(plan(net_arch=[256, 256]), [0, 1, 2], "cpu")
        return torch.cat([p.detach().flatten() for agent in stack.agents for p in agent.policy.parameters()])

    alone = weights()
    with ThreadPoolExecutor(3) as pool:
        assert all(torch.equal(found, alone) for found in pool.map(weights, range(9)))
