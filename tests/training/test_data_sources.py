"""Where training pictures come from makes no difference; what cannot be trained on is said in a sentence."""

from typing import Any

import numpy as np
import pytest
import torch
from squares import convolution, pictures, same
from torch.utils.data import DataLoader, TensorDataset

import vauban as vb
from vauban.data import Dataset
from vauban.errors import BadInput
from vauban.smoothing import Gaussian
from vauban.training import Recipe, train

DATA = pictures()
RECIPE = Recipe(epochs=2, batch=16, lr=0.01, augment="crop-flip")


class Streamed(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The same pictures, one by one."""

    def __len__(self) -> int:
        return len(DATA)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        assert DATA.labels is not None
        return DATA.images[number], int(DATA.labels[number])


def test_streamed_pictures_train_the_same_weights() -> None:
    held = train(convolution(), DATA, Gaussian(0.25), RECIPE).network
    for workers in (0, 2):
        streamed = train(convolution(), Streamed(), Gaussian(0.25), RECIPE, classes=3, workers=workers)
        assert same(streamed.network, held)
    loader = DataLoader(Streamed(), batch_size=7, shuffle=True)
    assert same(train(convolution(), loader, Gaussian(0.25), RECIPE, classes=3).network, held)


def test_arrays_and_tensors_train_the_same_weights() -> None:
    held = train(convolution(), DATA, Gaussian(0.25), RECIPE).network
    tensors = torch.from_numpy(DATA.images), torch.from_numpy(DATA.labels)
    for arrays in ((DATA.images, DATA.labels), tensors, (tensors[0].double() / 255, tensors[1])):
        assert same(train(convolution(), arrays, Gaussian(0.25), RECIPE).network, held)


def test_tables_train_an_mlp() -> None:
    draw = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = draw.normal(size=(200, 5)) + 4 * y[:, None]
    trained = vb.train("mlp:width=16", (x, y), "gaussian:sigma=0.5", epochs=20, batch=50, lr=0.01)
    assert trained.accuracy > 0.95


class Unlabelled(Streamed):
    def __getitem__(self, number: int) -> Any:
        return DATA.images[number]


class TooHigh(Streamed):
    def __getitem__(self, number: int) -> Any:
        return DATA.images[number], 7


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Dataset(DATA.images, None, 3, DATA.class_names, "squares"), "squares has no labels"),
        ((DATA.images, None), "has no labels to train on"),
        ((DATA.images, np.eye(3)[DATA.labels]), "y is of type float64: labels must be whole numbers"),
        ((DATA.images, DATA.labels[:-1]), "60 inputs and 59 labels"),
        ((torch.full((60, 1, 8, 8), torch.nan), DATA.labels), "NaN"),
        (Unlabelled(), r"item 0, a ndarray, has no label: pairs \(picture, label\) are needed"),
        (TooHigh(), "labels from 7 to 7: labels below classes=3 are needed"),
        (TensorDataset(torch.zeros(0, 1, 8, 8), torch.zeros(0)), "the data set is empty"),
        (iter([1, 2]), "cannot be trained on, since its items have no numbers: give a data set"),
    ],
)
def test_data_that_cannot_be_trained_on(data: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        train(convolution(), data, Gaussian(0.25), RECIPE, classes=3, workers=0)


def test_a_torch_data_set_needs_the_number_of_classes() -> None:
    with pytest.raises(BadInput, match="does not say how many classes it has: give classes="):
        train(convolution(), Streamed(), Gaussian(0.25), RECIPE)
