"""vauban poison on one's own pictures and arrays: the printed next command works."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from PIL import Image

SMALL = ["--partitions", "3", "--model", "tiny-cnn:steps=2,views=1,batch=8", "--device", "cpu"]


def next_command(printed: str, run: Path) -> list[str]:
    line = next(line for line in printed.splitlines() if line.startswith("next: vauban "))
    return shlex.split(line.removeprefix("next: vauban ").replace("RUN", str(run)))


def test_pictures_in_folders(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        for label, name in enumerate(("cat", "dog")):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(8):
                pixels = (random.integers(0, 120, (12, 12, 3)) + 100 * label).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / name / f"{i}.png")
    data = f"images:path={tmp_path},split=train"
    assert "classes=cat/dog" in vauban("poison", "train", "--data", data, *SMALL, "--out", tmp_path / "e", code=2)
    printed = vauban("poison", "train", "--data", f"{data},classes=cat/dog", *SMALL, "--out", tmp_path / "e")
    assert "top 1 of 16 inputs" in vauban(*next_command(printed, tmp_path / "run"))


@pytest.mark.parametrize("beside", [True, False])
def test_arrays_of_numpy(tmp_path: Path, beside: bool) -> None:
    pictures, labels = np.random.default_rng(0).integers(0, 256, (20, 1, 12, 12), dtype=np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "train.npz", images=pictures, labels=labels)
    if beside:
        np.savez(tmp_path / "test.npz", images=pictures[:5], labels=labels[:5])
    data = f"npz:path={tmp_path}/train.npz,classes=2"
    command = next_command(vauban("poison", "train", "--data", data, *SMALL, "--out", tmp_path / "e"), tmp_path / "run")
    if beside:
        assert "top 1 of 5 inputs" in vauban(*command)
    else:
        assert "npz:path=TEST.npz,classes=2" in command


def test_a_table_whose_classes_have_spaces_in_their_names(tmp_path: Path) -> None:
    """The commands that are printed work: the classes to state, and a next command for a test table beside it."""
    rows = [f"{i % 7},{i % 2 * 5},{('New York', 'Rome')[i % 2]}" for i in range(20)]
    for name in ("my train.csv", "my test.csv"):
        (tmp_path / name).write_text("\n".join(["a,b,city", *rows, ""]))
    command = ["poison", "train", "--partitions", "3", "--model", "dense:steps=2", "--out", tmp_path / "e"]
    refused = vauban(*command, "--data", f"table:path={tmp_path}/my train.csv,label=city", code=2)
    stated = shlex.split(refused.partition("--data ")[2])[0]
    printed = vauban(*command, "--data", stated)
    assert "top 1 of 20 inputs" in vauban(*next_command(printed, tmp_path / "run"))
