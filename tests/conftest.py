"""What tests share: quiet threads, and a tiny classifier whose probabilities are known in closed form."""

from __future__ import annotations

import functools
import gc
import glob
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoints
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.testing
from hypothesis import settings
from numpy.typing import NDArray

import vauban
from vauban import registry, smoothed
from vauban.certificates import Claims
from vauban.data import idx
from vauban.engine import cluster, content, fingerprint, network
from vauban.report import curve

for profile in ("repeatable", "thorough"):  # the second tries more examples, see tests/soundness/amounts.py
    settings.register_profile(profile, derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

# The tests' Ray cluster lets in whoever has the token of this process, and leaves the user's own token alone.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}

torch.set_num_threads(1)  # several processes share the cores, and what a network rounds depends on its threads


def drawn_once(draw: Callable[..., bytes]) -> Callable[..., bytes]:
    """Draws what it is first asked for, and gives that picture to all who ask later."""
    pictures: list[bytes] = []

    def first(curves: Sequence[Claims], *, title: str = "") -> bytes:
        if not pictures:
            pictures.append(draw(curves, title=title))
        return pictures[0]

    return first


def unpacked_once(read: Callable[..., NDArray[np.uint8]]) -> Callable[..., NDArray[np.uint8]]:
    """Unpacks a file of the package when it is first read; a data set is a copy of what it returns, which nobody can change."""
    package = Path(vauban.__file__).parent
    kept: dict[Path, NDArray[np.uint8]] = {}

    def first(path: Path, dimensions: int) -> NDArray[np.uint8]:
        if not isinstance(path, Path) or package not in path.parents:
            return read(path, dimensions)
        if path not in kept:
            kept[path] = read(path, dimensions)
            kept[path].flags.writeable = False
        return kept[path]

    return first


def found_once(find: Callable[..., EntryPoints]) -> Callable[..., EntryPoints]:
    """Looks for entry points of installed packages once; where a test brings a package of its own, every time."""
    usual, kept = set(sys.path), functools.cache(find)

    def found(group: str) -> EntryPoints:
        brought = any(glob.glob("*-info", root_dir=place) for place in set(sys.path) - usual)
        return find(group=group) if brought else kept(group=group)

    return found


# What every small run would spend most of its time on, and what a few tests look at closely:
# the commands are built once, not for every command given; a model is asked the same 3 times, not for two seconds
# (tests/engine/test_probe.py asks for two seconds); the curve of a run is drawn once, and later runs keep that picture
# (tests/report/test_curve.py looks at curves); MNIST is unpacked once (tests/data/test_data_idx.py unpacks other files);
# what is installed is looked up once (tests/e2e/test_foreign_packages.py brings packages).
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]
network._PROBE_SECONDS = 0.0
curve.png = drawn_once(curve.png)
idx.read_idx = unpacked_once(idx.read_idx)
registry.entry_points = found_once(registry.entry_points)
smoothed.version = functools.cache(smoothed.version)
content.installed = fingerprint.installed = functools.cache(content.installed)

# torch keeps every seed for devices that are not there, each with the stack of the call.
for device in (torch.cuda, torch.xpu, torch.mtia):
    if not device.is_available():
        device.manual_seed_all = lambda seed: None  # type: ignore[assignment]


@pytest.fixture
def half_spaces() -> Callable[[torch.Tensor], torch.Tensor]:
    """Three classes cut by the mean of a view at 0.25 and 0.75."""

    def model(views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([0.25 - mean, -(mean - 0.5).abs() + 0.25, mean - 0.75], dim=1)

    return model


@dataclass(frozen=True)
class RayCluster:
    """Its address, and a folder in which its workers look for code."""

    address: str
    code: Path

    @property
    def on(self) -> str:
        return f"ray:address={self.address}"

    def workers(self, preparing: bool = True) -> set[int]:
        """Processes of its workers that certify; those that have no model yet only if they are `preparing` too."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                name, own = (
                    (process / "cmdline").read_bytes(),
                    str(self.code).encode() in (process / "environ").read_bytes(),
                )
            except OSError:
                continue
            early = name.startswith((b"ray::Worker.p", b"ray::Worker._"))
            if own and name.startswith(b"ray::Worker") and (preparing or not early):
                found.add(int(process.name))
        return found


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A Ray cluster of two processors on this machine, as `ray start` makes one; each process that tests has its own."""
    ray = pytest.importorskip("ray")
    code = tmp_path_factory.mktemp("theirs")
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    command = (
        f"ray start --head --port={port} --num-cpus=2 --object-store-memory=200000000 --include-dashboard=false --block"
    )
    command += f" --temp-dir={(home := tempfile.mkdtemp(prefix='ray'))}"
    own = {"PYTHONPATH": os.pathsep.join([str(code), str(Path(vauban.__file__).parents[1])])}
    program = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", *command.split()[1:]]
    with open(code / "log", "wb") as log:
        head = subprocess.Popen(program, env=os.environ | own, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(3_000):
            if b"Ray runtime started" in (code / "log").read_bytes() or head.poll() is not None:
                break
            time.sleep(0.1)
        with pytest.MonkeyPatch.context() as patient:  # on a busy machine it answers late
            patient.setattr(cluster, "HEALTHY", 300.0)
            yield RayCluster(f"127.0.0.1:{port}", code)
    finally:
        ray.shutdown()
        head.terminate()
        head.wait(60)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def cases_tried(record_property: Callable[[str, object], None]) -> Callable[[int], None]:
    """Tell how many cases a brute-force test tried; the number in all is printed at the end."""
    return lambda count: record_property("cases tried", int(count))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("passed")
    tried = sum(count for report in reports for name, count in report.user_properties if name == "cases tried")
    if tried:
        terminalreporter.write_line(f"brute force: {tried:,} cases tried, no violation")


@pytest.fixture
def unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are called for votes alone, so that a test can count its calls."""
    for kind in ("sampler.Sampler", "enumerator.Enumerator"):
        monkeypatch.setattr(
            f"vauban.engine.{kind}.probe", lambda self, inputs, rows_must_agree=False, again=False: True
        )
        monkeypatch.setattr(f"vauban.engine.{kind}.probe_entries", lambda self, inputs: ("views", "scores"))


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collections of garbage that follow need not walk through it."""
    gc.collect()
    gc.freeze()
