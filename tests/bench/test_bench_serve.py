"""vauban bench serve measures a service under load and says what it measured."""

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_service_is_measured_beside_bare_forward_passes() -> None:
    command = [
        sys.executable,
        "-m",
        "vauban",
        "bench",
        "serve",
        "--clients",
        "3",
        "--seconds",
        "2",
        "--rounds",
        "1",
        "--json",
    ]
    done = subprocess.run(
        [*command, "--votes", "300"], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "2"}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["clients"] == 3
    assert (found["workers"], found["threads"]) == (2, 1)
    assert 0 < found["served_to_bare_cpu_with_clients"] < found["served_to_bare_cpu"] < 1.5
    assert min(found["bare_cpu_us"], found["served_cpu_us"], found["clients_cpu_us"]) > 0
    assert found["served"] > 0
    assert found["single_first_radius"] > 0
    assert found["requests"] > 0
