"""Writes trained weights with what they were made by; where that fails, nothing that can be kept is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vauban.models.files import TRAINED_SMOOTHING, save
from vauban.smoothing import Smoothing
from vauban.training.checkpoints import Files
from vauban.training.denoising import Frozen
from vauban.training.encoder import Encoder
from vauban.training.progress import Trained

BASE_ACCURACY = "base_accuracy_on_training_views"


@dataclass(frozen=True)
class Weights:
    """What a file of weights says besides its tensors. `name`: the text of the network; `further`: entries of the caller's."""

    name: str
    smoothing: Smoothing
    made_by: Mapping[str, str]
    steps: int
    frozen: Frozen | None
    further: Mapping[str, str]

    def write(self, files: Files, trained: Trained) -> None:
        """Write the weights, and remove the checkpoint."""
        metadata = {
            **self.further,
            "trained": ", ".join(f"{key}={value}" for key, value in self.made_by.items()),
            "step": f"{trained.step} of {self.steps}",
        }
        if not isinstance(trained.network, Encoder):
            metadata[TRAINED_SMOOTHING] = str(self.smoothing.spec)
        if not math.isnan(trained.accuracy):
            metadata[BASE_ACCURACY] = f"{trained.accuracy:.4f}"
        if isinstance(trained.network, Encoder):
            save(files.weights, trained.network.without_heads(), self.name, metadata)
        elif self.frozen is None:
            save(files.weights, trained.network, self.name, metadata)
        else:
            self.frozen.save(files.weights, trained.network, self.name, metadata)
        files.checkpoint.unlink(missing_ok=True)
        files.log_before.unlink(missing_ok=True)


def what_is_kept(files: Files | None, kept: int | None, steps: int) -> str:
    """What is left of a training whose last write failed, and what to do; `kept`: the step of its checkpoint, if it has one."""
    holds, start = "No checkpoint could be written", "the beginning"
    if files is not None and kept is not None:
        holds, start = f"{files.checkpoint} holds the state after step {kept} of {steps}", "there"
    return (
        f"{holds}: mend this (a full disk: make room), then make the same call or run the same command again, which goes on from "
        f"{start}. In Python the error's result.network is the network as it was trained"
    )
