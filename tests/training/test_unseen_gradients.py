"""Training in bf16 on a CPU gives the gradients of float64 arithmetic, also where a kernel sees nothing but padding."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import vauban as vb
from vauban.models import build
from vauban.training.unseen_gradients import seen_positions, unseen_zeroed

LAYERS = [
    nn.Conv2d(16, 16, 3, stride=2, padding=1),
    nn.Conv2d(16, 16, 3, stride=(1, 3), padding=1, groups=8),
    nn.Conv2d(16, 16, (3, 5), stride=(2, 4), padding=2),
    nn.Conv2d(16, 16, 3, padding="same", dilation=2),
    nn.Conv2d(16, 16, 3, stride=2, padding=1, padding_mode="circular"),
    nn.Conv2d(16, 16, 2, stride=2, padding=1, dilation=2),
]


def gradient(layer: nn.Module, x: torch.Tensor, upstream: torch.Tensor) -> torch.Tensor:
    """The gradient of the weights, where memory that torch may hand out was full of NaN before."""
    layer.zero_grad()
    output = layer(x)
    junk = torch.full((1 << 20,), torch.nan)
    del junk
    output.backward(upstream)
    grad = layer.weight.grad
    assert isinstance(grad, torch.Tensor)
    return grad.double()


@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradients_in_bf16_are_those_of_float64(layer: nn.Conv2d, width: int) -> None:
    if layer.padding_mode == "circular" and width == 1:
        width = 4  # torch takes no wider padding than the input
    draw = torch.Generator().manual_seed(width)
    x = torch.randn(4, 16, 8, width, generator=draw).bfloat16().contiguous(memory_format=torch.channels_last)
    own = copy.deepcopy(layer).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with unseen_zeroed(own, x.float(), "bf16"):
        own.bfloat16()
        upstream = torch.randn(own(x).shape, generator=draw).bfloat16()
        expected = gradient(copy.deepcopy(own).double(), x.double(), upstream.double())
        for _ in range(5):
            found = gradient(own, x, upstream)
            assert float((found - expected).norm()) <= 0.02 * float(expected.norm()) + 1e-6


def test_a_position_is_seen_where_its_gradient_is_not_zero() -> None:
    """All small layers: with inputs and upstream gradients of ones, a weight's gradient counts how often a value is seen."""
    tried = 0
    for side, kernel, stride, padding, dilation in itertools.product(
        range(1, 6), range(1, 5), range(1, 5), range(4), (1, 2)
    ):
        if side + 2 * padding <= dilation * (kernel - 1):
            continue
        layer = nn.Conv1d(1, 1, kernel, stride, padding, dilation, bias=False)
        layer(torch.ones(1, 1, side)).sum().backward()
        assert layer.weight.grad is not None
        assert seen_positions(layer, (side,)).tolist() == (layer.weight.grad[0, 0] > 0).tolist()
        tried += 1
    assert tried > 400


def test_training_a_network_on_narrow_views_in_bf16_repeats_bit_for_bit() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (8, 3, 32, 32), dtype=np.uint8), np.arange(8)
    network = build("band-resnet:band=1,width=4,channels=6,size=32,classes=8")
    settings = {"epochs": 3, "batch": 4, "lr": 0.01, "precision": "bf16", "augment": "none"}
    found = []
    for _ in range(3):
        junk = torch.full((1 << 20,), torch.nan)
        del junk
        trained = vb.train(network, (x, y), "band:size=1", **settings)
        found.append(torch.cat([p.flatten() for p in trained.network.parameters()]))
    assert found[0].isfinite().all()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_layers_may_be_called_by_keyword() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(input=x).mean((2, 3)))

    data = (np.random.default_rng(0).integers(0, 256, (8, 1, 8, 1), dtype=np.uint8), np.arange(8) % 2)
    trained = vb.train(Named(), data, "gaussian:sigma=0.5", epochs=1, batch=8, precision="bf16").network
    assert trained.layer.weight.isfinite().all()


def test_what_training_returns_has_all_gradients_on_other_inputs() -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    data = (np.random.default_rng(0).integers(0, 256, (8, 1, 8, 1), dtype=np.uint8), np.arange(8) % 2)
    trained = vb.train(network, data, "gaussian:sigma=0.5", epochs=1, batch=8, precision="bf16").network
    trained.requires_grad_(True)
    trained(torch.rand(2, 1, 8, 8)).square().sum().backward()
    assert (trained[0].weight.grad != 0).all()
