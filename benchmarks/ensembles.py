"""What an ensemble of base classifiers gains and costs, beside one of its members and one network of the same total size.

    python benchmarks/ensembles.py --out ensembles-mnist
    python benchmarks/ensembles.py --data cifar10 --smoothing gaussian:sigma=0.25 --member resnet18 --epochs 60 --batch 512 \
        --optimizer sgd --lr 0.2 --augment crop-flip --precision bf16 --device cuda --compile --votes 10000 \
        --out ensembles-cifar

Training pictures are split: `--inputs` of them are held out and certified, the others are trained on; no test picture is read.
For every repetition (`--seeds`) the members are trained with different seeds, and beside them one network of the member's
architecture whose width is the largest with no more parameters than all members together. Four models are certified with as many
votes: one member, the ensemble that asks all, the ensemble with K-consensus, the wide network. The speed of each is that of
forward passes on views of held-out pictures, measured in turns. What `--out` has is not made again: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import vauban as vb
from vauban.bench.turns import in_turns
from vauban.data import Dataset, load
from vauban.data.registry import with_split
from vauban.engine.network import device_name, in_precision
from vauban.models import build, canonical, fitting_views
from vauban.models import load as load_model
from vauban.models.ensembles import Ensemble
from vauban.report.lines import read_lines
from vauban.report.trainings import as_json, headers, over_trainings, table_rows
from vauban.smoothing import Smoothing
from vauban.smoothing import build as build_smoothing
from vauban.specs import Spec
from vauban.training import split

MEMBER, ALL, CONSENSUS, WIDE = "one member", "ensemble", "ensemble, consensus", "one wide network"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist", help="its training pictures are trained on and held out")
    parser.add_argument("--smoothing", default="gaussian:sigma=0.5")
    parser.add_argument("--member", default="mlp:width=256", help="architecture of a member; it has a parameter width")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--consensus", type=int, default=2, help="so many are asked first")
    parser.add_argument("--seeds", type=int, default=3, help="repetitions, 2 or more, all with networks of their own")
    for name, kind in (("epochs", float), ("batch", int), ("lr", float), ("loss", str), ("optimizer", str)):
        parser.add_argument(f"--{name}", type=kind, help="as for vauban train")
    parser.add_argument("--augment", help="as for vauban train")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument(
        "--compile", action="store_true", help="compile networks for certifying, as --compile of certify"
    )
    parser.add_argument("--limit", type=int, help="training pictures [all]")
    parser.add_argument("--inputs", type=int, default=500, help="pictures held out")
    parser.add_argument("--votes", type=int, default=1000, help="for each input")
    parser.add_argument("--radii", default="0.25,0.5,0.75,1.0")
    parser.add_argument("--rows", type=int, default=1000, help="views of a forward pass")
    parser.add_argument("--seconds", type=float, default=20.0, help="for measuring the speed of each model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights, runs and results.json")
    return parser.parse_args()


def parameters(spec: str) -> int:
    """How many numbers the network of a text has."""
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in build(spec).parameters())


def of_size(spec: str, most: int) -> str:
    """The architecture of a text with the largest width that has at most so many parameters."""

    def wide(width: int) -> str:
        parsed = Spec.parse(spec)
        return canonical(Spec(parsed.name, {**parsed.params, "width": str(width)}))

    low, high = 1, 2
    while parameters(wide(high)) <= most:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if parameters(wide(middle)) <= most else (low, middle)
    return wide(low)


def trained(spec: str, data: Dataset, seed: int, file: Path, given: argparse.Namespace) -> Path:
    """The weights of a network, trained unless they are there."""
    if not file.exists():
        names = ("epochs", "batch", "lr", "loss", "optimizer", "augment", "precision")
        settings = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
        vb.train(spec, data, given.smoothing, out=file, device=given.device, seed=seed, **settings)
        print(f"trained {file}", flush=True)
    return file


def repetition(number: int, member: str, wide: str, data: Dataset, given: argparse.Namespace) -> dict[str, Any]:
    """The four models of one repetition."""
    seeds = [given.members * number + i for i in range(given.members)]
    files = [str(trained(member, data, seed, given.out / f"member-{seed}.safetensors", given)) for seed in seeds]
    large = trained(wide, data, number, given.out / f"wide-{number}.safetensors", given)
    text = "+".join(files)
    texts = {MEMBER: files[0], ALL: text, CONSENSUS: f"ensemble:consensus={given.consensus}+{text}", WIDE: str(large)}
    return {name: load_model(text, device=given.device) for name, text in texts.items()}


def views_of(held: Dataset, smoothing: Smoothing, given: argparse.Namespace) -> torch.Tensor:
    """One shape of views of held-out pictures, each picture as often as any other."""
    x = torch.from_numpy(held.images).float() / 255 if held.images.dtype == "uint8" else torch.from_numpy(held.images)
    chosen = torch.arange(given.rows) * len(x) // given.rows
    return smoothing.sample(x[chosen], generator=torch.Generator().manual_seed(0)).to(given.device)


def speeds(models: dict[str, Any], views: torch.Tensor, given: argparse.Namespace) -> dict[str, float]:
    """Votes per second of each model's forward passes, and the ratio of the ensemble with consensus to each."""

    def passes(module: torch.nn.Module) -> Callable[[int], None]:
        def cast(shapes: int) -> None:
            half = torch.autocast(views.device.type, torch.bfloat16, enabled=given.precision == "bf16")
            with torch.inference_mode(), in_precision(given.precision, views.device), half:
                for _ in range(shapes):
                    module(views).argmax(1)

        return cast

    timed = {name: passes(model.module) for name, model in models.items()}
    return in_turns(timed, len(views), given.seconds, views.device, lambda _: None, of=CONSENSUS)


def passes(model: Any, views: torch.Tensor) -> dict[str, float]:
    """How many networks are asked about a view, and for how many rows a view they compute, filled-up chunks included."""
    if not isinstance(model.module, Ensemble):
        return {"asked": 1.0, "computed": 1.0}
    asked = model.module.asked(views)
    return {"asked": asked.mean, "computed": asked.computed}


def certified(models: dict[str, Any], number: int, held: Dataset, given: argparse.Namespace) -> Iterator[Path]:
    """The runs of one repetition, in the order of the models."""
    for name, model in models.items():
        out = given.out / f"run-{number}-{list(models).index(name)}"
        smoothed = vb.SmoothedClassifier(
            model,
            given.smoothing,
            num_classes=held.num_classes,
            device=given.device,
            precision=given.precision,
            compile=given.compile,
        )
        smoothed.certify(held, n=given.votes, alpha=0.001, seed=number, out=out, progress=False)
        print(f"certified {name}: {out}", flush=True)
        yield out


def main() -> None:
    given = options()
    given.out.mkdir(parents=True, exist_ok=True)
    whole = load(with_split(given.data, "train"))
    whole = whole if given.limit is None else whole.select(limit=given.limit)
    data, held = split(whole, given.inputs, 0)
    smoothing = build_smoothing(given.smoothing)
    member = canonical(
        fitting_views(given.member, smoothing.view_shape(torch.Size(data.images.shape[1:])), data.num_classes)
    )
    size = parameters(member)
    wide = of_size(member, given.members * size)
    views = views_of(held, smoothing, given)
    runs: dict[str, list[Path]] = {}
    cost: dict[str, Any] = {}
    for number in range(given.seeds):
        models = repetition(number, member, wide, data, given)
        for name, run in zip(models, certified(models, number, held, given), strict=True):
            runs.setdefault(name, []).append(run)
        if number == 0:
            cost = {name: passes(model, views) for name, model in models.items()}
            cost["votes_per_second"] = speeds(models, views, given)
    radii = [float(text) for text in given.radii.split(",")]
    about = {"member": member, "parameters": size, "members": given.members, "consensus": given.consensus, "wide": wide}
    about |= {
        "wide_parameters": parameters(wide),
        "smoothing": given.smoothing,
        "votes": given.votes,
        "held": len(held),
    }
    about |= {"device": device_name(torch.device(given.device)), "precision": given.precision, "cost": cost}
    rows = over_trainings(
        read_lines([run for some in runs.values() for run in some], {}), given.seeds, radii, list(runs)
    )
    (given.out / "results.json").write_text(json.dumps({**about, "results": as_json(rows, radii)}, indent=1))
    print(json.dumps(about, indent=1))
    for row in [headers(radii), *table_rows(rows)]:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
