"""For which networks and shapes scores agree bit for bit: asked again, with other neighbours, in other rows.

    python benchmarks/batch_invariance.py --out batch_invariance.json

A forward pass sees `rows` views. Three questions, for each network, number of rows, precision and compilation: does the same
shape give the same scores again; do the scores of a view in its row stay when other views stand beside it (for each bit of the
row number, the rows that have it are replaced, then those that have not); do they stay when the view moves to another row? Random
weights: the kernels are the network's, what it says is not. Votes need the first two, sequential tests and shared shapes all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vauban.engine.compiled import compiled
from vauban.engine.network import Network, device_name, in_precision
from vauban.models import load


class Attention(nn.Module):
    """A small vision transformer: patches of 4x4, two layers of attention."""

    def __init__(self, size: int = 32, width: int = 64):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.place = nn.Parameter(torch.randn(1, (size // 4) ** 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2) + self.place).mean(1))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def group_norm() -> nn.Module:
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def known(spec: str) -> Callable[[], nn.Module]:
    return lambda: load(spec, allow_random=True).module


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "linear 784": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), (1, 28, 28), (7, 50, 100, 128, 1000)),
    "perceptron": (perceptron, (1, 28, 28), (7, 50, 100, 128, 1000)),
    "cnn-small": (known("cnn-small:channels=1,classes=10,size=28"), (1, 28, 28), (7, 50, 100, 128, 1000)),
    "group norm": (group_norm, (3, 32, 32), (7, 100, 128)),
    "attention": (Attention, (3, 32, 32), (7, 50, 100, 128)),
    "resnet18": (known("resnet18:classes=10"), (3, 32, 32), (20, 50, 100, 128)),
    "resnet110": (known("resnet110"), (3, 32, 32), (50, 100, 128)),
    "resnet50": (known("resnet50"), (3, 224, 224), (8, 20)),
}
ON_GPU = {
    "resnet18": (100, 1000, 4096),
    "resnet110": (100, 1000, 4096),
    "resnet50": (50, 250, 1024),
    "cnn-small": (100, 1000, 4096),
}


def orders(rows: int) -> Iterator[torch.Tensor]:
    """Which view of 2 x rows stands in each row: for each bit of the row number, rows with it replaced, and rows without."""
    there = torch.arange(rows)
    for bit in range(max(1, (rows - 1).bit_length())):
        for has in (0, 1):
            yield torch.where((there >> bit) & 1 == has, there + rows, there)


def asker(network: Network, rows: int, shape: tuple[int, ...], how: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the scores of the views that stand in each row, int64 [rows] of 2 x rows views."""
    network.prepare(len(shape))
    views = torch.rand(2 * rows, *shape, generator=torch.Generator().manual_seed(1)).to(network.device)
    model = compiled(network.model) if how else network.model

    def ask(order: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(), in_precision(network.precision, network.device):
            return model(network.laid_out(views[order.to(network.device)])).float().cpu().clone()

    return ask


def answers(ask: Callable[[torch.Tensor], torch.Tensor], rows: int) -> dict[str, float]:
    """The three questions: the share of views whose scores stay, bit for bit."""
    there = torch.arange(rows)
    first = ask(there)
    again = min(float((ask(there) == first).all(1).float().mean()) for _ in range(3))
    beside = 1.0
    for order in orders(rows):
        stay = order < rows
        beside = min(beside, float((ask(order) == first)[stay].all(1).float().mean())) if stay.any() else beside
    moved = [there.flip(0), there.roll(1), torch.randperm(rows, generator=torch.Generator().manual_seed(0))]
    row = min(float((ask(order) == first[order]).all(1).float().mean()) for order in moved)
    return {"again": again, "neighbours": beside, "row": row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("batch_invariance.json"))
    parser.add_argument("--seconds", type=float, default=240.0, help="no case begins after so many seconds")
    parser.add_argument("--compile", action="store_true", help="compiled programs too")
    args = parser.parse_args()
    device, began = torch.device(args.device), time.monotonic()
    precisions = ("fp32", "tf32", "bf16", "fp16") if device.type == "cuda" else ("fp32", "bf16")
    result: dict[str, Any] = {
        "device": device_name(device),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "cases": [],
    }
    for how in (False, True) if args.compile else (False,):
        for name, (make, shape, sizes) in NETWORKS.items():
            torch.manual_seed(0)
            source = make().to(device).eval()
            for precision in precisions:
                for rows in ON_GPU.get(name, sizes) if device.type == "cuda" else sizes:
                    if time.monotonic() - began > args.seconds or (how and name in ("resnet50", "resnet110")):
                        continue
                    ask = asker(Network(source, device, precision), rows, shape, how)
                    about = {"network": name, "rows": rows, "precision": precision, "compiled": how}
                    case = {**about, **answers(ask, rows)}
                    result["cases"].append(case)
                    print(json.dumps(case), flush=True)
                    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
