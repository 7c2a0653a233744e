"""Certified accuracy in L2 on held-out CIFAR-10 pictures, for four sigmas: a chain of trainings, certified as ensembles.

    python benchmarks/l2.py --data cifar10:path=data --seeds 4,5 --device cuda --seconds 1200 --folder build/l2

Every tenth training picture is held out. Each seed trains a network for sigma 0.25, goes on from it to 0.5 and then to 0.6,
and from the first one to 0.12; all seeds train at the same time. Once all seeds have their network for a sigma, their averaged
scores are certified on every fifth picture that was held out. After --seconds everything is interrupted, and the same command
goes on. With --sigmas 0.5,0.6 only these are certified, and only what they need is trained.

Processes that share a GPU are faster under NVIDIA's MPS: `nvidia-cuda-mps-control -d` starts it, and
`echo quit | nvidia-cuda-mps-control` ends it.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vauban.data import load
from vauban.data.registry import with_split

COMMON = (
    "--model resnet18 --batch-size 256 --optimizer sgd --augment crop-flip --ema 0.999 --weight-decay 3e-4 --validate 0"
)


@dataclass(frozen=True)
class Stage:
    """One training of the chain, and how its networks are certified. `begin`: the sigma whose network it starts from."""

    sigma: float
    begin: float | None
    epochs: int
    rate: float
    loss: str
    step: float
    votes: int


STAGES = [
    Stage(0.25, None, 95, 0.2, "consistency:weight=20", 0.25, 100_000),
    Stage(0.5, 0.25, 30, 0.1, "adversarial:epsilon=1.0,steps=2,views=2+consistency:weight=10", 0.25, 30_000),
    Stage(0.6, 0.5, 30, 0.1, "adversarial:epsilon=1.5,steps=2,views=2+consistency:weight=10", 0.5, 100_000),
    Stage(0.12, 0.25, 18, 0.1, "consistency:weight=10", 0.125, 30_000),
]


def needed(sigmas: list[float]) -> list[Stage]:
    """The trainings of these sigmas and all that they start from."""
    wanted = set(sigmas)
    for stage in reversed(STAGES):
        if stage.sigma in wanted and stage.begin is not None:
            wanted.add(stage.begin)
    return [stage for stage in STAGES if stage.sigma in wanted]


class Commands:
    """Vauban's commands as processes that end together, when the time is spent."""

    def __init__(self, folder: Path, seconds: float):
        self.folder, self.end = folder, time.monotonic() + seconds
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        threading.Thread(target=self._interrupt, daemon=True).start()

    def run(self, name: str, text: str) -> bool:
        """Whether the command came to its end; what it prints goes into NAME.log."""
        with self.lock:
            if time.monotonic() >= self.end:
                return False
            with (self.folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen([sys.executable, "-m", "vauban", *shlex.split(text)], stdout=log, stderr=log)
            self.running.add(process)
        began, code = time.monotonic(), process.wait()
        self.running.discard(process)
        ended = "done" if code == 0 else f"exit code {code}"
        print(f"{name}: {ended} after {time.monotonic() - began:.0f} s", flush=True)
        return code == 0

    def _interrupt(self) -> None:
        time.sleep(max(0.0, self.end - time.monotonic()))
        with self.lock:
            for process in list(self.running):
                process.send_signal(signal.SIGINT)


def split(data: str, folder: Path) -> None:
    """Write train.npz, and held-out.npz with every tenth picture."""
    if (folder / "held-out.npz").exists():
        return
    pictures = load(with_split(data, "train"))
    held = np.arange(len(pictures)) % 10 == 0
    for name, some in (("train", ~held), ("held-out", held)):
        with (folder / f"{name}.part").open("wb") as file:
            np.savez(file, images=pictures.images[some], labels=pictures.labels[some])
        (folder / f"{name}.part").rename(folder / f"{name}.npz")


def weights(folder: Path, seed: int, sigma: float) -> Path:
    return folder / f"{seed}-{sigma}.safetensors"


def train(args: argparse.Namespace, commands: Commands, seed: int) -> None:
    """The chain of trainings of one seed, up to the first that does not come to its end."""
    for stage in needed(args.sigmas):
        out = weights(args.folder, seed, stage.sigma)
        if out.exists() and not out.with_name(out.name + ".checkpoint").exists():
            continue
        start = f"--init {weights(args.folder, seed, stage.begin)}" if stage.begin else ""
        epochs = args.epochs or stage.epochs
        text = (
            f"train --data npz:path={args.folder}/train.npz,classes=10 --model {args.model} {COMMON} "
            f"--smoothing gaussian:sigma={stage.sigma} --loss {stage.loss} --epochs {epochs} --warmup {min(2, epochs / 10)} "
            f"--lr {stage.rate} --seed {seed} {start} --precision {args.precision} --device {args.device} --out {out}"
        )
        if not commands.run(out.stem, text + (f" --limit {args.limit}" if args.limit else "")):
            return


def certify(args: argparse.Namespace, commands: Commands, training: list[threading.Thread]) -> None:
    """Certify each sigma once all seeds have its network, in the order of the chain."""
    for stage in (stage for stage in STAGES if stage.sigma in args.sigmas):
        files = [weights(args.folder, seed, stage.sigma) for seed in args.seeds]
        while not all(file.exists() for file in files):
            if not any(thread.is_alive() for thread in training):
                return
            time.sleep(0.2)
        out = args.folder / f"run-{'+'.join(map(str, args.seeds))}-{stage.sigma}"
        compiled = "--compile" if args.device != "cpu" else ""
        text = (
            f"certify --model {'+'.join(map(str, files))} --data npz:path={args.folder}/held-out.npz,classes=10 --every 5 "
            f"--smoothing gaussian:sigma={stage.sigma} --stop grid:step={stage.step} -n {args.votes or stage.votes} "
            f"--precision {args.precision} {compiled} --device {args.device} --out {out}"
        )
        commands.run(out.name, text + (f" --limit {args.limit}" if args.limit else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--seeds", default="1,2", help="one network each; they vote together")
    parser.add_argument("--sigmas", default="0.12,0.25,0.5,0.6", help="what is certified")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--epochs", type=float, help="of every training, to try the script out")
    parser.add_argument("--votes", type=int, help="at most, of every input, to try the script out")
    parser.add_argument("--limit", type=int, help="pictures that are trained on and certified, to try the script out")
    args = parser.parse_args()
    args.seeds = [int(text) for text in args.seeds.split(",")]
    args.sigmas = [float(text) for text in args.sigmas.split(",")]
    if not set(args.sigmas) <= {stage.sigma for stage in STAGES}:
        parser.error(f"--sigmas {args.sigmas}: give some of {[stage.sigma for stage in STAGES]}")
    args.folder.mkdir(parents=True, exist_ok=True)
    commands = Commands(args.folder, args.seconds)
    split(args.data, args.folder)
    training = [threading.Thread(target=train, args=(args, commands, seed)) for seed in args.seeds]
    for thread in training:
        thread.start()
    certify(args, commands, training)
    for thread in training:
        thread.join()


if __name__ == "__main__":
    main()
