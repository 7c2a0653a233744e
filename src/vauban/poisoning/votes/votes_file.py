"""Reads the votes of any ensemble from a .npz file of plain arrays; imports no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.laws.poisoning.finite import spread_offsets
from vauban.poisoning.defense import package_entry, parse_defense
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.poisoning.votes.run_folder import read_arrays
from vauban.validation import check_index, check_labels

_LARGEST = 10**6


@dataclass(frozen=True, eq=False)
class VotesFile:
    """The content of a votes file. `partition`: the partition's spec; `training`: how the base classifiers were trained."""

    votes: EnsembleVotes
    labels: NDArray[np.int64] | None
    index: NDArray[np.int64]
    partition: str
    training: dict[str, Any]


def read_votes_file(
    path: Path,
    *,
    defense: str | None = None,
    partitions: int | None = None,
    spread: int | None = None,
    against: str | None = None,
) -> VotesFile:
    """Read `votes` [inputs, models] (or `counts` [inputs, classes]), `num_classes`, and optionally `labels`, `index`, `spread`.

    A run-off also needs `scores` [inputs, models, classes], `duels` [inputs, classes, classes], or `winner` with `beats` or
    `prefers`. `training` is a JSON text with `partition`, `defense` and any further entries. The arguments must not contradict
    the file. With a spread above 1, a `partition` of Vauban's or `offsets` [spread] states the buckets that model i was trained
    on: i + offsets, modulo the number of models.
    """
    arrays = read_arrays(path)
    training = _training(arrays.pop("training", None), path)
    num_classes = _number(arrays, "num_classes", path)
    if num_classes is None:
        raise BadInput(f"{path} does not say how many classes there are: add num_classes=10 to numpy.savez")
    named = _consistent(path, "defense", defense, _text(training, "defense", path))
    chosen = parse_defense(named or "dpa")
    in_file = _consistent(
        path, "spread", _number(arrays, "spread", path), chosen.partition(1).spread if named else None
    )
    spread = _consistent(path, "spread", spread, in_file) or 1
    known = _consistent(path, "threat", _text(training, "against", path), chosen.against if named else None)
    against = _consistent(path, "threat", against, known) or "samples"
    given_offsets = arrays.pop("offsets", None)
    votes = EnsembleVotes.from_arrays(arrays, num_classes, spread=spread, against=against)
    if spread > 1:
        _check_offsets(path, given_offsets, training, spread)
    if given_offsets is not None and not np.array_equal(given_offsets, spread_offsets(votes.models, spread)):
        raise BadInput(
            f"{path}: its offsets are not vauban.laws.poisoning.finite.spread_offsets({votes.models}, {spread})"
        )
    if partitions is None and defense is None and training.get("partition"):
        split = Partition.from_spec(str(training["partition"]))
    else:
        split = replace(chosen.partition(partitions or votes.models // spread), spread=spread)
    if split.models != votes.models or split.spread != spread:
        raise BadInput(
            f"{path} holds the votes of {votes.models} models with spread {spread}; {split} has {split.models}"
        )
    if split.against == "labels" and against == "samples":
        raise BadInput(f"{split} defends labels only: say so with --defense ss-dpa")
    if named:
        training |= package_entry(named)
    try:
        labels, index = arrays.get("labels"), check_index(arrays.get("index"), len(votes.counts))
        checked = None if labels is None else check_labels(labels, len(votes.counts), num_classes)
    except BadInput as problem:
        raise BadInput(f"{path}: {problem}") from None
    return VotesFile(votes, checked, index, str(split), training)


def _consistent(path: Path, what: str, given: Any, in_file: Any) -> Any:
    """The value from either source; two different values are refused."""
    if given is not None and in_file is not None and given != in_file:
        raise BadInput(f"{path}: its {what} is {in_file} by what it says, and {given} is asked for: leave that out")
    return in_file if given is None else given


def _text(training: dict[str, Any], key: str, path: Path) -> str | None:
    value = training.get(key)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{path}: {key} in training must be a text, not {value!r}")
    return value


def _check_offsets(path: Path, offsets: NDArray[Any] | None, training: dict[str, Any], spread: int) -> None:
    """Refuse votes of base classifiers that share buckets in an unknown arrangement."""
    if training.get("partition"):
        return
    if offsets is None or offsets.shape != (spread,) or offsets.dtype.kind not in "iu":
        raise BadInput(
            f"{path}: with spread={spread} a proof depends on which buckets each model was trained on. If model i was trained on "
            "the buckets i + r for r in vauban.laws.poisoning.finite.spread_offsets(models, spread), as Vauban does, add that "
            "array as offsets; other arrangements cannot be certified here"
        )


def _number(arrays: dict[str, NDArray[Any]], name: str, path: Path) -> int | None:
    value = arrays.get(name)
    if value is None:
        return None
    if value.size != 1 or value.dtype.kind not in "iu" or not 1 <= int(value.reshape(-1)[0]) <= _LARGEST:
        raise BadInput(f"{path}: {name} must be one whole number from 1 to {_LARGEST:,}")
    return int(value.reshape(-1)[0])


def _training(text: NDArray[Any] | None, path: Path) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        training = json.loads(str(text.reshape(-1)[0]), parse_constant=_no_number)
    except (ValueError, IndexError, RecursionError):
        training = None
    if not isinstance(training, dict):
        raise BadInput(f"{path}: training must be the text of a JSON object")
    return training


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")
