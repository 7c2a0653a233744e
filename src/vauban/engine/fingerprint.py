"""Fingerprints: a hash of a base classifier's code and tensors, and of everything two processes must share to vote in one run."""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib.util
import io
import pickle
import sys
import sysconfig
import types
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vauban
from vauban.engine.enumerator import Enumerator
from vauban.engine.network import Model, device_name
from vauban.engine.sampler import Sampler
from vauban.errors import BadInput

SAMPLES = 8
"""The least number of inputs on which workers' scores are compared."""

_PACKAGES = (".", "bounds", "laws", "runs", "smoothing", "stopping", "engine")
_DEEPEST = 6  # how many levels of nested functions and containers are hashed


def model_fingerprint(model: Model, spec: str) -> str:
    """The sha256 of a model: its name, its tensors, its code, and the files it imports that are not installed packages."""
    digest = hashlib.sha256(f"{spec}\n".encode())
    _add(digest, model, 0)
    names = {type(model).__module__, getattr(model, "__module__", None) or ""}
    if isinstance(model, torch.nn.Module):
        names |= {type(part).__module__ for part in model.modules()}
    digest.update(_files_sha256({name for name in names if name}, installed=False).encode())
    return digest.hexdigest()


def model_name(model: Model) -> str:
    """The name that a manifest gives to a model without a text form."""
    kind = model if isinstance(model, types.FunctionType) else type(model)
    return f"{kind.__module__}:{kind.__qualname__}"


def tensors_sha256(module: torch.nn.Module, digest: Any) -> None:
    """Add every parameter and buffer to a digest: name, dtype, shape and bytes."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in sorted(named.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _add(digest: Any, value: Any, depth: int) -> None:
    """Add the content of a value: tensors, arrays, plain values, and the code and captured values of functions."""
    if isinstance(value, torch.nn.Module):
        digest.update(repr(value).encode())
        tensors_sha256(value, digest)
    elif isinstance(value, torch.Tensor):
        _add(digest, value.detach().cpu().numpy(), depth)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, types.FunctionType | types.MethodType) and depth < _DEEPEST:
        function = value.__func__ if isinstance(value, types.MethodType) else value
        _add_code(digest, function.__code__)
        captured = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        used = [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
        for one in (*captured, *(function.__defaults__ or ()), *used, getattr(value, "__self__", None)):
            _add(digest, one, depth + 1)
    elif isinstance(value, list | tuple | dict) and depth < _DEEPEST:
        pairs = sorted(value.items(), key=str) if isinstance(value, dict) else value
        digest.update(f"{type(value).__name__} {len(value)}".encode())
        for one in pairs:
            _add(digest, one, depth + 1)
    elif isinstance(value, str | bytes | int | float | bool | type(None)):
        digest.update(repr(value).encode())
    else:
        digest.update(f"{type(value).__module__}.{type(value).__qualname__}".encode())
        state = getattr(value, "__dict__", None)
        if isinstance(state, dict) and not isinstance(value, type | types.ModuleType) and depth < _DEEPEST:
            for key in sorted(state, key=str):
                digest.update(str(key).encode())
                _add(digest, state[key], depth + 1)


def _add_code(digest: Any, code: types.CodeType) -> None:
    digest.update(code.co_code + repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _add_code(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


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


def _files_sha256(names: set[str], installed: bool = True) -> str:
    """The sha256 of the files of these modules and of the modules they import outside installed packages; `installed`: whether
    the named modules themselves are included when they are part of an installed package."""
    digest = hashlib.sha256()
    for name, file in sorted(_reached(names).items()):
        if installed or not _installed(file):
            digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _reached(names: set[str]) -> dict[str, Path]:
    """The files of these modules, and of the modules they import outside installed packages and Vauban."""
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


def _installed(file: Path) -> bool:
    path, places = file.resolve(), ("stdlib", "platstdlib", "purelib", "platlib")
    return any(path.is_relative_to(Path(sysconfig.get_path(place)).resolve()) for place in places)


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
