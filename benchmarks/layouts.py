"""What a layout of offsets is worth: the same network trained and certified with random offsets and with a lattice.

    python benchmarks/layouts.py --data cifar10 --smoothing splitting:sigma=3.5 --radii 1,2,3,4 --out layouts-splitting
    python benchmarks/layouts.py --data cifar10 --smoothing fractional:p=1/2,scale=18 --radii 10,30,50,70 --out layouts-fractional
    python benchmarks/layouts.py --data cifar10 --smoothing sparse:scale=25 --radii 1,3,5,7 --out layouts-sparse

`--held` training pictures are held out, the others are trained on, and some of those held out (`--inputs`) are certified, every
view voting; no test picture is read. Both layouts are trained with the same seeds, `--seeds` times. What `--out` has is not made
again: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import vauban as vb
from vauban.data import Dataset, load
from vauban.data.registry import with_split
from vauban.laws.exact import LAYOUTS
from vauban.models import load as load_model
from vauban.report.lines import read_lines
from vauban.report.trainings import as_json, headers, over_trainings, table_rows
from vauban.training import split


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist", help="its training pictures are trained on and held out")
    parser.add_argument("--smoothing", default="splitting:sigma=3.5", help="without its layout")
    parser.add_argument("--model", default="resnet18:width=8")
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--loss", default="noise")
    parser.add_argument("--augment", default="crop-flip")
    parser.add_argument("--precision", default="fp32", help="of training")
    parser.add_argument("--held", type=int, default=5000, help="pictures held out")
    parser.add_argument("--inputs", type=int, default=200, help="of these certified")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each layout, 2 or more")
    parser.add_argument("--radii", default="1,2,3,4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights, runs and results.json")
    return parser.parse_args()


def run_of(layout: str, seed: int, data: Dataset, held: Dataset, given: argparse.Namespace) -> Path:
    """Train and certify with one layout, unless it was done."""
    smoothing = f"{given.smoothing},layout={layout}"
    file, run = (given.out / f"{layout}-{seed}{ending}" for ending in (".safetensors", ""))
    if not file.exists():
        settings = {name: getattr(given, name) for name in ("epochs", "batch", "lr", "loss", "augment", "precision")}
        vb.train(given.model, data, smoothing, out=file, device=given.device, seed=seed, **settings)
    model = load_model(str(file), device=torch.device(given.device))
    classifier = vb.SmoothedClassifier(model, smoothing, num_classes=held.num_classes, device=given.device)
    certs = classifier.certify(held, out=run, progress=False, keep="counts")
    print(f"{layout}, seed {seed}: {certs.base_accuracy:.2%} of views", flush=True)
    return run


def main() -> None:
    given = options()
    given.out.mkdir(parents=True, exist_ok=True)
    data, held = split(load(with_split(given.data, "train")), given.held, 0)
    held = held.select(every=max(1, given.held // given.inputs), limit=given.inputs)
    runs = [run_of(layout, seed, data, held, given) for seed in range(given.seeds) for layout in LAYOUTS]
    radii = [float(text) for text in given.radii.split(",")]
    ordered = [run for layout in LAYOUTS for run in runs if run.name.startswith(layout)]
    rows = over_trainings(read_lines(ordered, {}), given.seeds, radii, list(LAYOUTS))
    about = {"smoothing": given.smoothing, "model": given.model, "epochs": given.epochs, "certified": len(held)}
    (given.out / "results.json").write_text(json.dumps({**about, "results": as_json(rows, radii)}, indent=1))
    for row in [headers(radii), *table_rows(rows)]:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
