"""Named recipes hold the numbers that the papers print."""

import re
from dataclasses import asdict, dataclass

import numpy as np
import pytest
from commands import vauban
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput
from vauban.models import ARCHITECTURES, packaged
from vauban.models.weights import read_header
from vauban.references import REFERENCES
from vauban.smoothing import build
from vauban.specs import Spec
from vauban.training.recipes import RECIPES, listing, named

COSINE = "cosine"


@dataclass(frozen=True)
class Printed:
    """A column of a table: learning rates are (first epoch, last epoch, rate), or a highest rate and COSINE."""

    where: str
    data: str
    model: str
    epochs: int
    batch: int
    rates: list[tuple[int, int, float]] | tuple[float, str]
    weight_decay: float
    augment: str = "none"
    masks: str = "picture"
    loss: str = "noise"
    nesterov: bool = False
    smoothing: str | None = None
    optimizer: str = "sgd"


TENTH = [(1, 200, 0.01), (201, 400, 0.001)]
COHEN = [(1, 30, 0.1), (31, 60, 0.01), (61, 90, 0.001)]
CIFAR = "mean=0.4914/0.4822/0.4465,std=0.2023/0.1994/0.201"
IMAGENET = "mean=0.485/0.456/0.406,std=0.229/0.224/0.225"
FLOW = "mean=0.000337922/0.000331595/0.000307045,std=0.000139116/0.000137122/0.000138222"

A2 = ("mnist", "cnn", 400, 128, TENTH, 0.0, "none", "batch")
A3 = (400, 128, TENTH, 0.0005, "crop-flip", "batch")
A4 = ("imagenet", "resnet50", 36, 256, [(1, 21, 0.1), (22, 31, 0.01), (32, 36, 0.001)], 0.0001, "resized-crop", "batch")
COHEN_CIFAR = ("cifar10", f"resnet110:{CIFAR}", 90, 400, COHEN, 0.0001, "crop-flip", "picture")
COHEN_IMAGENET = ("imagenet", f"resnet50:{IMAGENET}", 90, 400, COHEN, 0.0001, "resized-crop", "picture")
B1 = ("cifar10", "wideresnet40-2", 120, 64, (0.1, COSINE), 0.0001, "crop-flip", "picture")
B1_IMAGENET = ("imagenet", "resnet50", 30, 64, (0.1, COSINE), 0.0001, "resized-crop", "picture")
DENOISER = (
    90,
    256,
    [(1, 30, 0.001), (31, 60, 0.0001), (61, 90, 0.00001)],
    0.0001,
    "crop-flip",
    "picture",
)
SALMAN = "Salman et al. 2020, published script"

PRINTED = {
    "table-A.2": Printed("thesis, Table A.2", *A2, smoothing="ablation:retained=45"),
    "table-A.3": Printed("thesis, Table A.3", "cifar10", "resnet18", *A3, smoothing="ablation:retained=75"),
    "table-A.4": Printed("thesis, Table A.4", *A4, smoothing="ablation:retained=1000"),
    "table-2.5": Printed("thesis, Table 2.5", "cifar10", "resnet50-cifar", *A3, smoothing="ablation:retained=75"),
    "table-2.8-mnist": Printed("thesis, Table 2.8", *A2, smoothing="ablation:retained=45,null=mean,mean=0.1307"),
    "table-2.8-cifar": Printed(
        "thesis, Table 2.8", "cifar10", "resnet18", *A3, smoothing="ablation:retained=75,null=mean,mean=0.4914/0.4822/0.4465"
    ),
    "003-mnist": Printed("paper 003, Table 10", *A2, smoothing="ablation:retained=45"),
    "003-cifar": Printed("paper 003, Table 11", "cifar10", "resnet18", *A3, smoothing="ablation:retained=75"),
    "003-imagenet": Printed("paper 003, Table 12", *A4, smoothing="ablation:retained=1000"),
    "000-cifar": Printed("paper 000, 3.1", "cifar10", "resnet110", *A3, smoothing="ablation:retained=50"),
    "000-imagenet": Printed("paper 000, 3.1", *A4, smoothing="ablation:retained=1000"),
    "001-cifar": Printed("paper 001, 4.1; Cohen et al.", *COHEN_CIFAR, smoothing="gaussian:sigma=0.5"),
    "001-imagenet": Printed("paper 001, 4.1; Cohen et al.", *COHEN_IMAGENET, smoothing="gaussian:sigma=0.5"),
    "002-type1-cifar": Printed("paper 002, 5.1", *COHEN_CIFAR),
    "002-type1-imagenet": Printed("paper 002, 5.1", *COHEN_IMAGENET),
    "002-type2-cifar": Printed("paper 002, 5.1", *COHEN_CIFAR, loss="type2:step=0.005"),
    "002-gaussian-cifar": Printed("paper 002, 5.2", *COHEN_CIFAR),
    "002-gaussian-imagenet": Printed("paper 002, 5.2", *COHEN_IMAGENET),
    "table-B.1-cifar": Printed("thesis, Table B.1", *B1, nesterov=True),
    "table-B.1-imagenet": Printed("thesis, Table B.1", *B1_IMAGENET, nesterov=True),
    "table-B.1-stability-cifar": Printed("thesis, 3.4", *B1, loss="stability:weight=6", nesterov=True),
    "table-B.1-stability-imagenet": Printed("thesis, 3.4", *B1_IMAGENET, loss="stability:weight=6", nesterov=True),
    "chapter-4-cifar": Printed("thesis, 4.4", *B1, nesterov=True),
    "chapter-4-stability-cifar": Printed("thesis, 4.4", *B1, loss="stability:weight=6", nesterov=True),
    "chapter-4-imagenet": Printed("thesis, 4.4", *B1_IMAGENET, nesterov=True),
    "section-B.4-stability": Printed(SALMAN, "cifar10", "dncnn", *DENOISER, "denoised-stability", True, optimizer="adamw"),
    "section-B.4-mse": Printed(SALMAN, "cifar10", "dncnn", *DENOISER, "mse", True, optimizer="adamw"),
    "section-B.4-retrained": Printed("thesis, B.4 (3)", "cifar10", "dncnn > wideresnet40-2", *B1[2:], nesterov=True),
    "table-D.1": Printed(
        "thesis, Table D.1", "mnist", "wong-mnist:std=0.00975907", 200, 128, [(1, 200, 0.001)], 0.0005,
        masks="batch", smoothing="flow:sigma=0.01,ground=l2",
    ),
    "table-D.1-laplace": Printed(
        "thesis, 5.5.1", "mnist", "wong-mnist", 200, 128, [(1, 200, 0.001)], 0.0005, masks="batch"
    ),
    "table-D.2": Printed(
        "thesis, Table D.2, its first 200 epochs", "cifar10", f"resnet18:{FLOW}", 200, 128, [(1, 200, 0.01)], 0.0005,
        "crop-flip", "batch", smoothing="flow:sigma=0.0002,ground=l2",
    ),
    "table-D.2-400": Printed(
        "thesis, Table D.2, its whole schedule", "cifar10", f"resnet18:{FLOW}", 400, 128, TENTH, 0.0005,
        "crop-flip", "batch", smoothing="flow:sigma=0.0002,ground=l2",
    ),
    "table-E.10-mnist": Printed(
        "thesis, Table E.10", "mnist", "cnn", 400, 128, TENTH, 0.0005,
        masks="batch", smoothing="band:size=2,threshold=0.3",
    ),
    "table-E.10-cifar": Printed(
        "thesis, Table E.10", "cifar10", "resnet18", 350, 128,
        [(1, 150, 0.1), (151, 250, 0.01), (251, 350, 0.001)], 0.0005,
        "crop-flip", "batch", smoothing="band:size=4,threshold=0.3",
    ),
    "table-E.10-imagenet": Printed(
        "thesis, Table E.10", "imagenet", "resnet50", 60, 196, [(1, 20, 0.1), (21, 40, 0.01), (41, 60, 0.001)], 0.0005,
        "flip", "batch", smoothing="band:size=25,threshold=0.2",
    ),
    "section-E.7-baseline": Printed(
        "thesis, E.7", "cifar10", "resnet18", 350, 128,
        [(1, 150, 0.1), (151, 250, 0.01), (251, 350, 0.001)], 0.0005,
        "crop-flip", "batch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_a_recipe_holds_the_printed_numbers(name):
    paper, ours = PRINTED[name], RECIPES[name]
    recipe = ours.recipe
    assert (ours.data, ours.model, ours.smoothing) == (paper.data, paper.model, paper.smoothing), paper.where
    found = (recipe.epochs, recipe.batch, recipe.weight_decay, recipe.augment, recipe.masks, recipe.loss)
    expected = (paper.epochs, paper.batch, paper.weight_decay, paper.augment, paper.masks, paper.loss)
    assert found == expected, paper.where
    assert recipe.optimizer == paper.optimizer, paper.where
    if paper.optimizer == "sgd":
        assert (recipe.momentum, recipe.nesterov) == (0.9, paper.nesterov), paper.where
    assert (recipe.warmup, recipe.precision, recipe.ema, recipe.label_smoothing) == (0.0, "fp32", 0.0, 0.0)
    assert (recipe.mixup, recipe.cutmix, recipe.clip, recipe.accumulate) == (0.0, 0.0, 0.0, 1)


@pytest.mark.parametrize("name", PRINTED)
def test_every_epoch_has_the_printed_rate(name):
    paper, recipe = PRINTED[name], RECIPES[name].recipe
    if isinstance(paper.rates, tuple):
        assert (recipe.lr, recipe.schedule) == paper.rates, paper.where
        return
    assert paper.rates[-1][1] == paper.epochs, paper.where
    for first, last, rate in paper.rates:
        for epoch in (first - 1, last - 1):  # ten steps in each epoch: its first and its last
            for step in (10 * epoch, 10 * epoch + 9):
                assert recipe.rate(step, 10 * paper.epochs) == pytest.approx(rate), (paper.where, epoch, step)


def test_every_recipe_is_either_printed_or_ours():
    assert set(RECIPES) == {*PRINTED, *(name for name in RECIPES if name.startswith("best-"))}
    assert all(one.name == name for name, one in RECIPES.items())


@pytest.mark.parametrize("name", RECIPES)
def test_data_model_smoothing_and_source_are_known(name):
    one = RECIPES[name]
    assert one.data in ("mnist", "cifar10", "imagenet")
    for part in one.model.split(" > "):
        assert set(Spec.parse(part).params) <= set(ARCHITECTURES[Spec.parse(part).name].parameters)
    if one.smoothing is not None:
        build(one.smoothing)
    assert one.source == "Vauban" or re.fullmatch(r"\[(\w+)\] .+", one.source)[1] in REFERENCES
    assert all(key in REFERENCES for key in re.findall(r"\[([A-Z]\w+\d{4})\]", one.note))


def test_only_the_undefended_baseline_cannot_be_run():
    assert [name for name, one in RECIPES.items() if one.missing] == ["section-E.7-baseline"]


def test_the_contradiction_of_table_d_2_is_told():
    assert "contradicts itself: 200 epochs, and rates for epochs 1 to 400" in RECIPES["table-D.2"].note


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("table-E.10", "mnist", "table-E.10-mnist"),
        ("table-E.10", "cifar10:path=somewhere", "table-E.10-cifar"),
        ("table-B.1", "imagenet", "table-B.1-imagenet"),
        ("table-B.1-stability", "cifar10", "table-B.1-stability-cifar"),
        ("002-type2", None, "002-type2-cifar"),
        ("best-gaussian", "mnist", "best-gaussian-mnist"),
        ("table-A.2", "cifar10", "table-A.2"),
    ],
)
def test_data_choose_the_column_of_a_table(name, data, found):
    assert named(name, data=data).name == found


@pytest.mark.parametrize(
    ("smoothing", "data", "found"),
    [
        ("gaussian:sigma=0.5", "mnist", "best-gaussian-mnist"),
        ("laplace:sigma=0.5", "cifar10", "best-gaussian-cifar10"),
        ("splitting:sigma=1", "cifar10:path=x", "best-splitting-cifar10"),
        ("fractional:p=1/2,scale=18", "cifar10", "best-fractional-cifar10"),
        ("ablation:retained=75", "cifar10", "best-ablation-cifar10"),
        ("block:size=10", "cifar10", "best-band-cifar10"),
        ("sparse:scale=14", "mnist", "best-ablation-mnist"),
        ("splitting:sigma=1", "mnist", "best-gaussian-mnist"),
        ("flow:sigma=0.01", "mnist", "best-flow-mnist"),
    ],
)
def test_best_is_chosen_by_smoothing_and_data(smoothing, data, found):
    assert named("best", smoothing=smoothing, data=data).name == found


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"name": "table-A2"}, "'table-A2' is not a named recipe.*did you mean 'table-A.2'.*--list-recipes"),
        ({"name": "table-E.10"}, "no data set is given: name one of table-E.10-mnist, table-E.10-cifar"),
        ({"name": "table-B.1", "data": "mnist"}, "mnist is given: name one of table-B.1-cifar, table-B.1-imagenet"),
        ({"name": "best", "data": "mnist"}, "chosen by smoothing and data: give both"),
        (
            {"name": "best", "smoothing": "flow:sigma=0.01", "data": "imagenet"},
            "no best recipe for smoothing flow on imagenet: name one of best-gaussian-cifar10",
        ),
    ],
)
def test_a_name_that_is_not_found_is_answered_with_those_that_are(call, sentence):
    with pytest.raises(BadInput, match=sentence):
        named(**call)


def test_the_best_recipe_of_digits_is_that_of_the_network_in_the_package():
    made_by, best = read_header(packaged("mnist"))["trained"], RECIPES["best-gaussian-mnist"]
    for key, value in {**asdict(best.recipe), "model": f"{best.model}:channels=1"}.items():
        assert f"{key}={value}" in made_by, key


def test_the_listing_has_every_recipe_and_says_what_cannot_be_run():
    rows = {row.name: row for row in listing()}
    assert list(rows) == list(RECIPES)
    assert rows["table-A.2"].training == "400 epochs, batch 128, sgd 0.01, step:at=200,factor=0.1, noise"
    assert rows["table-B.1-cifar"].smoothing == "yours"
    assert rows["section-E.7-baseline"].training.startswith("cannot be run")


@pytest.mark.parametrize("name", [name for name in RECIPES if "0.2 for each 512 rows" in RECIPES[name].note])
def test_our_rates_are_two_tenths_for_512_rows(name):
    recipe = RECIPES[name].recipe
    views = 1 if recipe.loss == "noise" else 2
    assert recipe.lr == pytest.approx(0.2 * recipe.batch * views / 512)


@pytest.mark.parametrize(("name", "pixel"), [("table-D.1", [0.1307]), ("table-D.2", [0.4914, 0.4822, 0.4465])])
def test_the_first_layer_undoes_the_normalisation_of_mass(name, pixel):
    """A mean pixel of a picture of mean mass becomes 0 where the mean is taken away, and itself where it is not."""
    params = Spec.parse(RECIPES[name].model).params
    area = {1: 28 * 28, 3: 32 * 32}[len(pixel)]
    view = np.array(pixel) / (area * sum(pixel))
    mean = np.array([float(text) for text in params.get("mean", "0").split("/")])
    std = np.array([float(text) for text in params["std"].split("/")])
    expected = [0.0] * 3 if "mean" in params else pixel
    np.testing.assert_allclose((view - mean) / std, expected, atol=1e-4)


def test_a_recipe_brings_its_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("VAUBAN_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    said = vauban("train", "--recipe", "table-D.2", "--out", tmp_path / "a.safetensors", code=2)
    assert "give cifar10:path=FOLDER" in said
    small = ("--limit", "40", "--epochs", "0.5", "--batch-size", "20", "--model", "mlp:width=4", "--validate", "0")
    words = ("train", "--recipe", "table-A.3", "--data", "mnist", *small, "--out", tmp_path / "b.safetensors")
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.stderr
    assert "table-A.3 is a recipe for cifar10, and the data are mnist" in done.stderr
