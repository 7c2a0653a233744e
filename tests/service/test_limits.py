"""Requests that ask for too much, come without the token, or hold strange bodies are refused in a sentence."""

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from PIL import Image
from service_world import BRIGHT, World, half_spaces, service

from vauban.client import Client, ServiceError
from vauban.engine.network import Network
from vauban.errors import BadInput
from vauban.service.decoding import read_array, read_input, read_inputs
from vauban.service.settings import Limits
from vauban.service.voting import SharedVoting

TOKEN = "a token for tests"
LIMITS = Limits(
    queue=2,
    upload=20_000,
    batch_upload=30_000,
    pixels=100_000,
    body_seconds=300,
    batches=1,
    batch_inputs=50,
    seconds=300,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with service(tmp_path_factory.mktemp("served"), TOKEN, limits=LIMITS) as found:
        yield found


def picture(width: int, height: int, kind: str = "PNG", mode: str = "L") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height), 230 if mode == "L" else None).save(stream, kind)
    return stream.getvalue()


def saved(*arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    for array in arrays:
        np.save(stream, array)
    return stream.getvalue()


def detail(content: bytes) -> str:
    return str(json.loads(content)["detail"])


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}])
def test_nothing_but_the_page_answers_without_the_token(world: World, given: dict[str, str]) -> None:
    for method, path in [
        ("POST", "/predict"),
        ("GET", "/about"),
        ("GET", "/runs"),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
    ]:
        status, headers, content = world.send(method, path, **given)
        assert status == 401
        assert headers["www-authenticate"] == "Bearer"
        assert "token" in detail(content)
    assert world.send("GET", "/")[0] == world.send("GET", "/healthz")[0] == 200
    assert {world.send("GET", path)[0] for path in ("/app.js", "/chart.js", "/style.css")} == {200}
    assert world.client.about()["exact"] is False


def test_tokens_are_compared_in_constant_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((len(a), len(b))) or True)
    assert world.send("GET", "/about", Authorization="Bearer x")[0] == 200
    assert compared == [(32, 32)]


def test_a_large_body_is_refused_before_it_is_read(world: World) -> None:
    own = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "application/json"}
    status, _, content = world.send("POST", "/predict", b" " * 20_001, **own)
    assert status == 413
    assert "20000" in detail(content)
    address = urlsplit(world.url)
    with socket.create_connection((address.hostname, address.port), timeout=300) as raw:
        raw.sendall(f"POST /predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode())
        raw.sendall(b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n")
        raw.sendall(b"5000\r\n" + b" " * 0x5000 + b"\r\n")
        assert b" 413 " in raw.recv(1000)


def test_a_slow_body_is_not_waited_for(tmp_path: Path) -> None:
    with service(tmp_path, TOKEN, limits=replace(LIMITS, body_seconds=0.2)) as impatient:
        address = urlsplit(impatient.url)
        with socket.create_connection((address.hostname, address.port), timeout=300) as raw:
            raw.sendall(f"POST /predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode())
            raw.sendall(b"Content-Length: 100\r\nContent-Type: application/json\r\n\r\n{")
            assert b" 408 " in raw.recv(1000)


def test_more_requests_than_the_queue_are_asked_to_come_again(world: World) -> None:
    client = Client(world.url, TOKEN, retries=0)
    streams = [client.events(BRIGHT, seconds=200) for _ in range(2)]
    try:
        for stream in streams:
            next(stream)
        with pytest.raises(ServiceError, match="429.*2 requests are in progress") as refused:
            client.predict(BRIGHT)
        assert refused.value.retry_after is not None
        assert refused.value.retry_after >= 1
    finally:
        for stream in streams:
            stream.close()
    patient = Client(world.url, TOKEN, retries=30)
    assert patient.predict(BRIGHT)["labels"] == [2]


def test_a_caller_that_leaves_frees_its_place(world: World) -> None:
    for _ in range(4):
        stream = world.client.events(BRIGHT, seconds=200)
        next(stream)
        stream.close()
        for _ in range(10_000):
            if world.desk.in_progress == 0:
                break
            time.sleep(0.02)
    assert world.desk.in_progress == 0


def test_a_caller_that_leaves_while_the_model_is_used_does_not_stop_the_service() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> bool:
        begun.set()
        return go_on.wait(60)

    voting = SharedVoting()
    voting.start(Network(half_spaces, torch.device("cpu")))
    try:
        held, left, late = voting.call(hold), voting.call(lambda: 1), voting.call(lambda: 2)
        assert begun.wait(60)
        assert left.cancel()  # what asyncio.wrap_future does where its task is cancelled
        assert not held.cancel()
        go_on.set()
        assert (held.result(60), late.result(60)) == (True, 2)
    finally:
        voting.close()


def test_pictures_are_decoded_with_limits(world: World) -> None:
    own = {"Authorization": f"Bearer {TOKEN}"}
    for kind in ("PNG", "JPEG", "WEBP", "BMP"):
        status, _, content = world.send(
            "POST", "/predict", picture(20, 20, kind), Content_Type=f"image/{kind.lower()}", **own
        )
        assert status == 200, content
        assert json.loads(content)["labels"] == [2]
    assert world.send("POST", "/predict", picture(2000, 2000), Content_Type="image/png", **own)[0] == 413
    refused = {
        b"no picture": "image/png",
        picture(9, 9)[:40]: "image/png",
        picture(9, 9, "JPEG"): "image/png",
        picture(9, 9, mode="I;16"): "image/png",
    }
    for body, kind in refused.items():
        status, _, content = world.send("POST", "/predict", body, Content_Type=kind, **own)
        assert status == 422, content
    for kind in ("text/plain", "multipart/form-data", "image/tiff", ""):
        assert world.send("POST", "/predict", b"x", Content_Type=kind, **own)[0] == 415


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"values": 1}', b'{"values": [1, 2]}', b'{"values": [[[NaN, 0], [0, 0]]]}', b"\xff",
     b'{"values": [[["a", "b"], [0, 0]]]}', b'{"values": [[[2, 0], [0, 0]]]}', b'{"values": [[[0, 0], [0]]]}',
     b'{"values": [[[1e999, 0], [0, 0]]]}', b'{"values": [[[0, 0], [0, 0]]], "path": "x"}', b'{"values": ' + b"[" * 9_000],
)  # fmt: skip
def test_a_body_that_is_no_input_is_refused(world: World, body: bytes) -> None:
    own = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "application/json"}
    assert world.send("POST", "/predict", body, **own)[0] == 422


@pytest.mark.parametrize(
    "path",
    ["/runs/..%2f..%2fetc", "/runs/../../etc/passwd", "/runs/%00", "/runs/" + "a" * 32, "/runs/" + "A" * 32, "/runs/x/record",
     "/app.js/../../desk.py", "/..%2fapp.py"],
)  # fmt: skip
def test_no_path_of_a_request_reaches_a_file(world: World, path: str) -> None:
    assert world.send("GET", path, Authorization=f"Bearer {TOKEN}")[0] in (404, 422)


def test_arrays_are_never_unpickled_and_never_larger_than_their_bytes() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match="type"):
        read_array(stream.getvalue(), {"<f4"})
    huge = io.BytesIO()
    np.save(huge, np.zeros(4, dtype=np.float32))
    lied = huge.getvalue().replace(b"(4,)", b"(999999999999,)".ljust(4)).ljust(200)
    with pytest.raises(BadInput):
        read_array(lied, {"<f4"})
    with pytest.raises(BadInput):
        read_array(b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 65_535, {"<f4"})
    with pytest.raises(BadInput, match="after the array"):
        read_input(2 * huge.getvalue(), "application/x-npy", (4,), 1)
    with pytest.raises(BadInput, match="labels of shape"):
        read_inputs(saved(np.zeros((1, 2), dtype=np.float32), np.zeros(2, dtype=np.int64)), "application/x-npy", (2,))
    with pytest.raises(BadInput, match="unknown entries"):
        read_inputs(b'{"inputs": [[1, 2]], "labels": [0]}', "application/json", (2,))


def test_batches_have_limits_too(world: World) -> None:
    with pytest.raises(ServiceError, match="422.*at most 50"):
        world.client.batch(np.zeros((51, 1, 2, 2), dtype=np.uint8))
    with pytest.raises(ServiceError, match="422.*out of reach"):
        world.client.batch(np.zeros((1, 1, 2, 2), dtype=np.uint8), n=1_000, radius=50.0)
    with pytest.raises(ServiceError, match="422.*label"):
        world.client.batch(np.zeros((1, 1, 2, 2), dtype=np.uint8), [7])
    world.desk.batches.close()
    first = world.client.batch(np.zeros((1, 1, 2, 2), dtype=np.uint8))
    with pytest.raises(ServiceError, match="429.*batches"):
        world.client.batch(np.zeros((1, 1, 2, 2), dtype=np.uint8))
    assert first.cancel()["state"] == "cancelled"


def test_a_full_folder_takes_no_more_runs(tmp_path: Path) -> None:
    with service(tmp_path, limits=Limits(kept=1)) as world:
        assert world.client.certify(BRIGHT, votes=100, keep=True).id is not None
        assert world.client.certify(BRIGHT, votes=100, keep=True).id is None
        with pytest.raises(ServiceError, match="429.*keeps 1 runs"):
            world.client.batch(BRIGHT[None])


def test_many_threads_never_pass_a_full_queue(world: World) -> None:
    statuses: list[int] = []

    def ask() -> None:
        try:
            world.client.certify(BRIGHT, votes=100)
            statuses.append(200)
        except ServiceError as problem:
            statuses.append(problem.status)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 429}
    assert 200 in statuses
