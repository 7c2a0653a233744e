"""Keeps an ensemble in a folder: a manifest, and a safetensors file, or of scikit-learn a skops file, for each trained group."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from vauban.errors import Incomplete, Lie, RunRefused
from vauban.files import canonical, differences, read_json, replace_file, write_json
from vauban.poisoning.manifest_file import read_manifest
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.training.skops_models import SavedModels, read_trainer, saved_models, write_learner, write_models
from vauban.poisoning.training.stacked.stacked_networks import EARLIER_NAMES
from vauban.poisoning.training.torch_module import PROBE, refuse_other_probe
from vauban.runs import manifest as manifests

SHARED = "shared.safetensors"
FAILED = "failed.json"
REPEATED = "repeated.json"
_NOT_COMPARED = ("compute.threads", "partition.failed", f"trainer.{PROBE}")
"""Failed parts are known once all have been trained; `refuse_other_probe` compares probes."""
_NOTE = "vauban"
_ANEW = (
    "base classifiers rest on it, so remove the folder, or choose another --out, and run the same train command again"
)

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class SavedGroup:
    """Base classifiers trained together: their numbers, the hash of each one's weights, and the file of the weights."""

    numbers: list[int]
    fingerprints: list[str]
    path: Path

    def weights(self) -> Tensors:
        """The weights {name: [group, ...]}."""
        with safe_open(self.path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


class WeightsFolder:
    """A folder of weights; every file names the manifest it belongs to by its hash.

    `trusted`: types that skops files may hold beyond those skops trusts; those that are written here are added to them.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], trusted: Iterable[str] = ()):
        self.folder, self.manifest = folder, manifest
        self.trusted = set(trusted)
        self.identity = manifests.identity(manifest)

    @classmethod
    def begin(cls, folder: Path, manifest: dict[str, Any]) -> WeightsFolder:
        """Write the manifest to `folder`, or open the folder if it holds the same ensemble; another one is refused."""
        if not manifests.has_manifest(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / manifests.FILE, manifest)
            return cls(folder, read_manifest(folder))
        present = read_manifest(folder)
        lines = list(differences(renamed(present), renamed(manifest), ignore=_NOT_COMPARED))
        if lines:
            raise RunRefused(
                f"{folder} holds another ensemble; choose another --out, or remove it. " + "; ".join(lines[:4])
            )
        refuse_other_probe(present["trainer"], manifest["trainer"])
        store = cls(folder, present)
        if store.refused:
            raise RunRefused(
                f"{folder} holds base classifiers of a learner that was refused, since they may rest on samples of each other: "
                "choose another folder, or remove it"
            )
        return store

    @classmethod
    def open(cls, folder: Path, trusted: Iterable[str] = ()) -> WeightsFolder:
        """The ensemble in `folder`."""
        return cls(folder, read_manifest(folder), trusted)

    def groups(self) -> list[SavedGroup | SavedModels]:
        """The groups in the folder, without those that are damaged or of another ensemble."""
        found = (self._group(path) for path in sorted(self.folder.glob("models-*.safetensors")))
        models = saved_models(self.folder, self.identity, tuple(sorted(self.trusted)))
        return [*(group for group in found if group is not None), *models]

    def complete(self) -> list[SavedGroup | SavedModels]:
        """All groups, if they hold every base classifier exactly once."""
        groups = self.groups()
        split = self.described()["partition"]
        present = sorted([number for group in groups for number in group.numbers] + split["empty"] + split["failed"])
        needed = list(range(split["models"]))
        if len(set(present)) != len(present):
            raise Lie(f"{self.folder} holds a base classifier twice")
        if present != needed:
            missing = len(needed) - len(present)
            raise Incomplete(
                f"{self.folder} lacks {missing} of its {len(needed)} base classifiers: run the same train command again"
            )
        if self.repeated is False:
            raise Incomplete(
                f"{self.folder}: its base classifiers were not found to vote alike when they are trained again, since the call "
                "that trained them was interrupted or refused: call fit again with the same arguments"
            )
        return groups

    def write(self, numbers: Sequence[int], weights: Tensors) -> SavedGroup:
        """Write the weights of a group, whole or not at all."""
        hashes = fingerprints(weights)
        path = self.folder / f"models-{min(numbers):06d}.safetensors"
        self._write(path, weights, {"numbers": list(numbers), "fingerprints": hashes})
        return SavedGroup(list(numbers), hashes, path)

    def write_models(self, numbers: Sequence[int], models: list[Any]) -> None:
        """Write fitted classifiers of scikit-learn."""
        self.trusted.update(write_models(self.folder, self.identity, numbers, models))

    def write_learner(self, trainer: SklearnTrainer) -> None:
        """Write the estimator of which base classifiers are clones."""
        self.trusted.update(write_learner(self.folder, self.identity, trainer))

    def sklearn_trainer(self) -> SklearnTrainer | None:
        """The trainer of scikit-learn classifiers, from its estimator in the folder; None if none is there."""
        return read_trainer(self.folder, self.identity, self.manifest["trainer"], tuple(sorted(self.trusted)))

    def write_failed(self, problems: Mapping[int, str]) -> None:
        """Write which base classifiers cannot be trained on their parts, and why."""
        write_json(self.folder / FAILED, {"ensemble": self.identity, "failed": dict(problems)})

    def failed(self) -> dict[int, str]:
        """The base classifiers that could not be trained, with the problem of each; none if the file is of another ensemble."""
        if not (self.folder / FAILED).exists():
            return {}
        try:
            found = read_json(self.folder / FAILED)
            if found["ensemble"] != self.identity:
                return {}
            return {int(number): str(problem) for number, problem in found["failed"].items()}
        except (Lie, KeyError, TypeError, ValueError, AttributeError):
            return {}

    def write_repeated(self, repeated: bool, refused: bool = False) -> None:
        """Write whether base classifiers have voted alike when they were trained again; until then none can be loaded. In a
        `refused` folder none ever can."""
        write_json(self.folder / REPEATED, {"ensemble": self.identity, "repeated": repeated, "refused": refused})

    @property
    def repeated(self) -> bool | None:
        """What `write_repeated` wrote for this ensemble; None if it was not called."""
        return self._checked("repeated", True)

    @property
    def refused(self) -> bool:
        """Whether the learner that trained base classifiers here was refused."""
        return bool(self._checked("refused", False))

    def _checked(self, name: str, otherwise: bool) -> bool | None:
        try:
            found = read_json(self.folder / REPEATED)
            return bool(found.get(name, otherwise)) if found["ensemble"] == self.identity else None
        except (Lie, OSError, KeyError, TypeError, AttributeError):
            return None

    def described(self) -> dict[str, Any]:
        """The manifest with all failed base classifiers in its list, not only those known before training."""
        return with_failed(self.manifest, self.failed())

    def write_shared(self, tensors: Tensors) -> None:
        """Write the tensors that all base classifiers share: features learned without labels."""
        self._write(self.folder / SHARED, tensors, {"fingerprint": tensors_sha256(tensors)})

    def shared(self) -> Tensors | None:
        """The tensors that all base classifiers share; None if they are not in the folder."""
        path = self.folder / SHARED
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                note = _read_note(file)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError):
            raise Lie(f"{path} is damaged: {_ANEW}") from None
        if note.get("ensemble") != self.identity or note.get("fingerprint") != tensors_sha256(tensors):
            raise Lie(f"{path} belongs to another ensemble: {_ANEW}")
        return tensors

    def _write(self, path: Path, tensors: Tensors, note: dict[str, Any]) -> None:
        """Write tensors with one metadata entry, so that equal weights give equal bytes."""
        metadata = {_NOTE: canonical({"ensemble": self.identity, **note})}
        replace_file(path, save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata))

    def _group(self, path: Path) -> SavedGroup | None:
        try:
            with safe_open(path, framework="pt") as file:
                note = _read_note(file)
            if note.get("ensemble") != self.identity:
                return None
            group = SavedGroup(note["numbers"], note["fingerprints"], path)
            return group if fingerprints(group.weights()) == group.fingerprints else None
        except (SafetensorError, OSError, ValueError, KeyError):
            return None


def with_failed(manifest: dict[str, Any], numbers: Iterable[int]) -> dict[str, Any]:
    """The manifest with more base classifiers in its list of those that cannot be trained."""
    split = manifest["partition"]
    return {**manifest, "partition": {**split, "failed": sorted({*split.get("failed", ()), *numbers})}}


def renamed(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest as JSON holds it, networks under their present names."""
    renamed = json.loads(json.dumps(manifest))
    network = renamed["trainer"].get("network")
    if network in EARLIER_NAMES:
        renamed["trainer"]["network"] = EARLIER_NAMES[network]
    return renamed


def _read_note(file: Any) -> dict[str, Any]:
    note = json.loads((file.metadata() or {}).get(_NOTE, "{}"))
    return note if isinstance(note, dict) else {}


def fingerprints(weights: Tensors) -> list[str]:
    """The sha256 of each base classifier's weights, including names, types and shapes."""
    size = len(next(iter(weights.values())))
    return [tensors_sha256({name: value[i] for name, value in weights.items()}) for i in range(size)]


def tensors_sha256(tensors: Mapping[str, torch.Tensor]) -> str:
    """The hash of tensors with their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
