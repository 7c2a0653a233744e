"""vauban reproduce --networks: entries that train alike share a network, and no others do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import vauban
from small_entry import ENTRY

from vauban.errors import BadInput
from vauban.models.files import TRAINED_SMOOTHING, read_metadata
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


def test_one_network_for_all_values_of_an_axis(tmp_path: Path) -> None:
    text = ENTRY.replace("limit = 300", 'limit = 300\ntogether = ["sigma"]')
    entry = parse("mine", text)
    both = [Step(entry, tmp_path, point) for point in entry.points()]
    assert {one.trained_smoothing for one in both} == {"gaussian:sigma=0.5 | gaussian:sigma=0.25"}
    assert both[0].weights == both[1].weights
    assert key(both[0], False) == key(both[1], False) != key(step(), False)
    other = parse("mine", text.replace("0.5, 0.25", "0.5, 0.25, 1.0"))
    assert Step(other, tmp_path, other.points()[0]).weights != both[0].weights
    file, out = tmp_path / "one.toml", tmp_path / "out"
    file.write_text(text)
    vauban("reproduce", file, "--only", "sigma=0.25", "--device", "cpu", "--out", out)
    (made,) = (out / "weights").glob("*.safetensors")
    before = made.read_bytes()
    assert read_metadata(made)[TRAINED_SMOOTHING] == "gaussian:sigma=0.5 | gaussian:sigma=0.25"
    vauban("reproduce", file, "--device", "cpu", "--out", out)  # the other run, by the same network
    assert made.read_bytes() == before
    assert [path.name for path in (out / "weights").glob("*.safetensors")] == [made.name]
    assert len([name for name in json.loads((out / "ledger.json").read_text()) if name.startswith("training")]) == 1
    assert {path.name for path in (out / "runs").iterdir()} == {"sigma-0.5", "sigma-0.25"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("limit = 300", 'limit = 300\ntogether = ["size"]', "a list of axes of .grid. is needed, out of sigma"),
        (
            "limit = 300",
            "limit = 300\ntogether = { sigma = [1.0, 0.5] }",
            "trains for sigma = 1.0, 0.5, and the grid has 0.25",
        ),
        ("limit = 300", 'limit = 300\ntogether = "sigma"', "a list of axes of .grid. is needed, out of sigma"),
        ('width=16,depth=1"', 'width=16,depth={sigma}"\ntogether = ["sigma"]', "together names sigma, and the model"),
    ],
)
def test_axes_that_cannot_be_trained_together_are_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse("mine", ENTRY.replace(old, new))


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
