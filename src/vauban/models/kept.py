"""A network for views that keep a band of a picture: it finds the band, and looks at nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vauban.errors import BadInput


class BandCnn(nn.Module):
    """Convolutions along the kept band, whose columns are channels, then dense layers; where the band lies is added to each.

    Views [n, 2 c, size, size] hold (v, 1 - v) where they keep a pixel and (0, 0) elsewhere. The `band` columns (or rows) from the
    first kept one on are taken out, wrapping around: less work than looking at the whole view, and the same information, since
    the rest of a view is constant. A view that keeps everything, or nothing, is read from its first column on.
    """

    def __init__(self, channels: int, classes: int, size: int, band: int, width: int, rows: bool):
        super().__init__()
        self.size, self.band, self.rows, self.planes = size, band, rows, channels // 2
        self.conv1 = nn.Conv1d(self.planes * band, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, 2 * width, 3, padding=1)
        features = 2 * width * (size // 4)
        self.fc1, self.fc2 = nn.Linear(features, 8 * width), nn.Linear(8 * width, classes)
        self.places = nn.ModuleList(nn.Embedding(size, outputs) for outputs in (width, features, 8 * width))
        for place in self.places:
            nn.init.normal_(place.weight, std=0.1)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of views [n, 2 c, size, size]."""
        band, first = self.kept(x)
        by_filter, by_feature, by_unit = (place(first) for place in self.places)
        out = functional.max_pool1d(torch.relu(self.conv1(band) + by_filter[:, :, None]), 2)
        out = functional.max_pool1d(torch.relu(self.conv2(out)), 2).flatten(1)
        out = torch.relu(self.fc1(torch.relu(out + by_feature)) + by_unit)
        return self.fc2(out)

    def kept(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The pixels of the kept band [n, c * band, size], and the number [n] of its first column (or row)."""
        if self.rows:
            x = x.transpose(2, 3)
        shown = (x[:, : self.planes] + x[:, self.planes :]).amax(dim=(1, 2)) > 0.5  # v + (1 - v) = 1 where kept
        starts = shown & ~shown.roll(1, dims=1)
        first = starts.to(torch.uint8).argmax(dim=1)
        columns = (first[:, None] + torch.arange(self.band, device=x.device)) % self.size
        index = columns[:, None, None, :].expand(-1, self.planes, self.size, -1)
        return x[:, : self.planes].gather(3, index).movedim(3, 2).flatten(1, 2), first


def band_cnn(channels: int, classes: int, size: int, band: int, width: int, axis: str) -> nn.Module:
    """Return a network for views that keep `band` columns (or rows: axis) of pictures of `size` x `size` pixels."""
    if channels % 2 or size % 4:
        raise BadInput(
            f"channels={channels}, size={size}: band-cnn takes views of smoothing band, which have v and 1 - v as channels, of "
            "pictures whose size is a multiple of 4; leave both out where vauban knows the views"
        )
    if band > size:
        raise BadInput(f"band={band} is wider than the picture: give at most size={size}")
    return BandCnn(channels, classes, size, band, width, axis == "row")
