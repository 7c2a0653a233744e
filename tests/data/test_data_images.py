"""Folders of pictures: classes, sizes, splits and pictures that cannot be used."""

import builtins
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from vauban.data import load, load_some
from vauban.data.dataset import any_samples
from vauban.errors import BadInput, MissingExtra

Image = pytest.importorskip("PIL.Image")


def paint(path, width, height, colour=(10, 20, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), colour).save(path)


def test_classes_are_the_sorted_folders_and_pictures_are_sorted_in_each(tmp_path):
    for ending, (name, colour) in zip(
        ("png", "bmp", "PNG", "webp"),
        {"dog/b": (1, 1, 1), "cat/z": (2, 2, 2), "dog/a": (3, 3, 3), "emu/x": (4, 4, 4)}.items(),
        strict=True,
    ):
        paint(tmp_path / f"{name}.{ending}", 5, 4, colour)
    (tmp_path / "dog" / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden").mkdir()
    read = load(f"images:path={tmp_path}")
    assert read.class_names == ("cat", "dog", "emu")
    assert read.labels.tolist() == [0, 1, 1, 2]
    assert read.images.shape == (4, 3, 4, 5)
    assert read.images[:3, 0, 0, 0].tolist() == [2, 3, 1]
    assert read.name == f"images:path={tmp_path},channels=3"


def test_pixels_keep_their_place_and_channels_their_order(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    (tmp_path / "one").mkdir()
    Image.fromarray(pixels).save(tmp_path / "one" / "a.png")
    assert np.array_equal(load(f"images:path={tmp_path}").images[0], pixels.transpose(2, 0, 1))
    cropped = load(f"images:path={tmp_path},size=4").images[0]
    assert np.array_equal(cropped, pixels[:, 1:5].transpose(2, 0, 1))


@pytest.mark.parametrize(("width", "height"), [(20, 10), (10, 20), (10, 10), (3, 7), (31, 30)])
def test_size_scales_the_short_side_and_cuts_the_centre(tmp_path, width, height):
    paint(tmp_path / "one" / "a.png", width, height)
    images = load(f"images:path={tmp_path},size=8").images
    assert images.shape == (1, 3, 8, 8)
    assert (images == np.array([10, 20, 30], np.uint8).reshape(3, 1, 1)).all()


def test_greys_have_one_channel(tmp_path):
    paint(tmp_path / "one" / "a.jpg", 6, 6, (100, 100, 100))
    images = load(f"images:path={tmp_path},channels=1").images
    assert images.shape == (1, 1, 6, 6)
    assert (images == 100).all()
    with pytest.raises(BadInput, match="neither 1"):
        load(f"images:path={tmp_path},channels=2")


def deep_png(values):
    """A PNG of 16 bits, written by hand: values uint16 [height, width, channels], of 1 to 4 channels."""
    height, width, channels = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    chunks = [struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


RAMP = np.arange(65_536, dtype=np.uint16).reshape(256, 256, 1)
DEEP = {
    "grey": RAMP,
    "colour": np.concatenate([RAMP, RAMP[::-1], RAMP[:, ::-1]], axis=2),
    "transparent": np.concatenate([RAMP, RAMP[::-1], RAMP[:, ::-1], RAMP], axis=2),
}


@pytest.mark.parametrize("kind", DEEP)
def test_sixteen_bits_are_refused_or_rounded_where_that_is_asked_for(tmp_path, kind):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.png").write_bytes(deep_png(DEEP[kind]))
    with pytest.raises(BadInput, match=r"a.png has 16 bits .* give depth=8 to divide by 257 and round"):
        load(f"images:path={tmp_path}")
    read = load(f"images:path={tmp_path},depth=8")
    colours = np.broadcast_to(DEEP[kind][..., :3], (256, 256, 3)).transpose(2, 0, 1)
    assert np.array_equal(read.images[0], np.rint(colours / 257))
    assert read.name == f"images:path={tmp_path},channels=3,depth=8"
    assert load(f"images:path={tmp_path},depth=8,size=16,channels=1").images.shape == (1, 1, 16, 16)


def test_depth_leaves_pictures_of_eight_bits_as_they_are_and_refuses_what_it_cannot_read(tmp_path):
    paint(tmp_path / "one" / "a.png", 6, 6)
    paint(tmp_path / "one" / "b.bmp", 6, 6)
    assert np.array_equal(load(f"images:path={tmp_path},depth=8").images, load(f"images:path={tmp_path}").images)
    with pytest.raises(BadInput, match="7 is not 8"):
        load(f"images:path={tmp_path},depth=7")
    (tmp_path / "one" / "c.png").write_bytes(deep_png(RAMP[:6, :6].repeat(2, axis=2)))
    with pytest.raises(BadInput, match=r"c.png .*16 bits.*save it with 8"):
        load(f"images:path={tmp_path},depth=8")
    Image.fromarray(np.full((6, 6), 70_000, np.int32)).save(tmp_path / "one" / "c.tif")
    (tmp_path / "one" / "c.tif").rename(tmp_path / "one" / "c.png")
    with pytest.raises(BadInput, match="not of 16 bits"):
        load(f"images:path={tmp_path},depth=8")


def test_pictures_of_two_shapes_are_named(tmp_path):
    paint(tmp_path / "one" / "a.png", 6, 6)
    paint(tmp_path / "one" / "b.png", 6, 6)
    paint(tmp_path / "two" / "c.png", 7, 6)
    with pytest.raises(BadInput, match=r"one/a.png is 6 x 6 and .*two/c.png is 7 x 6.*size="):
        load(f"images:path={tmp_path}")


def test_split_is_a_folder_between(tmp_path):
    paint(tmp_path / "val" / "one" / "a.png", 6, 6)
    assert load(f"images:path={tmp_path},split=val").class_names == ("one",)
    with pytest.raises(BadInput, match="give split=val"):
        load(f"images:path={tmp_path}")
    with pytest.raises(BadInput, match="does not exist"):
        load(f"images:path={tmp_path},split=test")


def test_broken_pictures_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(BadInput, match="has no pictures"):
        load(f"images:path={tmp_path}")
    paint(tmp_path / "one" / "a.png", 6, 6)
    (tmp_path / "one" / "b.png").write_bytes((tmp_path / "one" / "a.png").read_bytes()[:40])
    with pytest.raises(BadInput, match=r"b.png cannot be read as a picture"):
        load(f"images:path={tmp_path}")


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without_pillow(name, *rest):
        if name.partition(".")[0] == "PIL":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(MissingExtra, match=r"Pillow.*vauban\[images\]"):
        load(f"images:path={tmp_path}")


def test_pictures_that_are_not_selected_are_not_opened(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(4):
            path = tmp_path / label / f"{i}.png"
            if i % 2 == 0:
                Image.new("RGB", (4, 4), (i, i, i)).save(path)
            else:
                path.write_bytes(b"not a picture")
    some = load_some(f"images:path={tmp_path}", every=2, limit=3)
    assert some.index.tolist() == [0, 2, 4]
    assert some.names is not None
    assert [name.split("/")[-1] for name in some.names] == ["0.png", "2.png", "0.png"]
    assert some.images[:, 0, 0, 0].tolist() == [0, 2, 0]
    assert some.labels is not None
    assert some.labels.tolist() == [0, 0, 1]
    assert some.num_classes == 2


def test_a_selection_of_one_class_is_warned_of(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    for label in ("cat", "dog"):
        for i in range(6):
            paint(tmp_path / label / f"{i}.png", 4, 4)
    spec = f"images:path={tmp_path}"
    with pytest.warns(UserWarning, match=r"all 6 inputs selected from images:.* are of class 0 \(cat\): .*--every"):
        load_some(spec, limit=6)
    recwarn.clear()
    load_some(spec, limit=7)
    load_some(spec, every=2)
    load_some(spec, limit=4)  # too few to say
    assert not recwarn.list


def test_stated_classes_fix_number_and_order(tmp_path):
    for name in ("cat", "dog", "newt"):
        paint(tmp_path / name / "a.png", 4, 4)
    read = load(f"images:path={tmp_path},classes=newt/cat/dog/yak")
    assert read.class_names == ("newt", "cat", "dog", "yak")
    assert read.labels is not None
    assert read.labels.tolist() == [0, 1, 2]
    assert read.classes_fixed
    assert not load(f"images:path={tmp_path}").classes_fixed
    with pytest.raises(BadInput, match="label 2"):
        load(f"images:path={tmp_path},classes=cat/dog")
    with any_samples():
        poisoned = load(f"images:path={tmp_path},classes=cat/dog")
    assert poisoned.labels is not None
    assert poisoned.labels.tolist() == [0, 1, 2]
    assert poisoned.num_classes == 2
    with pytest.raises(BadInput, match="two or more"):
        load(f"images:path={tmp_path},classes=cat")
