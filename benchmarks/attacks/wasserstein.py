"""Figures 5.5, 5.6 and D.1: the Wasserstein attack on flow smoothing, beside the baselines of Wong et al."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from patches import CIFAR_RECIPE, NEARLY_CLEAN, cifar_network
from pieces import Job, smoothed, told

from vauban.attacks.baselines import BaselineRecipe, train_baseline
from vauban.attacks.intervals import proven
from vauban.attacks.results import Attacked
from vauban.attacks.running import attack
from vauban.models import load as load_model
from vauban.models.files import save

MNIST_PARTS = ("smoothed", "undefended", "binarised", "linf-adversarial", "linf-provable", "wasserstein-adversarial")
CIFAR_PARTS = ("cifar-smoothed", "cifar-undefended", "cifar-adversarial")
MNIST_BALL = "steps=200,radius=0.02,factor=1.25"
CIFAR_BALL = "steps=200,radius=0.0005,factor=1.25,halvings=2"
RADII = {"mnist": [0.05 * i for i in range(29)], "cifar": [0.001 * i for i in range(41)]}
SEARCH = {"mnist": {"views": 128, "votes": 1000}, "cifar": {"views": 32, "votes": 250}}
"""Views behind a gradient, and votes that judge a step; every picture found is confirmed by `VOTES` fresh ones."""
ALPHA, VOTES = 0.05, 10_000
RECIPES = {
    "undefended": BaselineRecipe(epochs=3, batch=256),
    "binarised": BaselineRecipe(epochs=3, batch=256),
    "linf-adversarial": BaselineRecipe(epochs=4, batch=256, epsilon=0.1),
    "linf-provable": BaselineRecipe(epochs=40, batch=256, epsilon=0.1),
    "wasserstein-adversarial": BaselineRecipe(epochs=2, batch=256, epsilon=0.3, steps=3),
}


CIFAR_ADVERSARIAL = BaselineRecipe(epochs=1, batch=64, lr=1e-4, epsilon=0.02, steps=1)


def cifar_adversarial(job: Job) -> Any:
    """The undefended network of CIFAR-10, trained on for an epoch (or `--scale` of one) against Wasserstein attacks."""
    file = job.networks / "cifar-adversarial.safetensors"
    if not file.exists():
        base, data = cifar_network(job, "undefended", NEARLY_CLEAN), job.cifar("train")
        few = max(1, int(len(data) * min(1.0, job.epochs)))
        x, y = torch.from_numpy(np.array(data.images[:few])), torch.from_numpy(np.array(data.labels[:few]))
        network = base.module.requires_grad_(True)
        made = train_baseline("wasserstein-adversarial", network, x, y, CIFAR_ADVERSARIAL)
        save(file, made, base.spec, {"baseline": "wasserstein-adversarial"})
        job.say("cifar-adversarial is trained")
    return load_model(str(file), None, torch.device(job.device))


def subject(job: Job, part: str) -> tuple[Any, dict[str, Any]]:
    """The classifier of a part, and the arguments of `attack` that go with it."""
    if part == "cifar-smoothed":
        scale = "resnet18:channels=3,classes=10,mean=0,std=0.00035"
        flow = "flow:sigma=0.0002"
        base = job.trained("cifar-flow", scale, flow, job.cifar, **CIFAR_RECIPE)
        return smoothed(base, flow, job.device, "bf16"), {}
    if part == "cifar-adversarial":
        return cifar_adversarial(job), {"num_classes": 10, "device": job.device}
    if part == "cifar-undefended":
        return cifar_network(job, "undefended", NEARLY_CLEAN), {"num_classes": 10, "device": job.device}
    if part == "smoothed":
        scale = "wong-mnist:channels=1,classes=10,mean=0,std=0.005"
        base = job.trained("mnist-flow-long", scale, "flow:sigma=0.01", job.mnist, epochs=10.0, batch=256)
        return smoothed(base, "flow:sigma=0.01", job.device, job.precision), {}
    return job.baseline(part, "wong-mnist", RECIPES[part]), {"num_classes": 10, "device": job.device}


def run(job: Job, part: str, together: int = 20) -> None:
    """Attack one classifier; abstentions of the smoothed one count, as in the thesis."""
    data_set = "cifar" if part.startswith("cifar") else "mnist"
    classifier, options = subject(job, part)
    ball = CIFAR_BALL if data_set == "cifar" else MNIST_BALL
    found = attack(
        classifier,
        (job.cifar if data_set == "cifar" else job.mnist)(),
        threat="wasserstein-l2",
        attacks=[f"wasserstein:{ball}", f"frank-wolfe:{ball}"],
        **SEARCH[data_set],
        confirm_votes=VOTES,
        abstain=None if options else ALPHA,
        together=together,
        **job.limits,
        seed=1,
        out=job.out / part,
        **options,
    )
    share = {"proven_at_0.1": proven_share(job, classifier, found, 0.1)} if part == "linf-provable" else {}
    job.write(part, {"ball": ball} | share | told(found, RADII[data_set]))
    job.say(f"{part}: {found.attacked.sum()} attacked, median {told(found, [])['median_distance']} {share or ''}")


def proven_share(job: Job, network: torch.nn.Module, found: Attacked, epsilon: float) -> float:
    """The share of the attacked digits whose label interval bounds prove for changes of each number by at most `epsilon`."""
    x, labels = (torch.from_numpy(each[found.attacked]).to(job.device) for each in (found.originals, found.truth))
    return float(proven(network, x / 255, labels, epsilon).float().mean())
