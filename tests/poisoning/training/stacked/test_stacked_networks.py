"""Stacked networks of ensembles, against torch's own layers on one model at a time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn
from torch.nn import functional

from vauban.poisoning.training.stacked.stacked_networks import convolve, initial_weights, network


@pytest.mark.parametrize(
    ("kernel", "stride", "side"), [(1, 1, 4), (3, 1, 5), (3, 2, 7), (3, 2, 8), (5, 2, 6), (5, 3, 9)]
)
def test_convolutions_and_their_gradients_are_the_usual_ones(kernel: int, stride: int, side: int) -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    x, weight, bias = random(2, 3, side, side, 4), random(2, kernel * kernel * 4, 5), random(2, 5)
    out = convolve(x, weight, bias, stride)
    direction = torch.rand(out.shape, generator=generator, dtype=torch.float64)
    gradients = torch.autograd.grad((out * direction).sum(), (x, weight, bias))
    for i in range(2):
        kernels = weight[i].view(kernel, kernel, 4, 5).permute(3, 2, 0, 1)
        usual = functional.conv2d(x[i].permute(0, 3, 1, 2), kernels, bias[i], stride, kernel // 2).permute(0, 2, 3, 1)
        torch.testing.assert_close(out[i], usual)
        expected = torch.autograd.grad((usual * direction[i]).sum(), (x, weight, bias))
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours[i], theirs[i])


def test_the_residual_network_is_the_usual_one() -> None:
    """One step of training mode and one of scoring, against torch's own layers on one model at a time."""
    net = network("residual")
    generator = torch.Generator().manual_seed(0)
    weights = initial_weights(net.weights((3, 16, 16), 4), lambda _, count: torch.rand(3, count, generator=generator))
    x = torch.rand(3, 5, 16, 16, 3, generator=generator)
    before = {name: value.clone() for name, value in weights.items()}
    for training in (True, False):
        scores = net.forward(weights, x, training)
        for which in range(3):
            own = {name: (before if training else weights)[name][which] for name in weights}
            torch.testing.assert_close(scores[which], usual(own, x[which], training), rtol=1e-3, atol=1e-3)
    assert not torch.equal(before["stem.mean"], weights["stem.mean"])


def usual(own: Mapping[str, torch.Tensor], x: torch.Tensor, training: bool) -> torch.Tensor:
    def layer(x: torch.Tensor, name: str) -> torch.Tensor:
        norm = nn.BatchNorm2d(len(own[f"{name}.scale"])).train(training)
        norm.load_state_dict(
            {
                "weight": own[f"{name}.scale"],
                "bias": own[f"{name}.bias"],
                "running_mean": own[f"{name}.mean"],
                "running_var": own[f"{name}.var"],
                "num_batches_tracked": torch.tensor(0),
            }
        )
        return norm(functional.conv2d(x, own[f"{name}.weight"], padding=1)).relu()

    x = layer(x.permute(0, 3, 1, 2), "stem")
    for stage in (1, 2, 3):
        x = functional.max_pool2d(layer(x, f"down{stage}"), 2)
        if stage < 3:
            x = x + layer(layer(x, f"res{stage}a"), f"res{stage}b")
    return x.mean(dim=(2, 3)) @ own["fc.weight"] + own["fc.bias"]
