"""band-cnn and band-resnet find the kept band wherever it lies and see nothing else; they are trained and certified by name."""

from pathlib import Path

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput
from vauban.models import build, fitting_views, load
from vauban.models.kept import BandCnn, kept_band


@pytest.mark.parametrize("axis", ["column", "row"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_band_of_a_view_is_found_wherever_it_lies(axis: str, channels: int) -> None:
    pictures = torch.randint(0, 256, (1, channels, 8, 8), dtype=torch.uint8)
    pictures[:, :, :, 3] = 0  # a black column is kept like any other
    words = torch.arange(8)[:, None]
    views = vb.Band(3, axis=axis).views(pictures, words, 255)
    band, first = kept_band(views, 3, axis == "row")
    assert first.tolist() == list(range(8))
    values = (pictures[0].float() / 255).movedim(1 if axis == "row" else 2, 2)  # [channel, along, across]
    wanted = torch.stack([values[:, :, [(start + k) % 8 for k in range(3)]] for start in range(8)])
    assert torch.equal(band, wanted)
    assert BandCnn(2 * channels, 10, 8, 3, 4, axis == "row")(views).shape == (8, 10)


@pytest.mark.parametrize("name", ["band-cnn", "band-resnet"])
def test_scores_depend_on_what_a_view_keeps_and_not_on_what_it_hides(name: str) -> None:
    pictures = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    pictures[1, :, :, 2:4] = pictures[0, :, :, 2:4]
    words = torch.full((3, 1), 2)
    net = build(f"{name}:channels=2,size=8,band=2,width=4", seed=1).eval()
    scores = net(vb.Band(2).views(pictures, words, 255))
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])


def test_band_resnet_knows_where_the_band_lies() -> None:
    net = build("band-resnet:channels=2,size=8,band=2,width=4", seed=1).eval()
    net.place.weight.data.normal_()
    views = vb.Band(2).views(torch.full((1, 1, 8, 8), 99, dtype=torch.uint8), torch.arange(8)[:, None], 255)
    assert len({tuple(scores) for scores in net(views).tolist()}) == 8  # the same pixels at eight places


def test_it_is_cast_to_16_bits() -> None:
    net = build("band-cnn:size=8,width=4", seed=1).bfloat16()
    views = vb.Band(2).views(torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8), torch.arange(8)[:, None], 255)
    assert net(views.bfloat16()).dtype == torch.bfloat16
    assert build("band-cnn:size=8").half() is not None


def test_it_is_fitted_to_views_and_refuses_others() -> None:
    for name, width in (("band-cnn", 32), ("band-resnet", 64)):
        assert fitting_views(f"{name}:band=4", (6, 32, 32), 10) == (
            f"{name}:channels=6,classes=10,size=32,band=4,width={width},axis=column"
        )
    for text, match in (
        ("band-cnn:channels=1", "v and 1 - v"),
        ("band-cnn:band=29", "wider than the picture"),
        ("band-resnet:channels=3", "band-resnet takes views of smoothing band"),
    ):
        with pytest.raises(BadInput, match=match):
            build(text)


def test_it_learns_and_certifies_digits(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(200) % 2
    pictures = (draw.integers(0, 60, (200, 1, 8, 8)) + 190 * labels[:, None, None, None]).astype(np.uint8)
    out = tmp_path / "net.safetensors"
    vb.train("band-cnn:width=4", (pictures, labels), "band:size=2", out=out, epochs=3, batch=20, lr=0.01, compile=False)
    smoothed = vb.SmoothedClassifier(load(str(out), None, "cpu"), "band:size=2", num_classes=2)
    certs = smoothed.certify(pictures[:20], labels[:20], progress=False)
    assert certs.accuracy(1.0) == 1.0
