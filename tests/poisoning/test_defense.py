"""Defenses: Vauban's own by name, and one of another package through its entry point, trained and certified as they are."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import vauban
from vauban.errors import BadInput, Lie
from vauban.poisoning import EnsembleVotes
from vauban.poisoning.defense import DEFENSES, is_own, package_entry, parse_defense
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.votes.poisoning_manifest import PoisoningDataSection, compose
from vauban.poisoning.votes.run_folder import PoisoningRecord, write_run
from vauban.poisoning.votes.settings import PoisoningSettings
from vauban.runs.verify import verify_run

THEIRS = '''
from dataclasses import dataclass

from vauban.poisoning import EnsembleVotes
from vauban.poisoning.defense import Defense
from vauban.poisoning.partitioning.partition import Partition
from vauban.specs import Parameter


@dataclass(frozen=True)
class Halved(Defense):
    """Half as many parts as asked for."""

    rest: int = 0
    parameters = {"rest": Parameter(int, default=0)}

    def partition(self, partitions):
        return Partition(partitions // 2 + self.rest)
'''


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the distribution `halving 1.0`, as an installer leaves it."""
    site = tmp_path / "site"
    info = site / "halving-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "halving.py").write_text(THEIRS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: halving\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vauban.defenses]\nhalved = halving:Halved\nbroken = halving:Partition\n")
    return site


@pytest.fixture
def forge(tmp_path: Path) -> Callable[..., Path]:
    """A run folder whose training data is described by these entries."""

    def write(**entries: object) -> Path:
        folder = tmp_path / "-".join(map(str, entries))
        votes = EnsembleVotes.from_arrays({"counts": np.array([[3, 1]])}, 2)
        data = PoisoningDataSection("not said", None, num_classes=2, index=[0], label=None)
        manifest = compose("hash:partitions=4", "samples", PoisoningSettings(), training={"data": entries}, data=data)
        write_run(folder, PoisoningRecord(manifest, votes))
        return folder

    return write


def test_names_and_parameters() -> None:
    assert {"dpa", "finite", "ss-dpa"} <= set(DEFENSES)
    assert parse_defense("dpa").partition(7) == Partition(7)
    assert parse_defense("dpa:by=pixel-sum").partition(7) == Partition(7, by="pixel-sum")
    assert parse_defense("finite:spread=3").partition(7) == Partition(7, spread=3)
    assert parse_defense("ss-dpa").partition(7) == Partition(7, by="sort")
    assert [parse_defense(name).against for name in ("dpa", "finite:spread=3", "ss-dpa")] == [
        "samples",
        "samples",
        "labels",
    ]
    assert parse_defense("ss-dpa").shared_features(1) == "rotnet"
    assert parse_defense("ss-dpa").shared_features(3) == "simclr"
    assert parse_defense("ss-dpa:features=none").shared_features(3) is None
    assert parse_defense("dpa").shared_features(1) is None
    assert is_own("finite:spread=3")
    assert not is_own("halved")
    assert package_entry("dpa") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dpa:by=sort", "would prove nothing"),
        ("finite:spread=4,by=sort", "would prove nothing"),
        ("dpa:by=stratified", "would prove nothing"),
        ("finite", "needs spread"),
        ("finite:spread=1", "from 2"),
        ("ss-dpa:features=magic", "not a known kind of features"),
        ("dda", "did you mean 'dpa'"),
    ],
)
def test_bad_defenses_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_defense(text)


def vauban_commands(site: Path, *commands: list[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run several commands of the command line in one process that finds what is installed in `site`."""
    source = str(Path(vauban.__file__).parents[1])
    code = (
        "import json, sys\nfrom vauban.cli import app\nfor c in json.loads(sys.argv[1]): app(c, standalone_mode=False)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, json.dumps([[str(word) for word in command] for command in commands])],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), source])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_defense_of_another_package_is_trained_and_certified(installed: Path, tmp_path: Path) -> None:
    ensemble, run = tmp_path / "ens", tmp_path / "run"
    model = ["--model", "tiny-cnn:steps=2,group=5,views=1,batch=8", "--device", "cpu"]
    train = ["poison", "train", "--limit", "60", "-p", "8", "--defense", "halved:rest=1", *model, "-o", ensemble]
    certify = ["poison", "certify", "-e", ensemble, "--limit", "9", "--device", "cpu", "-o", run]
    done = vauban_commands(installed, train, certify, ["verify", run])
    assert done.returncode == 0, done.stderr
    assert "9 claims recomputed from 45 votes; all hold" in done.stdout
    data = json.loads((run / "manifest.json").read_text())["training"]["data"]
    assert data["defense"] == "halved:rest=1"
    assert data["defense_package"] == {"name": "halving", "version": "1.0"}
    assert verify_run(run).votes == 45, "the package is not installed here, and the run is verified without it"


def test_a_package_that_brings_no_defense_is_named(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)
    with pytest.raises(
        BadInput, match="defense 'broken' of halving 1.0 cannot be loaded .*no subclass of vauban.poison"
    ):
        parse_defense("broken")
    assert not is_own("halved")
    assert package_entry("halved") == {"defense_package": {"name": "halving", "version": "1.0"}}


def test_an_unknown_defense_without_a_package_is_a_lie(forge: Callable[..., Path]) -> None:
    with pytest.raises(Lie, match="none of Vauban's"):
        verify_run(forge(defense="halved"))
    with pytest.raises(Lie, match="what the defense is against"):
        verify_run(forge(defense="ss-dpa", defense_package={"name": "x", "version": "1"}))
