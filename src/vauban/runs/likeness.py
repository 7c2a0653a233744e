"""What two processes must have in common for their votes to be one run's: model, code, arithmetic."""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib.util
import io
import pickle
import sys
import sysconfig
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

SAMPLES = 8
"""How many inputs a model is tried on, at least."""

_ROOMS = (".", "bounds", "laws", "runs", "smoothing", "stopping", "voting")


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

    Files that those import are among them, and so on, as far as they are nobody's installed package. Scores (see `likeness`)
    tell of what else a model depends on.
    """
    reader = _Reader(content)
    try:
        model: Model = reader.load()
    except (ImportError, AttributeError):
        raise
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"
        raise BadInput(
            f"the model cannot be sent to other machines ({why}): one that pickle can copy is needed"
        ) from None
    digest = hashlib.sha256()
    for name, file in sorted(_reached(reader.modules).items()):
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return model, digest.hexdigest()


def _reached(names: set[str]) -> dict[str, Path]:
    """The files of these modules, and those that they import, where they are one's own."""
    found: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        file = _file_of(name)
        if name in found or name in ("__main__", "__mp_main__") or file is None:
            continue
        own = not _installed(file) and name.split(".")[0] != "vauban"
        if own or name in names:
            found[name] = file
        if own:
            waiting += _imports(name, file)
    return found


def _file_of(name: str) -> Path | None:
    try:
        module = sys.modules.get(name)
        place = module.__file__ if module is not None else getattr(importlib.util.find_spec(name), "origin", None)
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(place) if place and place.endswith(".py") and Path(place).is_file() else None


def _imports(name: str, file: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(base, package) if node.level and package else base
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def _installed(file: Path) -> bool:
    path, places = file.resolve(), ("stdlib", "platstdlib", "purelib", "platlib")
    return any(path.is_relative_to(Path(sysconfig.get_path(place)).resolve()) for place in places)


def likeness(smoothed: SmoothedClassifier, voter: Voter, code: str, sha256: str, samples: Inputs) -> dict[str, str]:
    """Everything that a vote depends on, in a line each.

    "model" hashes the run's own hash of its model, the code, and every tensor as it votes. "scores" hashes what the model
    answers to views of `samples` that no run counts: processors of one name may round differently.
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
    digest, count = hashlib.sha256(), len(samples.values)
    for first in range(0, max(count, voter.places), voter.places):
        numbers = range(first, first + voter.places)
        places = [Place(samples.values[i % count], Stream(Seed.of(0), "probe", i), 0) for i in numbers]
        digest.update(voter.answer(voter.made(places, samples.levels)).scores.float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


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
