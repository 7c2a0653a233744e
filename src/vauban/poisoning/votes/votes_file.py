"""Reads and writes the votes of any ensemble, a .npz file of plain arrays; imports no torch."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.files import replace_file
from vauban.laws.poisoning.finite import spread_offsets
from vauban.poisoning.defense import Defense, package_entry, parse_defense
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.poisoning.votes.run_folder import read_arrays
from vauban.validation import check_index, check_labels

_LARGEST = 10**6


@dataclass(frozen=True, eq=False)
class VotesFile:
    """The content of a votes file. `partition`: its spec, if stated; `training`: how the base classifiers were trained."""

    votes: EnsembleVotes
    labels: NDArray[np.int64] | None
    index: NDArray[np.int64]
    partition: str | None
    training: dict[str, Any]


def read_votes_file(
    path: Path,
    *,
    defense: str | None = None,
    partitions: int | None = None,
    spread: int | None = None,
    against: str | None = None,
    keep_votes: bool = False,
) -> VotesFile:
    """Read `votes` [inputs, models] (or `counts` [inputs, classes]), `num_classes`, and optionally `labels`, `index`.

    A run-off also needs `scores` [inputs, models, classes], `duels` [inputs, classes, classes], or `winner` with `beats` or
    `prefers`. `spread` and `threat` ("samples" or "labels") say what the radii count; `partition` is the spec of a partition of
    Vauban's. `training` is a JSON text with `partition`, `against`, `defense` and any further entries. What the file does not say
    must be given here, and must not contradict it. With a spread above 1, a `partition` or `offsets` [spread] states the buckets
    that model i was trained on: i + offsets, modulo the number of models. `keep_votes`: as in `EnsembleVotes.from_arrays`.
    """
    arrays = read_arrays(path)
    training = _training(arrays.pop("training", None), path)
    num_classes = _number(arrays, "num_classes", path)
    if num_classes is None:
        raise BadInput(f"{path} does not say how many classes there are: add num_classes=10 to numpy.savez")
    split = _partition(arrays, training, path)
    named = _consistent(path, "defense", defense, _text(training, "defense", path))
    chosen = None if named is None else parse_defense(named)
    spread, against = _how_cast(path, arrays, training, split, chosen, spread, against)
    given_offsets = arrays.pop("offsets", None)
    if keep_votes and "votes" not in arrays and "scores" not in arrays:
        raise BadInput(
            f"{path} holds counts: to keep the vote of every model, an array votes [inputs, models] is needed"
        )
    votes = EnsembleVotes.from_arrays(arrays, num_classes, spread=spread, against=against, keep_votes=keep_votes)
    if spread > 1 and split is None:
        _check_offsets(path, given_offsets, spread)
    if given_offsets is not None and not np.array_equal(given_offsets, spread_offsets(votes.models, spread)):
        raise BadInput(
            f"{path}: its offsets are not vauban.laws.poisoning.finite.spread_offsets({votes.models}, {spread})"
        )
    like = split if chosen is None or split is not None else chosen.partition(1)
    if like is not None and (split is None or partitions is not None):
        split = Partition(partitions or votes.models // spread, like.by, spread)
    if split is not None and split.models != votes.models:
        raise BadInput(
            f"{path} holds the votes of {votes.models} models with spread {spread}; {split} has {split.models}"
        )
    if split is not None and split.against == "labels" and against == "samples":
        raise BadInput(f"{path}: {split} defends labels only, so its threat is labels (--defense ss-dpa)")
    if named:
        training |= package_entry(named)
    try:
        labels, index = arrays.get("labels"), check_index(arrays.get("index"), len(votes.counts))
        checked = None if labels is None else check_labels(labels, len(votes.counts), num_classes)
    except BadInput as problem:
        raise BadInput(f"{path}: {problem}") from None
    return VotesFile(votes, checked, index, None if split is None else str(split), training)


def write_votes_file(path: Path, file: VotesFile, aggregate: str) -> None:
    """Write votes with everything that `read_votes_file` asks for, so that nobody has to say how they were cast."""
    check_votes_path(path)
    models, spread = file.votes.models, file.votes.spread
    arrays: dict[str, Any] = {
        **file.votes.arrays(aggregate),
        "num_classes": file.votes.counts.shape[1],
        "index": file.index,
        "spread": spread,
        "offsets": spread_offsets(models, spread),
        "threat": file.votes.against,
        "training": json.dumps(file.training, allow_nan=False),
    }
    stated = {"labels": file.labels, "partition": file.partition}
    arrays |= {name: value for name, value in stated.items() if value is not None}
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    replace_file(path, packed.getvalue())


def check_votes_path(path: Path) -> None:
    """Refuse a name that `vauban claim` would not take for that of a votes file."""
    if path.suffix != ".npz":
        raise BadInput(f"{path}: a votes file is a .npz; take {path.with_suffix('.npz')}")


def _how_cast(
    path: Path,
    arrays: dict[str, NDArray[Any]],
    training: dict[str, Any],
    split: Partition | None,
    chosen: Defense | None,
    spread: int | None,
    against: str | None,
) -> tuple[int, str]:
    """Spread and threat, from all that state them; nothing is assumed where none does."""
    spreads = [_number(arrays, "spread", path)]
    threats = [_word(arrays, "threat", path), _text(training, "against", path)]
    if split is not None:
        spreads.append(split.spread)
        threats.append("labels" if split.against == "labels" else None)
    if chosen is not None:
        spreads.append(chosen.partition(1).spread)
        threats.append(chosen.against)
    for stated in spreads:
        spread = _consistent(path, "spread", spread, stated)
    for word in threats:
        against = _consistent(path, "threat", against, word)
    if spread is None or against is None:
        missing = " and ".join(name for name, value in (("spread", spread), ("threat", against)) if value is None)
        raise BadInput(
            f"{path} does not say the {missing} of its votes, on which a proof depends. Say it: --smoothing "
            f"partition:spread={spread or 1},threat={against or 'samples'} for vauban claim, --defense dpa for vauban poison "
            "import, if no two models share training samples and each sample's model depends on its input alone; spread=16 "
            "(finite:spread=16) if Finite Aggregation trained each model on 16 buckets; threat=labels (ss-dpa) if samples were "
            "dealt out by sorting or features were learned from all inputs. Ensemble.export writes files that say it"
        )
    return spread, against


def _consistent(path: Path, what: str, given: Any, in_file: Any) -> Any:
    """The value from either source; two different values are refused."""
    if given is not None and in_file is not None and given != in_file:
        raise BadInput(f"{path}: its {what} is {in_file} by what it says, and {given} is stated too: they must agree")
    return in_file if given is None else given


def _text(training: dict[str, Any], key: str, path: Path) -> str | None:
    value = training.get(key)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{path}: {key} in training must be a text, not {value!r}")
    return value


def _partition(arrays: dict[str, NDArray[Any]], training: dict[str, Any], path: Path) -> Partition | None:
    """The partition that a file states."""
    entry = training.get("partition")
    if entry is not None and not isinstance(entry, dict | str):
        raise BadInput(f"{path}: partition in training must be a text, not {entry!r}")
    in_training = _text(entry, "spec", path) if isinstance(entry, dict) else entry
    spec = _consistent(path, "partition", _word(arrays, "partition", path), in_training)
    return None if spec is None else Partition.from_spec(spec)


def _check_offsets(path: Path, offsets: NDArray[Any] | None, spread: int) -> None:
    """Refuse votes of base classifiers that share buckets in an unknown arrangement."""
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


def _word(arrays: dict[str, NDArray[Any]], name: str, path: Path) -> str | None:
    value = arrays.get(name)
    if value is None:
        return None
    if value.size != 1 or value.dtype.kind != "U":
        raise BadInput(f"{path}: {name} must be one text")
    return str(value.reshape(-1)[0])


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
