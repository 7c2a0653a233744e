"""Augmentations do what they say."""

from __future__ import annotations

import pytest
import torch

from vauban.data import load
from vauban.poisoning.training.augmentation import AUGMENTATIONS, augmentation


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    return torch.from_numpy(load("mnist:split=test").images[:40].copy()).float() / 255


def test_the_middle_numbers_change_nothing(digits: torch.Tensor) -> None:
    for name in ("shift", "warp", "warp-far"):
        u = torch.full((len(digits), AUGMENTATIONS[name].numbers), 0.5)
        assert torch.allclose(augmentation(name).apply(digits, u), digits, atol=1e-5)
    assert augmentation("none").apply(digits, torch.zeros(len(digits), 0)) is digits


def test_shifts_are_cut_out_of_the_padded_picture(digits: torch.Tensor) -> None:
    u = torch.tensor([[0.0, 0.99]]).expand(len(digits), 2)
    padded = torch.nn.functional.pad(digits, (2, 2, 2, 2))
    assert torch.equal(augmentation("shift").apply(digits, u), padded[:, :, 0:28, 4:32])


def test_crops_are_mirrored_and_greyed_as_asked() -> None:
    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    u = torch.tensor([[0.5, 0.5, 0.9, 0.5, 0.5]])
    view = augmentation("crop-flip").apply(x, u)
    assert torch.equal(view[..., :12, :], x[..., :12, :])
    assert bool((view[..., 12:20, 12:20] == 0.5).all())
    mirrored = augmentation("crop-flip").apply(x, u - torch.tensor([[0, 0, 0.9, 0, 0]]))
    assert torch.equal(mirrored[..., :12, :], x.flip(3)[..., :12, :])
    assert torch.equal(augmentation("crop").apply(x, u - torch.tensor([[0, 0, 0.9, 0, 0]])), view)
    u = torch.rand(20, 12, generator=torch.Generator().manual_seed(1))
    one, other = (u * torch.tensor([1, 1, side, *[1] * 9]) for side in (0, 1))
    still = [augmentation("contrast-unmirrored").apply(x.expand(20, -1, -1, -1), some) for some in (one, other)]
    assert torch.equal(*still)


def test_contrast_views_stay_pictures() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(64, 3, 32, 32, generator=generator)
    view = augmentation("contrast").apply(x, torch.rand(64, 12, generator=generator))
    assert view.shape == x.shape
    assert float(view.min()) >= 0
    assert float(view.max()) <= 1
    grey = (view - view.mean(dim=1, keepdim=True)).abs().amax(dim=(1, 2, 3)) < 1e-6
    assert 4 <= int(grey.sum()) <= 24
