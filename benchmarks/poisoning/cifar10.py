"""SS-DPA on CIFAR-10 in one command that goes on where it stopped: features without labels, heads, votes, certificates.

    python benchmarks/poisoning/cifar10.py --data cifar10:path=data/cifar10 --device cuda --seconds 480 --folder build/ss-dpa

1. A ResNet-18 learns features from the 50,000 training pictures; no label is read. Without --epochs a few steps are timed, and as
   many epochs are planned as fit into --seconds; `plan.json` keeps the plan for the calls that follow.
2. Its weights are rounded to bfloat16, so that the small file that is kept is the one that is used.
3. The settings of the heads are chosen on every tenth training picture, which they are then not fitted to. More rounds give
   larger medians and less accuracy: --least 1,1,0.82 takes the most accurate that reach this share of the largest median.
4. For each number of partitions all heads are fitted, vote on the 10,000 test pictures once, and the run is verified.
5. With --dpa 250,1000 networks are trained on each part alone, many side by side; groups that are trained are kept.

Whatever is done lies in --folder, and the same command skips it. What is to be taken elsewhere lies in --bring, files of at most
15 MB: `runs.tar.gz`, `report.json`, `features.train.jsonl`, and `trunk.safetensors.00`, … (join them by `cat`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vauban as vb
from vauban.data import Dataset, load
from vauban.data.registry import with_split
from vauban.models import build, save
from vauban.models.files import WITHOUT_LABELS
from vauban.models.weights import read_weights
from vauban.poisoning import load_ensemble, train
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.training.stacked.feature_heads import HeadTrainer
from vauban.poisoning.training.stacked.self_training import SelfTraining
from vauban.runs.verify import verify_run

PIECE = 15_000_000
NETWORKS = {
    250: "residual:steps=560,batch=50",
    1000: "residual:steps=280,batch=25",
}  # of DPA; others by the usual recipe
TIMED = 40  # steps that are timed before epochs are planned, after as many that compile
GRID = [
    SelfTraining(ridge, rounds, shrink, sharpness)
    for ridge, rounds, shrink, sharpness in (
        *((ridge, 0, 0.03, 2.0) for ridge in (0.03, 0.1, 0.3, 1.0)),
        *((0.1, rounds, shrink, 1.0) for rounds in (1, 2, 3, 5) for shrink in (0.01, 0.1)),
        *((0.1, 10, shrink, sharpness) for shrink in (0.01, 0.03, 0.1, 0.3) for sharpness in (1.0, 2.0)),
        (0.1, 30, 0.03, 2.0),
    )
]


class OutOfTime(Exception):
    """The time of this call is spent."""


class Clock:
    """The seconds of this call, of which `rest` are for what comes after the features."""

    def __init__(self, seconds: float, rest: float):
        self.began, self.seconds, self.rest = time.monotonic(), seconds, rest

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def check(self, needed: float = 0.0) -> None:
        if self.left() < needed:
            raise OutOfTime


def settings(args: argparse.Namespace, epochs: float) -> dict[str, Any]:
    """The training of the features."""
    return {
        "loss": args.loss,
        "epochs": epochs,
        "batch": args.batch,
        "optimizer": args.optimizer,
        "lr": args.lr,
        "weight_decay": args.weight_decay,
        "warmup": epochs / 20,
        "precision": "bf16" if args.device.startswith("cuda") else "fp32",
        "device": args.device,
    }


def planned(args: argparse.Namespace, pictures: Dataset, clock: Clock) -> float:
    """The number of epochs, from the plan in the folder, the command, or the time that a few steps take."""
    file = args.folder / "plan.json"
    if file.exists():
        return float(json.loads(file.read_text())["epochs"])
    epochs, rate = args.epochs, None
    if epochs is None:
        rate = seconds_a_step(args, pictures)
        steps = 0.96 * (clock.left() - clock.rest) / rate
        epochs = max(1.0, float(int(steps * args.batch / len(pictures))))
    file.write_text(json.dumps({"epochs": epochs, "seconds_a_step": rate, "loss": args.loss, "batch": args.batch}))
    print(f"{epochs:g} epochs of {len(pictures)} pictures" + (f", {rate:.4f} s a step" if rate else ""), flush=True)
    return epochs


def seconds_a_step(args: argparse.Namespace, pictures: Dataset) -> float:
    times = []

    def note(progress: Any) -> None:
        times.append((progress.step, time.monotonic()))

    vb.train(args.model, pictures, callbacks=note, stop_after=2 * TIMED, **settings(args, 1000.0))
    late = [pair for pair in times if pair[0] >= TIMED]
    return (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])


def learn(args: argparse.Namespace, pictures: Dataset, clock: Clock) -> Path:
    """The file of features; `OutOfTime` after a checkpoint where they are not finished."""
    out = args.folder / "features.safetensors"
    if out.exists() and not out.with_name(out.name + ".checkpoint").exists():
        return out
    epochs = planned(args, pictures, clock)
    shown = [time.monotonic()]

    def watch(progress: Any) -> None:
        if time.monotonic() - shown[0] > 10:
            shown[0] = time.monotonic()
            print(f"epoch {progress.epoch:.1f} of {epochs:g}, loss {progress.loss:.4f}", flush=True)
        if clock.left() < args.margin and progress.step < progress.steps:
            raise OutOfTime

    vb.train(args.model, pictures, out=out, callbacks=watch, **settings(args, epochs))
    return out


def rounded(features: Path) -> Path:
    """The features' network with weights in bfloat16, in a file of its own."""
    out = features.with_name("trunk.safetensors")
    if not out.exists():
        tensors, about = read_weights(features)
        spec = about["vauban_model"]
        network = build(spec)
        network.load_state_dict(tensors)
        save(out, network.bfloat16(), spec, {key: about[key] for key in ("trained", WITHOUT_LABELS)})
    return out


def heads(args: argparse.Namespace, trunk: Path, how: SelfTraining) -> str:
    """The text of the base classifiers."""
    solver = "self-training" if how.rounds else "ridge"
    return (
        f"linear:learned={trunk},solver={solver},ridge={how.ridge},rounds={how.rounds},shrink={how.shrink},"
        f"sharpness={how.sharpness},mirrored=true,crops={args.crops},pool={args.pool}"
    )


def chosen(args: argparse.Namespace, trunk: Path, data: Dataset) -> dict[str, SelfTraining]:
    """The settings for each number of partitions, by held-out training pictures: the most accurate of those whose median radius
    is --least of the largest that the votes allow; where none reaches it, those of the largest median."""
    file = args.folder / "choice.json"
    if file.exists():
        return {key: SelfTraining(**one["settings"]) for key, one in json.loads(file.read_text()).items()}
    trainer = HeadTrainer.recipe(
        data.images.shape[1:], 10, args.device, learned=str(trunk), features="learned", mirrored=True, crops=args.crops
    )
    features, labels = trainer.features_of(data.images), torch.from_numpy(data.labels).to(args.device)
    held = torch.arange(len(labels), device=args.device) % 10 == 0
    kept = np.flatnonzero(~held.cpu().numpy())
    best: dict[str, Any] = {}
    for partitions, least in zip(args.partitions, args.least, strict=True):
        parts = Partition(max(1, round(0.9 * partitions)), by="sort").members(data.images[kept], data.labels[kept])
        samples = [(features[rows], labels[rows]) for rows in (torch.from_numpy(kept[some]) for some in parts)]
        tried = []
        for how in GRID:
            found = validated(how, samples, features[~held][: args.pool], features[held], labels[held])
            tried.append({"settings": vars(how), **found})
            print(partitions, how, found, flush=True)
        most = (len(samples) - 1) // 2
        enough = [one for one in tried if one["median"] >= least * most]
        best[str(partitions)] = (
            max(enough, key=lambda one: one["clean"])
            if enough
            else max(tried, key=lambda one: (one["median"], one["clean"]))
        )
    file.write_text(json.dumps(best, indent=1))
    return {key: SelfTraining(**one["settings"]) for key, one in best.items()}


@torch.no_grad()
def validated(
    how: SelfTraining, samples: list[Any], pool: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> dict[str, float]:
    """Clean accuracy, accuracy of base classifiers and the median radius (counts alone, without ties) on held-out pictures."""
    counts = torch.zeros(len(x), 10, device=x.device)
    right = 0.0
    for first in range(0, len(samples), 50):
        weight, bias = how.fit(samples[first : first + 50], 10, pool)
        votes = (x @ weight + bias[:, None]).argmax(2)
        right += float((votes == y).float().mean(1).sum())
        counts += torch.nn.functional.one_hot(votes, 10).sum(0)
    own = counts.gather(1, y[:, None])[:, 0]
    rival = counts.scatter(1, y[:, None], -1.0).max(1).values
    radii = ((own - rival - 1) / 2).floor().clamp(min=-1)
    return {
        "median": float(radii.median()),
        "clean": float((own > rival).float().mean()),
        "base": right / len(samples),
    }


def certified(
    args: argparse.Namespace, partitions: int, defense: str, model: str | None, by: str = ""
) -> dict[str, Any]:
    """One line of the table: an ensemble, its votes on the test pictures, and the verified run."""
    name = f"cifar-{defense.split(':')[0]}-{partitions}" + (f"-{by}" if by else "")
    out, began = args.folder / "runs" / name, time.monotonic()
    ensemble = args.folder / f"ensemble-{name}"
    train(args.data, defense, partitions, out=ensemble, model=model, device=args.device, limit=args.limit)
    voters, trained = load_ensemble(ensemble, args.device), time.monotonic()
    certs = voters.certify_data(with_split(args.data, "test"), out=out, limit=args.limit)
    verify_run(out)
    found = {"run": name, "median": certs.median_radius, "clean": certs.clean_accuracy, "model": model}
    return found | {"training_seconds": trained - began, "voting_seconds": time.monotonic() - trained}


def table(args: argparse.Namespace, data: Dataset, unlabelled: Dataset, clock: Clock) -> Iterator[dict[str, Any]]:
    """The lines of the table, each as soon as it is certified."""
    if args.partitions:
        trunk = rounded(learn(args, unlabelled, clock))
        choice = chosen(args, trunk, data)
        for by in args.by:
            for partitions in args.partitions:
                clock.check()
                defense, model = f"ss-dpa:features=learned,by={by}", heads(args, trunk, choice[str(partitions)])
                yield certified(args, partitions, defense, model, by if by != "sort" else "")
    for partitions in args.dpa:
        clock.check()
        yield certified(args, partitions, "dpa", NETWORKS.get(partitions))


def bring(args: argparse.Namespace, report: dict[str, Any]) -> None:
    """Write what is to be taken elsewhere."""
    args.bring.mkdir(parents=True, exist_ok=True)
    (args.bring / "report.json").write_text(json.dumps(report, indent=1))
    if (args.folder / "runs").exists():
        with tarfile.open(args.bring / "runs.tar.gz", "w:gz") as archive:
            archive.add(args.folder / "runs", "runs")
    log, trunk = args.folder / "features.train.jsonl", args.folder / "trunk.safetensors"
    if log.exists():
        shutil.copy(log, args.bring)
    if trunk.exists():
        content = trunk.read_bytes()
        for i, start in enumerate(range(0, len(content), PIECE)):
            (args.bring / f"{trunk.name}.{i:02d}").write_bytes(content[start : start + PIECE])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--rest", type=float, default=100, help="seconds for heads and votes, after the features")
    parser.add_argument("--margin", type=float, default=8, help="seconds in which a checkpoint is written")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bring", type=Path, help="[FOLDER/bring]")
    parser.add_argument("--model", default="resnet18:channels=3,classes=10")
    parser.add_argument("--loss", default="coding-rate:views=20")
    parser.add_argument("--epochs", type=float, help="[as many as fit into --seconds]")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument(
        "--crops", type=int, default=4, help="features of so many parts of a picture in each direction; 0: of the whole"
    )
    parser.add_argument("--pool", type=int, default=20_000)
    parser.add_argument("--partitions", default="50,250,1000")
    parser.add_argument(
        "--least",
        help="the share of the largest median that is to be reached, one for each number of partitions: of the settings that do "
        "the most accurate is taken [1 for each: the largest median]",
    )
    parser.add_argument("--by", default="sort", help="how parts are made: sort, pixel-sum or both")
    parser.add_argument("--dpa", default="", help="numbers of partitions for DPA, such as 250,1000 [none]")
    parser.add_argument("--limit", type=int, help="use the first pictures only, to try the script out")
    args = parser.parse_args()
    args.partitions = [int(text) for text in args.partitions.split(",") if text]
    args.least = [float(text) for text in args.least.split(",")] if args.least else [1.0] * len(args.partitions)
    if len(args.least) != len(args.partitions):
        parser.error(f"--least {args.least}: give one number for each of --partitions {args.partitions}")
    args.by = args.by.split(",")
    args.dpa = [int(text) for text in args.dpa.split(",") if text]
    args.bring = args.bring or args.folder / "bring"
    args.folder.mkdir(parents=True, exist_ok=True)
    clock, report = Clock(args.seconds, args.rest), {"command": vars(args) | {"folder": "", "bring": ""}, "table": []}
    data = load(with_split(args.data, "train"))
    data = data.select(limit=args.limit) if args.limit else data
    unlabelled = Dataset(data.images, None, 0, (), data.name)
    try:
        for line in table(args, data, unlabelled, clock):
            report["table"].append(line)
            print(json.dumps(line), flush=True)
    except OutOfTime:
        print("the time is spent: the same command goes on", flush=True)
    finally:  # whatever fails, what is done is brought
        bring(args, report)


if __name__ == "__main__":
    main()
