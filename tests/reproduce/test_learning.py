"""Entries of agents: every shipped one makes plans that can be trained; choice on other seeds, budget, resumption, intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("stable_baselines3")
pytest.importorskip("matplotlib")

from vauban.cli import app
from vauban.errors import BadInput, Incomplete, RunRefused
from vauban.reproduce import agents
from vauban.reproduce.agents import _programs, _train_together
from vauban.reproduce.entry import Entry, parse, shipped
from vauban.reproduce.learning import (
    FIRST_CHOOSING_SEED,
    Candidate,
    Training,
    arms,
    seeds_of,
)
from vauban.reproduce.running import Options
from vauban.reproduce.running import reproduce as run_entry
from vauban.rl.batched_seeds import check_batched
from vauban.rl.curves import curve_file, read_run
from vauban.rl.recipes import make_agent
from vauban.rl.training import open_run

ENTRIES = {name: entry for name, entry in shipped().items() if entry.kind == "rl"}
SMALL = """
title = "Small"
source = "a test"
[grid]
dim = [2, 3]
[rl]
env = "ContinuousSeek-v0:dim={dim}"
seeds = 2
choose_seeds = 1
steps = 40
every = 20
episodes = 2
set = { batch_size = 8, net_arch = [4], learning_starts = 20 }
[[rl.arm]]
label = "DDPG"
algo = "ddpg"
[[rl.arm]]
label = "ReenGAGE, alpha {goal_weight}"
algo = "reengage-ddpg"
choose = true
sweep = { goal_weight = [0.1, 0.2] }
[[rl.arm]]
label = "only there"
algo = "ddpg"
at = { dim = 3 }
set = { gamma = 0.5 }
"""


def candidates(entry: Entry) -> Iterator[Candidate]:
    for some in arms(entry, Path("out"), {}).values():
        for arm in some:
            yield from arm.candidates


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_every_entry_of_agents_makes_plans(entry: Entry) -> None:
    robots = entry.rl["env"].startswith("Hand")
    if robots:
        pytest.importorskip("gymnasium_robotics", reason="the extra robotics is not installed")
    found = list(candidates(entry))
    plans = [one.plan(together=not robots) for one in [*found[:: 1 + len(found) // 8], found[-1]]]
    assert {plan.steps for plan in plans} <= {160_000, 200_000, 2_560_000, 4_750_000, 9_500_000}
    trained = {(one.env, one.point, one.algo, tuple(sorted(one.settings.items()))) for one in found}
    assert len({one.folder() for one in found}) == len(trained)
    if not robots:
        make_agent(replace(plans[-1], steps=plans[-1].every), 0, "cpu")


def test_the_full_grids_have_as_many_trainings_as_in_the_thesis() -> None:
    assert len(list(candidates(ENTRIES["thesis-g.2"]))) == 144
    assert len(list(candidates(ENTRIES["thesis-g.7"]))) == 420


def test_seeds_that_choose_are_never_reported() -> None:
    reported, choosing = seeds_of(parse("small", SMALL), FIRST_CHOOSING_SEED)
    assert not set(reported) & set(choosing)
    assert choosing == (FIRST_CHOOSING_SEED,)
    with pytest.raises(BadInput, match="--seeds 1001: .* give 1000 or fewer"):
        seeds_of(parse("small", SMALL), FIRST_CHOOSING_SEED + 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL.replace("env = ", "evn = "), "evn is no key"),
        (SMALL.replace('algo = "ddpg"', 'alg = "ddpg"'), "alg is no key"),
        (SMALL.replace("sweep = { goal_weight = [0.1, 0.2] }", ""), "choose needs a sweep"),
        (SMALL.replace("at = { dim", "at = { d"), "no axis of"),
        (SMALL.partition("[[rl.arm]]")[0], r"one \[\[rl.arm\]\] or more"),
    ],
)
def test_a_wrong_entry_of_agents_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse("mine", text)


def quiet(**options: Any) -> Options:
    return Options(say=lambda text: None, jobs=1, **options)


def test_a_weight_is_chosen_by_seeds_that_are_not_reported_and_areas_have_intervals(tmp_path: Path) -> None:
    entry = parse("small", SMALL)
    outcome = run_entry(entry, tmp_path, quiet(only={"dim": "3"}))
    assert outcome.missing == []
    swept = tmp_path / "choosing" / "dim-3"
    assert all(curve_file(folder, FIRST_CHOOSING_SEED).exists() for folder in swept.iterdir())
    folders = sorted(path.name for path in (tmp_path / "runs" / "dim-3").iterdir())
    assert len(folders) == 3  # the baseline, the weight that was chosen, the arm that only this point has
    written = json.loads((tmp_path / "results.json").read_text())["learned"]
    assert [row["arm"] for row in written] == ["DDPG", "ReenGAGE, alpha chosen", "only there"]
    best = max(swept.iterdir(), key=lambda folder: read_run(folder).areas.mean())
    assert best.name in folders
    assert f"goal_weight-{written[1]['chosen']['goal_weight']}," in best.name
    assert written[0]["area_interval"][0] <= written[0]["area"] <= written[0]["area_interval"][1]
    assert (tmp_path / "figure-dim-3.png").stat().st_size > 1000
    page = (tmp_path / "README.md").read_text()
    assert "IQM" in page
    assert "other seeds than those reported" in page

    before = (tmp_path / "runs/dim-3" / folders[0] / "seed-0.zip").stat().st_mtime_ns
    again = run_entry(entry, tmp_path, quiet(only={"dim": "3"}))  # nothing is trained a second time
    assert again.learned == outcome.learned
    assert (tmp_path / "runs/dim-3" / folders[0] / "seed-0.zip").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_spent_budget_is_resumed_and_environments_are_pooled(tmp_path: Path) -> None:
    entry = parse("small", SMALL)
    with pytest.raises(Incomplete, match="the same command goes on"):
        run_entry(entry, tmp_path, quiet(budget=0.01))
    assert json.loads((tmp_path / "results.json").read_text())["missing"]
    one = run_entry(entry, tmp_path, quiet(only={"dim": "3"}))
    assert {row["point"] for row in one.learned} >= {"dim-3"}
    outcome = run_entry(entry, tmp_path, quiet())
    assert outcome.missing == []
    pooled = [row for row in outcome.learned if row["point"] == "all"]
    assert [(row["arm"], row["seeds"]) for row in pooled] == [("DDPG", 4), ("ReenGAGE, alpha chosen", 4)]


@pytest.mark.slow
def test_a_budget_ends_between_trainings_where_its_interrupt_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vauban.reproduce.budget.interrupt_main", lambda: None)
    with pytest.raises(Incomplete, match="the same command goes on"):
        run_entry(parse("small", SMALL), tmp_path, quiet(budget=0.01))
    assert run_entry(parse("small", SMALL), tmp_path, quiet()).missing == []


def test_options_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    for words, said in (
        (["reproduce", str(path), "--epochs", "3"], "--epochs belongs to entries that train classifiers"),
        (["reproduce", str(path), "--votes", "300"], "--votes belongs to entries that train classifiers"),
        (["reproduce", "dpa-mnist", "--votes", "300"], "--votes 300: [certify] of dpa-mnist has no n"),
        (["reproduce", "dpa-mnist", "--steps", "3"], "--steps belongs to entries that train agents"),
    ):
        done = CliRunner().invoke(app, [*words, "--device", "cpu", "--out", str(tmp_path / "out")])
        assert done.exit_code == 2
        assert said in " ".join(done.stderr.split())


def test_weights_of_an_arm_are_trained_as_one_program_on_a_gpu(tmp_path: Path) -> None:
    """Figure 8.2 with five seeds: for each size the baseline, and all weights of the gradient loss with those that choose."""
    entry, listed = ENTRIES["thesis-8.2"], []
    reported, choosing = seeds_of(entry, 5)
    for arm in (arm for some in arms(entry, tmp_path, {}).values() for arm in some):
        several = len(arm.candidates) > 1
        listed += [Training(one, choosing if several else reported, several) for one in arm.candidates]
    programs = _programs(listed, [one.candidate.plan(together=True) for one in listed])
    assert [len(jobs) for jobs in programs] == [5, 3 * 5 + 6 * 3] * 3
    assert len({(job.folder, job.seed) for jobs in programs for job in jobs}) == sum(len(jobs) for jobs in programs)
    many = [replace(one, seeds=tuple(range(20))) for one in listed]
    assert [len(jobs) for jobs in _programs(many, [one.candidate.plan(together=True) for one in many])][:3] == [
        20,
        40,
        40,
    ]


def test_on_a_gpu_what_cannot_be_batched_is_trained_seed_by_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = parse("small", SMALL.replace("set = { gamma = 0.5 }", "set = { gamma = 0.5, n_critics = 2 }"))
    listed = [Training(arm.candidates[0], (0, 1)) for arm in arms(entry, tmp_path, {})["dim-3"]]
    ways: dict[str, list[str]] = {}
    for way in ("_train_together", "_train_apart"):

        def note(some: list[Training], plans: Any, *_: Any, way: str = way) -> bool:
            ways[way] = [one.candidate.label for one in some]
            assert {plan.together for plan in plans} == {way == "_train_together"}
            return True

        monkeypatch.setattr(agents, way, note)
    told: list[str] = []
    agents.train(listed, Options(device="cuda", say=told.append))
    assert ways == {"_train_together": ["DDPG", "ReenGAGE, alpha 0.1"], "_train_apart": ["only there"]}
    assert any("only there" in text and "n_critics" in text for text in told)


def test_agents_that_draw_their_actions_are_one_program_too() -> None:
    drawing = next(one for one in candidates(ENTRIES["thesis-g.1"]) if one.settings.get("soft") == "actions")
    check_batched(drawing.plan(together=True))


@pytest.mark.slow
def test_trainings_that_share_a_gpu_are_threads_that_stop_together(tmp_path: Path) -> None:
    entry = parse("small", SMALL.replace("choose = true", ""))
    listed = [Training(arm.candidates[0], (0, 1)) for arm in arms(entry, tmp_path, {})["dim-2"]]
    assert len(listed) == 3
    plans = [one.candidate.plan(together=True) for one in listed]
    for one, plan in zip(listed, plans, strict=True):
        open_run(one.folder, plan, one.candidate.label)
    done: list[int] = []
    assert _train_together(listed, plans, quiet(), done.append)
    assert sum(done) == sum(2 * plan.steps for plan in plans)
    assert all(one.complete for one in listed)
    with pytest.raises(RunRefused, match="complete seeds"):
        _train_together([replace(one, seeds=(0, 1, 2)) for one in listed], plans, quiet(), done.append)


@pytest.mark.slow
def test_the_command_trains_in_several_processes_and_prints_the_table(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    words = ["reproduce", str(path), "--device", "cpu", "--jobs", "2", "--seeds", "3", "--steps", "90"]
    done = CliRunner().invoke(app, [*words, "--only", "dim=2", "--json", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.stderr
    learned = json.loads(done.stdout)[0]["learned"]
    assert [(row["seeds"], row["steps"]) for row in learned] == [(3, 90), (3, 90)]
