"""Networks for views that keep a band of a picture: they find the band, and look at nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vauban.errors import BadInput
from vauban.models.resnet import Basic, convolution


def kept_band(x: Tensor, band: int, rows: bool) -> tuple[Tensor, Tensor]:
    """The pixels [n, c, size, band] of the kept band of views, and the number [n] of its first column (or row).

    Views [n, 2 c, size, size] hold (v, 1 - v) where they keep a pixel and (0, 0) elsewhere. The `band` columns (or rows) from the
    first kept one on are taken out, wrapping around: less work than looking at the whole view, and the same information, since
    the rest of a view is constant. A view that keeps everything, or nothing, is read from its first column on.
    """
    planes, size = x.shape[1] // 2, x.shape[2]
    if rows:
        x = x.transpose(2, 3)
    shown = (x[:, :planes] + x[:, planes:]).amax(dim=(1, 2)) > 0.5  # v + (1 - v) = 1 where kept
    starts = shown & ~shown.roll(1, dims=1)
    first = starts.to(torch.uint8).argmax(dim=1)
    columns = (first[:, None] + torch.arange(band, device=x.device)) % size
    index = columns[:, None, None, :].expand(-1, planes, size, -1)
    return x[:, :planes].gather(3, index), first


class BandCnn(nn.Module):
    """Convolutions along the kept band, whose columns are channels, then dense layers; where the band lies is added to each."""

    def __init__(self, channels: int, classes: int, size: int, band: int, width: int, rows: bool):
        super().__init__()
        self.band, self.rows, self.planes = band, rows, channels // 2
        self.conv1 = nn.Conv1d(self.planes * band, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, 2 * width, 3, padding=1)
        features = 2 * width * (size // 4)
        self.fc1, self.fc2 = nn.Linear(features, 8 * width), nn.Linear(8 * width, classes)
        self.places = nn.ModuleList(nn.Embedding(size, outputs) for outputs in (width, features, 8 * width))
        for place in self.places:
            nn.init.normal_(place.weight, std=0.1)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of views [n, 2 c, size, size]."""
        pixels, first = kept_band(x, self.band, self.rows)
        band = pixels.movedim(3, 2).flatten(1, 2)
        by_filter, by_feature, by_unit = (place(first) for place in self.places)
        out = functional.max_pool1d(torch.relu(self.conv1(band) + by_filter[:, :, None]), 2)
        out = functional.max_pool1d(torch.relu(self.conv2(out)), 2).flatten(1)
        out = torch.relu(self.fc1(torch.relu(out + by_feature)) + by_unit)
        return self.fc2(out)


class BandResNet(nn.Module):
    """ResNet-18 on the kept band alone, a picture of `size` x `band` pixels; where the band lies is added after the first layer.

    For 4 of 32 columns it has a fifth of the products of a ResNet-18 on views. Stages are of 32x4, 16x4, 8x2 and 4x1 pixels.
    """

    def __init__(self, channels: int, classes: int, size: int, band: int, width: int, rows: bool):
        super().__init__()
        self.band, self.rows = band, rows
        self.conv1 = convolution(channels // 2, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.place = nn.Embedding(size, width)
        nn.init.zeros_(self.place.weight)
        inside, stages = width, []
        for outside, stride in ((width, (1, 1)), (2 * width, (2, 1)), (4 * width, (2, 2)), (8 * width, (2, 2))):
            stages += [Basic(inside, outside, stride), Basic(outside, outside, (1, 1))]
            inside = outside
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of views [n, 2 c, size, size]."""
        pixels, first = kept_band(x, self.band, self.rows)
        out = self.bn1(self.conv1(2 * pixels - 1)) + self.place(first)[:, :, None, None]
        return self.fc(self.stages(functional.relu(out)).mean((2, 3)))


def band_cnn(channels: int, classes: int, size: int, band: int, width: int, axis: str) -> nn.Module:
    """Return a small network for views that keep `band` columns (or rows: axis) of pictures of `size` x `size` pixels."""
    _refuse_other_views("band-cnn", channels, size, band)
    return BandCnn(channels, classes, size, band, width, axis == "row")


def band_resnet(channels: int, classes: int, size: int, band: int, width: int, axis: str) -> nn.Module:
    """Return a residual network for views that keep `band` columns (or rows: axis) of pictures of `size` x `size` pixels."""
    _refuse_other_views("band-resnet", channels, size, band)
    return BandResNet(channels, classes, size, band, width, axis == "row")


def _refuse_other_views(name: str, channels: int, size: int, band: int) -> None:
    if channels % 2 or size % 4:
        raise BadInput(
            f"channels={channels}, size={size}: {name} takes views of smoothing band, which have v and 1 - v as channels, of "
            "pictures whose size is a multiple of 4; leave both out where vauban knows the views"
        )
    if band > size:
        raise BadInput(f"band={band} is wider than the picture: give at most size={size}")
