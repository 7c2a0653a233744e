"""Inputs that an entry cannot certify are refused before anything is trained, and no picture is decoded for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import vauban
from PIL import Image

from vauban.errors import BadInput
from vauban.reproduce import running
from vauban.reproduce.entry import find
from vauban.reproduce.inputs import check_inputs, chosen_inputs
from vauban.reproduce.made_by import in_place_of
from vauban.reproduce.running import Options
from vauban.streamed import Streamed

WRONG = ("x", "5", "20000::2", "::0", ":0", "0:0", "9:5", "20000::", "{tau}", "{sigma.x}", "{")


@pytest.mark.parametrize("text", WRONG)
def test_an_option_is_refused_before_training(entry: Path, tmp_path: Path, text: str) -> None:
    words = ("reproduce", entry, "--device", "cpu", "--epochs", "0.2", "--only", "sigma=0.5", "--inputs", text)
    assert f"inputs = {text!r}" in vauban(*words, "--out", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_an_entry_is_refused_where_one_of_its_points_is_wrong(entry: Path, tmp_path: Path) -> None:
    one = find(str(entry))
    parts = replace(one, grid={**one.grid, "part": [":5", "5:0"]}, certify={**one.certify, "inputs": "{part}:2"})
    with pytest.raises(BadInput, match="inputs = '5:0:2' selects none: last must be larger than first"):
        running.reproduce(parts, tmp_path / "out", Options())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", [text for text in WRONG if "{" not in text])
def test_both_ways_of_reading_agree(text: str) -> None:
    for read in (check_inputs, chosen_inputs):
        with pytest.raises(BadInput, match="inputs = "):
            read("mnist", text)


def test_no_picture_is_decoded_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "val" / "n01440764").mkdir(parents=True)
    for number in range(3):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "val" / "n01440764" / f"{number}.JPEG")
    monkeypatch.setattr(Streamed, "__array__", lambda *_, **__: pytest.fail("a picture was decoded"))
    data = f"imagenet:path={tmp_path}"
    check_inputs(data, "2:")
    with pytest.raises(BadInput, match="selects none of 3 inputs"):
        check_inputs(data, "3:")


def test_the_page_says_what_options_replace(entry: Path) -> None:
    one = find(str(entry))
    assert in_place_of(one, Options()) == ""
    assert in_place_of(one, Options(votes=200, inputs="1::2500", settings={"epochs": 2.0})) == ""
    assert in_place_of(one, Options(votes=1000)) == "n = 1,000 votes an input, in place of the entry's 200."
    assert in_place_of(one, Options(inputs="::50")) == "The inputs ::50, in place of the entry's 1::2500."
    bare = replace(one, train={**one.train, "settings": {}})
    assert in_place_of(bare, Options(settings={"epochs": 0.2})) == "0.2 epochs of training, in place of the recipe's."
    assert in_place_of(find("dpa-mnist"), Options(inputs="::50")) == ""
