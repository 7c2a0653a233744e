"""Which inputs the network of an entry is trained on."""

from pathlib import Path
from typing import Any

import pytest
from small_entry import ENTRY

from vauban.data import Dataset
from vauban.reproduce.entry import find
from vauban.reproduce.steps import Step, train


@pytest.mark.slow
def test_inputs_that_are_held_out_are_not_trained_on(entry: Path, tmp_path: Path, monkeypatch: Any) -> None:
    trained: list[Dataset] = []

    def look(model: Any, pictures: Dataset, *more: Any, **options: Any) -> Any:
        trained.append(pictures)
        raise KeyboardInterrupt

    monkeypatch.setattr("vauban.training.train", look)
    for added in ("", "hold_out = 10\n", "every = 3\nhold_out = 10\n"):
        entry.write_text(ENTRY.replace("[train]\n", f"[train]\n{added}"))
        given = find(str(entry))
        with pytest.raises(KeyboardInterrupt):
            train(Step(given, tmp_path / "out", given.points()[0]), "cpu", False)
    with pytest.raises(KeyboardInterrupt):
        train(Step(given, tmp_path / "out", given.points()[0]), "cpu", True)  # as the paper prints it: with all
    whole, rest, third, printed = (set(some.index.tolist()) for some in trained)
    assert whole - rest == {number for number in whole if number % 10 == 0}
    assert third
    assert all(number % 10 for number in third)
    assert {number for number in printed if number % 10 == 0}
