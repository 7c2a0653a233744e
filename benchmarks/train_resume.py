"""How far a training that was stopped and resumed is from one that was not, and two equal ones from each other.

    python benchmarks/train_resume.py                                                             # a CPU: no difference
    python benchmarks/train_resume.py --data cifar10 --model resnet18 --device cuda --precision bf16 --steps 2000

Three trainings of the same settings and seed: two run through, one stops in the middle and goes on from its checkpoint. It prints
the largest difference of a weight, relative to the largest weight of its tensor, and the accuracy on training views in the last
steps. On a CPU all are equal bit by bit; on a GPU kernels add in an order of their own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch

from vauban.data import load
from vauban.models import canonical, fitting_views
from vauban.smoothing import build
from vauban.training import Recipe, Trained, train


def main() -> None:
    """Train three times and print the differences as JSON."""
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("--data", default="mnist")
    read.add_argument("--model", default="cnn-small")
    read.add_argument("--smoothing", default="gaussian:sigma=0.25")
    read.add_argument("--loss", default="noise")
    read.add_argument("--steps", type=int, default=100)
    read.add_argument("--batch", type=int, default=128)
    read.add_argument("--precision", default="fp32")
    read.add_argument("--device", default="cpu")
    given = read.parse_args()
    pictures, views = load(f"{given.data}:split=train"), build(given.smoothing)
    shape = views.view_shape(torch.Size(pictures.images.shape[1:]))
    model = canonical(fitting_views(given.model, shape, pictures.num_classes))
    recipe = Recipe(
        epochs=given.steps * given.batch / len(pictures), batch=given.batch, loss=given.loss, ema=0.99,
        precision=given.precision, augment="shift",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "stopped.safetensors"

        def trained(**more: object) -> Trained:
            return train(model, pictures, views, recipe, device=given.device, **more)  # type: ignore[arg-type]

        first, second = trained(), trained()
        trained(out=out, stop_after=given.steps // 2)
        resumed = trained(out=out)
    found = {
        "device": torch.cuda.get_device_name() if given.device.startswith("cuda") else "cpu",
        "steps": given.steps,
        "two equal trainings": difference(first, second),
        "stopped and resumed": difference(first, resumed),
        "accuracy on views": [round(one.accuracy, 5) for one in (first, second, resumed)],
    }
    print(json.dumps({**vars(given), **found}, indent=1))


def difference(one: Trained, other: Trained) -> float:
    """The largest difference of two weights, relative to the largest of their tensor."""
    pairs = zip(one.network.state_dict().values(), other.network.state_dict().values(), strict=True)
    floats = [(a.double(), b.double()) for a, b in pairs if a.is_floating_point()]
    return max(float((a - b).abs().max() / a.abs().max().clamp(min=1e-12)) for a, b in floats)


if __name__ == "__main__":
    main()
