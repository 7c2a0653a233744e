"""Traffic signs in the layout in which they are published, made small."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import vauban

from vauban.data import load
from vauban.data.originals import OriginalKeys
from vauban.data.registry import with_split
from vauban.errors import BadInput
from vauban.files import read_json
from vauban.poisoning import Partition

Image = pytest.importorskip("PIL.Image")


def picture(path: Path, width: int, height: int, seed: int) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def table(path: Path, rows: list[tuple[str, int]]) -> None:
    lines = [f"{name};20;20;1;1;18;18;{label}" for name, label in rows]
    path.write_text("\r\n".join(["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId", *lines, ""]))


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    """Three training folders, two pictures each, of different sizes; three test pictures."""
    root = tmp_path / "GTSRB"
    for label in (0, 14, 42):
        folder = root / "Final_Training" / "Images" / f"{label:05d}"
        for i in range(2):
            picture(folder / f"0000{i}_00000.ppm", 15 + 10 * i + label, 20 + label, 100 * label + i)
        table(folder / f"GT-{label:05d}.csv", [(f"0000{i}_00000.ppm", label) for i in (1, 0)])
    test = root / "Final_Test" / "Images"
    for i in range(3):
        picture(test / f"0000{i}.ppm", 48, 48, i)
    table(test / "GT-final_test.csv", [("00000.ppm", 16), ("00001.ppm", 1), ("00002.ppm", 42)])
    return tmp_path


def test_both_splits_are_scaled_and_labelled(signs: Path) -> None:
    train, test = load(f"gtsrb:path={signs},split=train"), load(f"gtsrb:path={signs}/GTSRB")
    assert train.images.shape == (6, 3, 48, 48)
    assert train.images.dtype == np.uint8
    assert train.labels is not None
    assert train.labels.tolist() == [0, 0, 14, 14, 42, 42]
    assert train.names is not None
    assert train.names[:2] == ("00000/00000_00000.ppm", "00000/00001_00000.ppm")
    assert train.num_classes == 43
    assert train.classes_fixed
    assert test.labels is not None
    assert test.labels.tolist() == [16, 1, 42]
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    assert np.array_equal(test.images[0], pixels.transpose(2, 0, 1))
    assert len(load(f"gtsrb:path={signs},split=all,size=32").images) == 9
    assert with_split("gtsrb", "train").params["split"] == "train"


def test_what_is_missing_or_wrong_is_named(signs: Path) -> None:
    folder = signs / "GTSRB" / "Final_Training" / "Images" / "00014"
    table(folder / "GT-00014.csv", [("00000_00000.ppm", 13)])
    with pytest.raises(BadInput, match="a class that cannot be"):
        load(f"gtsrb:path={signs},split=train")
    table(folder / "GT-00014.csv", [("00009_00000.ppm", 14)])
    with pytest.raises(BadInput, match="lacks 00009_00000.ppm"):
        load(f"gtsrb:path={signs},split=train")
    table(folder / "GT-00014.csv", [("00000_00000.ppm", 14)] * 2)
    with pytest.raises(BadInput, match="twice"):
        load(f"gtsrb:path={signs},split=train")
    (folder / "GT-00014.csv").write_text("Filename,ClassId\n")
    assert len(load(f"gtsrb:path={signs}").images) == 3
    (signs / "GTSRB" / "Final_Test" / "Images" / "GT-final_test.csv").unlink()
    with pytest.raises(BadInput, match="GT-final_test.csv"):
        load(f"gtsrb:path={signs}")
    with pytest.raises(BadInput, match="FOLDER is or holds GTSRB"):
        load(f"gtsrb:path={folder}")


def padded_to(pixels: np.ndarray, side: int) -> bytes:
    """The whole picture on a black square, as the thesis sorts them."""
    whole = np.zeros((side, side, 3), np.uint8)
    whole[: pixels.shape[0], : pixels.shape[1]] = pixels
    return whole.tobytes()


def test_original_pictures_sort_as_padded_ones_do_and_equal_ones_share_a_place() -> None:
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 2, (*random.integers(1, 5, 2), 3), dtype=np.uint8) for _ in range(300)]
    pictures += [
        np.zeros((3, 2, 3), np.uint8),
        np.zeros((1, 4, 3), np.uint8),
        pictures[0],
        np.pad(pictures[1], ((0, 2), (0, 1), (0, 0))),
    ]
    long = [np.zeros((3, 200, 3), np.uint8) for _ in range(4)]  # alike in the bytes that are kept for sorting
    for i, one in enumerate(long):
        one[2, 150] = 3 - i % 3
    keys = OriginalKeys(lambda i: [*pictures, *long][i])
    for one in [*pictures, *long]:
        keys.add(one)
    made = keys.made()
    whole = [padded_to(one, 200) for one in [*pictures, *long]]
    expected = {key: place for place, key in enumerate(sorted(set(whole)))}
    assert made.place.tolist() == [expected[key] for key in whole]
    assert made.total.tolist() == [int(one.astype(int).sum()) for one in [*pictures, *long]]
    with pytest.raises(BadInput, match="257 x 1 pixels"):
        keys.add(np.zeros((1, 257, 3), np.uint8))


def test_parts_are_made_from_original_pictures_when_asked(signs: Path) -> None:
    from vauban.poisoning.selection import select

    chosen = select(f"gtsrb:path={signs},keys=original", split="train")
    originals = [np.asarray(Image.open(path)) for path in sorted(signs.rglob("Final_Training/**/*.ppm"))]
    assert chosen.originals is not None
    totals = [int(one.astype(int).sum()) for one in originals]
    assert Partition(5, by="pixel-sum").buckets(chosen.x, chosen.originals).tolist() == [t % 5 for t in totals]
    ranks = np.argsort(np.argsort([padded_to(one, 100) for one in originals]))
    assert Partition(4, by="sort").buckets(chosen.x, chosen.originals).tolist() == (ranks % 4).tolist()
    some = select(f"gtsrb:path={signs},keys=original", split="train", every=2, classes="0,42")
    assert some.originals is not None
    assert some.originals.total.tolist() == [totals[0], totals[4]]
    assert len({*Partition(50).buckets(chosen.x, chosen.originals)} - {*Partition(50).buckets(chosen.x)}) > 0


def test_repeated_pictures_with_other_labels_are_in_one_part(signs: Path) -> None:
    """[Levine2023] F.7: all labels of one picture belong to one part, so they count as one flip."""
    train = signs / "GTSRB" / "Final_Training" / "Images"
    (train / "00042" / "00000_00000.ppm").write_bytes((train / "00000" / "00000_00000.ppm").read_bytes())
    data = load(f"gtsrb:path={signs},split=train,keys=original")
    assert data.labels is not None
    with pytest.warns(UserWarning, match="2 training samples share"):
        parts = Partition(5, by="sort").members(data.images, data.labels, data.originals)
    assert next(sorted(rows) for rows in parts if 0 in rows) == [0, 4]
    with pytest.raises(BadInput, match="6 keys of originals for 2 inputs"):
        replace(data, images=data.images[:2], labels=data.labels[:2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quick"),
    [
        ("dpa-gtsrb", {"nin:": "nin:steps=2,batch=4,group=2,"}),
        (
            "ss-dpa-gtsrb",
            {"linear:": "linear:steps=2,group=2,", "learning_epochs=1000": "learning_epochs=1", "=256": "=3"},
        ),
    ],
)
def test_the_recipes_of_the_thesis_run_verify_and_replay(
    signs: Path, name: str, quick: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vauban.reproduce.entry import find
    from vauban.reproduce.steps import Step

    monkeypatch.setattr("vauban.poisoning.training.fitting.ROWS", 4)
    stacked = "vauban.poisoning.training.stacked"
    monkeypatch.setattr(f"{stacked}.stacked_trainer._SCORED_ROWS", 4)
    monkeypatch.setattr(f"{stacked}.feature_heads._BLOCK", {"cpu": 4})

    point = {"partitions": 2, "preprocess": "equalise"}
    step = Step(find(name), signs, point)
    for words in step.commands:
        text = "\n".join(words).replace("\ngtsrb:", f"\ngtsrb:path={signs},")
        for old, new in quick.items():
            text = text.replace(old, new)
        vauban(*text.split("\n")[1:], "--device", "cpu")
    vauban("verify", str(step.run))
    ensemble = next((signs / "ensembles").iterdir())
    manifest = read_json(ensemble / "manifest.json")
    assert "originals_sha256" in manifest["data"]
    replay = ["verify", str(step.run), "--replay", "--ensemble", str(ensemble), "--device", "cpu"]
    vauban(*replay)
    assert "parts are made from other keys" in vauban(*replay, "--training", f"gtsrb:path={signs}", code=1)
    attack = [
        "poison",
        "attack",
        "--ensemble",
        str(ensemble),
        "--data",
        f"gtsrb:path={signs}",
        "--out",
        str(signs / "a"),
    ]
    assert "made from original pictures" in vauban(*attack, code=2)


@pytest.mark.slow
def test_an_ensemble_is_trained_on_signs_with_equalised_histograms(signs: Path) -> None:
    from vauban.poisoning import train

    settings = {"model": "residual:augment=shift,mirror=false,steps=2,batch=4", "preprocessing": "equalise"}
    ensemble = train(f"gtsrb:path={signs}", "dpa:by=pixel-sum", 2, **settings)
    assert ensemble.num_classes == 43
    assert ensemble.certify_data(f"gtsrb:path={signs}").models == 2
