"""Fingerprints: a hash of a base classifier's code and tensors, and of everything two processes must share to vote in one run."""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib.util
import io
import pickle
import types
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import vauban
from vauban.engine.content import MAINS, content_sha256, file_of, installed, tensors_sha256
from vauban.engine.enumerator import Enumerator
from vauban.engine.network import Model, device_name
from vauban.engine.sampler import Sampler
from vauban.errors import BadInput

SAMPLES = 8
"""The least number of inputs on which workers' scores are compared."""

_PACKAGES = (".", "bounds", "laws", "runs", "smoothing", "stopping", "engine")


def model_fingerprint(model: Model, spec: str) -> str:
    """The sha256 of a model: its name, its attributes and tensors, its code, and the files it imports that are not installed
    packages."""
    content, modules = content_sha256(model)
    digest = hashlib.sha256(f"{spec}\n{content}\n".encode())
    digest.update(_files_sha256(modules, installed_too=False).encode())
    return digest.hexdigest()


def model_name(model: Model) -> str:
    """The name that a manifest gives to a model without a text form."""
    kind = model if isinstance(model, types.FunctionType) else type(model)
    return f"{kind.__module__}:{kind.__qualname__}"


def packed(model: Model, dumps: Any) -> bytes:
    """The model as bytes: its tensors and the names of its code; `dumps` pickles it."""
    try:
        on_cpu = copy.deepcopy(model).cpu() if isinstance(model, torch.nn.Module) and _elsewhere(model) else model
        content: bytes = dumps(on_cpu)
    except Exception as problem:
        raise BadInput(
            f"the model cannot be sent to other machines ({problem}): one that pickle can copy is needed"
        ) from None
    return content


def unpacked(content: bytes) -> tuple[Model, str]:
    """The model in these bytes, built from this machine's code, and the sha256 of the files that hold this code.

    The files they import are included, recursively, unless they belong to an installed package. Whatever else a model depends
    on is compared by its scores (see `worker_fingerprint`).
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
    return model, _files_sha256(reader.modules)


def _files_sha256(names: set[str], installed_too: bool = True) -> str:
    """The sha256 of the files of these modules and of the modules they import outside installed packages; `installed_too`:
    whether the named modules themselves are included when they are part of an installed package."""
    digest = hashlib.sha256()
    for name, file in sorted(_reached(names).items()):
        if installed_too or not installed(file):
            digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _reached(names: set[str]) -> dict[str, Path]:
    """The files of these modules, and of the modules they import outside installed packages and Vauban."""
    found: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        file = file_of(name)
        if name in found or name in MAINS or file is None:
            continue
        own = not installed(file) and name.split(".")[0] != "vauban"
        if own or name in names:
            found[name] = file
        if own:
            waiting += _imports(name, file)
    return found


def _imports(name: str, file: Path) -> set[str]:
    """The modules that a file imports, at any depth in its code."""
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


def worker_fingerprint(sampler: Sampler | Enumerator, code: str, sha256: str, samples: torch.Tensor) -> dict[str, str]:
    """Everything that a vote depends on, as one line of text each.

    "model" hashes the run's hash of its model, the code, and every tensor in its voting precision. "scores" hashes the model's
    scores of uncounted views of `samples` [m, ...]: processors of the same name may round differently.
    """
    blocks = f" in blocks of {sampler.block_size}" if isinstance(sampler, Sampler) else ""
    digest = hashlib.sha256((sha256 + code).encode())
    model = sampler.network.model
    if isinstance(model, torch.nn.Module):
        tensors_sha256(model, digest)
    return {
        "model": f"sha256 {digest.hexdigest()}",
        "device": device_name(sampler.device),
        "threads": str(torch.get_num_threads()),
        "rows": f"{sampler.rows}{blocks}",
        "compiled": str(getattr(sampler, "compiled", False)),
        "backend": "torch" if sampler.network.runner is None else str(sampler.network.runner.describe()),
        "scores": f"sha256 {_scores_sha256(sampler, samples)}",
        "torch": str(torch.__version__),
        "vauban": f"{vauban.__version__}, its code sha256 {_own_code()}",
        **{name: version(name) for name in ("numpy", "scipy", "mpmath")},
    }


def _scores_sha256(sampler: Sampler | Enumerator, samples: torch.Tensor) -> str:
    sampler.probe(samples)
    digest = hashlib.sha256()
    for scores in sampler.probe_scores(samples):
        digest.update(scores.float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """One line for each entry that differs."""
    return [f"{name}: {here[name]} here, {there[name]} there" for name in here if here[name] != there[name]]


def _elsewhere(module: torch.nn.Module) -> bool:
    return any(tensor.device.type != "cpu" for tensor in (*module.parameters(), *module.buffers()))


def _own_code() -> str:
    """The sha256 of the parts of Vauban that votes depend on."""
    digest = hashlib.sha256()
    root = Path(vauban.__file__).parent
    files = (file for package in _PACKAGES for file in (root / package).glob("*.py" if package == "." else "**/*.py"))
    for file in sorted(files):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


class _Reader(pickle.Unpickler):
    """Unpickler that records the names of the modules it loads from."""

    def __init__(self, content: bytes):
        super().__init__(io.BytesIO(content))
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.modules.add(module)
        return super().find_class(module, name)
