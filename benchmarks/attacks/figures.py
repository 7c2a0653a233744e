"""Attacks behind the tables and figures of the papers: one command each, stopped by a limit, resumed by the same command.

    python benchmarks/attacks/figures.py table-2.2 --out FOLDER --seconds 300 --device cuda

Parts of a piece run as processes beside each other (`--workers`), each within the limit: inputs are attacked to the end, a few at
a time, as many as fit, and the same command goes on with the rest. NAME.json is written for each part, with what is done so far;
`benchmarks/attacks/draw.py FOLDER` draws them. Networks are trained briefly where FOLDER does not hold them yet; `--networks`
lets pieces share them, and piece `networks` trains those of CIFAR-10. `--scale 0.02 --inputs 4` tries a piece out on a CPU.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import ablation
import alarms
import patches
import torch
import undefended
import wasserstein
from pieces import Job

PIECES: dict[str, tuple[ModuleType, tuple[str, ...], int]] = {
    "alarms": (alarms, tuple(alarms.LAWS), 200),
    "table-2.2": (ablation, ("search",), 275),
    "table-2.2-literal": (ablation, ("literal",), 20),
    "figure-6.7": (patches, ("mnist-band", "mnist-undefended"), 100),
    "figure-6.7-cifar": (patches, ("cifar-band", "cifar-undefended"), 24),
    "figure-5.5": (wasserstein, wasserstein.MNIST_PARTS, 200),
    "figure-5.6": (wasserstein, wasserstein.CIFAR_PARTS, 50),
    "undefended": (undefended, undefended.PARTS, 500),
}
"""Of each piece its module, its parts and the number of inputs."""
NETWORKS = {"cifar-undefended": patches, "cifar-band": patches, "cifar-smoothed": wasserstein}


def main() -> int:
    """Run a part here, or all parts of a piece as processes."""
    given = _arguments()
    if given.part is None:
        parts = tuple(NETWORKS) if given.piece == "networks" else PIECES[given.piece][1]
        return _in_processes(given, given.only or parts)
    torch.set_num_threads(given.threads)
    count = 1 if given.piece == "networks" else given.inputs or PIECES[given.piece][2]
    job = Job(
        out=given.out / given.piece,
        networks=given.networks or given.out / "networks",
        seconds=given.seconds,
        device=given.device,
        inputs=count,
        cifar_train=given.cifar_train,
        cifar_test=given.cifar_test,
        epochs=given.scale,
        first=given.first,
    )
    try:
        if given.piece == "networks":
            NETWORKS[given.part].subject(job, given.part)
        else:
            together = {} if given.together is None else {"together": given.together}
            PIECES[given.piece][0].run(job, given.part, **together)
    except KeyboardInterrupt:
        job.say(f"{given.part}: stopped at the limit; what it kept is resumed by the same command")
        return 1
    return 0


def _in_processes(given: argparse.Namespace, parts: tuple[str, ...]) -> int:
    """Each part in a process of its own, with what is left of the limit; how many failed."""
    deadline = time.monotonic() + given.seconds
    own = [word for word in sys.argv[1:] if word]

    def one(part: str) -> int:
        left = deadline - time.monotonic()
        waiting = -(-len(parts) // given.workers)
        share = max(left if waiting == 1 else min(left, 1.3 * given.seconds / waiting), 0)
        if share < 10:
            print(f"{part}: no time left", flush=True)
            return 1
        words = [sys.executable, str(Path(__file__).resolve()), *own, "--part", part, "--seconds", str(share - 8)]
        return _stopped_in_time(words, part, left)

    with ThreadPoolExecutor(given.workers) as pool:
        return int(any(list(pool.map(one, parts))))


def _stopped_in_time(words: list[str], part: str, seconds: float) -> int:
    """Run a part; at the limit it is interrupted, which keeps a training's checkpoint and the votes so far, then ended."""
    started = subprocess.Popen(words)
    for wait, stop in ((seconds, started.send_signal), (15, lambda _: started.kill())):
        try:
            return started.wait(wait)
        except subprocess.TimeoutExpired:
            stop(signal.SIGINT)
    print(f"{part}: ended at the limit; what was kept is resumed by the same command", flush=True)
    return started.wait() or 1


def _arguments() -> argparse.Namespace:
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("piece", choices=["networks", *PIECES])
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--networks", type=Path)
    read.add_argument("--seconds", type=float, default=3600.0)
    read.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    read.add_argument("--workers", type=int, default=1)
    read.add_argument("--threads", type=int, default=2)
    read.add_argument("--inputs", type=int)
    read.add_argument("--together", type=int, help="inputs attacked at once, at most")
    read.add_argument("--first", type=int, default=1, help="inputs attacked at once to begin with; more suit a GPU")
    read.add_argument("--scale", type=float, default=1.0, help="how much of the training is done")
    read.add_argument("--cifar-train", default="cifar10:split=train")
    read.add_argument("--cifar-test", default="cifar10:split=test")
    read.add_argument("--only", nargs="*", help="some parts of a piece")
    read.add_argument("--part", help=argparse.SUPPRESS)
    return read.parse_args()


if __name__ == "__main__":
    sys.exit(main())
