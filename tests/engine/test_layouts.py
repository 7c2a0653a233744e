"""A network computes channels-last where that gives the scores of the plain layout, and in the plain one where it does not."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import vauban as vb

PICTURES = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self, end: str) -> None:
        super().__init__()
        self.end, self.conv, self.drop = end, nn.Conv2d(1, 4, 3), nn.Dropout(0.5)
        self.last = nn.Linear(4 * 10 * 10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.conv(x)
        if self.end == "alias":
            functional.relu_(a.contiguous())  # in the plain layout this is `a` itself, channels-last a copy
        if self.end == "strides":
            return self.last(a.as_strided((len(a), 400), (400, 1)))
        return self.last(self.drop(a.view(len(a), -1) if self.end == "view" else a.flatten(1)))


def network(end: str) -> Net:
    torch.manual_seed(0)
    made = Net(end)
    nn.init.normal_(made.last.weight)
    return made


@pytest.mark.parametrize(
    ("end", "channels_last"), [("flatten", True), ("view", False), ("alias", False), ("strides", False)]
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_layout_does_not_change_the_network(end: str, channels_last: bool, precision: str) -> None:
    module = network(end)  # in training mode, and left in it
    smoothed = vb.SmoothedClassifier(
        module, vb.Gaussian(0.5), num_classes=3, rows=50, precision=precision, backend="torch"
    )
    counts = smoothed.certify(PICTURES, label="votes", n=200, seed=1, progress=False).counts
    assert smoothed.network.channels_last is channels_last
    assert module.training
    plain = vb.SmoothedClassifier(
        module, vb.Gaussian(0.5), num_classes=3, rows=50, precision=precision, backend="torch", channels_last=False
    )
    expected = plain.certify(PICTURES, label="votes", n=200, seed=1, progress=False).counts
    assert abs(counts - expected).max() <= (0 if not channels_last else 4)
