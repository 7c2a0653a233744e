"""The command that trains SS-DPA on CIFAR-10 stops in time, goes on where it stopped, and leaves verified runs."""

import importlib.util
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from made_cifar import binary_batches

from vauban.runs.verify import verify_run

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cifar10_benchmark", ROOT / "benchmarks/poisoning/cifar10.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = tmp_path / "cifar", tmp_path / "out"
    binary_batches(data)
    asked = [
        "cifar10.py",
        "--data",
        f"cifar10:path={data}",
        "--device",
        "cpu",
        "--folder",
        str(folder),
        "--epochs",
        "3",
    ]
    asked += ["--model", "resnet18:channels=3,classes=10,width=2", "--loss", "simsiam:views=2,side=8,width=8"]
    asked += [
        "--batch",
        "20",
        "--partitions",
        "4",
        "--pool",
        "100",
        "--crops",
        "0",
    ]  # without --dpa, whose networks take longer
    monkeypatch.setattr(sys, "argv", [*asked, "--seconds", "0"])
    script().main()
    assert "the same command goes on" in capsys.readouterr().out
    assert (folder / "features.safetensors.checkpoint").exists()
    monkeypatch.setattr(sys, "argv", [*asked, "--seconds", "1000"])
    script().main()
    verify_run(folder / "runs/cifar-ss-dpa-4")
    [line] = json.loads((folder / "bring/report.json").read_text())["table"]
    assert line["run"] == "cifar-ss-dpa-4"
    with tarfile.open(folder / "bring/runs.tar.gz") as archive:
        assert "runs/cifar-ss-dpa-4/ballots.npz" in archive.getnames()
    assert (folder / "bring/trunk.safetensors.00").read_bytes() == (folder / "trunk.safetensors").read_bytes()
    before = (folder / "trunk.safetensors").stat().st_mtime_ns
    script().main()
    assert (folder / "trunk.safetensors").stat().st_mtime_ns == before
