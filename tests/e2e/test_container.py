"""The container file: a linter accepts it, and its steps work in an empty environment. No image is built."""

import json
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "Containerfile"


def instruction(name: str) -> str:
    """The text after this word at the start of a line of the container file, continued lines joined."""
    joined = FILE.read_text().replace("\\\n", " ")
    (found,) = re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)
    return str(found)


def test_the_linter_accepts_it() -> None:
    linter = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if linter is None:
        pytest.skip("hadolint is not installed: its package exists for Linux on x86-64 only")
    done = subprocess.run([linter, str(FILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_its_steps_start_a_service_that_its_health_check_finds_well(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT], check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    (extras,) = re.findall(r"vauban\[([a-z,]+)\]", instruction("RUN"))
    needed = f"vauban[{extras}] @ {wheel.as_uri()}"
    install = [python, "-I", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", needed]
    subprocess.run(install, check=True, cwd=tmp_path)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(tmp_path / "env/bin" / json.loads(instruction("ENTRYPOINT"))[0]), *json.loads(instruction("CMD"))]
    assert command[-2:] == ["--smoothing", "gaussian:sigma=0.5"]
    command[command.index("0.0.0.0")] = "127.0.0.1"
    check = json.loads(instruction("HEALTHCHECK").split("CMD")[1])
    assert check[0] == "python"
    code = check[2].replace(f":{instruction('EXPOSE')}/", f":{port}/")
    service = subprocess.Popen([*command, "--port", str(port)], cwd=tmp_path)
    try:
        limit = time.monotonic() + 300
        while subprocess.run([python, check[1], code], capture_output=True).returncode != 0:
            assert service.poll() is None, "the service ended"
            assert time.monotonic() < limit, "the service did not answer"
            time.sleep(0.5)
    finally:
        service.terminate()
        service.wait(60)
