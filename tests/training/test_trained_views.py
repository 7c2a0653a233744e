"""A network that is to vote on other views than it was trained on is warned about, as its file is."""

import gc
import warnings

import pytest
from squares import convolution, pictures

import vauban as vb
from vauban.laws import law
from vauban.smoothing import Gaussian, trained_views
from vauban.training import Recipe, train

DATA = pictures()
SMOOTHING = Gaussian(0.25)
RECIPE = Recipe(epochs=1, batch=30)


def test_the_network_that_training_returns_is_warned_about_too() -> None:
    gc.collect()
    before = len(trained_views._TRAINED)
    said = "trained on views of gaussian:sigma=0.25, and gaussian:sigma=0.5 makes others: what is claimed holds"
    own = convolution()
    for network in ("cnn-small", own):
        found = train(network, DATA, SMOOTHING, RECIPE).network
        for model in (found, vb.wrap(found)):
            with pytest.warns(UserWarning, match=said) as told:
                vb.SmoothedClassifier(model, "gaussian:sigma=0.5", num_classes=3)
            assert told[0].filename == __file__
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                vb.SmoothedClassifier(model, SMOOTHING, num_classes=3)
        assert not hasattr(found, "trained_smoothing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vb.SmoothedClassifier(own, "gaussian:sigma=0.5", num_classes=3)  # the caller's, which was not trained
    assert len(trained_views._TRAINED) > before
    del found, model
    gc.collect()
    assert len(trained_views._TRAINED) == before  # no network is kept


@pytest.mark.parametrize(
    ("trained_on", "smoothing", "others"),
    [
        ("band:size=4,threshold=0.3", "band:size=4,sampled=true", False),
        ("band:size=4,sampled=true", "band:size=4,bound=margin", False),
        ("block:size=4,stride=2", "block:size=4,stride=2,sampled=true", False),
        ("band:size=4,axis=row", "band:size=4,sampled=true", True),
        ("band:size=4,stride=2", "band:size=4,sampled=true", True),
        ("band:size=4,count=2", "band:size=4,sampled=true", True),
        ("band:size=4,count=2,threshold=0.3", "band:size=4,count=2", False),
        ("splitting:sigma=0.5", "splitting:sigma=0.5,sampled=true", True),
    ],
)
def test_sampled_and_listed_regions_are_the_same_views(trained_on: str, smoothing: str, others: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trained_views.warn_of_other_views(trained_on, law(smoothing), stacklevel=1)
    assert bool(told) == others
