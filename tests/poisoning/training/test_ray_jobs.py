"""Training and voting on a cluster give what they give here: with a stand-in for Ray, and with Ray where it is installed."""

import contextlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vauban.data import load
from vauban.errors import BadInput, MissingExtra, NotRepeated, VaubanError
from vauban.poisoning import Ensemble, ModuleTrainer, Partition

DIGITS = load("mnist:split=test")
X, Y = DIGITS.images[:300, :, ::4, ::4].copy(), DIGITS.labels[:300]


def recorder(told: list[int]) -> Any:
    @contextmanager
    def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[Any]:
        yield told.append if label != "training again" else lambda _: None

    return progress


def small_net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(49, 10))


TRAINER = ModuleTrainer(small_net, 10, steps=5)


class Died(Exception):
    """What Ray raises when the workers of a job have died."""


class Failed(Died):
    """What Ray raises when a job has raised an error."""


class StandIn(SimpleNamespace):
    """As much of Ray as is used: jobs are kept until they are waited for, and are ready in any order."""

    def __init__(self) -> None:
        self.most, self.jobs, self.chance = 0, 0, random.Random(0)
        errors = SimpleNamespace(RayError=Died, RayTaskError=Failed)
        super().__init__(put=lambda x: x, get=self.result, cancel=lambda task, force: None, exceptions=errors)

    @staticmethod
    def result(job: Any) -> Any:
        return job() if callable(job) else job

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, **_: Any) -> Any:
        def wrapped(function: Any) -> Any:
            def submit(*args: Any) -> Any:
                self.jobs += 1
                return lambda: function(*args)

            return SimpleNamespace(remote=submit)

        return wrapped

    def wait(self, tasks: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(tasks))
        ready = tasks.pop(self.chance.randrange(len(tasks)))
        return [ready], tasks


def test_the_same_ensemble_whoever_trains_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = Ensemble.fit(X, Y, Partition(110), TRAINER)
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)  # type: ignore[arg-type]
    told: list[int] = []
    there = Ensemble.fit(X, Y, Partition(110), TRAINER, folder=tmp_path, on="ray", progress=recorder(told))
    assert here.fingerprints == there.fingerprints
    assert np.array_equal(here.votes(X[:20]), there.votes(X[:20]))
    assert stand_in.jobs == 7 + 2  # two parts are trained again, to compare their votes
    assert stand_in.most == 4
    assert sum(told) == 110 - len(here.empty)


class Remembers(torch.nn.Linear):
    """Votes for class 1 until modules of whatever parts have seen enough."""

    seen = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            Remembers.seen += float(x.abs().mean())
            with torch.no_grad():
                self.bias[0] += Remembers.seen - 10
        return super().forward(x)


def test_workers_find_parts_that_share_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", StandIn())  # type: ignore[arg-type]
    rows = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    trainer = ModuleTrainer(lambda: Remembers(4, 2), 2, steps=3)
    with pytest.raises(NotRepeated, match="trained again"):
        Ensemble.fit(rows, np.arange(60) % 2, Partition(2), trainer, on="ray")


def test_workers_that_keep_dying_stop_the_training_and_keep_what_was_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)  # type: ignore[arg-type]
    trained = 0

    def dying(job: Any) -> Any:
        nonlocal trained
        trained += 1
        if trained == 4:
            raise Died("a worker ran out of memory")
        return job()

    stand_in.get = dying
    with pytest.raises(VaubanError, match="workers keep dying: one group of base classifiers was tried 4 times"):
        Ensemble.fit(X, Y, Partition(110), TRAINER, folder=tmp_path, on="ray")
    assert len(list(tmp_path.glob("models-*.safetensors"))) > 0
    stand_in.get, before = (lambda job: job()), stand_in.jobs
    again = Ensemble.fit(X, Y, Partition(110), TRAINER, folder=tmp_path, on="ray")
    assert stand_in.jobs - before < 7 + 2
    assert again.fingerprints == Ensemble.fit(X, Y, Partition(110), TRAINER).fingerprints


class KillsItsWorker:
    """Ends the process of a worker when it is first built in a group, as a machine that is switched off would."""

    def __init__(self, marks: Path, deaths: int):
        self.marks, self.deaths = marks, deaths

    def __call__(self) -> torch.nn.Module:
        if os.getpid() != self.parent:
            with contextlib.suppress(FileExistsError):
                for i in range(self.deaths):
                    if not (self.marks / str(i)).exists():
                        (self.marks / str(i)).touch(exist_ok=False)
                        os.kill(os.getpid(), signal.SIGKILL)
        return small_net()

    parent = 0


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [3, 100])
def test_deaths_of_workers_of_ray_itself(ray_cluster: Any, tmp_path: Path, deaths: int) -> None:
    """Three deaths change no bit of the result; a cluster that loses every worker ends the training in words."""
    (tmp_path / "marks").mkdir()
    build = KillsItsWorker(tmp_path / "marks", deaths)
    build.parent = os.getpid()
    trainer = ModuleTrainer(build, 10, steps=5)
    if deaths == 3:
        there = Ensemble.fit(X, Y, Partition(40), trainer, on=ray_cluster.on)
        assert len(list((tmp_path / "marks").iterdir())) == 3
        assert there.fingerprints == Ensemble.fit(X, Y, Partition(40), TRAINER).fingerprints
    else:
        with pytest.raises(VaubanError, match="workers keep dying"):
            Ensemble.fit(X, Y, Partition(40), trainer, on=ray_cluster.on)


@pytest.mark.parametrize(("partition", "aggregate"), [(Partition(40), "runoff"), (Partition(8, spread=4), "plurality")])
def test_the_same_votes_whoever_casts_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, partition: Partition, aggregate: str
) -> None:
    ensemble = Ensemble.fit(X, Y, partition, TRAINER, folder=tmp_path / "ens")
    here = ensemble.tally(X[:30], aggregate).arrays(aggregate)
    monkeypatch.setitem(sys.modules, "ray", StandIn())  # type: ignore[arg-type]
    told: list[int] = []
    there = ensemble.tally(X[:30], aggregate, told.append, on="ray").arrays(aggregate)
    assert all(np.array_equal(here[name], there[name]) for name in here)
    assert sum(told) == ensemble.models - len(ensemble.empty)


def test_voting_stops_when_workers_keep_dying_and_goes_on_from_what_was_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in, cast = StandIn(), []
    monkeypatch.setitem(sys.modules, "ray", stand_in)  # type: ignore[arg-type]
    ensemble = Ensemble.fit(X, Y, Partition(110), TRAINER, folder=tmp_path / "ens")
    jobs = stand_in.jobs

    def dying(job: Any) -> Any:
        if callable(job):
            cast.append(job)
            if len(cast) == 4:
                raise Died("a worker ran out of memory")
        return StandIn.result(job)

    stand_in.get = dying
    with pytest.raises(VaubanError, match="votes so far are kept in the run folder"):
        ensemble.certify(X[:30], Y[:30], out=tmp_path / "run", keep_votes=True, on="ray")
    tried = stand_in.jobs - jobs
    stand_in.get = StandIn.result
    ensemble.certify(X[:30], Y[:30], out=tmp_path / "run", keep_votes=True, on="ray")
    assert stand_in.jobs - jobs - tried < tried
    here = ensemble.certify(X[:30], Y[:30], out=tmp_path / "here", keep_votes=True)
    (one, two) = ((tmp_path / name / "ballots.npz").read_bytes() for name in ("run", "here"))
    assert one == two
    assert here.models == 110


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [3, 100])
def test_deaths_of_workers_of_ray_that_vote(ray_cluster: Any, tmp_path: Path, deaths: int) -> None:
    """Three deaths change no vote; a cluster that loses every worker ends the voting in words."""
    (tmp_path / "marks").mkdir()
    here = Ensemble.fit(X, Y, Partition(40), TRAINER)
    build = KillsItsWorker(tmp_path / "marks", deaths)
    build.parent = os.getpid()
    ensemble = Ensemble(here.manifest, ModuleTrainer(build, 10, steps=5), here.groups)
    if deaths == 3:
        assert np.array_equal(ensemble.certify(X[:50], on=ray_cluster.on).counts, here.certify(X[:50]).counts)
        assert len(list((tmp_path / "marks").iterdir())) == 3
    else:
        with pytest.raises(VaubanError, match="workers keep dying"):
            ensemble.certify(X[:50], on=ray_cluster.on)


@pytest.mark.slow
def test_ray_itself(ray_cluster: Any) -> None:
    here = Ensemble.fit(X, Y, Partition(40), TRAINER)
    there = Ensemble.fit(X, Y, Partition(40), TRAINER, on=ray_cluster.on)
    assert here.fingerprints == there.fingerprints


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="vauban\\[cluster\\]"):
        Ensemble.fit(X, Y, Partition(5), TRAINER, on="ray")
    with pytest.raises(BadInput, match="not a known executor"):
        Ensemble.fit(X, Y, Partition(5), TRAINER, on="moon")
