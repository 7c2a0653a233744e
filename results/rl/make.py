"""Trains the curves of this folder on one GPU: several batched trainings in parallel, as `vauban rl train --together`.

    python results/rl/make.py FOLDER [--only NAME …] [--seconds 3000] [--device cuda]

Trainings share the GPU as threads of one process; the same command resumes what is not complete when the time is over.
"""

from __future__ import annotations

import argparse
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from vauban.rl.batched_seeds import train_batched
from vauban.rl.recipes import plan
from vauban.rl.training import open_run

SEEK, DRIVE, NOISY, BITS = "ContinuousSeek-v0", "DriveSeek-v0", "NoisySeek-v0", "BitFlipping-v0"
TRAININGS: dict[str, dict[str, Any]] = {
    "seek20-ddpg": {"algo": "ddpg", "env": f"{SEEK}:dim=20", "label": "DDPG + HER"},
    "seek20-reengage": {"algo": "reengage-ddpg", "env": f"{SEEK}:dim=20", "alpha": 0.2},
    "seek10-ddpg": {"algo": "ddpg", "env": f"{SEEK}:dim=10", "label": "DDPG + HER"},
    "seek10-reengage": {"algo": "reengage-ddpg", "env": f"{SEEK}:dim=10", "alpha": 0.2},
    "seek10-reengage-0.1": {"algo": "reengage-ddpg", "env": f"{SEEK}:dim=10", "alpha": 0.1},
    "seek10-reengage-0.02": {"algo": "reengage-ddpg", "env": f"{SEEK}:dim=10", "alpha": 0.02},
    "bits40-dqn": {"algo": "dqn", "env": f"{BITS}:dim=40", "label": "DQN + HER", "steps": 2_560_000, "every": 25_600},
    "bits40-reengage": {
        "algo": "reengage-dqn", "env": f"{BITS}:dim=40", "alpha": 0.5, "steps": 2_560_000, "every": 25_600,
    },
    "bits40-reengage-mean": {
        "algo": "reengage-dqn", "env": f"{BITS}:dim=40", "alpha": 0.0125, "steps": 2_560_000, "every": 25_600,
    },
    "seek10-sac": {"algo": "sac", "env": f"{SEEK}:dim=10", "label": "SAC + HER"},
    "seek10-sac-reengage": {
        "algo": "reengage-sac", "env": f"{SEEK}:dim=10", "alpha": 0.2, "label": "SAC + ReenGAGE, alpha 0.2",
    },
    "drive-ddpg": {"algo": "ddpg", "env": DRIVE, "label": "DDPG", "precision": "bf16"},
    "drive-multi": {"algo": "multi-reengage-ddpg", "env": DRIVE, "alpha": 0.2, "precision": "bf16"},
    "drive-apart-ddpg": {
        "algo": "ddpg", "env": DRIVE, "label": "DDPG, two encoders", "precision": "bf16", "set": {"share_encoder": False},
    },
    "drive-apart-multi": {
        "algo": "multi-reengage-ddpg", "env": DRIVE, "alpha": 0.2, "label": "Multi-ReenGAGE, alpha 0.2, two encoders",
        "precision": "bf16", "set": {"share_encoder": False},
    },
    "drive-pictures-ddpg": {
        "algo": "ddpg", "env": DRIVE, "label": "DDPG, pictures", "precision": "bf16", "every": 2_000,
        "set": {"encoder": "pictures"},
    },
    "drive-pictures-multi": {
        "algo": "multi-reengage-ddpg", "env": DRIVE, "alpha": 0.2, "label": "Multi-ReenGAGE, alpha 0.2, pictures",
        "precision": "bf16", "every": 2_000, "set": {"encoder": "pictures"},
    },
    "noisy-ddpg": {"algo": "ddpg", "env": NOISY, "label": "DDPG", "precision": "bf16"},
    "noisy-multi": {"algo": "multi-reengage-ddpg", "env": NOISY, "alpha": 0.2, "precision": "bf16"},
}  # fmt: skip


def train(name: str, folder: Path, seeds: int, ends: float, device: str) -> None:
    """Run one training and print a line when it ends."""
    about = dict(TRAININGS[name])
    alpha = about.pop("alpha", None)
    settings = about.pop("set", {}) | ({} if alpha is None else {"goal_weight": alpha})
    label = about.pop("label", f"{'Multi-' if about['algo'].startswith('multi') else ''}ReenGAGE, alpha {alpha}")
    training = plan(
        about.pop("algo"), about.pop("env"), settings, about.get("steps"), about.get("every"), None,
        about.get("precision", "fp32"),
        together=True,
    )  # fmt: skip
    done = 0

    def on_progress(steps: int) -> None:
        nonlocal done
        done += steps

    began = time.monotonic()
    try:
        open_run(folder / name, training, label)
        out_of_time = lambda: time.monotonic() > ends  # noqa: E731
        train_batched(
            folder / name, training, list(range(seeds)), device=device, on_progress=on_progress, stop=out_of_time
        )
    except Exception:
        traceback.print_exc()
    print(f"{name}: {done // seeds:,} of {training.steps:,} steps, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(TRAININGS), choices=list(TRAININGS))
    parser.add_argument("--seconds", type=float, default=3000.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    ends = time.monotonic() + args.seconds
    threads = [
        threading.Thread(target=train, args=(name, args.folder, args.seeds, ends, args.device)) for name in args.only
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
