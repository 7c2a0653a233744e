"""A law, a smoothing, a data set and a model in somebody's own package work by the command line with no change to our tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vauban.data import kinds
from vauban.errors import BadInput
from vauban.laws import register
from vauban.laws.gaussian import GaussianLaw
from vauban.registry import Registry

CODE = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from vauban.laws import Law
from vauban.specs import Parameter, positive
from vauban.threats import L2


@dataclass(frozen=True)
class SoftLaw(Law):
    """Gaussian noise under another name, with a proof that gives away half of the radius."""

    sigma: float
    name: ClassVar[str] = "soft"
    parameters: ClassVar[dict] = {"sigma": Parameter(positive, required=True, example="0.5")}

    @property
    def threat(self):
        return L2

    def _inner(self):
        from vauban.laws.gaussian import GaussianLaw

        return GaussianLaw(self.sigma)

    def most(self, p, r):
        return self._inner().most(p, 2 * np.asarray(r))

    def least(self, p, r):
        return self._inner().least(p, 2 * np.asarray(r))

    @property
    def scale(self):
        return self.sigma

    def rounded(self, levels):
        return self._inner().rounded(levels)

    def deviation(self, shape, levels):
        return self._inner().deviation(shape, levels)
'''

SMOOTHING = '''
from vauban.smoothing import Gaussian


class Soft(Gaussian):
    """Views with Gaussian noise."""
'''

DATA = """
import numpy as np
from vauban.data import Dataset
from vauban.data.kinds import Kind
from vauban.specs import Parameter


def read(values, name):
    images = np.random.default_rng(values["seed"]).integers(0, 256, (4, 1, 6, 6), dtype=np.uint8)
    return Dataset(images, np.array([0, 1, 2, 0]), 3, ("a", "b", "c"), name)


NOISE = Kind({"seed": Parameter(int, 0)}, read, "noise:seed=1", "four pictures of noise", "nowhere", lambda: True)
"""

MODEL = """
import torch
from vauban.models import Architecture
from vauban.specs import Parameter


def build(classes):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, classes))


LINE = Architecture("softpkg.model:build", {"classes": Parameter(int, 3)}, "a line")
"""

POINTS = """[vauban.laws]
soft = softpkg.law:SoftLaw
gaussian = softpkg.law:SoftLaw

[vauban.smoothings]
soft = softpkg.smoothing:Soft

[vauban.data]
noise = softpkg.data:NOISE

[vauban.models]
line = softpkg.model:LINE
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    home = tmp_path / "site"
    (home / "softpkg").mkdir(parents=True)
    for name, text in (("__init__", ""), ("law", CODE), ("smoothing", SMOOTHING), ("data", DATA), ("model", MODEL)):
        (home / "softpkg" / f"{name}.py").write_text(text)
    info = home / "softpkg-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: softpkg\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    return home


def vauban(*arguments: str, home: Path | None, code: int = 0) -> str:
    environment = os.environ | ({} if home is None else {"PYTHONPATH": str(home)})
    done = subprocess.run(
        [sys.executable, "-m", "vauban", *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_foreign_law_is_certified_resumed_and_verified(package: Path, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    command = ["certify", "--data", "noise:seed=3", "--model", "line", "--weights", str(weights(package, tmp_path))]
    command += ["--smoothing", "soft:sigma=0.5", "-n", "300", "--alpha", "0.01", "--seed", "1", "--out", run]
    assert "a name that is taken" in vauban(*command, home=package)  # gaussian stays ours
    lines = (tmp_path / "run" / "tallies.jsonl").read_text().splitlines(keepends=True)
    for name in ("claims.csv", "seal.json"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / "tallies.jsonl").write_text("".join(lines[:4]))
    vauban(*command, home=package)
    assert (tmp_path / "run" / "tallies.jsonl").read_text() == "".join(lines)
    said = vauban("verify", run, home=package)
    assert "all hold" in said
    assert "softpkg 1.2" in said
    assert "'soft' is not a known smoothing" in vauban("verify", run, home=None, code=1)
    radii = [float(row.split(",")[2] or 0) for row in (tmp_path / "run" / "claims.csv").read_text().splitlines()[1:]]
    assert max(radii) > 0


def weights(package: Path, tmp_path: Path) -> Path:
    code = (
        "import torch, softpkg.model as m; from safetensors.torch import save_file; "
        f"save_file(m.build(3).state_dict(), {str(tmp_path / 'line.safetensors')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(package)})
    return tmp_path / "line.safetensors"


@pytest.mark.slow
def test_they_are_listed(package: Path) -> None:
    assert "four pictures of noise" in vauban("data", home=package)
    assert "a line" in vauban("models", home=package)


@pytest.mark.slow
def test_a_package_that_is_broken_is_named(package: Path) -> None:
    (package / "softpkg" / "law.py").write_text("import nothing_of_this_name")
    said = vauban("claim", "counts.txt", "--smoothing", "soft:sigma=0.5", home=package, code=2)
    assert "counts.txt does not exist" in said
    (package / "counts.txt").write_text("90 10 0\n")
    said = vauban("claim", str(package / "counts.txt"), "--smoothing", "soft:sigma=0.5", home=package, code=2)
    assert "softpkg 1.2 cannot be loaded (ModuleNotFoundError" in said


def test_names_are_given_once() -> None:
    with pytest.raises(BadInput, match="'gaussian' is registered already"):
        register(GaussianLaw)
    with pytest.raises(BadInput, match="'mnist' is registered already"):
        kinds.register("mnist", parameters={}, written="", reads="")(lambda values, name: None)  # type: ignore[arg-type,return-value]

    class Things(Registry[type]):
        group, kind = "vauban.things", "thing"

    things = Things()
    things.register("one")(int)
    with pytest.raises(BadInput, match="'one' is registered already"):
        things.register("one")(int)
    with pytest.raises(BadInput, match="'on' is not a known thing .did you mean 'one'.*known: one"):
        _ = things["on"]
    assert things.origin("one") is None
