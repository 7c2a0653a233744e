"""Keeps classifiers of scikit-learn in skops files: data of known types, where a pickle would be code."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vauban.errors import Lie
from vauban.files import read_json, replace_file, sha256, write_json
from vauban.poisoning.training.scikit_learn import SklearnTrainer

_LEARNER = "learner.skops"


@dataclass(frozen=True)
class SavedModels:
    """Fitted classifiers in a skops file whose hash is known; `trusted`: types that it may hold beyond those skops trusts."""

    numbers: list[int]
    path: Path
    sha256: str
    trusted: tuple[str, ...] = ()

    @property
    def fingerprints(self) -> list[str]:
        """The hash of the file, for each of its classifiers."""
        return [self.sha256] * len(self.numbers)

    def weights(self) -> list[Any]:
        """The classifiers, or of parts of one class that class."""
        found = _read(self.path, self.sha256, self.trusted)
        if not isinstance(found, list) or len(found) != len(self.numbers):
            raise Lie(
                f"{self.path} does not hold {len(self.numbers)} classifiers: the ensemble was altered; save it again"
            )
        return found


def write_models(folder: Path, ensemble: str, numbers: Sequence[int], models: list[Any]) -> list[str]:
    """Write fitted classifiers of the ensemble with this hash; returns the types that skops does not trust by itself."""
    path = folder / f"models-{min(numbers):06d}.skops"
    return _write(path, models, {"ensemble": ensemble, "numbers": list(numbers)})


def saved_models(folder: Path, ensemble: str, trusted: tuple[str, ...]) -> list[SavedModels]:
    """The files of classifiers in a folder, without those that are damaged or of another ensemble."""
    found = []
    for path in sorted(folder.glob("models-*.skops")):
        note = _note(path)
        numbers, digest = note.get("numbers"), sha256(path.read_bytes())
        whole = note.get("ensemble") == ensemble and note.get("sha256") == digest
        if whole and isinstance(numbers, list) and all(type(number) is int for number in numbers):
            found.append(SavedModels(numbers, path, digest, trusted))
    return found


def write_learner(folder: Path, ensemble: str, trainer: SklearnTrainer) -> list[str]:
    """Write the estimator that base classifiers are clones of; returns the types that skops does not trust by itself."""
    return _write(folder / _LEARNER, trainer.estimator, {"ensemble": ensemble})


def read_trainer(
    folder: Path, ensemble: str, described: dict[str, Any], trusted: tuple[str, ...]
) -> SklearnTrainer | None:
    """The trainer that a manifest describes, from the estimator in the folder; None if none is there."""
    path = folder / _LEARNER
    if described.get("trainer") != "scikit-learn" or not path.is_file():
        return None
    note = _note(path)
    if note.get("ensemble") != ensemble or "sha256" not in note:
        raise Lie(f"{path} belongs to another ensemble: save the ensemble again")
    estimator = _read(path, note["sha256"], trusted)
    trainer = SklearnTrainer(estimator, described["num_classes"], seeds=described["seeds"], seed=described["seed"])
    if trainer.spec != described:
        raise Lie(f"{path} is not the learner that the manifest describes: save the ensemble again")
    return trainer


def _write(path: Path, value: Any, note: dict[str, Any]) -> list[str]:
    from vauban.engine.backends.protocol import imported

    skops = imported("skops.io", "sklearn", "saving an ensemble of scikit-learn classifiers")
    content = skops.dumps(value, compression=zipfile.ZIP_DEFLATED)
    replace_file(path, content)
    write_json(path.with_suffix(".json"), {**note, "sha256": sha256(content)})
    return list(skops.get_untrusted_types(data=content))


def _read(path: Path, digest: str, trusted: tuple[str, ...]) -> Any:
    from vauban.models.skops_file import read

    content = path.read_bytes()
    if sha256(content) != digest:
        raise Lie(f"{path} is not the file that was saved (sha256 differs): save the ensemble again")

    def trusting(names: list[str]) -> str:
        options = " ".join(f"--trust {name}" for name in names)
        return f"Ensemble.load(folder, trust={names}), or {options} to the command"

    return read(path, content, trusted, trusting)


def _note(path: Path) -> dict[str, Any]:
    """What stands beside a file: the ensemble it belongs to, its numbers and its hash; empty if that cannot be read."""
    try:
        note = read_json(path.with_suffix(".json"))
    except (Lie, OSError):
        return {}
    return note if isinstance(note, dict) else {}
