"""What a search goes by: votes of some views first where an exact smoothing has many, and the answer that all of them give."""

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.attacks.targets import SmoothedTarget


class Brightness(torch.nn.Module):
    """Class 1 where the mean of a view is above a half."""

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)


@pytest.fixture(scope="module")
def target() -> SmoothedTarget:
    smoothed = vb.SmoothedClassifier(Brightness(), "splitting:sigma=2", num_classes=2)
    return SmoothedTarget(smoothed, torch.Size((1, 4, 4)))


def pictures(means: torch.Tensor) -> torch.Tensor:
    noise = torch.rand(len(means), 1, 4, 4, generator=torch.Generator().manual_seed(5)) - 0.5
    return ((means[:, None, None, None] + 0.2 * noise).clamp(0, 1) * 255).round() / 255


def test_the_answer_is_that_of_all_views_and_clear_inputs_take_few(target: SmoothedTarget) -> None:
    x = pictures(torch.linspace(0.02, 0.98, 60))
    labels = torch.zeros(60, dtype=torch.int64)
    counts = target.hard(x)
    every = int(counts[0].sum())
    wanted = target._outside_top(counts, labels)
    assert every > 4 * 128
    assert wanted.any()
    assert not wanted.all()
    before = target.views
    assert torch.equal(target.adversarial(x, labels), wanted)
    assert (target.views - before) < 0.8 * every * len(x)  # those with the label far ahead take an eighth
    before = target.views
    assert not target.adversarial(x[:5], labels[:5]).any()
    assert target.views - before < every * 5 / 3
    assert (target.lead(x, labels)[wanted] > 0).all()


def test_the_first_views_are_spread_and_every_view_votes_once(target: SmoothedTarget) -> None:
    words = target._all.words(pictures(torch.tensor([0.5])))
    first, rest = target._split(words, 128)
    together = np.sort(torch.cat([first, rest])[:, 0, 0].numpy())
    assert np.array_equal(together, np.arange(len(words)))
    assert 128 <= len(first) < 256
    assert np.ptp(first[:, 0, 0].numpy()) > 0.95 * len(words)
