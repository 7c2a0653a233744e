"""What the attack experiments share: a job with a clock, networks that are trained once, and results written as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vauban as vb
from vauban.attacks.baselines import BaselineRecipe, train_baseline
from vauban.attacks.results import Attacked
from vauban.data import load_some
from vauban.data.dataset import Dataset
from vauban.models import load as load_model
from vauban.models.files import save


@dataclass
class Job:
    """One part of an experiment: where it writes, how long it may take, and on what."""

    out: Path
    networks: Path
    seconds: float
    device: str
    inputs: int
    cifar_train: str
    cifar_test: str
    epochs: float
    first: int = 1
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left, at least one."""
        return max(1.0, self.seconds - (time.monotonic() - self.began))

    @property
    def limits(self) -> dict[str, Any]:
        """Arguments of `attack`: inputs are attacked to the end, `first` at once to begin with, as many as fit; the rest of
        the time is for confirming alarms and writing. The same command goes on with the inputs that are left."""
        return {"budget": f"{max(1.0, 0.9 * self.left):.0f}s", "whole": max(1, self.first), "progress": False}

    @property
    def precision(self) -> str:
        """Of networks for MNIST: bf16 on a GPU, whose tensor cores do not compute in float32; in TF32 rows may disagree."""
        return "bf16" if self.device.startswith("cuda") else "fp32"

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"{time.monotonic() - self.began:7.1f} s  {self.out.name}: {text}", flush=True)

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write a result as NAME.json, with the seconds it took so far."""
        self.out.mkdir(parents=True, exist_ok=True)
        infinite = {name for name, entry in value.items() if isinstance(entry, float) and not np.isfinite(entry)}
        value = {name: None if name in infinite else entry for name, entry in value.items()}
        value = {"seconds": round(time.monotonic() - self.began, 1), "device": describe(self.device), **value}
        (self.out / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")

    def read(self, name: str) -> dict[str, Any]:
        """The result NAME.json of an earlier call, empty without one."""
        file = self.out / f"{name}.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def mnist(self, split: str = "test") -> Dataset:
        """Evenly spread test digits, as many as the job attacks; or all training digits."""
        return load_some("mnist:split=train", 1, None) if split == "train" else spread("mnist:split=test", self.inputs)

    def cifar(self, split: str = "test") -> Dataset:
        """Evenly spread test pictures of CIFAR-10, as many as the job attacks; or all training pictures."""
        return load_some(self.cifar_train, 1, None) if split == "train" else spread(self.cifar_test, self.inputs)

    def trained(self, name: str, network: str, smoothing: str, data: Callable[[str], Dataset], **recipe: Any) -> Any:
        """A network trained on views, from its file if it is there."""
        file = self.networks / f"{name}.safetensors"
        if not file.exists():
            self.networks.mkdir(parents=True, exist_ok=True)
            settings = {"epochs": 4.0, "lr": 0.002, "batch": 256, "compile": False} | recipe
            settings["epochs"] *= self.epochs
            done = vb.train(network, data("train"), smoothing, out=file, device=self.device, **settings)
            self.say(f"{name} is trained, accuracy on views {done.accuracy:.3f}")
        return load_model(str(file), None, torch.device(self.device))

    def baseline(self, name: str, network: str, recipe: BaselineRecipe) -> Any:
        """A baseline of the papers on MNIST, from its file if it is there."""
        file = self.networks / f"baseline-{name}.safetensors"
        spec = f"{network}:channels=1,classes=10"
        module = load_model(spec, device=torch.device(self.device), allow_random=True).module
        if file.exists():
            from safetensors.torch import load_file

            module.load_state_dict(load_file(str(file)))
            return wrapped(name, module)
        data = self.mnist("train")
        x, y = torch.from_numpy(np.array(data.images)), torch.from_numpy(np.array(data.labels))
        few = max(1, int(len(x) * min(1.0, self.epochs)))
        module.requires_grad_(True)
        made = train_baseline(name, module.to(self.device), x[:few], y[:few], recipe)
        self.networks.mkdir(parents=True, exist_ok=True)
        save(file, made.network if name == "binarised" else made, spec, {"baseline": name})
        self.say(f"{name} is trained")
        return made


def wrapped(name: str, module: torch.nn.Module) -> torch.nn.Module:
    """A baseline around its network."""
    from vauban.attacks.baselines import Binarised

    return (Binarised(module) if name == "binarised" else module).eval()


def spread(spec: str, count: int) -> Dataset:
    """`count` inputs of a data set, evenly spread."""
    return load_some(spec, max(1, len(load_some(spec, 1, None)) // count), count)


def smoothed(base: Any, smoothing: Any, device: str, precision: str = "fp32") -> vb.SmoothedClassifier:
    """A smoothed classifier of 10 classes."""
    return vb.SmoothedClassifier(base, smoothing, num_classes=10, device=torch.device(device), precision=precision)


def told(attacked: Attacked, radii: list[float]) -> dict[str, Any]:
    """Everything a table or a picture needs of an attack."""
    distance = [None if not np.isfinite(d) else float(d) for d in attacked.distance]
    answered = [found is not None and len(found.answer) > 0 for found in attacked.results]
    return attacked.summary(radii) | {
        "index": attacked.index.tolist(),
        "label": attacked.label.tolist(),
        "truth": None if attacked.truth is None else attacked.truth.tolist(),
        "distance": distance,
        "another_answer": answered,
        "tried": attacked.attacked.tolist(),
        "radius": [None if np.isnan(r) else float(r) for r in attacked.radius],
    }


def describe(device: str) -> str:
    """The device in words."""
    return torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {torch.get_num_threads()} threads"
