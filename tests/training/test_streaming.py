"""Training sets that are read when they are needed: loaders, pictures in files, items with random changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from squares import convolution, pictures, same
from torch.utils import data as torch_data

from vauban.data import load_some
from vauban.errors import BadInput
from vauban.smoothing import Gaussian
from vauban.training import Recipe, streaming, train
from vauban.training.batches import Held, Streamed, source_of

DATA = pictures()
RECIPE = Recipe(epochs=2, batch=16, lr=0.01)
CPU = torch.device("cpu")


class Items(torch_data.Dataset):  # type: ignore[type-arg]
    """Pictures one by one; `shift` changes each at random."""

    def __init__(self, shift: bool = False):
        self.shift, self.read = shift, list[int]()

    def __len__(self) -> int:
        return len(DATA)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        self.read.append(number)
        picture = DATA.images[number]
        if self.shift:
            picture = np.roll(picture, int(torch.randint(8, ())) + np.random.randint(8), axis=-1)
        assert DATA.labels is not None
        return picture, int(DATA.labels[number])


def trained(data: Any, **more: Any) -> Any:
    return train(convolution(), data, Gaussian(0.25), RECIPE, classes=3, **more)


def test_a_loader_of_a_subset_trains_on_that_subset_alone() -> None:
    items, part = Items(), [3, 5, 8, 13, 21, 34]
    loader = torch_data.DataLoader(items, sampler=torch_data.SubsetRandomSampler(part))
    by_hand = torch_data.Subset(Items(), part)
    assert same(trained(loader, workers=0).network, trained(by_hand, workers=0).network)
    assert {*items.read} == {*part}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sampler": torch_data.WeightedRandomSampler([1.0] * len(DATA), 9)}, "draws items by a WeightedRandomSampler"),
        ({"sampler": torch_data.RandomSampler(range(len(DATA)), replacement=True)}, "draws items by a RandomSampler"),
        ({"sampler": torch_data.RandomSampler(range(len(DATA)), num_samples=5)}, "draws items by a RandomSampler"),
        ({"batch_sampler": [[0, 1], [2]]}, "a batch_sampler of its own"),
        ({"batch_size": None}, "batch_size=None, and training makes batches itself"),
        ({"collate_fn": list}, "a collate_fn, which training would not call"),
    ],
)
def test_a_loader_that_gives_other_items_than_its_data_set_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        trained(torch_data.DataLoader(Items(), **options))


def test_random_changes_of_items_repeat_after_a_resumption(tmp_path: Path) -> None:
    whole = trained(Items(shift=True), workers=0)
    plain = trained(Items(), workers=0)
    assert not same(whole.network, plain.network)
    for workers in (0, 2):
        out = tmp_path / f"{workers}.safetensors"
        trained(Items(shift=True), workers=workers, out=out, stop_after=3)
        torch.manual_seed(5)
        np.random.seed(7)
        assert same(trained(Items(shift=True), workers=workers, out=out).network, whole.network)


def test_the_random_state_of_the_caller_goes_on() -> None:
    np.random.seed(1)
    expected = np.random.rand()
    np.random.seed(1)
    trained(Items(shift=True), workers=0)
    assert np.random.rand() == expected


def test_pictures_in_files_that_do_not_fit_into_memory_are_decoded_as_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("PIL.Image")
    assert DATA.labels is not None
    for number, (picture, label) in enumerate(zip(DATA.images[:40], DATA.labels[:40], strict=True)):
        folder = tmp_path / "pictures" / f"{label}"
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(picture[0]).save(folder / f"{number:03}.png")
    found = load_some(f"images:path={tmp_path}/pictures,channels=1", stream=True)
    assert isinstance(source_of(found, CPU), Held)
    held = trained(found)
    monkeypatch.setattr(streaming, "_SHARE", 0.0)
    source = source_of(found, CPU)
    assert isinstance(source, Streamed)
    assert source.size == 40
    assert same(trained(found, workers=2).network, held.network)
