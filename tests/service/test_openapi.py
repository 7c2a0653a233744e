"""Schemathesis asks the service everything its OpenAPI description allows, and much that it does not; nothing is found."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_world import World, service

from vauban.service.settings import Limits

SHAPE = (4,)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = Limits(seconds=1.0, votes=3_000, batch_votes=2_000, batches=10_000, batch_inputs=3)
    with service(tmp_path_factory.mktemp("served"), shape=SHAPE, limits=limits) as found:
        yield found


def test_the_description_names_every_route_and_its_refusals(world: World) -> None:
    described = json.loads(world.send("GET", "/openapi.json")[2])
    assert set(described["paths"]) == {
        "/healthz", "/metrics", "/about", "/predict", "/certify", "/batch", "/runs", "/runs/{id}", "/runs/{id}/cancel",
        "/runs/{id}/claims", "/runs/{id}/counts", "/runs/{id}/record", "/runs/{id}/report",
    }  # fmt: skip
    certify = described["paths"]["/certify"]["post"]
    assert {"200", "401", "408", "413", "415", "422", "429", "503"} <= set(certify["responses"])
    assert set(certify["requestBody"]["content"]) == {"application/json", "application/x-npy"}
    values = certify["requestBody"]["content"]["application/json"]["schema"]["properties"]["values"]
    assert (values["minItems"], values["maxItems"]) == (4, 4)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schemathesis_finds_nothing(world: World, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{world.url}/openapi.json", "--max-examples", "25"]
    own = {
        "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    options = [
        "--seed",
        "1",
        "--generation-database",
        "none",
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "30",
    ]
    done = subprocess.run([*command, *options], env=os.environ | own, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6_000:]
    assert "No issues found" in done.stdout
