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
