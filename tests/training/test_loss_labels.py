"""Labels that no loss can use are refused in a sentence, also in a training loop of one's own."""

from collections.abc import Callable

import pytest
import torch

import vauban as vb
from vauban.errors import BadInput

SCORES = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))  # two views of four inputs, three classes
NETWORK = torch.nn.Linear(5, 3)
X = torch.rand(4, 5, generator=torch.Generator().manual_seed(1))
TOUCHED = torch.ones(1, 2)

LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "noise": lambda labels: vb.losses.noise(SCORES, labels),
    "consistency": lambda labels: vb.losses.consistency(SCORES, labels),
    "stability": lambda labels: vb.losses.stability(SCORES, labels),
    "macer": lambda labels: vb.losses.macer(SCORES, labels, 0.25),
    "patch_lead": lambda labels: vb.losses.patch_lead(SCORES, labels, TOUCHED, 0.3),
    "adversarial": lambda labels: vb.losses.adversarial(NETWORK, vb.Gaussian(0.25), X, labels),
    "type2": lambda labels: vb.losses.type2(NETWORK, vb.Gaussian(0.25), X, labels, views=2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_labels_that_are_no_classes_or_too_few_are_refused(name: str) -> None:
    loss, good = LOSSES[name], torch.tensor([0, 1, 2, 0])
    assert loss(good).isfinite().any()
    for label in (3, -1, -100):
        with pytest.raises(BadInput, match=r"scores of 3 classes: labels from 0 to 2 are needed"):
            loss(torch.tensor([0, 1, 2, label]))
    for wrong in (good[:3], good[None], torch.rand(3, 3), torch.rand(4)):
        with pytest.raises(BadInput, match=r"labels are .*, and needed are int64 \[4\], one for each input, or prob"):
            loss(wrong)
    with pytest.raises(BadInput, match=r"labels are int32 \[4\], .*: labels\.long\(\)"):
        loss(good.int())
    with pytest.raises(BadInput, match="labels are a list: a tensor is needed"):
        loss([0, 1, 2, 0])  # type: ignore[arg-type]


def test_probabilities_are_of_as_many_classes_as_scores() -> None:
    soft = torch.full((4, 3), 1 / 3)
    assert vb.losses.noise(SCORES, soft).isfinite()
    assert vb.losses.noise(SCORES, torch.tensor([0, 1, 2, 0], dtype=torch.uint8)).isfinite()
    with pytest.raises(BadInput, match=r"labels are float32 \[4, 2\], and needed are .* probabilities \[4, 3\]"):
        vb.losses.noise(SCORES, soft[:, :2])
