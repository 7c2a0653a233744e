"""A classifier that stays as it is while a denoiser in front of it is trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vauban.errors import BadInput
from vauban.models import save
from vauban.models.composing import as_model
from vauban.models.composition import DENOISED_NAMES, Ensembled, composed
from vauban.models.denoised import Denoised
from vauban.models.files import LoadedModel, fingerprint, names_code
from vauban.models.registry import canonical
from vauban.training.losses import Loss


@dataclass(frozen=True)
class Frozen:
    """A copy of a classifier, in evaluation mode and without gradients of its parameters.

    `spec`: the text that loads it; None for a module that was given as it is. `sha256`: of its text and tensors.
    """

    module: torch.nn.Module
    spec: str | None
    sha256: str

    @classmethod
    def of(cls, classifier: Any, loss: Loss, name: str) -> Frozen:
        """`classifier`: a torch module, what `models.load` returns, or a text that it takes. `name`: the loss as it was given."""
        if loss.uses_labels:
            raise BadInput(
                f"loss={name} uses labels, and a denoiser for a frozen classifier is trained without: give mse or "
                "denoised-stability; to train both with labels, give them as one model, such as 'dncnn > resnet18'"
            )
        if loss.learns_features:
            raise BadInput(f"loss={name} learns features, and no denoiser for a classifier: leave classifier out")
        given = as_model(classifier)
        if isinstance(given, LoadedModel) and given.spec and isinstance(composed(given.spec), Ensembled):
            raise BadInput(
                "the classifier is an ensemble, and a denoiser stands in front of one classifier: train one for each of its "
                "members, and join the pairs by +"
            )
        assert isinstance(given.module, torch.nn.Module)
        module = copy.deepcopy(given.module).eval().requires_grad_(False)
        spec = given.spec if isinstance(given, LoadedModel) else None
        return cls(module, spec, fingerprint(spec or type(module).__qualname__, module))

    def check(self, denoiser: str) -> None:
        """Refuse the text of a denoiser that cannot stand in front of this classifier."""
        if self.spec is not None:
            canonical(f"{denoiser} > {self.spec}")

    def behind(self, denoiser: torch.nn.Module) -> Denoised:
        """The pair as one network."""
        return Denoised(denoiser, self.module)

    def about(self) -> dict[str, str]:
        """What is written of the classifier beside the weights."""
        return {"classifier": self.spec or type(self.module).__qualname__, "classifier_sha256": self.sha256}

    def save(self, path: Path, pair: torch.nn.Module, denoiser: str, metadata: Mapping[str, str]) -> None:
        """Write the pair to one file; the denoiser alone where either part is code of one's own, which no file can hold."""
        assert isinstance(pair, Denoised)
        metadata = {**metadata, **self.about()}
        whole = f"{denoiser} > {self.spec}"
        if self.spec is None or names_code(whole):
            save(path, pair.denoiser, denoiser, metadata)
        else:
            save(path, pair, whole, metadata)


def voter(network: torch.nn.Module, frozen: Frozen | None) -> torch.nn.Module:
    """What is certified: the network, or the pair where a denoiser alone is trained."""
    return network if frozen is None or isinstance(network, Denoised) else frozen.behind(network)


def start_from(
    network: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
) -> tuple[torch.nn.Module, Mapping[str, torch.Tensor]]:
    """The part of a network that a file's tensors are for, and those of them that are for it.

    A denoiser's tensors are for the denoiser of a pair, and of a pair's tensors those of its denoiser are for a denoiser.
    """
    first, second = DENOISED_NAMES
    of_pair = all(any(name.startswith(part) for name in tensors) for part in DENOISED_NAMES)
    if isinstance(network, Denoised):
        return (network, tensors) if of_pair else (network.denoiser, tensors)
    if of_pair and not any(name.startswith(DENOISED_NAMES) for name in network.state_dict()):
        return network, {name.removeprefix(first): t for name, t in tensors.items() if not name.startswith(second)}
    return network, tensors
