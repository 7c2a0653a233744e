"""Reads tensors from weight files without running code from them, and matches their names to a network."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vauban.errors import BadInput

T = TypeVar("T")

SAFE = ".safetensors"
PICKLED = (".pt", ".pth", ".bin", ".tar", ".ckpt")

_WRAPPINGS = ("state_dict", "model_state_dict", "model", "net", "weights")
_SHOWN = 4
_SYNONYMS = (("shortcut", "downsample"), ("linear", "fc"))
_ADVICE = "save only the weights: torch.save(model.state_dict(), path), or use safetensors"


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a weight file by name, and its metadata (only safetensors files have any)."""
    _check_file(path)
    if path.suffix == SAFE:
        return _safetensors(path)
    if path.suffix in PICKLED:
        return _state_dict(_torch_file(path), path), {}
    raise BadInput(f"{path} does not end in {SAFE}, {', '.join(PICKLED)}: rename it by its format")


def read_header(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file without reading its tensors; other formats have none."""
    _check_file(path)
    if path.suffix != SAFE:
        return {}
    return _opened(path, lambda opened: dict(opened.metadata() or {}))


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise BadInput(
            f"the weights {path} do not exist (current folder: {Path.cwd()}); give the path of a weight file"
        )


def fit(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return `found` under the names of `expected`, one common prefix such as `module.` or `1.` stripped.

    Names must match one to one, with the same shapes: a missing or extra tensor is an error. Only the counters of batch
    normalisation, which older versions of torch did not write, may be missing. Residual networks whose public weights say
    `shortcut` and `linear` are read as if they said `downsample` and `fc`.
    """
    found = _renamed(found, expected)
    prefix = _prefix(found, expected)
    fitted = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    unexpected = [n for n in found if not n.startswith(prefix) or n.removeprefix(prefix) not in expected]
    missing = []
    for name, tensor in expected.items():
        if name in fitted:
            continue
        if name.endswith("num_batches_tracked"):
            fitted[name] = torch.zeros_like(tensor, device="cpu")
        else:
            missing.append(name)
    if missing or unexpected:
        raise BadInput(f"{source} does not fit the model: {_sides(missing, unexpected)}; is it another architecture?")
    wrong = [name for name in expected if not _same_form(fitted[name], expected[name])]
    if wrong:
        pairs = (f"{n} is {_form(fitted[n])} and {_form(expected[n])} is needed" for n in wrong)
        raise BadInput(
            f"{source} does not fit the model: {_few(pairs, len(wrong))}; check classes=, channels= and size="
        )
    return fitted


def unlike(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """In which names, types and shapes the tensors of a file and of a network differ, as text; empty where they are alike."""
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    if missing or unexpected:
        return _sides(missing, unexpected)
    pairs = {name: (found[name], tensor) for name, tensor in expected.items() if isinstance(tensor, Tensor)}
    wrong = {name: (_form(its), _form(ours)) for name, (its, ours) in pairs.items() if _form(its) != _form(ours)}
    return _few((f"{name} is {its} in it and {ours} now" for name, (its, ours) in wrong.items()), len(wrong))


def _renamed(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return `found` in the words of `expected`, where only `expected` uses them."""
    for theirs, ours in _SYNONYMS:
        if _uses(expected, ours) and not _uses(found, ours) and _uses(found, theirs):
            found = {re.sub(rf"(^|\.){theirs}\.", rf"\g<1>{ours}.", name): tensor for name, tensor in found.items()}
    return found


def _uses(tensors: Mapping[str, Tensor], word: str) -> bool:
    return any(f".{word}." in f".{name}" for name in tensors)


def _prefix(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Return the prefix with which most names match; of equals, the longest."""
    votes: Counter[str] = Counter()
    for name in found:
        starts = [0, *(match.end() for match in re.finditer(r"\.", name))]
        votes.update(name[:start] for start in starts if name[start:] in expected)
    return max(votes, key=lambda prefix: (votes[prefix], len(prefix)), default="")


def _same_form(tensor: Tensor, expected: Tensor) -> bool:
    return tensor.shape == expected.shape and tensor.is_floating_point() == expected.is_floating_point()


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def few_names(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    return _few(names, len(names))


def _sides(missing: list[str], unexpected: list[str]) -> str:
    pairs = (("it lacks", missing), ("it has besides", unexpected))
    return "; ".join(f"{verb} {_few(names, len(names))}" for verb, names in pairs if names)


def _few(texts: Iterable[str], count: int) -> str:
    shown = ", ".join(text for text, _ in zip(texts, range(_SHOWN), strict=False))
    return f"{shown} and {count - _SHOWN} more" if count > _SHOWN else shown


def _safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    def everything(opened: Any) -> tuple[dict[str, Tensor], dict[str, str]]:
        return {name: opened.get_tensor(name) for name in opened.keys()}, dict(opened.metadata() or {})  # noqa: SIM118

    return _opened(path, everything)


def _opened(path: Path, read: Callable[[Any], T]) -> T:
    try:
        with safe_open(path, framework="pt") as opened:
            return read(opened)
    except (SafetensorError, OSError) as problem:
        raise BadInput(f"{path} is not a readable safetensors file ({problem}); fetch or save it again") from None


def _torch_file(path: Path) -> Any:
    try:
        if _is_program(path):
            raise BadInput(f"{path} is a TorchScript program, which loading would run: refused; {_ADVICE}")
        return torch.load(path, map_location="cpu", weights_only=True)
    except BadInput:
        raise
    except Exception as problem:
        named = re.search(r"GLOBAL ([\w.]+)", str(problem))
        if named:
            what = f"asks for {named[1]}, which could run code: refused, nothing in it was run"
        else:
            what = f"is broken, or holds more than tensors, which is never run ({type(problem).__name__})"
        raise BadInput(f"{path} {what}; {_ADVICE}") from None


def _is_program(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _state_dict(held: Any, path: Path) -> dict[str, Tensor]:
    for _ in range(len(_WRAPPINGS)):
        if not isinstance(held, Mapping) or not held:
            break
        if all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in held.items()):
            return dict(held)
        inner = [key for key in _WRAPPINGS if isinstance(held.get(key), Mapping)]
        if len(inner) != 1:
            keys = _few(map(repr, held), len(held))
            raise BadInput(
                f"{path} holds {keys}, and one state dict under {', '.join(_WRAPPINGS)} is needed; {_ADVICE}"
            )
        held = held[inner[0]]
    raise BadInput(f"{path} holds no state dict (names and tensors); {_ADVICE}")
