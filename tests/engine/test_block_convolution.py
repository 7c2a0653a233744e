"""Layouts: the same answers, whatever lies where; convolutions over blocks of pixels against the plain ones."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vauban.engine import network as network_module
from vauban.engine.block_convolution import BlockConvolution, replace_by_blocks
from vauban.engine.network import Network
from vauban.models import load
from vauban.models.layouts import channels_last_is_faster
from vauban.runs.manifest import read
from vauban.smoothed import SmoothedClassifier

SHAPES = [
    ((k, k2), s, (p, p2), size)
    for k, k2, s, p, p2, size in product((2, 3, 7), (3, 4), (2, 3, 4), (0, 1, 3), (0, 2), (7, 8, 33))
]


def test_blocks_give_what_pixels_give() -> None:
    torch.manual_seed(0)
    for (kernel, stride, padding, size), channels in product(SHAPES, (1, 3, 6)):
        plain = nn.Conv2d(channels, 4, kernel, stride, padding, bias=channels != 3).double()
        x = torch.randn(2, channels, size, size + 1, dtype=torch.double)
        blocks = BlockConvolution(plain)
        assert blocks.training
        torch.testing.assert_close(blocks(x), plain(x))
        torch.testing.assert_close(blocks(x.contiguous(memory_format=torch.channels_last)), plain(x))


def test_blocks_take_and_refuse_what_pixels_do() -> None:
    plain = nn.Conv2d(3, 4, 7, 2, 1)
    blocks = BlockConvolution(plain)
    for x in (torch.rand(3, 12, 12), torch.rand(0, 3, 12, 12)):
        torch.testing.assert_close(blocks(x), plain(x))
    for shape, why in (
        ((1, 3, 4, 12), "Kernel size can't be greater"),
        ((1, 4, 12, 12), "to have 3 channels"),
    ):
        with pytest.raises(RuntimeError, match=why):
            plain(torch.rand(shape))
        with pytest.raises(RuntimeError, match=why):
            blocks(torch.rand(shape))


def test_blocks_lie_as_tensor_cores_take_them() -> None:
    taken: list[torch.Tensor] = []
    blocks = BlockConvolution(nn.Conv2d(3, 4, 7, 2, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.functional, "conv2d", lambda *tensors: taken.extend(tensors[:2]) or tensors[0])
        blocks(torch.rand(2, 3, 12, 12))
    for tensor, shape in zip(taken, [(2, 16, 9, 9), (4, 16, 4, 4)], strict=True):
        assert tensor.shape == shape
        assert tensor.is_contiguous(memory_format=torch.channels_last)


def test_blocks_are_of_the_weights_as_they_are() -> None:
    torch.manual_seed(0)
    plain, x = nn.Conv2d(3, 4, 7, 2, 3), torch.rand(2, 3, 12, 12)
    blocks = BlockConvolution(plain)
    with torch.no_grad():
        plain.weight.mul_(2)
        assert plain.bias is not None
        plain.bias.add_(1)
    torch.testing.assert_close(blocks(x), plain(x))
    theirs, ours = (torch.autograd.grad(m(x).square().sum(), [plain.weight, plain.bias]) for m in (plain, blocks))
    for one, other in zip(theirs, ours, strict=True):
        torch.testing.assert_close(one, other)


class Odd(nn.Module):
    """What is and what is not taken by blocks, and a convolution that is there three times."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3)
        self.same = self.stem
        self.again = nn.Sequential(self.stem)
        self.narrow = nn.Conv2d(3, 8, 3, 1, 1)
        self.wide = nn.Conv2d(8, 8, 3, 2, 1)
        self.apart = nn.Conv2d(3, 6, 3, 2, groups=3)
        self.spread = nn.Conv2d(3, 8, 3, 2, dilation=2)
        self.around = nn.Conv2d(3, 8, 3, 2, 1, padding_mode="circular")
        self.uneven = nn.Conv2d(3, 8, 3, (2, 1), 1)
        self.watched = nn.Conv2d(3, 8, 3, 2, 1)
        self.watched.register_forward_hook(lambda *_: None)
        self.warned = nn.Conv2d(3, 8, 3, 2, 1)
        self.warned.register_forward_pre_hook(lambda *_: None)
        self.changed = nn.Conv2d(3, 8, 3, 2, 1)
        self.changed._conv_forward = lambda x, weight, bias: nn.functional.conv2d(x, weight, bias, 2, 1).flip(2)  # type: ignore[method-assign]
        self.sparse = nn.Conv2d(3, 8, 2, 3)
        self.whole = nn.Conv2d(3, 8, 3, 2, 1)
        self.whole.stride = 2  # type: ignore[assignment]
        self.fixed = nn.Conv2d(3, 8, 3, 2, 1)
        weight = self.fixed.weight.data
        del self.fixed.weight
        self.fixed.register_buffer("weight", weight)
        self.replaced = nn.Conv2d(3, 8, 3, 2, 1)
        self.replaced.weight = nn.Parameter(torch.rand(8, 3, 4, 4))
        self.scaled = torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.stem(x), self.again(x), self.narrow(x), self.wide(self.narrow(x)), self.apart(x), self.spread(x)]
        parts += [self.around(x), self.uneven(x), self.watched(x), self.warned(x), self.changed(x), self.sparse(x)]
        parts += [self.whole(x), self.fixed(x), self.replaced(x), self.scaled(x), self.same(x)]
        again = nn.functional.conv2d(x, self.stem.weight, self.stem.bias, 2, 3)  # a model may read the weights itself
        return torch.cat([part.flatten(1) for part in (*parts, again)], dim=1)


def test_only_plain_strides_over_few_channels_are_replaced_by_blocks() -> None:
    torch.manual_seed(0)
    module, x = Odd().eval(), torch.rand(2, 3, 21, 20)
    before, keys = module(x), set(module.state_dict())
    assert channels_last_is_faster(module, 3, "cpu")
    assert not Network(module, torch.device("cpu")).by_blocks
    replace_by_blocks(module)
    assert Network(module, torch.device("cpu")).by_blocks == ["stem", "same", "again.0"]
    torch.testing.assert_close(module(x), before)
    assert set(module.state_dict()) == keys
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module.stem))):
        again = other if isinstance(other, BlockConvolution) else other.stem
        torch.testing.assert_close(again(x), module.stem(x), rtol=0, atol=0)
    module.load_state_dict({name: 2 * value for name, value in module.state_dict().items()})
    torch.testing.assert_close(module.stem(x), nn.functional.conv2d(x, module.stem.weight, module.stem.bias, 2, 3))
    assert module.to(torch.bfloat16).stem(x.bfloat16()).dtype == torch.bfloat16


@pytest.fixture(scope="module")
def resnet50() -> nn.Module:
    """Random weights, which take longer to draw than all that is asked of them."""
    return load("resnet50", allow_random=True).module


@pytest.mark.parametrize(
    ("device", "precision", "channels_last", "by_blocks"),
    [("cpu", "fp32", True, []), ("cpu", "bf16", True, []), ("cuda", "fp32", False, []), ("cuda", "tf32", True, []),
     ("cuda", "fp16", True, []), ("cuda", "bf16", True, ["conv1"])],
)  # fmt: skip
def test_each_device_and_precision_has_its_layout(
    resnet50: nn.Module, device: str, precision: str, channels_last: bool, by_blocks: list[str]
) -> None:
    module = copy.deepcopy(resnet50)
    strides = [part.weight.stride() for part in module.modules() if isinstance(part, nn.Conv2d)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "check_precision", lambda precision, device: precision)
        network, flat = (Network(module, torch.device(device), precision, backend="torch") for _ in range(2))
    network.prepare((3, 64, 64))
    assert network.channels_last == channels_last
    assert network.by_blocks == by_blocks
    assert not Network(module, torch.device("cpu")).by_blocks
    assert [part.weight.stride() for part in module.modules() if isinstance(part, nn.Conv2d)] == strides
    flat.prepare((10,))
    assert not flat.channels_last


def test_a_run_says_which_convolutions_are_replaced_by_blocks(tmp_path: Any) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 4)).eval()
    blocks = copy.deepcopy(plain)
    replace_by_blocks(blocks)
    inputs = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8), dtype=np.uint8)
    said = []
    for name, module in (("plain", plain), ("blocks", blocks)):
        smoothed = SmoothedClassifier(module, "gaussian:sigma=0.5", num_classes=4, rows=20)
        smoothed.certify(inputs, [0, 0, 0], n=100, seed=1, out=tmp_path / name)
        said.append(read(tmp_path / name).raw["compute"])
    assert said[1].pop("by_blocks") == ["0"]
    assert said[0] == said[1]
