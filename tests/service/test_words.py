"""What a service and its client say of what is misspelt, not finite, too large or not there, and of kept records."""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from service_world import BRIGHT, World, service

import vauban as vb
from vauban.client import Client, ServiceError
from vauban.service.decoding import TooLarge, read_input
from vauban.service.desk import Desk
from vauban.service.served import Served


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with service(tmp_path_factory.mktemp("served")) as found:
        yield found


def declared(width: int, height: int) -> bytes:
    """The beginning of a PNG that says it has this size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IEND", b"")
    )


def refused(world: World, path: str, body: bytes = b"", kind: str = "application/json", method: str = "POST") -> str:
    """The sentence of a request that is answered with 422."""
    status, _, content = world.send(method, path, body, Content_Type=kind)
    assert status == 422, content
    detail = json.loads(content)["detail"]
    assert isinstance(detail, str)
    return detail


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [("POST", "/predict?alhpa=1e-6", "alpha, k, n"), ("POST", "/certify?keep=true&second=1", "keep, label, n0"),
     ("POST", "/batch?N=2000", "alpha, k, n, radius"), ("GET", "/runs?stat=done", "limit, state")],
)  # fmt: skip
def test_a_misspelt_parameter_is_refused_with_the_known_ones(world: World, method: str, path: str, known: str) -> None:
    body = json.dumps({"values": [[[0.9] * 2] * 2]}).encode()
    detail = refused(world, path, body, method=method)
    assert repr(path.rpartition("?")[2].rpartition("&")[2].partition("=")[0]) in detail
    assert known in detail


def test_the_description_says_that_parameters_are_checked(world: World) -> None:
    assert "422" in json.loads(world.send("GET", "/openapi.json")[2])["info"]["description"]


def test_a_kept_record_has_its_votes_and_settings(world: World) -> None:
    found = world.client.certify(BRIGHT, votes=200, alpha=0.01, keep=True)
    (kept,) = [run.state for run in world.client.runs() if run.id == found.id]
    assert kept["votes"] == found.votes > 0
    assert (kept["inputs"], kept["decided"]) == (1, 1)
    assert (kept["settings"]["alpha"], kept["settings"]["stop"]) == (0.01, "anytime")


@pytest.mark.parametrize(
    ("input_range", "words"),
    [(None, "inputs of any size"), ((-1.0, 2.0), "inputs in [-1,2]"), ((0.0, 1.0), "pictures in [0,1]")],
)  # fmt: skip
def test_the_unit_is_that_of_the_range(tmp_path: Path, input_range: tuple[float, float] | None, words: str) -> None:
    def halves(rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([rows.mean(dim=1), -rows.mean(dim=1)], dim=1)

    smoothed = vb.SmoothedClassifier(halves, "gaussian:sigma=0.5", num_classes=2, input_range=input_range)
    assert Desk(Served(smoothed, (3,)), tmp_path).about()["threat"]["unit"] == f"units of the input, {words}"


def test_a_picture_beyond_the_limit_of_its_decoder_is_too_large(world: World) -> None:
    for side in (10_000, 30_000):
        status, _, content = world.send("POST", "/predict", declared(side, side), Content_Type="image/png")
        assert status == 413
        assert "at most 16000000 are read" in json.loads(content)["detail"]
    with pytest.raises(TooLarge, match="at most 89478485 are read"):
        read_input(declared(30_000, 30_000), "image/png", (1, 2, 2), 10**9)


def test_what_is_no_picture_is_said_without_objects_of_python(world: World) -> None:
    detail = refused(world, "/predict", b"no picture", "image/png")
    assert "BytesIO" not in detail
    assert "no PNG picture" in detail


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1e300"])
def test_numbers_must_be_finite(world: World, number: str) -> None:
    body = f'{{"values": [[[{number}, 0], [0, 0]]]}}'.encode()
    assert "numbers must be finite" in refused(world, "/predict", body)


def test_the_client_says_what_is_wrong_with_each_parameter(world: World) -> None:
    with pytest.raises(
        ServiceError, match=r"^the service answered 422: n=few: .*integer; alpha=2: .*less than 0\.5$"
    ) as told:
        world.client.predict(BRIGHT, alpha=2, n="few")
    assert "loc" not in str(told.value)
    with pytest.raises(ServiceError, match="'views' is not known here"):
        world.client.batch(BRIGHT[None], views=3)


def test_the_client_says_that_nobody_answers() -> None:
    with pytest.raises(
        ServiceError, match=r"^no service answers at http://127\.0\.0\.1:9 \(.*refused.*vauban serve"
    ) as told:
        Client("http://127.0.0.1:9").about()
    assert told.value.status == 0
