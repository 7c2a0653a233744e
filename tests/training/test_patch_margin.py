"""patch-margin: with sharp votes its leads are those of the certificate, and training with it certifies more."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput
from vauban.laws.exact import Ballots
from vauban.laws.patches.exact import ExactBandLaw, ExactBlockLaw
from vauban.models import load
from vauban.smoothing import build as smoothing_of
from vauban.training.losses import build, patch_deficit, patch_lead


@pytest.mark.parametrize(
    ("law", "easy"), [(ExactBandLaw(2, threshold=0.3), 2.5), (ExactBlockLaw(3, threshold=0.3, stride=2), 1.5)]
)
def test_sharp_votes_lead_where_the_certificate_stands(law: Any, easy: float) -> None:
    law = law.for_shape((1, 8, 8))
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (300,), generator=draw)
    scores = torch.randn(law.views, 300, 4, generator=draw)
    scores.scatter_add_(2, labels[None, :, None].expand(law.views, -1, 1), torch.full((law.views, 300, 1), easy))
    votes = (scores.softmax(-1) >= 0.3).movedim(0, 1).numpy()
    stands = law.stands(Ballots(votes, 4), labels.numpy(), patch=(2, 2))
    touched = torch.from_numpy(law.touched((2, 2))).float()
    lead = patch_lead(scores, labels, touched, 0.3, sharpness=1e6).flatten(1).min(dim=1).values.numpy()
    assert 20 < stands.sum() < 280
    assert stands[lead > 0.5].all()
    assert (lead[stands] > -0.5).all()  # a tie goes to the smaller label


def test_the_deficit_is_what_the_worst_lead_lacks() -> None:
    lead = torch.tensor([[[torch.inf, 2.0, 5.0]], [[1.0, torch.inf, -4.0]]])
    assert patch_deficit(lead, target=3.0, softness=0.01).item() == pytest.approx((1 + 7) / 2, abs=0.01)


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of 8 x 8 in which a few of the columns, others each time, show the class."""
    draw = np.random.default_rng(1)
    labels = np.arange(count) % 3
    pictures = draw.integers(0, 40, (count, 1, 8, 8))
    for i, label in enumerate(labels):
        columns = draw.choice(8, 7, replace=False)
        pictures[i, 0, 2 * label : 2 * label + 2, columns] += 120
    return pictures.astype(np.uint8), labels


@pytest.mark.slow
def test_after_as_short_a_training_more_is_certified_than_without_it(tmp_path: Path) -> None:
    """Over three trainings of four epochs; after longer ones both certify all of these pictures."""
    pictures, labels = digits(240)
    recipe: dict[str, Any] = {"epochs": 4, "batch": 20, "lr": 0.01, "compile": False}
    means = []
    for loss in ("noise", "patch-margin:side=2,weight=0.3,target=1,warm=0.3"):
        certified = []
        for seed in (1, 2, 3):
            out = tmp_path / f"{len(means)}-{seed}.safetensors"
            vb.train(
                "band-cnn:width=4,band=1", (pictures, labels), "band:size=1", out=out, loss=loss, seed=seed, **recipe
            )
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a threshold changes no view, so there is nothing to warn of
                smoothed = vb.SmoothedClassifier(
                    load(str(out), None, "cpu"), "band:size=1,threshold=0.3", num_classes=3
                )
            certified.append(smoothed.certify(pictures, labels, progress=False).accuracy(2.0))
        means.append(np.mean(certified))
    assert means[1] > means[0] + 0.1


def test_it_refuses_what_has_no_list_of_views() -> None:
    loss = build("patch-margin:side=3")
    for smoothing in ("gaussian:sigma=0.5", "band:size=2,sampled=true"):
        with pytest.raises(BadInput, match="use exact band or block"):
            loss.check(smoothing_of(smoothing))
    with pytest.raises(BadInput, match="one label for each picture"):
        loss.check(vb.Band(2), soft_labels=True)
    for text in (
        "patch-margin:threshold=0",
        "patch-margin:warm=1",
        "patch-margin:softness=0",
        "patch-margin:weight=-1",
        "patch-margin:target=nan",
    ):
        with pytest.raises(BadInput, match=f"^{text}: .* must be a"):
            build(text)


def test_it_must_fit_its_smoothing() -> None:
    smoothing, shape = vb.Band(2, threshold=0.2), torch.Size((1, 8, 8))
    for text in ("patch-margin", "patch-margin:threshold=0.4", "patch-margin:threshold=0.4+consistency"):
        with pytest.raises(BadInput, match=r"has threshold=0.[34], and band.* another: give .*, threshold=0.2$"):
            build(text).check(smoothing)
    build("patch-margin:threshold=0.2").check(smoothing)
    build("patch-margin:threshold=0.4").check(vb.Band(2))  # a threshold may be chosen when certifying
    with pytest.raises(BadInput, match="side=9 is larger than pictures of 8 x 8"):
        build("patch-margin:side=9").check_shape(smoothing, shape)
    with pytest.raises(BadInput, match="target=9 is more than the 8 votes of band"):
        build("patch-margin:target=9").check_shape(smoothing, shape)
    build("patch-margin:side=8,target=8").check_shape(smoothing, shape)
    with pytest.raises(BadInput, match="use exact band or block"):
        build("patch-margin").check_shape(vb.Gaussian(0.5), shape)
