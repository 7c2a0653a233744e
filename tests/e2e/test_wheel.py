"""Wheel and source distribution: they build, install in an empty environment without torch, and work there."""

import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import vauban as vb

ROOT = Path(__file__).parents[2]
RUN = ROOT / "results/sampled/gaussian"
MOST_BYTES = 15_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True, capture_output=True)
    return out


def said(command: list[object], code: int = 0, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=env, cwd="/", timeout=600
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_both_have_the_version_the_licences_and_the_data(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    (source,) = dist.glob("*.tar.gz")
    assert wheel.name.startswith(f"vauban-{vb.__version__}-")
    assert source.name == f"vauban-{vb.__version__}.tar.gz"
    assert max(wheel.stat().st_size, source.stat().st_size) < MOST_BYTES
    with zipfile.ZipFile(wheel) as packed:
        inside = packed.namelist()
    with tarfile.open(source) as archive:
        inside_source = archive.getnames()
    for name in ("LICENSE", "NOTICE", "ATTRIBUTION.md", "shipped.json", "py.typed", "mnist-gaussian.safetensors"):
        assert any(path.endswith(name) for path in inside), name
        assert any(path.endswith(name) for path in inside_source), name


def test_the_wheel_holds_every_file_of_the_package(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        inside = set(packed.namelist())
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/vauban"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert not {name.removeprefix("src/") for name in listed} - inside


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_an_empty_environment_verifies_and_claims_without_torch_and_certifies_with_it(
    kind: str, dist: Path, tmp_path: Path
) -> None:
    (built,) = dist.glob(kind)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    subprocess.run(
        [python, "-I", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", built],
        check=True,
        cwd=tmp_path,
    )
    vauban = [python, "-m", "vauban"]
    assert said([*vauban, "--version"]) == f"vauban {vb.__version__}\n"
    assert "500 claims recomputed from 500,000 votes; all hold" in said([*vauban, "verify", RUN])
    assert "top 3" in said([*vauban, "claim", RUN, "-k", "3"])
    assert "gaussian:sigma=0.1564" in said([*vauban, "plan", "--radius", "0.5", "--votes", "10000"])
    certify = [*vauban, "certify", "--smoothing", "gaussian:sigma=0.5", "-n", "100", "--limit", "3"]
    assert "pip install 'vauban[torch]'" in said([*certify, "--out", tmp_path / "run"], code=2)
    torch = sysconfig.get_path("purelib")
    assert "certified at radius 0" in said([*certify, "--out", tmp_path / "run"], PYTHONPATH=torch)
    assert "3 claims recomputed" in said([*vauban, "verify", tmp_path / "run"])


def test_an_extra_that_needs_torch_installs_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any("torch" in needed for needed in project["dependencies"])
    for name in ("attacks", "sklearn", "poisoning", "cluster", "onnxruntime", "openvino", "rl", "test"):
        assert any(needed.startswith("vauban[torch") for needed in project["optional-dependencies"][name]), name
