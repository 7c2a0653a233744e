"""Figure 6.7: patch-IFGSM (a) and L-infinity IFGSM (b) against column smoothing and against an undefended network."""

from __future__ import annotations

from typing import Any

from pieces import Job, smoothed, told

from vauban.attacks.running import attack

BAND = "band:size=4,threshold=0.3"
PARTS = ("mnist-band", "mnist-undefended", "cifar-band", "cifar-undefended")
RADII = [step * 0.5 / 255 for step in range(51)]
CIFAR_RECIPE: dict[str, Any] = {
    "epochs": 30.0,
    "batch": 512,
    "lr": 0.004,
    "augment": "crop-flip",
    "precision": "bf16",
    "compile": None,
}
"""Compiled where it is trained on a GPU, which 30 epochs are long enough for."""
NEARLY_CLEAN = "gaussian:sigma=0.001"
"""Views with noise of a quarter of an 8-bit step: how an undefended network is trained here."""


def cifar_network(job: Job, name: str, smoothing: str) -> Any:
    """A ResNet-18 of CIFAR-10, trained on views."""
    return job.trained(f"cifar-{name}", "resnet18", smoothing, job.cifar, **CIFAR_RECIPE)


def subject(job: Job, part: str) -> tuple[Any, Any, dict[str, Any]]:
    """Classifier, inputs and the arguments of `attack` that go with them."""
    picture, kind = part.split("-")
    data = (job.mnist if picture == "mnist" else job.cifar)()
    views = BAND if kind == "band" else NEARLY_CLEAN
    if picture == "mnist":
        base = job.trained(f"mnist-{kind}-long", "cnn", views, job.mnist, epochs=10.0, batch=512)
    else:
        base = cifar_network(job, kind, views)
    if kind == "undefended":
        return base, data, {"num_classes": 10, "device": job.device}
    return smoothed(base, BAND, job.device, job.precision if picture == "mnist" else "bf16"), data, {}


def run(job: Job, part: str, together: int = 20) -> None:
    """Both attacks on one classifier; the L-infinity one, which is cheap, first."""
    classifier, data, options = subject(job, part)
    certs = None
    if not options:
        certs = classifier.certify(data, out=job.out / part / "run", progress=False)
        job.say(f"{part}: certified at 5 pixels {certs.accuracy(5.0):.3f}")
    shared = options | {"seed": 1, "together": together}
    far = attack(classifier, data, threat="linf", attacks="ifgsm", out=job.out / part / "linf", **job.limits, **shared)
    job.write(f"{part}-linf", told(far, RADII))
    job.say(f"{part}: L-infinity, accuracy at 4/255 {far.accuracy_under_attack(4 / 255):.3f}")
    near = attack(
        classifier,
        data,
        certificates=certs,
        threat="patch",
        attacks="patch-ifgsm:size=5,places=80,steps=150,step=0.05",
        **job.limits,
        out=job.out / part / "patch",
        **shared,
    )
    job.write(f"{part}-patch", told(near, [0.0, 5.0]))
    job.say(f"{part}: patches, {near.attacked.sum()} attacked, accuracy {near.accuracy_under_attack(5.0):.3f}")
