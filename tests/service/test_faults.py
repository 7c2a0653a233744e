"""What goes wrong with one input, one file or one moment ends nobody else's request, and no batch for good."""

import os
import shutil
import socket
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from service_world import BRIGHT, desk, half_spaces, service
from waiting import until

from vauban.client import Client, ServiceError
from vauban.errors import CannotWrite, Lie
from vauban.reproduce.running import pack
from vauban.runs.verify import verify_run
from vauban.service import batches, connections
from vauban.service.folder import Entry
from vauban.service.settings import Limits

PICTURES = np.random.default_rng(5).integers(150, 256, (8, 1, 2, 2), dtype=np.uint8)
DARK = np.zeros((1, 2, 2), dtype=np.uint8)


class NotOfTheDark(torch.nn.Module):
    """Scores that are NaN where a view is dark."""

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        dark = views.flatten(1).mean(1) < 0.4
        return torch.where(dark[:, None], torch.nan, half_spaces(views))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that failed are tried again at once."""
    monkeypatch.setattr(batches, "_PAUSE", 0.01)
    monkeypatch.setattr(batches, "_LOOK_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("smoothing", "workers"), [("gaussian:sigma=0.05", 1), ("gaussian:sigma=0.05", 2), ("splitting:sigma=0.3", 1)]
)
def test_an_input_without_scores_ends_its_own_request_alone(tmp_path: Path, smoothing: str, workers: int) -> None:
    with service(tmp_path, smoothing=smoothing, model=NotOfTheDark(), workers=workers) as world:
        alone = world.client.predict(BRIGHT)["labels"]
        batch = world.client.batch(PICTURES, n=8_000)
        until(lambda: batch.state["state"] in ("running", "done"))
        with ThreadPoolExecutor(3) as pool:
            good = pool.submit(world.client.predict, BRIGHT)
            bad = pool.submit(world.client.predict, DARK)
            with pytest.raises(ServiceError, match=r"422.*NaN"):
                bad.result()
            assert good.result()["labels"] == alone
        assert batch.wait(300)["decided"] == len(PICTURES)
        assert batch.save(tmp_path / "run").verify()


def test_filters_of_warnings_are_left_alone_by_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the whole process: two pictures at once left "error" behind, and every warning was one from then on."""
    from PIL import Image

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("filters are changed")

    stream = BytesIO()
    Image.fromarray(np.full((3, 2), 230, dtype=np.uint8)).save(stream, "PNG")
    with service(tmp_path) as world:
        batch = world.client.batch(PICTURES, n=1_000)
        batch.wait(300)
        with monkeypatch.context() as patched:
            patched.setattr(warnings, "catch_warnings", forbidden)
            answers = [world.send("POST", "/predict", stream.getvalue(), content_type="image/png")]
            answers += [world.send("GET", f"/runs/{batch.id}/report")]
        assert [answer[0] for answer in answers] == [200, 200]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    "problem", [OSError("the disk is on fire"), CannotWrite("the disk is full"), ValueError("what?")]
)
def test_what_passes_is_tried_again_and_what_stays_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    with service(tmp_path / "served") as world:
        own, failures = world.desk.served.smoothed.certify, [problem] * (batches._ATTEMPTS - 1)

        def sometimes(*given: Any, **settings: Any) -> Any:
            if failures:
                raise failures.pop()
            return own(*given, **settings)

        monkeypatch.setattr(world.desk.served.smoothed, "certify", sometimes)
        batch = world.client.batch(PICTURES, n=1_000)
        assert batch.wait(300)["decided"] == 8
        assert batch.save(tmp_path / "run").verify()
        failures += [problem] * batches._ATTEMPTS
        with pytest.raises(ServiceError, match=f"failed on this batch: {type(problem).__name__}|cannot write"):
            world.client.batch(PICTURES).wait(300)
        assert not failures
        failures += [Lie("votes of another run"), problem]
        failures.reverse()
        with pytest.raises(ServiceError, match="votes of another run"):
            world.client.batch(PICTURES).wait(300)
        assert failures == [problem]  # a lie stays one


@pytest.mark.usefixtures("soon")
def test_a_batch_that_cannot_be_marked_as_failed_waits_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(tmp_path) as world:
        tried, own = threading.Event(), world.desk.served.smoothed.certify

        def full(self: Entry, detail: str) -> None:
            tried.set()
            raise CannotWrite("no space left on the device")

        def broken(*given: Any, **settings: Any) -> Any:
            if tried.is_set():
                return own(*given, **settings)
            raise OSError("no space left on the device")

        monkeypatch.setattr(Entry, "fail", full)
        monkeypatch.setattr(world.desk.served.smoothed, "certify", broken)
        first = world.client.batch(PICTURES, n=1_000)
        assert tried.wait(300)
        assert world.client.batch(PICTURES, n=1_000).wait(300)["decided"] == 8
        assert first.wait(300)["decided"] == 8
        assert world.desk.problem is None


@pytest.mark.usefixtures("soon")
def test_runs_may_be_removed_and_damaged_while_the_service_looks(tmp_path: Path) -> None:
    with service(tmp_path) as world:
        ended, problems = threading.Event(), list[Exception]()

        def ask() -> None:
            while not ended.is_set():
                try:
                    world.client.runs()
                    world.desk.open_batches()
                except Exception as problem:
                    problems.append(problem)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for _ in range(12):
                kept = world.client.certify(BRIGHT, votes=100, keep=True).id
                assert kept is not None
                shutil.rmtree(tmp_path / kept)
        finally:
            ended.set()
            asking.join()
        assert not problems
        half = tmp_path / ("0" * 32)
        half.mkdir()
        damaged = world.client.batch(PICTURES, n=1_000)
        damaged.wait(300)
        (tmp_path / damaged.id / "request.json").write_bytes(b"{")
        (tmp_path / damaged.id / "run/seal.json").unlink()
        good = world.client.batch(PICTURES, n=1_000)
        assert good.wait(300)["decided"] == 8
        assert [run.id for run in world.client.runs()] == [good.id]
        assert [path.name for path in half.iterdir()] == []
        assert verify_run(tmp_path / good.id / "run")


def test_a_run_is_cancelled_by_many_at_once(tmp_path: Path) -> None:
    with service(tmp_path) as world:
        batch = world.client.batch(PICTURES, n=1_000_000)
        answers = at_once(24, lambda: world.send("POST", f"/runs/{batch.id}/cancel")[0])
        assert set(answers) == {200}


def test_no_more_batches_are_taken_than_the_limit_however_many_ask_at_once(tmp_path: Path) -> None:
    with service(tmp_path, limits=Limits(batches=2, queue=64)) as world:
        world.desk.batches.close()
        body = BytesIO()
        np.save(body, PICTURES)
        answers = at_once(
            12, lambda: world.send("POST", "/batch", body.getvalue(), content_type="application/x-npy")[0]
        )
        assert sorted(answers) == [202] * 2 + [429] * 10


def test_a_folder_that_cannot_be_written_loses_no_certificate_and_names_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(tmp_path) as world:

        def broken(*_: Any) -> None:
            raise OSError(5, "input/output error")

        with monkeypatch.context() as patched:
            patched.setattr("vauban.service.folder.os.rename", broken)
            answer = world.client.certify(BRIGHT, votes=100, keep=True)
            assert answer.id is None
            assert answer.votes >= 100
            with pytest.raises(ServiceError, match="503.*cannot write to its folder") as refused:
                world.client.batch(PICTURES)
            assert str(tmp_path) not in str(refused.value)
        assert list(tmp_path.iterdir()) == []
        assert world.client.certify(BRIGHT, votes=100, keep=True).id is not None


@pytest.mark.usefixtures("soon")
def test_a_batch_waits_for_a_service_of_the_classifier_that_accepted_it(tmp_path: Path) -> None:
    with service(tmp_path) as world:
        world.desk.batches.close()
        accepted = world.client.batch(PICTURES, n=1_000).id
    with service(tmp_path, smoothing="gaussian:sigma=0.5") as world:
        own = world.client.batch(PICTURES, n=1_000)
        own.wait(300)
        states = {run.id: run.state["state"] for run in world.client.runs()}
        assert states == {own.id: "done", accepted: "waiting"}
    with service(tmp_path) as world:
        (waiting,) = [run for run in world.client.runs() if run.id == accepted]
        waiting.wait(300)
        assert "sigma=0.25" in (tmp_path / accepted / "run/manifest.json").read_text()


def test_waiting_for_a_batch_outlasts_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path) as world:
        batch = world.client.batch(PICTURES, n=1_000)
        batch.wait(300)
        own, away = Client._once, [True, True]

        def restarted(client: Client, *given: Any) -> Any:
            if away and away.pop():
                raise ServiceError(0, "no service answers")
            return own(client, *given)

        monkeypatch.setattr(Client, "_once", restarted)
        assert batch.wait(300, every=0.01)["state"] == "done"
        assert not away
        monkeypatch.setattr("vauban.client._RESTART_SECONDS", 0.0)
        away += [True] * 9
        with pytest.raises(ServiceError, match="no service answers"):
            batch.wait(300, every=0.01)


def test_runs_are_listed_by_when_they_came_and_packed_ones_are_sent(tmp_path: Path) -> None:
    with service(tmp_path) as world:
        two = [world.client.batch(PICTURES, n=1_000) for _ in range(2)]
        for batch in two:
            batch.wait(300)
        (tmp_path / two[0].id / "touched").touch()
        assert [run.id for run in world.client.runs()] == [two[1].id, two[0].id]
        pack(tmp_path / two[0].id / "run")
        assert not (tmp_path / two[0].id / "run/manifest.json").exists()
        assert two[0].save(tmp_path / "saved").verify()
        assert (tmp_path / "saved/manifest.json").exists()
        assert "radius" in str(two[0].claims())


def test_what_a_killed_service_left_half_written_is_removed_after_an_hour(tmp_path: Path) -> None:
    old, new = (tmp_path / f".new-{digit * 32}" for digit in "01")
    for folder in (old, new):
        folder.mkdir()
        (folder / "inputs.npy").write_bytes(b"half")
    os.utime(old, (time.time() - 4_000, time.time() - 4_000))
    desk(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [new.name]


def test_silent_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path) as world:
        address = urlsplit(world.url)
        with monkeypatch.context() as patched:
            patched.setattr(connections, "SILENT_SECONDS", 0.2)
            with socket.create_connection((address.hostname, address.port), timeout=60) as silent:
                assert silent.recv(1) == b""
        assert world.client.predict(BRIGHT)["labels"] == [2]


def test_a_local_service_without_a_token_answers_to_its_own_names_alone(tmp_path: Path) -> None:
    """A page elsewhere may let its own name lead here and ask from the owner's browser."""
    with service(tmp_path) as world:
        port = urlsplit(world.url).port
        for host, status in ((f"localhost:{port}", 200), (f"[::1]:{port}", 200), ("evil.example", 421), ("[::1", 421)):
            assert world.send("GET", "/about", host=host)[0] == status
    with service(tmp_path, token="secret") as world:
        assert world.send("GET", "/about", host="vauban.example", authorization="Bearer secret")[0] == 200


HEADERS = [
    b"{'descr': '|u1', ",
    b"'''",
    b"((((",
    b"{'descr': '|u1', 'fortran_order': False, 'shape': (0, 10000000000000000000000)}",
]


@pytest.mark.parametrize("header", HEADERS, ids=["open", "quotes", "brackets", "nothing"])
def test_headers_of_arrays_that_are_no_python_are_refused(tmp_path: Path, header: bytes) -> None:
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with service(tmp_path) as world:
        for path in ("/predict", "/batch"):
            assert world.send("POST", path, body, content_type="application/x-npy")[0] == 422


def test_bodies_are_limited_by_what_they_cost(tmp_path: Path) -> None:
    number, labels, json = BytesIO(), BytesIO(), {"content_type": "application/json"}
    np.save(number, np.uint8(3))
    np.save(labels, np.zeros(1, dtype=np.int64))
    with service(tmp_path, limits=Limits(batch_bodies=1)) as world:
        arrays = number.getvalue() + labels.getvalue()
        assert world.send("POST", "/batch", arrays, content_type="application/x-npy")[0] == 422
        assert world.send("POST", "/batch", b'{"inputs": [' + b" " * (16 * 2**20) + b"]}", **json)[0] == 413
        address = urlsplit(world.url)
        with socket.create_connection((address.hostname, address.port), timeout=60) as slow:
            head = f"POST /batch HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 10\r\n\r\n1234"
            slow.sendall(head.encode())
            until(lambda: world.send("POST", "/batch", b"{}", **json)[0] == 429)
        until(lambda: world.send("POST", "/batch", b"{}", **json)[0] == 422)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path) as world:
        assert world.send("GET", "/healthz")[0] == 200

        def ends() -> bool:
            raise SystemExit

        monkeypatch.setattr(world.desk.batches, "_took_one", ends)
        world.desk.batches.wake()
        until(lambda: world.send("GET", "/healthz")[0] == 503)


def at_once(count: int, ask: Callable[[], int]) -> list[int]:
    """The answers of so many callers who ask at the same moment."""
    gate = threading.Barrier(count)

    def one(_: int) -> int:
        gate.wait()
        return ask()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
