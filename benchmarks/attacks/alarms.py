"""One run for each law, exact and sampled: a network, 200 certified MNIST digits, attacks on all of them; alarms are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pieces import Job, smoothed, told

import vauban as vb
from vauban.attacks.running import attack


@dataclass(frozen=True)
class Line:
    """A smoothing with the network that is trained for it; other attacks than those of its threat where named."""

    smoothing: str
    network: str = "cnn-small"
    attacks: tuple[str, ...] = ()


SHORT = ("patch-ifgsm:size=2,largest=8,places=12,steps=40",)  # where hundreds of views vote at every step
FLOW = "cnn-small:channels=1,classes=10,mean=0,std=0.005"
LAWS = {
    "block-sampled": Line("block:size=10,sampled=true", attacks=SHORT),
    "fractional-sampled": Line("fractional:p=1/2,scale=18,sampled=true"),
    "concave": Line("concave"),
    "gaussian": Line("gaussian:sigma=0.5"),
    "ablation": Line("ablation:retained=45"),
    "band": Line("band:size=4,threshold=0.3"),
    "flow": Line("flow:sigma=0.005", FLOW),
    "splitting": Line("splitting:sigma=1"),
    "sparse": Line("sparse:scale=20"),
    "laplace": Line("laplace:sigma=0.5"),
    "uniform": Line("uniform:sigma=0.5"),
    "block": Line("block:size=12", attacks=SHORT),
    "fractional": Line("fractional:p=1/2,scale=18"),
    "discrete": Line("discrete:keep=0.2,values=256"),
    "band-one-vote": Line("band:size=4"),
    "splitting-sampled": Line("splitting:sigma=0.5,sampled=true"),
    "fractional-third": Line("fractional:p=1/3,scale=6"),
    "band-sampled": Line("band:size=4,sampled=true", attacks=SHORT),
}
"""Those that are in no stored table yet come first."""


def run(job: Job, part: str, together: int = 50) -> None:
    """Train, certify and attack one law; NAME.json holds what came out."""
    line = LAWS[part]
    smoothing: Any = vb.Concave(lambda z: min(4 * z, 1), scale=18) if line.smoothing == "concave" else line.smoothing
    base = job.trained(f"mnist-{part}", line.network, smoothing, job.mnist)
    classifier = smoothed(base, smoothing, job.device, job.precision)
    data = job.mnist()
    sampled = {} if classifier.smoothing.law.exact else {"n": 10_000, "alpha": 0.001, "seed": 1}
    kept = {} if line.smoothing == "concave" else {"out": job.out / part / "run"}  # a g of one's own has no text form
    certs = classifier.certify(data, progress=False, **kept, **sampled)
    job.say(f"{part}: certified, accuracy at 0 {certs.accuracy(0.0):.3f}")
    found = attack(
        classifier,
        data,
        certificates=certs,
        attacks=line.attacks,
        **job.limits,
        together=together,
        seed=1,
        out=job.out / part / "attack",
    )
    about = {"law": str(classifier.smoothing.law.spec), "exact": certs.exact, "median_radius": certs.median_radius}
    job.write(part, about | told(found, [0.0]))
    job.say(f"{part}: {found.attacked.sum()} attacked, {len(found.alarms)} alarms")
