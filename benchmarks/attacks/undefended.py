"""The dashed curve in Figure 6 of Teng et al.: accuracy of an undefended CIFAR-10 network under attack, in L1 and in L2."""

from __future__ import annotations

from patches import NEARLY_CLEAN, cifar_network
from pieces import Job, told

from vauban.attacks.running import attack

PARTS = ("l1", "l2")
RADII = [0.05 * i for i in range(41)]


def run(job: Job, part: str, together: int = 100) -> None:
    """Attack the undefended network in one norm."""
    base = cifar_network(job, "undefended", NEARLY_CLEAN)
    found = attack(
        base,
        job.cifar(),
        num_classes=10,
        device=job.device,
        threat=part,
        attacks=["minimal", "pgd"],
        together=together,
        **job.limits,
        seed=1,
        out=job.out / part,
    )
    job.write(part, told(found, RADII))
    job.say(f"{part}: accuracy at 0.5 {found.accuracy_under_attack(0.5):.3f}")
