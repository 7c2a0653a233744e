"""Input transforms, against slow versions of what they say they do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vauban.data import load
from vauban.errors import BadInput
from vauban.poisoning.training.input_transforms import gradients, input_transform, upright


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    return torch.from_numpy(load("mnist:split=test").images[:40].copy()).float() / 255


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
