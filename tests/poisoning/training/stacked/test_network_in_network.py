"""Network in network, stacked, against the same network of torch's own layers; and one poisoned part changes one of them."""

import numpy as np
import pytest
import torch
from torch import nn

from vauban.poisoning import Ensemble, Partition
from vauban.poisoning.training.stacked.build_trainer import build_trainer
from vauban.poisoning.training.stacked.network_in_network import pooled
from vauban.poisoning.training.stacked.stacked_networks import initial_weights, network

BLOCKS = (
    ((3, 192, 5), (192, 160, 1), (160, 96, 1)),
    ((96, 192, 5), (192, 192, 1), (192, 192, 1)),
    ((192, 192, 3), (192, 192, 1), (192, 192, 1)),
)


def reference(classes: int) -> nn.Sequential:
    """The network as it is usually written."""
    layers: list[nn.Module] = []
    for number, block in enumerate(BLOCKS):
        for inputs, outputs, kernel in block:
            convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
            layers += [convolution, nn.BatchNorm2d(outputs, momentum=0.05), nn.ReLU()]
        pools = [nn.MaxPool2d(3, stride=2, padding=1), nn.AvgPool2d(3, stride=2, padding=1)]
        layers += pools[number : number + 1]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, classes))


@pytest.mark.parametrize("training", [False, True])
def test_scores_are_those_of_torchs_own_layers(training: bool) -> None:
    torch.manual_seed(0)
    specs = network("nin").weights((3, 12, 16), 5)
    weights = initial_weights(specs, lambda i, count: torch.rand(2, count))
    x = torch.rand(2, 3, 12, 16, 3)
    scores = network("nin").forward({k: v.clone() for k, v in weights.items()}, x, training)
    for model in range(2):
        modules = reference(5).train(training)
        names = [f"block{b}{c}" for b in (1, 2, 3) for c in "abc"]
        convolutions = [m for m in modules if isinstance(m, nn.Conv2d)]
        with torch.no_grad():
            for convolution, name in zip(convolutions, names, strict=True):
                convolution.weight.copy_(weights[f"{name}.weight"][model])
            modules[-1].weight.copy_(weights["fc.weight"][model].T)
            modules[-1].bias.copy_(weights["fc.bias"][model])
            expected = modules(x[model].permute(0, 3, 1, 2))
        assert torch.allclose(scores[model], expected, atol=1e-4)


def test_pools_are_torchs() -> None:
    x = torch.rand(2, 3, 7, 10)
    assert torch.allclose(pooled(x, largest=True), nn.functional.max_pool2d(x, 3, 2, 1))
    assert torch.allclose(pooled(x, largest=False), nn.functional.avg_pool2d(x, 3, 2, 1))


@pytest.mark.slow
def test_one_poisoned_sample_changes_one_network_in_network() -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (12, 3, 8, 8), dtype=np.uint8), np.arange(12) % 3
    trainer = build_trainer((3, 8, 8), 3, model="nin:steps=1,batch=4,group=2")
    clean = Ensemble.fit(x, y, Partition(3), trainer)
    other = y.copy()
    other[0] = (y[0] + 1) % 3
    poisoned = Ensemble.fit(x, other, Partition(3), trainer)
    differ = [a != b for a, b in zip(clean.fingerprints, poisoned.fingerprints, strict=True)]
    assert sum(differ) == 1
