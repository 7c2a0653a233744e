"""vauban reproduce --networks: entries that train alike share a network, and no others do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import vauban
from small_entry import ENTRY

from vauban.reproduce.entry import parse
from vauban.reproduce.networks import key, shared
from vauban.reproduce.steps import Step

pytest.importorskip("matplotlib")
BEGIN = '\n[train.begin]\nsmoothing = "gaussian:sigma=0.1"\nsettings = { epochs = 1, batch = 50 }\n\n[certify]'


def step(text: str = ENTRY, seed: int = 0, out: Path = Path("out")) -> Step:
    entry = parse("mine", text)
    return Step(entry, out, entry.points()[0], seed)


def test_what_training_depends_on_tells_networks_apart() -> None:
    own = step()
    with_begin = ENTRY.replace("\n[certify]", BEGIN)
    others = [
        ENTRY.replace("epochs = 2", "epochs = 3"),
        ENTRY.replace("width=16", "width=17"),
        ENTRY.replace("limit = 300", "limit = 299"),
        ENTRY.replace("limit = 300", "limit = 300\nhold_out = 10"),
        ENTRY.replace("limit = 300", "limit = 300\nvalidate = 20"),
        ENTRY.replace("sigma = [0.5, 0.25]", "sigma = [0.25]"),
        with_begin,
        with_begin.replace("sigma=0.1", "sigma=0.2"),
    ]
    keys = [key(own, False), key(replace(own, seed=1), False), *(key(step(text), False) for text in others)]
    assert len(set(keys)) == len(keys)
    alike = step(ENTRY.replace("n = 200", "n = 300").replace("1::2500", "::2500"), out=Path("elsewhere"))
    assert key(alike, False) == keys[0]


def test_a_network_that_was_trained_alike_is_not_trained_again(entry: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(ENTRY.replace("n = 200", "n = 300"))
    words = ("--only", "sigma=0.25", "--device", "cpu", "--networks", tmp_path / "networks", "--out", tmp_path / "all")
    vauban("reproduce", entry, other, *words)
    (kept,) = (tmp_path / "networks").glob("*.safetensors")
    weights = {path.read_bytes() for path in (tmp_path / "all").glob("*/weights/*.safetensors")}
    assert weights == {kept.read_bytes()}
    trained = [
        name
        for path in (tmp_path / "all").glob("*/ledger.json")
        for name in json.loads(path.read_text())
        if name.startswith("training")
    ]
    assert len(trained) == 1


def test_an_interrupted_training_is_not_kept(tmp_path: Path) -> None:
    own = step(out=tmp_path)
    own.weights.parent.mkdir()

    def interrupted() -> None:
        with shared(own, False, tmp_path / "networks"):
            own.weights.write_bytes(b"half of it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list((tmp_path / "networks").glob("*.safetensors"))
