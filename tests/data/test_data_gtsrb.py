"""Traffic signs in the layout in which they are published, made small."""

from pathlib import Path

import numpy as np
import pytest

from vauban.data import load
from vauban.data.registry import with_split
from vauban.errors import BadInput

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


@pytest.mark.slow
def test_an_ensemble_is_trained_on_signs_with_equalised_histograms(signs: Path) -> None:
    from vauban.poisoning import train

    settings = {"model": "residual:augment=shift,mirror=false,steps=2,batch=4", "preprocessing": "equalise"}
    ensemble = train(f"gtsrb:path={signs}", "dpa:by=pixel-sum", 2, **settings)
    assert ensemble.num_classes == 43
    assert ensemble.certify_data(f"gtsrb:path={signs}").models == 2
