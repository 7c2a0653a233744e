"""Attacks of other libraries in one form: from a network, pictures, labels and budgets to adversarial candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

PGD_STEPS = 40

Peer = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor, tuple[float, ...]], Iterable[torch.Tensor]]


class Counted(torch.nn.Module):
    """A network that counts the pictures it is given."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module, self.rows = module, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores [b, classes] of pictures [b, ...]."""
        self.rows += len(x)
        return self.module(x)


def foolbox_pgd(
    name: str, model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, budgets: tuple[float, ...]
) -> list[torch.Tensor]:
    """Projected gradient with a random start, once for each budget."""
    import foolbox

    attack = getattr(foolbox.attacks, name)(steps=PGD_STEPS)
    return [attack.run(_foolbox(model, x), x, labels, epsilon=budget) for budget in budgets]


def foolbox_minimal(
    name: str,
    steps: int | None,
    model: torch.nn.Module,
    x: torch.Tensor,
    labels: torch.Tensor,
    budgets: tuple[float, ...],
) -> list[torch.Tensor]:
    """An attack that makes the distance small by itself."""
    import foolbox

    options: dict[str, Any] = {"l2_binary_search": False} if steps is None else {"steps": steps}
    return [getattr(foolbox.attacks, name)(**options).run(_foolbox(model, x), x, labels)]


def _foolbox(model: torch.nn.Module, x: torch.Tensor) -> Any:
    import foolbox

    return foolbox.PyTorchModel(model.eval(), bounds=(0, 1), device=x.device)


def art_wasserstein(
    model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, budgets: tuple[float, ...]
) -> list[torch.Tensor]:
    """Projected Sinkhorn iterations with p = 1, the ball grown from the first budget by 1.3 every 5 of 30 steps, 50 iterations
    for each."""
    from art.attacks.evasion import Wasserstein

    attack = Wasserstein(
        _art(model, x),
        p=1,
        eps=budgets[0],
        eps_iter=5,
        eps_factor=1.3,
        max_iter=30,
        conjugate_sinkhorn_max_iter=50,
        projected_sinkhorn_max_iter=50,
        batch_size=len(x),
        verbose=False,
    )
    given, true = x.cpu().numpy(), labels.cpu().numpy()
    try:
        made = attack.generate(given, true)
    except ValueError:  # its exponentials overflow: each picture by itself, unchanged where they do
        made = given.copy()
        for i in range(len(given)):
            with suppress(ValueError):
                made[i : i + 1] = attack.generate(given[i : i + 1], true[i : i + 1])
    return [torch.from_numpy(np.asarray(made)).to(x)]


def art_patch(
    model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, budgets: tuple[float, ...]
) -> list[torch.Tensor]:
    """A square at one place, without rotation, made for each picture by itself in 100 steps."""
    _only_the_python_of_torchvision()
    from art.attacks.evasion import AdversarialPatchPyTorch

    side = int(budgets[-1])
    made = []
    for i in range(len(x)):
        attack = AdversarialPatchPyTorch(
            _art(model, x),
            rotation_max=0.0,
            scale_min=1.0,
            scale_max=1.0,
            learning_rate=0.05,
            max_iter=100,
            batch_size=1,
            patch_shape=(x.shape[1], side, side),
            patch_location=(10, 10),
            patch_type="square",
            optimizer="pgd",
            targeted=False,
            verbose=False,
        )
        one = x[i : i + 1].cpu().numpy()
        patch, _ = attack.generate(one, labels[i : i + 1].cpu().numpy())
        changed = torch.from_numpy(np.array(one)).to(x)
        changed[:, :, 10 : 10 + side, 10 : 10 + side] = torch.from_numpy(np.asarray(patch)).to(x)
        made.append(changed)
    return [torch.cat(made)]


def _art(model: torch.nn.Module, x: torch.Tensor) -> Any:
    from art.estimators.classification import PyTorchClassifier

    return PyTorchClassifier(
        model,
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=tuple(x.shape[1:]),
        nb_classes=10,
        clip_values=(0, 1),
        device_type="gpu" if x.is_cuda else "cpu",
    )


def _only_the_python_of_torchvision() -> None:
    """Let torchvision be imported where its compiled part does not fit torch: nothing of that is used."""
    if _kept or hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


_kept: list[Any] = []

PEERS: dict[str, Peer] = {
    "foolbox-pgd-l2": partial(foolbox_pgd, "L2ProjectedGradientDescentAttack"),
    "foolbox-pgd-linf": partial(foolbox_pgd, "LinfProjectedGradientDescentAttack"),
    "foolbox-pgd-l1": partial(foolbox_pgd, "L1ProjectedGradientDescentAttack"),
    "foolbox-ddn-100": partial(foolbox_minimal, "DDNAttack", 100),
    "foolbox-fmn-l2-30": partial(foolbox_minimal, "L2FMNAttack", 30),
    "foolbox-fmn-l2-100": partial(foolbox_minimal, "L2FMNAttack", 100),
    "foolbox-fmn-linf-100": partial(foolbox_minimal, "LInfFMNAttack", 100),
    "foolbox-fmn-l1-100": partial(foolbox_minimal, "L1FMNAttack", 100),
    "foolbox-pointwise": partial(foolbox_minimal, "PointwiseAttack", None),
    "art-wasserstein": art_wasserstein,
    "art-patch": art_patch,
}
