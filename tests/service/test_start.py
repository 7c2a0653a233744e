"""A service that cannot start says why in one sentence, and says its address only once it can be reached."""

import json
import re
import signal
import socket
import urllib.request
from pathlib import Path

import pytest
import torch
from commands import process, vauban
from service_world import desk

from vauban.errors import BadInput, VaubanError
from vauban.service.running import bind, running

SMALL = ("serve", "--smoothing", "gaussian:sigma=0.5", "--device", "cpu")


def one_sentence(said: str) -> str:
    """What a command printed, which is one error and nothing else."""
    lines = said.strip().splitlines()
    assert len(lines) == 1, said
    assert lines[0].startswith("error: ")
    return lines[0]


def test_a_model_that_fails_is_one_sentence(tmp_path: Path) -> None:
    said = one_sentence(vauban(*SMALL, "--input", "3x32x32", "--port", "0", "--runs", tmp_path, code=2))
    assert "sys.exit" not in said
    assert "serving" not in said


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = one_sentence(vauban(*SMALL, "--port", str(port), "--runs", tmp_path, code=2))
    assert f"port {port} of 127.0.0.1 is in use" in said
    assert "--port" in said


@pytest.mark.parametrize("host", ["203.0.113.1", "a" * 300])
def test_a_host_that_is_not_this_machine_is_named(host: str) -> None:
    with pytest.raises(BadInput, match=f"--host {host} is no address of this machine"):
        bind(host, 0)


def test_every_address_of_a_host_gets_the_same_port() -> None:
    sockets = bind("localhost", 0)
    try:
        assert len({one.getsockname()[1] for one in sockets}) == 1
    finally:
        for one in sockets:
            one.close()


@pytest.mark.slow
def test_the_address_is_said_once_it_answers(tmp_path: Path) -> None:
    started = process(*SMALL, "--port", "0", "--runs", tmp_path)
    try:
        assert started.stderr is not None
        said = next(line for line in started.stderr if "serving" in line)
        address = re.search(r"http://127\.0\.0\.1:[1-9]\d*", said)
        assert address is not None, said
        with urllib.request.urlopen(f"{address[0]}/healthz", timeout=60) as answer:
            assert json.load(answer)["status"] == "ok"
    finally:
        started.send_signal(signal.SIGINT)
        _, rest = started.communicate(timeout=60)
    assert "Traceback" not in rest


def test_a_service_in_this_process_raises_what_its_model_raised(tmp_path: Path) -> None:
    def broken(views: torch.Tensor) -> torch.Tensor:
        raise ValueError("a layer is missing")

    with pytest.raises(VaubanError, match="a layer is missing"), running(desk(tmp_path, model=broken)):
        pass
