"""The folder of an ensemble: a manifest, and weights in safetensors group by group, so that nothing trained is ever lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from vauban.errors import Incomplete, Lie, RunRefused
from vauban.files import replace_file
from vauban.poisoning.manifest_file import read_manifest
from vauban.runs import manifest as manifests

KIND = "ensemble"
SHARED = "shared.safetensors"
_THREADS = "compute.threads"
_NOTE = "vauban"

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class SavedGroup:
    """Base classifiers trained together: their numbers, the hash of each one's weights, and where the weights are."""

    numbers: list[int]
    fingerprints: list[str]
    path: Path

    def weights(self) -> Tensors:
        """The weights {name: [group, ...]}."""
        with safe_open(self.path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


class WeightsFolder:
    """A folder of weights, bound to the manifest of what they are trained on and how."""

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        self.folder, self.manifest = folder, manifest
        self.identity = manifests.identity(manifest)

    @classmethod
    def begin(cls, folder: Path, manifest: dict[str, Any]) -> WeightsFolder:
        """Begin an ensemble in `folder`, or take up the one that is there if it is the same."""
        if not (folder / manifests.FILE).exists():
            folder.mkdir(parents=True, exist_ok=True)
            manifests.write(folder, manifest)
            return cls(folder, read_manifest(folder, KIND))
        there = read_manifest(folder, KIND)
        other = list(manifests.differences(there, json.loads(json.dumps(manifest)), ignore=(_THREADS,)))
        if other:
            raise RunRefused(
                f"{folder} holds another ensemble; choose another --out, or remove it. " + "; ".join(other[:4])
            )
        return cls(folder, there)

    @classmethod
    def open(cls, folder: Path) -> WeightsFolder:
        """The ensemble in `folder`."""
        return cls(folder, read_manifest(folder, KIND))

    def groups(self) -> list[SavedGroup]:
        """The groups that are there whole; one that is damaged or of another ensemble is left out."""
        found = (self._group(path) for path in sorted(self.folder.glob("models-*.safetensors")))
        return [group for group in found if group is not None]

    def complete(self) -> list[SavedGroup]:
        """All groups, once every base classifier is among them exactly once."""
        groups = self.groups()
        empty = self.manifest["partition"]["empty"]
        there = sorted([number for group in groups for number in group.numbers] + empty)
        wanted = list(range(self.manifest["partition"]["models"]))
        if len(set(there)) != len(there):
            raise Lie(f"{self.folder} holds a base classifier twice")
        if there != wanted:
            missing = len(wanted) - len(there)
            raise Incomplete(
                f"{self.folder} lacks {missing} of its {len(wanted)} base classifiers: run the same train command again"
            )
        return groups

    def keep(self, numbers: Sequence[int], weights: Tensors) -> SavedGroup:
        """Write a group, whole or not at all."""
        prints = fingerprints(weights)
        path = self.folder / f"models-{min(numbers):06d}.safetensors"
        self._write(path, weights, {"numbers": list(numbers), "fingerprints": prints})
        return SavedGroup(list(numbers), prints, path)

    def keep_shared(self, tensors: Tensors) -> None:
        """Write what all base classifiers share: features learned without labels."""
        self._write(self.folder / SHARED, tensors, {"fingerprint": _digest(tensors)})

    def shared(self) -> Tensors | None:
        """What all base classifiers share; None if it is not there yet."""
        path = self.folder / SHARED
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                told = _told(file)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError):
            raise Lie(f"{path} is damaged: remove it and run the same train command again") from None
        if told.get("ensemble") != self.identity or told.get("fingerprint") != _digest(tensors):
            raise Lie(f"{path} belongs to another ensemble: remove it and run the same train command again")
        return tensors

    def _write(self, path: Path, tensors: Tensors, told: dict[str, Any]) -> None:
        """One metadata entry, so that the same weights are the same bytes."""
        note = {_NOTE: manifests.canonical({"ensemble": self.identity, **told})}
        replace_file(path, save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, note))

    def _group(self, path: Path) -> SavedGroup | None:
        try:
            with safe_open(path, framework="pt") as file:
                told = _told(file)
            if told.get("ensemble") != self.identity:
                return None
            group = SavedGroup(told["numbers"], told["fingerprints"], path)
            return group if fingerprints(group.weights()) == group.fingerprints else None
        except (SafetensorError, OSError, ValueError, KeyError):
            return None


def _told(file: Any) -> dict[str, Any]:
    told = json.loads((file.metadata() or {}).get(_NOTE, "{}"))
    return told if isinstance(told, dict) else {}


def fingerprints(weights: Tensors) -> list[str]:
    """The sha256 of each base classifier's weights, with names, types and shapes."""
    size = len(next(iter(weights.values())))
    return [_digest({name: value[i] for name, value in weights.items()}) for i in range(size)]


def _digest(tensors: Tensors) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
