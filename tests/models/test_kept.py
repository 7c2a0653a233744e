"""band-cnn finds the kept band wherever it lies and sees nothing else; it is trained and certified by name."""

from pathlib import Path

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput
from vauban.models import build, fitting_views, load
from vauban.models.kept import BandCnn


@pytest.mark.parametrize("axis", ["column", "row"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_band_of_a_view_is_found_wherever_it_lies(axis: str, channels: int) -> None:
    pictures = torch.randint(0, 256, (1, channels, 8, 8), dtype=torch.uint8)
    pictures[:, :, :, 3] = 0  # a black column is kept like any other
    words = torch.arange(8)[:, None]
    views = vb.Band(3, axis=axis).views(pictures, words, 255)
    net = BandCnn(2 * channels, 10, 8, 3, 4, axis == "row")
    band, first = net.kept(views)
    assert first.tolist() == list(range(8))
    values = (pictures[0].float() / 255).movedim(1 if axis == "row" else 2, 1)  # [channel, across, along]
    wanted = torch.stack([values[:, [(start + k) % 8 for k in range(3)]].flatten(0, 1) for start in range(8)])
    assert torch.equal(band, wanted)
    assert net(views).shape == (8, 10)


def test_scores_do_not_depend_on_what_a_view_hides() -> None:
    pictures = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    pictures[1, :, :, 2:4] = pictures[0, :, :, 2:4]
    words = torch.full((2, 1), 2)
    scores = build("band-cnn:size=8,width=4", seed=1)(vb.Band(2).views(pictures, words, 255))
    assert torch.equal(scores[0], scores[1])


def test_it_is_cast_to_16_bits() -> None:
    net = build("band-cnn:size=8,width=4", seed=1).bfloat16()
    views = vb.Band(2).views(torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8), torch.arange(8)[:, None], 255)
    assert net(views.bfloat16()).dtype == torch.bfloat16
    assert build("band-cnn:size=8").half() is not None


def test_it_is_fitted_to_views_and_refuses_others() -> None:
    assert fitting_views("band-cnn:band=4", (6, 32, 32), 10) == (
        "band-cnn:channels=6,classes=10,size=32,band=4,width=32,axis=column"
    )
    for text, match in (("band-cnn:channels=1", "v and 1 - v"), ("band-cnn:band=29", "wider than the picture")):
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
