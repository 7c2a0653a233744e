"""Streamed inputs: the same arrays and hashes as in memory, few inputs held at a time, files that change or cannot be read."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from vauban.data import Dataset, load, load_some
from vauban.errors import BadInput, Lie
from vauban.files import arrays_sha256
from vauban.runs.sections import DataSection
from vauban.runs.selection import check_data, shuffled
from vauban.streamed import Source, Streamed, Unreadable

Image = pytest.importorskip("PIL.Image")
COUNT = 12


def paint(path: Path, grey: int, size: int = 6) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (grey, grey, grey)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six black pictures and six white ones, each of its own grey."""
    for number in range(COUNT):
        paint(tmp_path / "pictures" / ("black" if number < 6 else "white") / f"{number:02}.png", 20 * number)
    return tmp_path / "pictures"


def numbers(size: int, workers: int = 2, reads: Counter[int] | None = None) -> Streamed:
    def read(number: int) -> np.ndarray:
        if reads is not None:
            reads[number] += 1
        return np.full((1, 2, 2), number % 256, np.uint8)

    return Streamed(Source(size, read, lambda number: f"input {number}"), workers=workers)


@pytest.mark.parametrize("workers", [0, 1, 8])
def test_streamed_inputs_are_the_array_whatever_the_workers(workers: int) -> None:
    streamed = numbers(50, workers)
    whole = np.asarray(streamed)
    assert whole.shape == streamed.shape == (50, 1, 2, 2)
    assert [int(one[0, 0, 0]) for one in streamed] == list(range(50))
    assert arrays_sha256(streamed, None) == arrays_sha256(whole, None)
    some = streamed[np.array([7, 3, 40])]
    assert np.array_equal(np.asarray(some), whole[[7, 3, 40]])
    assert np.array_equal(streamed[-1], whole[-1])
    with pytest.raises(IndexError):
        streamed[50]


def test_each_input_is_decoded_once_when_read_in_order() -> None:
    reads: Counter[int] = Counter()
    streamed = numbers(40, 3, reads)
    for _ in streamed:
        pass
    assert set(reads) == set(range(40))
    assert reads.total() == 41  # the first also says the shape


def test_few_inputs_are_held() -> None:
    streamed = numbers(500, 4)
    for _ in itertools.islice(streamed, 300):
        assert len(streamed._ahead) <= 8
        assert len(streamed._recent) <= 4


def test_an_input_that_changes_is_refused() -> None:
    values = iter(range(10))
    streamed = Streamed(Source(1, lambda _: np.full((2,), next(values), np.uint8), lambda _: "it"))
    with pytest.raises(BadInput, match="it is another input than when it was first read"):
        np.asarray(streamed)


def test_a_folder_streamed_is_the_folder_in_memory(folder: Path) -> None:
    spec = f"images:path={folder}"
    held, streamed = load(spec), load(spec, stream=True)
    assert isinstance(held.images, np.ndarray)
    assert isinstance(streamed.images, Streamed)
    assert streamed.fingerprint() == held.fingerprint()
    assert streamed.selection == held.selection
    for every, limit, shuffle in ((1, 3, None), (5, None, None), (1, 4, 7), (2, 4, 1)):
        one = load_some(spec, every, limit, shuffle=shuffle)
        other = load_some(spec, every, limit, shuffle=shuffle, stream=True)
        assert one.index.tolist() == other.index.tolist()
        assert np.array_equal(one.images, np.asarray(other.images))
        assert one.taken == other.taken
        assert np.array_equal(one.images, held.images[one.index])


def test_shuffle_takes_the_first_of_the_shuffled_inputs(folder: Path) -> None:
    some = load_some(f"images:path={folder}", 2, 4, shuffle=3)
    assert some.index.tolist() == shuffled(COUNT, 3)[::2][:4]
    assert some.labels is not None
    assert some.labels.tolist() == [int(number >= 6) for number in some.index]
    assert (some.selection.shuffle, some.selection.every, some.selection.limit) == (3, 2, 4)
    assert sorted(shuffled(1000, 0)) == list(range(1000))
    assert shuffled(5, 1) != shuffled(5, 2)
    assert some.select(2).selection.every is None  # selected twice: by hand
    for bad in (-1, 1.5, True):
        with pytest.raises(BadInput, match="whole number from 0"):
            load(f"images:path={folder}").select(shuffle=bad)  # type: ignore[arg-type]


def test_one_class_is_warned_about_and_shuffling_is_advised(folder: Path) -> None:
    with pytest.warns(UserWarning, match=r"all 5 inputs .* are of class 0 \(black\).*--shuffle 1"):
        load_some(f"images:path={folder}", 1, 5)


def break_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def test_a_corrupt_picture_is_named_and_skipped_only_on_request(folder: Path) -> None:
    break_file(folder / "black" / "00.png")
    break_file(folder / "white" / "07.png")
    spec = f"images:path={folder}"
    with pytest.raises(Unreadable, match=r"black/00\.png cannot be read .*--skip-bad"):
        load(spec)
    with pytest.warns(UserWarning, match=r"2 of 12 selected inputs cannot be read .*black/00\.png, white/07\.png"):
        some = load_some(spec, skip_bad=True)
    assert some.index.tolist() == [number for number in range(COUNT) if number not in (0, 7)]
    assert some.selection.skipped == [0, 7]
    assert (some.selection.size, some.selection.every) == (COUNT, 1)
    with pytest.warns(UserWarning, match="1 of 3"):
        assert load_some(spec, 1, 3, skip_bad=True).selection.skipped == [0]
    seed = next(seed for seed in itertools.count() if not {0, 7} & set(shuffled(COUNT, seed)[:3]))
    assert load_some(spec, 1, 3, shuffle=seed, skip_bad=True).selection.skipped is None


def test_pictures_of_another_shape_are_not_skipped(folder: Path) -> None:
    paint(folder / "white" / "11.png", 200, size=7)
    with pytest.raises(BadInput, match="6 x 6 and .*7 x 7"):
        load_some(f"images:path={folder}", skip_bad=True)


def section(data: Dataset) -> DataSection:
    assert data.labels is not None
    found = arrays_sha256(np.asarray(data.images), data.labels)
    names = None if data.names is None else list(data.names)
    shape = data.images.shape[1:]
    return DataSection(data.name, found, shape, 2, data.index.tolist(), data.labels.tolist(), names, data.selection)


def test_verify_refuses_a_skipped_picture_that_can_be_read(folder: Path) -> None:
    spec, healthy = f"images:path={folder}", load(f"images:path={folder}", stream=True)
    file = folder / "black" / "02.png"
    kept = file.read_bytes()
    break_file(file)
    with pytest.warns(UserWarning, match="skipped"):
        own = section(load_some(spec, skip_bad=True))
    assert "without 1 whose files cannot be read" in check_data(own, load(spec, stream=True))
    file.write_bytes(kept)
    with pytest.raises(Lie, match="skipped input 2 as one that cannot be read"):
        check_data(own, healthy)


def test_folders_without_labels_and_single_pictures(tmp_path: Path) -> None:
    for number in range(3):
        paint(tmp_path / "loose" / f"{number}.ppm", 50 * number)
    loose = load(f"images:path={tmp_path / 'loose'}")
    assert loose.labels is None
    assert loose.num_classes == 0
    assert loose.images[:, 0, 0, 0].tolist() == [0, 50, 100]
    one = load(str(tmp_path / "loose" / "1.ppm"))
    assert one.images.shape == (1, 3, 6, 6)
    assert one.names == ("1.ppm",)
    assert load(str(tmp_path / "loose")).name == loose.name
    assert load(f"images:path={tmp_path / 'loose'},classes=a/b/c").num_classes == 3
    (tmp_path / "note.txt").write_text("no picture")
    with pytest.raises(BadInput, match="a file of unknown kind"):
        load(str(tmp_path / "note.txt"))
    with pytest.raises(BadInput, match="no picture"):
        load(f"images:path={tmp_path / 'note.txt'}")


def test_classes_give_folders_their_labels(folder: Path, tmp_path: Path) -> None:
    read = load(f"images:path={folder},classes=grey/white/black")
    assert read.labels is not None
    assert read.labels.tolist() == [1] * 6 + [2] * 6  # in the order of classes
    assert read.class_names == ("grey", "white", "black")
    (tmp_path / "names.txt").write_text("white\nblack\n")
    assert load(f"images:path={folder},classes={tmp_path / 'names.txt'}").class_names == ("white", "black")
    with pytest.raises(BadInput, match="black is none of the 2 classes"):
        load(f"images:path={folder},classes=white/grey")
    with pytest.raises(BadInput, match="none of the 10 classes"):
        load(f"images:path={folder},classes=10")


def test_resize_scales_further_than_the_crop(tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.uint8).reshape(8, 8)
    (tmp_path / "a").mkdir()
    Image.fromarray(values).save(tmp_path / "a" / "x.png")
    read = load(f"images:path={tmp_path},size=4,resize=8,channels=1")
    assert np.array_equal(read.images[0, 0], values[2:6, 2:6])
    for wrong in ("resize=8", "size=9,resize=8"):
        with pytest.raises(BadInput, match="size= of at most 8"):
            load(f"images:path={tmp_path},{wrong}")


def imagenet(root: Path, flat: bool = False) -> Path:
    for number, synset in enumerate(("n02", "n01", "n02")):
        paint(root / "val" / ("" if flat else synset) / f"ILSVRC2012_val_0{number}.JPEG", 80 * number, size=300)
    return root


def test_imagenet_by_folders_and_by_map(tmp_path: Path) -> None:
    read = load(f"imagenet:path={imagenet(tmp_path / 'folders')}", stream=True)
    assert read.images.shape == (3, 3, 224, 224)
    assert read.labels is not None
    assert (read.labels.tolist(), read.class_names) == ([0, 1, 1], ("n01", "n02"))
    flat = imagenet(tmp_path / "flat", flat=True)
    with pytest.raises(BadInput, match="synsets=FILE"):
        load(f"imagenet:path={flat}", stream=True)
    (flat / "synset_words.txt").write_text("n03 cat\nn01 dog, hound\nn02 emu\n")
    with pytest.raises(BadInput, match="need a map of labels"):
        load(f"imagenet:path={flat}", stream=True)
    (flat / "val.txt").write_text("".join(f"ILSVRC2012_val_0{i}.JPEG {label}\n" for i, label in enumerate((1, 0, 2))))
    read = load(f"imagenet:path={flat}", stream=True)
    assert read.labels is not None
    assert (read.labels.tolist(), read.num_classes) == ([1, 0, 2], 3)
    solution = "ImageId,PredictionString\n" + "".join(f"ILSVRC2012_val_0{i},n0{i + 1} 1 2 3 4 \n" for i in range(3))
    (flat / "kaggle.csv").write_text(solution)
    read = load(f"imagenet:path={flat},map=kaggle.csv", stream=True)
    assert read.labels is not None
    assert read.labels.tolist() == [0, 1, 2]
    for text, why in (
        ("490\n361\n", "one word on a line"),
        ("a.JPEG 7\n", "names no label"),
        ("a 1\n", "no line in the map"),
    ):
        (flat / "other.txt").write_text(text)
        with pytest.raises(BadInput, match=why):
            load(f"imagenet:path={flat},map=other.txt", stream=True)
