"""Training sets that are read when they are needed: loaders, pictures in files, items with random changes."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from squares import convolution, pictures, same
from torch.utils import data as torch_data

from vauban.data import load_some
from vauban.errors import BadInput, RunRefused
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


class Balanced(torch_data.SequentialSampler):
    """A sampler of one's own, as people write them."""

    def __iter__(self) -> Any:
        return iter([0, 1, 2])


WHOLE = Items()
WEIGHTED = torch_data.WeightedRandomSampler([1.0] * len(DATA), 9)
BATCHES = "batch_size=None or a batch_sampler of its own, and training makes batches itself"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sampler": WEIGHTED}, "draws items by a WeightedRandomSampler"),
        ({"sampler": torch_data.RandomSampler(WHOLE, replacement=True)}, "draws items by a RandomSampler"),
        ({"sampler": torch_data.RandomSampler(WHOLE, num_samples=5)}, "draws items by a RandomSampler"),
        ({"sampler": torch_data.RandomSampler(range(9), num_samples=len(DATA))}, "draws items by a RandomSampler"),
        ({"sampler": torch_data.SequentialSampler(range(9))}, "draws items by a SequentialSampler"),
        ({"sampler": Balanced(WHOLE)}, "draws items by a Balanced"),
        ({"sampler": torch_data.DistributedSampler(WHOLE, num_replicas=4, rank=0)}, "divides batches among processes"),
        ({"batch_sampler": [[0, 1], [2]]}, BATCHES),
        ({"batch_sampler": torch_data.BatchSampler(torch_data.SubsetRandomSampler([1, 2]), 2, False)}, BATCHES),
        ({"batch_size": None}, BATCHES),
        ({"collate_fn": list}, "a collate_fn, which training would not call"),
    ],
)
def test_a_loader_that_gives_other_items_than_its_data_set_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        trained(torch_data.DataLoader(WHOLE, **options))


class Endless(torch_data.IterableDataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Any:
        return iter([(DATA.images[0], 0)])


@pytest.mark.parametrize("data", [Endless(), torch_data.DataLoader(Endless())])
def test_items_without_numbers_are_refused(data: Any) -> None:
    with pytest.raises(
        BadInput, match=r"Endless cannot be trained on, since its items have no numbers: give a data set"
    ):
        trained(data)


class Labelled(Items):
    def __init__(self, label: Any):
        super().__init__()
        self.label = label

    def __getitem__(self, number: int) -> Any:
        return DATA.images[number], self.label if number == 5 else number % 3


@pytest.mark.parametrize(
    "label", [0.9, 1.0, "1", "cat", float("nan"), torch.eye(3)[0], torch.tensor(1.0), True, 2**70, None], ids=repr
)
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_label_that_is_no_whole_number_is_refused_with_its_item(label: Any, workers: int) -> None:
    with pytest.raises(BadInput, match=r"^item 5,? .*(a whole number is needed|has no label)"):
        trained(Labelled(label), workers=workers)


@pytest.mark.parametrize("label", [1, np.int64(1), np.array([1]), torch.tensor(1), torch.tensor([1])], ids=repr)
def test_whole_numbers_of_any_library_are_labels(label: Any) -> None:
    assert trained(Labelled(label), workers=0).finished


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="no such signal on Windows")
def test_a_training_with_workers_leaves_no_handler_of_child_processes() -> None:
    """torch sets one with the first loader that has workers, and leaves it."""
    before = signal.getsignal(signal.SIGCHLD)
    seen = []
    data = torch_data.TensorDataset(torch.rand(8, 1, 8, 8), torch.arange(8) % 3)

    def look(progress: object) -> None:
        seen.append(signal.getsignal(signal.SIGCHLD))

    for _ in range(2):  # torch sets it again for the second
        train(convolution(), data, Gaussian(0.25), RECIPE, classes=3, workers=2, callbacks=[look])
        assert signal.getsignal(signal.SIGCHLD) is before
        assert seen
        assert seen[0] is not before
        seen.clear()


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty pictures as files, in a folder for each label."""
    image = pytest.importorskip("PIL.Image")
    assert DATA.labels is not None
    for number, (picture, label) in enumerate(zip(DATA.images[:40], DATA.labels[:40], strict=True)):
        (tmp_path / "pictures" / f"{label}").mkdir(parents=True, exist_ok=True)
        image.fromarray(picture[0]).save(tmp_path / "pictures" / f"{label}" / f"{number:03}.png")
    return tmp_path / "pictures"


def read(folder: Path, every: int = 1, limit: int | None = None) -> Any:
    return load_some(f"images:path={folder},channels=1", every, limit, stream=True)


def test_pictures_in_files_that_do_not_fit_into_memory_are_decoded_as_needed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(source_of(read(folder), CPU), Held)
    held = trained(read(folder))
    monkeypatch.setattr(streaming, "_SHARE", 0.0)
    source = source_of(read(folder), CPU)
    assert isinstance(source, Streamed)
    assert source.size == 40
    assert same(trained(read(folder), workers=2).network, held.network)


def test_other_streamed_pictures_do_not_go_on_with_a_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_SHARE", 0.0)
    out = folder.parent / "m.safetensors"
    trained(read(folder, limit=20), workers=0, out=out, stop_after=1)
    with pytest.raises(RunRefused, match="data_listing_sha256"):
        trained(read(folder, every=2), workers=0, out=out)
    (folder / "0").rename(folder / "x")
    (folder / "1").rename(folder / "0")
    (folder / "x").rename(folder / "1")
    with pytest.raises(RunRefused, match="data_listing_sha256"):
        trained(read(folder, limit=20), workers=0, out=out)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_streamed_picture_that_cannot_be_decoded_is_named(
    folder: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_SHARE", 0.0)
    bad = sorted(folder.rglob("*.png"))[17]
    bad.write_bytes(b"junk")
    with pytest.raises(BadInput) as refused:
        trained(read(folder), workers=workers)
    assert bad.name in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_streamed_pictures_of_one_class_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_SHARE", 0.0)
    with pytest.warns(UserWarning, match="class"), pytest.raises(BadInput, match="one class only"):
        trained(read(folder, limit=5))
