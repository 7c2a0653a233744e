"""What two processes must have in common for their votes to be one run's: model, code, arithmetic."""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import vauban
from vauban.errors import BadInput
from vauban.inputs import Inputs
from vauban.runs.folder import device_name
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing.random import Stream
from vauban.voting.poll import Place
from vauban.voting.scores import Model
from vauban.voting.voter import Voter

_ROOMS = (".", "bounds", "certificates", "runs", "smoothing", "stopping", "voting")


def packed(model: Model, dumps: Any) -> bytes:
    """The model as bytes: its tensors, and the names of the code that it is made of; `dumps` pickles it."""
    try:
        on_cpu = copy.deepcopy(model).cpu() if isinstance(model, torch.nn.Module) and _elsewhere(model) else model
        content: bytes = dumps(on_cpu)
    except Exception as problem:
        raise BadInput(
            f"the model cannot be sent to other machines ({problem}): one that pickle can copy is needed"
        ) from None
    return content


def unpacked(content: bytes) -> tuple[Model, str]:
    """The model in these bytes, made of this machine's code, and the sha256 of the files that hold this code.

    What those files import in turn is not followed; scores (see `likeness`) tell of that.
    """
    reader = _Reader(content)
    model: Model = reader.load()
    digest = hashlib.sha256()
    for name in sorted(reader.modules):
        file = Path(getattr(sys.modules.get(name), "__file__", None) or "")
        if file.suffix == ".py" and name != "__main__":
            digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return model, digest.hexdigest()


def likeness(smoothed: SmoothedClassifier, voter: Voter, code: str, sha256: str, samples: Inputs) -> dict[str, str]:
    """Everything that a vote depends on, in a line each.

    "model" hashes the run's own hash of its model, the code, and every tensor as it votes. "scores" hashes what the model
    answers to a shape of views of `samples` that no run counts: processors of one name may round differently.
    """
    return {
        "model": f"sha256 {_hashed(smoothed.model, sha256 + code)}",
        "device": device_name(voter.device),
        "threads": str(torch.get_num_threads()),
        "rows": f"{voter.rows} in blocks of {voter.block_size}",
        "compiled": str(voter.compiled),
        "scores": f"sha256 {_scores(voter, samples)}",
        "torch": str(torch.__version__),
        "vauban": f"{vauban.__version__}, its code sha256 {_own_code()}",
        **{name: version(name) for name in ("numpy", "scipy", "mpmath")},
    }


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """A line for everything that is not the same."""
    return [f"{name}: {here[name]} here, {there[name]} there" for name in here if here[name] != there[name]]


def _hashed(model: Model, rest: str) -> str:
    digest = hashlib.sha256(rest.encode())
    named = [*model.named_parameters(), *model.named_buffers()] if isinstance(model, torch.nn.Module) else []
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _elsewhere(module: torch.nn.Module) -> bool:
    return any(tensor.device.type != "cpu" for tensor in (*module.parameters(), *module.buffers()))


def _scores(voter: Voter, samples: Inputs) -> str:
    voter.probe(samples.values, samples.levels)
    places = [
        Place(samples.values[i % len(samples.values)], Stream(Seed.of(0), "probe", i), 0) for i in range(voter.places)
    ]
    scores = voter.answer(voter.made(places, samples.levels)).scores
    return hashlib.sha256(scores.float().cpu().contiguous().numpy().data).hexdigest()


def _own_code() -> str:
    """The sha256 of the rooms that a vote passes through."""
    digest = hashlib.sha256()
    root = Path(vauban.__file__).parent
    for file in sorted(file for room in _ROOMS for file in (root / room).glob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


class _Reader(pickle.Unpickler):
    """Keeps the names of the modules that it looks into."""

    def __init__(self, content: bytes):
        super().__init__(io.BytesIO(content))
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.modules.add(module)
        return super().find_class(module, name)
