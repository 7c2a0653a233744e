"""Front ends and augmentations, against what they say they do, and numbers that have addresses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vauban.data import load
from vauban.errors import BadInput
from vauban.poisoning.training.augmentation import AUGMENTATIONS, augmentation
from vauban.poisoning.training.input_transforms import gradients, input_transform, upright
from vauban.poisoning.training.random_numbers import uniforms


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    return torch.from_numpy(load("mnist:split=test").images[:40].copy()).float() / 255


def test_numbers_are_uniform_and_those_of_a_lane_its_own() -> None:
    lanes = torch.tensor([0, 1, 7, 2**40])
    u = uniforms(3, lanes, "steps", 5, 20_000)
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    assert torch.allclose(u.mean(dim=1), torch.tensor(0.5), atol=0.01)
    assert torch.allclose(u.var(dim=1), torch.tensor(1 / 12), atol=0.003)
    assert float(torch.corrcoef(u).fill_diagonal_(0).abs().max()) < 0.03
    assert float(torch.corrcoef(torch.stack([u[0, :-1], u[0, 1:]]))[0, 1].abs()) < 0.03
    assert torch.equal(uniforms(3, lanes[2:3], "steps", 5, 20_000)[0], u[2])
    assert torch.equal(uniforms(3, lanes, "steps", 5, 10), u[:, :10])
    others = (4, "steps", 5), (3, "views", 5), (3, "steps", 6)
    assert all(not torch.equal(uniforms(seed, lanes, why, step, 10), u[:, :10]) for seed, why, step in others)


def test_numbers_follow_the_definition() -> None:
    """SplitMix64 with Python's whole numbers."""

    def mix(z: int) -> int:
        z = (z + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    state = 11
    for word in (6, 1, 9):
        state = (mix(state) + word) % 2**64
    expected = [(mix((mix(state) + i * 0x9E3779B97F4A7C15) % 2**64) >> 40) / 2**24 for i in (1, 2, 3)]
    assert uniforms(11, torch.tensor([6]), "views", 9, 3)[0].tolist() == expected


def test_an_upright_picture_has_no_shift_no_slant_and_the_usual_spread(digits: torch.Tensor) -> None:
    inside = digits[digits[:, :, -2:].sum(dim=(1, 2, 3)) == 0]
    shifted = torch.roll(inside, (2, -2), (2, 3))
    assert float((upright(shifted) - upright(inside)).abs().max()) < 1e-4
    ink = upright(digits)[:, 0]
    ink = ink / ink.sum(dim=(1, 2), keepdim=True)
    at = torch.arange(28) - 13.5
    y, x = (ink.sum(dim=2) * at).sum(dim=1), (ink.sum(dim=1) * at).sum(dim=1)
    cov = torch.einsum("nij,i,j->n", ink, at, at) - x * y
    var_y = (ink.sum(dim=2) * at**2).sum(dim=1) - y**2
    assert float(torch.stack([x, y]).abs().max()) < 0.5
    assert float((cov / var_y).abs().median()) < 0.05
    assert float((var_y.sqrt() - 4.7).abs().median()) < 0.3
    assert torch.isfinite(upright(torch.zeros(2, 1, 28, 28))).all()
    with pytest.raises(BadInput, match="grey ones"):
        upright(torch.zeros(2, 3, 28, 28))


def test_gradients_by_a_loop(digits: torch.Tensor) -> None:
    """Every pixel's gradient shared out by hand, then pooled by hand."""
    picture = digits[3, 0].double().numpy()
    padded = np.pad(picture, 1)
    shares = np.zeros((8, 28, 28))
    for i in range(28):
        for j in range(28):
            g = np.array([padded[i + 1, j + 2] - padded[i + 1, j], padded[i + 2, j + 1] - padded[i, j + 1]])
            for d in range(8):
                along = max(0.0, g @ [np.cos(np.pi * d / 4), np.sin(np.pi * d / 4)])
                shares[d, i, j] = along**4 / (g @ g + 1e-8) ** 1.5
    pooled = np.zeros((8, 14, 14))
    weights = np.exp(-((2 * np.arange(14)[:, None] + 0.5 - np.arange(28)) ** 2) / (2 * 1.2**2))
    weights /= weights.sum(axis=1, keepdims=True)
    for d in range(8):
        pooled[d] = weights @ shares[d] @ weights.T
    expected = np.sqrt(pooled / np.linalg.norm(pooled)) * (8 * 14 * 14) ** 0.25
    np.testing.assert_allclose(gradients(digits[3:4])[0].numpy(), expected, atol=2e-3)


def test_gradients_turn_with_the_picture(digits: torch.Tensor) -> None:
    turned = gradients(torch.rot90(digits, 2, (2, 3)))
    assert torch.allclose(turned, torch.rot90(gradients(digits), 2, (2, 3)).roll(4, dims=1), atol=2e-3)
    assert torch.allclose(gradients(0.5 * digits), gradients(digits), atol=1e-2)
    assert torch.isfinite(gradients(torch.zeros(2, 1, 28, 28))).all()


def test_front_ends_are_functions_of_one_picture(digits: torch.Tensor) -> None:
    for name in ("none", "upright", "gradients"):
        transform = input_transform(name)
        whole = transform.after(transform.before(digits))
        assert torch.allclose(transform.after(transform.before(digits[5:6]))[0], whole[5], atol=1e-5)


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


def test_contrast_views_stay_pictures() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(64, 3, 32, 32, generator=generator)
    view = augmentation("contrast").apply(x, torch.rand(64, 12, generator=generator))
    assert view.shape == x.shape
    assert float(view.min()) >= 0
    assert float(view.max()) <= 1
    grey = (view - view.mean(dim=1, keepdim=True)).abs().amax(dim=(1, 2, 3)) < 1e-6
    assert 4 <= int(grey.sum()) <= 24
