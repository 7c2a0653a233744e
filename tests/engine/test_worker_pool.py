"""Certifying on a Ray cluster: the tallies of one process, whoever votes, whoever dies, and wherever a run goes on."""

import functools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from vauban.cli import app
from vauban.engine import cluster, worker_pool
from vauban.engine.cluster import RayCluster
from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput, MissingExtra, RunRefused, VaubanError
from vauban.report.progress import Progress
from vauban.runs.store import read_record
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier
from vauban.votes import SampledVotes

CHANCE = torch.Generator().manual_seed(5)
INPUTS = torch.randint(0, 256, (24, 30), dtype=torch.uint8, generator=CHANCE)
INDEX = list(range(0, 240, 10))
TRUTH = [i % 3 for i in range(24)]
SETTINGS = {"n": 6_000, "alpha": 0.01}
EARLY = {"n": 3_000, "alpha": 0.01, "stop": "grid:step=0.05"}
ANYTIME = {"alpha": 0.01, "stop": "anytime"}
EXACT: dict[str, Any] = {}


def network() -> torch.nn.Module:
    net = torch.nn.Sequential(torch.nn.Linear(30, 200), torch.nn.ReLU(), torch.nn.Linear(200, 3))
    weights = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=weights) / 5
    return net


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(
    folder: Path,
    settings: dict[str, Any] = SETTINGS,
    *,
    on: str | None = None,
    model: Any = None,
    on_progress: Callable[[int], None] | None = None,
    seconds: float | None = None,
    rows: int | None = None,
    block: int | None = None,
) -> list[bytes]:
    """The lines of a run, sorted."""
    base = BaseClassifier(model or network(), "net", "m" * 64)
    exact = settings is EXACT
    spec = "splitting:sigma=0.05" if exact else "gaussian:sigma=0.25"
    smoothed = SmoothedClassifier(base, spec, num_classes=3, rows=rows, block=block, in_flight=2)
    done = [0]

    def told(progress: Progress) -> None:
        if on_progress:
            on_progress(progress.done - done[0])
        done[0] = progress.done

    seed = None if exact else 7
    smoothed.certify(
        INPUTS, TRUTH, index=INDEX, out=folder, seed=seed, seconds=seconds, on=on, progress=told, **settings
    )
    return lines(folder)


def lines(folder: Path) -> list[bytes]:
    files = [folder / name for name in ("tallies.jsonl", "ballots.jsonl") if (folder / name).exists()]
    return sorted(files[0].read_bytes().splitlines()) if files else []


def tallies(folder: Path) -> Iterator[Any]:
    votes = read_record(folder)[0].votes
    assert isinstance(votes, SampledVotes)
    return votes.tallies()


def both_ready(cluster: Any) -> bool:
    return soon(lambda: len(cluster.workers(preparing=False)) == 2)


def soon(true: Callable[[], bool], seconds: float = 300.0) -> bool:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    return true()


@pytest.mark.slow
def test_two_workers_give_the_tallies_of_one_process(tmp_path: Path, ray_cluster: Any) -> None:
    whole, waited = run(tmp_path / "here"), []
    there = run(tmp_path / "there", on=ray_cluster.on, on_progress=lambda _: waited.append(both_ready(ray_cluster)))
    assert there == whole
    assert len(waited) > 2
    assert all(waited)
    for file in ("manifest.json", "claims.csv", "seal.json"):
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    verify_run(tmp_path / "there")


@pytest.mark.slow
def test_two_workers_cast_every_vote_of_an_exact_smoothing(tmp_path: Path, ray_cluster: Any) -> None:
    run(tmp_path / "here", EXACT)
    run(tmp_path / "there", EXACT, on=ray_cluster.on)
    for file in ("manifest.json", "claims.csv", "seal.json"):
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    verify_run(tmp_path / "there")


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SETTINGS, EARLY], ids=["fixed", "grid"])
def test_killed_workers_lose_nothing_and_nothing_is_counted_twice(
    tmp_path: Path, ray_cluster: Any, settings: dict[str, Any]
) -> None:
    shape = {"rows": 60, "block": 20} if settings is EARLY else {}
    whole = run(tmp_path / "here", settings, **shape)
    killed: set[int] = set()
    at = 0

    def kill(_: int) -> None:
        """Both, as soon as they vote and some tallies are in."""
        nonlocal at
        if not killed and both_ready(ray_cluster) and (at := len(lines(tmp_path / "there"))):
            killed.update(ray_cluster.workers())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    assert run(tmp_path / "there", settings, on=ray_cluster.on, on_progress=kill, **shape) == whole
    assert len(killed) == 2
    assert 0 < at < len(whole)
    verify_run(tmp_path / "there")


@pytest.mark.slow
def test_a_run_moves_to_the_cluster_and_back(tmp_path: Path, ray_cluster: Any) -> None:
    """Each time Ctrl-C stops it; what was said until then is kept."""
    settings = {"n": 6_000, "alpha": 0.01, "label": "votes", "n0": 50}
    whole, folder, sizes = run(tmp_path / "whole", settings), tmp_path / "moved", []

    def stop(votes: int) -> None:
        told[0] += votes
        if told[0] > 20_000:
            raise KeyboardInterrupt

    for on in ("here", ray_cluster.on + ",workers=1", "here"):
        told = [0]
        with pytest.raises(KeyboardInterrupt):
            run(folder, settings, on=on, on_progress=stop)
        sizes.append(len(lines(folder)))
        assert soon(lambda: not ray_cluster.workers())
    assert 0 < sizes[0] < sizes[1] < sizes[2] < len(whole)
    assert run(folder, settings, on=ray_cluster.on + ",workers=1") == whole
    assert run(folder, settings, on=ray_cluster.on, on_progress=lambda _: pytest.fail("nothing was missing")) == whole


@pytest.mark.slow
def test_anytime_goes_on_for_some_seconds_on_both(tmp_path: Path, ray_cluster: Any) -> None:
    settings = ANYTIME
    run(tmp_path / "here", settings, seconds=0.5)
    run(tmp_path / "there", settings, seconds=2.0, on=ray_cluster.on)
    here, there = (
        {(t.input, t.votes): t.counts.tolist() for t in tallies(tmp_path / place)} for place in ("here", "there")
    )
    common = here.keys() & there.keys()
    assert len(common) >= len(INDEX)
    assert all(here[key] == there[key] for key in common)
    verify_run(tmp_path / "there")


OURS = """
import torch
from {helper} import weight

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.stack([x.mean(dim=1), weight * x[:, 0], weight * x[:, 1]], dim=1)
"""

PATIENCE = cluster.REACHED + cluster.HEALTHY  # as shipped
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
READ = "from pathlib import Path\nweight = float((Path(__file__).parent / 'weight.txt').read_text())\n"


@pytest.mark.parametrize(
    ("name", "net", "helper", "complaint"),
    [
        ("beside", OURS, READ, "scores: sha256 "),
        slow("deeper", OURS, "weight = 1.0 + 0.0\n", "model: sha256 "),
        slow("commented", OURS + "# the same to the letter, but for this line\n", "weight = 1.0\n", "model: sha256 "),
        slow("missing", None, "", "it cannot build the model: No module named 'missing'"),
    ],
)
@pytest.mark.slow
def test_a_worker_with_another_model_is_refused(
    tmp_path: Path,
    ray_cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    net: str | None,
    helper: str,
    complaint: str,
) -> None:
    """Its code is another, or what that imports is, or what that reads, or it has none: votes of two models never meet."""
    ours, their = tmp_path / "ours", f"{name}_helper"
    ours.mkdir()
    (ours / f"{name}.py").write_text(OURS.format(helper=their))
    (ours / f"{their}.py").write_text(helper if name == "beside" else "weight = 1.0\n")
    for folder, weight in ((ours, "1.0"), (ray_cluster.code, "1.0000001")):
        (folder / "weight.txt").write_text(weight)
    if net is not None:
        (ray_cluster.code / f"{name}.py").write_text(net.format(helper=their))
        (ray_cluster.code / f"{their}.py").write_text(helper)
    monkeypatch.syspath_prepend(ours)
    model = __import__(name).Net()
    with pytest.raises(RunRefused, match="the worker on .* differs from this process") as refused:
        run(tmp_path / "run", on=ray_cluster.on + ",workers=1", model=model)
    assert complaint in str(refused.value)
    assert lines(tmp_path / "run") == []
    assert ("model: sha256 " in str(refused.value)) == (name in ("commented", "deeper"))


@pytest.mark.slow
def test_the_same_code_in_another_folder_is_the_same_model(
    tmp_path: Path, ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, ray_cluster.code):
        (folder / "agreed.py").write_text(OURS.format(helper="agreed_helper"))
        (folder / "agreed_helper.py").write_text("weight = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = __import__("agreed").Net()
    there = run(tmp_path / "there", on=ray_cluster.on + ",workers=1", model=model)
    assert there == run(tmp_path / "here", model=model)


@pytest.mark.slow
def test_workers_that_keep_dying_end_the_run(tmp_path: Path, ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fatal.py").write_text(OURS.format(helper="fatal_helper"))
    (tmp_path / "fatal_helper.py").write_text("weight = 1.0\n")
    (ray_cluster.code / "fatal.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(VaubanError, match="keep dying: .* 3 times without a record"):
        run(tmp_path / "run", on=ray_cluster.on + ",workers=1", model=__import__("fatal").Net())


@pytest.mark.slow
def test_what_a_model_does_wrong_is_said_as_here(tmp_path: Path, ray_cluster: Any) -> None:
    def spoiled(views: torch.Tensor) -> torch.Tensor:
        far = (views[:, :1] - views[:, 1:2]).abs() > 1.2
        return torch.where(far, torch.nan, views[:, :3])

    texts = []
    for on in ("here", ray_cluster.on + ",workers=1"):
        with pytest.raises(BadInput) as problem:
            run(tmp_path / on[:3], on=on, model=spoiled)
        texts.append(str(problem.value).partition(" ")[2])
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_an_error_in_a_worker_is_said_in_a_line(tmp_path: Path, ray_cluster: Any) -> None:
    home = os.getpid()

    def fails(views: torch.Tensor) -> torch.Tensor:
        if os.getpid() != home and (views[:, 0] - views[:, 1]).abs().max() > 1.2:
            raise RuntimeError("only there")
        return views[:, :3]

    with pytest.raises(VaubanError, match="failed.*RuntimeError: only there"):
        run(tmp_path / "run", on=ray_cluster.on + ",workers=1", model=fails)


@pytest.mark.slow
def test_a_model_that_cannot_travel_is_refused_before_anything_changes(tmp_path: Path, ray_cluster: Any) -> None:
    lock = threading.Lock()

    def still(views: torch.Tensor) -> torch.Tensor:
        with lock:
            return views[:, :3]

    with pytest.raises(BadInput, match="cannot be sent to other machines"):
        run(tmp_path / "new", on=ray_cluster.on, model=still)
    assert not (tmp_path / "new").exists()
    settings = ANYTIME
    run(tmp_path / "sealed", settings, model=still, seconds=0.5)
    before = {path.name: path.read_bytes() for path in (tmp_path / "sealed").iterdir()}
    with pytest.raises(BadInput, match="cannot be sent to other machines"):
        run(tmp_path / "sealed", settings, model=still, seconds=0.5, on=ray_cluster.on)
    assert {path.name: path.read_bytes() for path in (tmp_path / "sealed").iterdir()} == before


@pytest.mark.slow
def test_anytime_does_without_workers_for_which_there_is_no_room(
    tmp_path: Path, ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(worker_pool, "_LATE", 0.5)
    settings = ANYTIME
    run(tmp_path / "first", settings, seconds=3.0, on=ray_cluster.on)

    @ray.remote(num_cpus=1)
    class Busy:
        def here(self) -> bool:
            return True

    busy = Busy.remote()
    assert ray.get(busy.here.remote())
    run(tmp_path / "second", settings, seconds=3.0, on=ray_cluster.on)
    verify_run(tmp_path / "second")
    ray.kill(busy)


@pytest.mark.slow
def test_the_command_line(tmp_path: Path, ray_cluster: Any) -> None:
    command = "certify --smoothing gaussian:sigma=0.5 -n 1000 --every 500 --limit 6 --seed 3 --json --out"
    said = {}
    for name, on in (("here", "here"), ("there", ray_cluster.on + ",workers=1")):
        done = CliRunner().invoke(app, [*command.split(), str(tmp_path / name), "--on", on])
        assert done.exit_code == 0, done.output
        said[name] = json.loads(done.stdout)
    assert lines(tmp_path / "here") == lines(tmp_path / "there")
    assert said["here"]["certified"] == said["there"]["certified"]
    exact = command.replace("gaussian:sigma=0.5 -n 1000", "splitting:sigma=0.2").replace("--seed 3 ", "")
    for name, on in (("exact", ray_cluster.on + ",workers=1"), ("exact here", "here")):
        done = CliRunner().invoke(app, [*exact.split(), str(tmp_path / name), "--on", on])
        assert done.exit_code == 0, done.output
    for file in ("manifest.json", "claims.csv", "seal.json"):
        assert (tmp_path / "exact" / file).read_bytes() == (tmp_path / "exact here" / file).read_bytes()


@pytest.mark.parametrize(
    "answer", ["nothing there", *(pytest.param(how, marks=pytest.mark.slow) for how in ("silence", "another program"))]
)
def test_an_address_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    pytest.importorskip("ray").shutdown()
    assert PATIENCE < 10
    if answer == "silence":
        monkeypatch.setattr(cluster, "HEALTHY", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if answer == "nothing there":
            server.close()
        if answer == "another program":

            def talk() -> None:
                with server.accept()[0] as connection:
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

            threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(BadInput, match=f"(no Ray cluster answers|what answers) at 127.0.0.1:{port}"):
            run(tmp_path / "run", on=f"ray:address=127.0.0.1:{port}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("on", "complaint"),
    [
        ("moon", "not a known executor .* known: here, ray"),
        ("ray:adress=1.2.3.4:5", "did you mean 'address'"),
        ("here:address=1.2.3.4:5", "here has no parameter"),
        ("ray:workers=0", "not a whole number above zero"),
        ("ray:address=ray://1.2.3.4:10001", "Ray's client"),
        ("ray:address=1.2.3.4", "is not host:port"),
    ],
)
def test_places_that_are_none(tmp_path: Path, on: str, complaint: str) -> None:
    pytest.importorskip("ray").shutdown()
    with pytest.raises(BadInput, match=complaint):
        run(tmp_path / "run", on=on)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_connected_process_does_not_go_to_another_cluster(ray_cluster: Any) -> None:
    cluster.connect(RayCluster(ray_cluster.address), "testing")
    cluster.connect(RayCluster(ray_cluster.address.replace("127.0.0.1", "localhost")), "testing")
    with pytest.raises(BadInput, match="is connected to the cluster at"):
        cluster.connect(RayCluster("127.0.0.1:1"), "testing")


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="certifying on other machines needs ray.*vauban\\[cluster\\]"):
        run(tmp_path / "run", on="ray")
    assert not (tmp_path / "run").exists()
