"""Turns what people have, such as lists, data frames, scikit-learn classifiers and torch modules, into samples and trainers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.partitioning.samples import NO_CLASS, training_labels
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.training.torch_module import ModuleTrainer
from vauban.poisoning.training.trainer import Trainer
from vauban.poisoning.training.weights_folder import fingerprints

_NEEDED = (
    "a scikit-learn classifier, a torch module, a function that returns one, the text of a recipe such as tiny-cnn:steps=300, or "
    "a trainer (vauban.poisoning.SklearnTrainer, ModuleTrainer)"
)
_KEPT = ("num_classes", "steps", "lr", "weight_decay", "normalise", "seeds", "seed")
_FEW = 8  # samples: with fewer, a column may have mean 0 and deviation 1 by chance
_MOST_CLASSES = 1_000  # that are read off labels: one absurd label would make scores that no memory holds


@dataclass(frozen=True)
class CopyOf:
    """Builds copies of a module, so that each base classifier starts from its weights as they are."""

    module: torch.nn.Module

    def __call__(self) -> torch.nn.Module:
        return copy.deepcopy(self.module)

    @property
    def network(self) -> str:
        """What a manifest calls the module."""
        return f"a copy of {type(self.module).__qualname__}"

    @property
    def sha256(self) -> str:
        """The hash of the weights that every copy starts from, which are part of the trusted side."""
        return fingerprints({name: value[None] for name, value in self.module.state_dict().items()})[0]


def to_array(x: Any, what: str = "samples") -> NDArray[Any]:
    """Numbers as an array: from arrays, tensors, lists, data frames and their columns."""
    if isinstance(x, torch.Tensor):
        return (x.detach().float() if x.dtype is torch.bfloat16 else x.detach()).cpu().numpy()
    if hasattr(x, "toarray"):
        raise BadInput(f"{what} in a sparse matrix ({type(x).__name__}): give them as an array, x.toarray()")
    if hasattr(x, "to_numpy"):
        x = _from_frame(x)
    try:
        array = np.asarray(x)
    except ValueError as problem:
        raise BadInput(f"{what} of different lengths cannot be one array ({problem}): give numbers [n, ...]") from None
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def to_samples(x: Any) -> NDArray[Any]:
    """Training samples as an array; lists and data frames become float64, whatever numbers they hold.

    Their type would follow from the values, and it is part of what parts are made from: one added row with 4.5, or with 2 beside
    True and False, would put every sample into another part. An array or a tensor has a type of its own.
    """
    array = to_array(x)
    if isinstance(x, (np.ndarray, torch.Tensor)):
        return array
    return array.astype(np.float64) if array.dtype.kind in "uif" or _all_numbers(array.flat) else array


def _all_numbers(values: Iterable[Any]) -> bool:
    """Whether objects are all numbers, as whole numbers above 64 bits are, or 2 beside True and False."""
    return all(isinstance(value, (int, float, np.number, np.bool_)) for value in values)


def _from_frame(x: Any) -> NDArray[Any]:
    """The numbers of a data frame or of one of its columns; several kinds of numbers become floats, missing ones NaN."""
    kinds: Any = getattr(x, "dtypes", None)
    named = dict(kinds.items()) if hasattr(kinds, "items") else {"": kinds}
    words = [
        str(name)
        for name, kind in named.items()
        if getattr(kind, "kind", "O") not in "uifb" and not _all_numbers(x[name] if hasattr(x, "columns") else x)
    ]
    if words and words != [""]:
        raise BadInput(
            f"the columns {', '.join(words[:5])} hold no numbers: encode them by a rule that does not look at other samples "
            "(a fixed list of values), since one fitted on all samples would spread a poisoned one to every part"
        )
    array = np.asarray(x.to_numpy())
    return x.to_numpy(dtype=np.float64, na_value=np.nan) if array.dtype.kind == "O" and not words else array


def columns_of(x: Any) -> list[str] | None:
    """The names of a data frame's columns, in order; None for anything else."""
    columns = getattr(x, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def labels_of(x: NDArray[Any], y: Any) -> NDArray[np.int64]:
    """Labels int64 [n]; refused if none of them is the number of a class, as with the targets of a regression."""
    given = None if y is None else to_array(y, "labels")
    if given is not None and given.dtype.kind not in "uif":
        raise BadInput(
            f"labels of type {given.dtype}: the numbers of classes, from 0, are needed. Number them by a list that is fixed "
            "beforehand (['cat', 'dog'].index(name)): one read off the labels would change with a poisoned one"
        )
    if given is not None and given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    labels = training_labels(x, given)
    if len(labels) and (labels == NO_CLASS).all():
        raise BadInput("no label is a whole number, as in a regression: classes are needed, numbered from 0")
    return labels


def make_partition(partition: Partition | int | None, partitions: int | None, spread: int) -> Partition:
    """The partition that either argument states."""
    if (partition is None) == (partitions is None):
        raise BadInput("say once how many parts there are: partitions=50, or a vauban.Partition as partition=")
    if isinstance(partition, Partition):
        if spread != 1:
            raise BadInput(f"spread={spread} beside {partition}: the partition states its own")
        return partition
    return Partition(partitions if partition is None else partition, spread=spread)  # type: ignore[arg-type]


def make_trainer(
    learner: Any, labels: NDArray[np.int64], shape: Sequence[int], num_classes: int | None, dtype: np.dtype[Any]
) -> Trainer:
    """The trainer that a learner stands for; `shape` and `dtype` are those of one sample.

    Without `num_classes`, a module has as many classes as it returns scores, and a scikit-learn classifier one more than the
    largest label below 1,000: its votes do not depend on how many there are. Networks of a recipe do, all of them, so they need
    the number.
    """
    if _is_trainer(learner):
        if num_classes not in (None, learner.num_classes):
            raise BadInput(
                f"num_classes={num_classes}, and the trainer has {learner.num_classes}: leave one of them out"
            )
        return learner
    if isinstance(learner, str):
        from vauban.poisoning.training.stacked.build_trainer import build_trainer

        if num_classes is None:
            raise BadInput(
                f"learner={learner!r} without num_classes: give it, such as num_classes={_classes(labels, None)}. Read off the "
                "labels it would change with one poisoned label, and every base classifier with it, so that no claim would hold"
            )
        return build_trainer(shape, _classes(labels, num_classes), model=learner)
    if isinstance(learner, torch.nn.Module):
        return _module_trainer(CopyOf(learner), shape, dtype, num_classes)
    if hasattr(learner, "get_params") and not isinstance(learner, type):
        _check_classifier(learner)
        return SklearnTrainer(learner, _classes(labels, num_classes))
    if hasattr(learner, "get_params"):
        raise BadInput(f"learner={learner.__name__} is a class: give an object of it, learner={learner.__name__}()")
    if callable(learner):
        return _module_trainer(learner, shape, dtype, num_classes)
    raise BadInput(f"learner={learner!r} cannot be trained here: {_NEEDED} is needed")


def module_trainer_again(spec: dict[str, Any], learner: Any, device: str) -> ModuleTrainer:
    """The trainer of modules that a manifest describes; `learner` is the module, or the function that returns it."""
    build = CopyOf(learner) if isinstance(learner, torch.nn.Module) else learner
    if _is_trainer(learner) or not callable(build) or "steps" not in spec or "network" not in spec:
        raise BadInput("learner= is for ensembles of torch modules: give the module, or trainer= for any other")
    again = ModuleTrainer(build, **{key: spec[key] for key in _KEPT}, device=device)
    if again.spec["network"] != spec["network"]:
        raise BadInput(f"the ensemble was trained with {spec['network']}, and this learner is {again.spec['network']}")
    return again


def warn_of_common_statistics(x: NDArray[Any]) -> None:
    """Warn of samples that look scaled by means or ranges of the whole training set, which voids every claim."""
    if x.dtype.kind != "f" or x.ndim != 2 or len(x) < _FEW or not np.isfinite(x).all():
        return
    spans = np.ptp(x, axis=0) > 0
    columns = x[:, spans].astype(np.float64)
    if not columns.shape[1]:
        return
    standard = np.abs(columns.mean(axis=0)).max() < 1e-5 and np.abs(columns.std(axis=0) - 1).max() < 1e-3
    ranged = (columns.min(axis=0) == 0).all() and (columns.max(axis=0) == 1).all() and not _few_values(columns)
    if standard or ranged:
        how = "mean 0 and deviation 1" if standard else "the range from 0 to 1"
        warnings.warn(
            f"every column has {how} over all samples: if a scaler was fitted on the whole training set, one poisoned sample "
            "changes every part, and no claim holds. Put the scaler into the learner, make_pipeline(StandardScaler(), "
            "LogisticRegression()), so that each part has its own",
            stacklevel=4,
        )


def _few_values(columns: NDArray[np.float64]) -> bool:
    """Whether all values are multiples of 1/255, as pictures and indicator columns have them without any scaler."""
    return bool(np.allclose(columns * 255, np.round(columns * 255), atol=1e-4))


def _is_trainer(learner: Any) -> bool:
    return not isinstance(learner, type) and all(
        hasattr(learner, name) for name in ("fit", "scores", "num_classes", "spec")
    )


def _classes(labels: NDArray[np.int64], num_classes: int | None) -> int:
    if num_classes is None:
        above = int((labels >= _MOST_CLASSES).sum())
        if above:
            warnings.warn(
                f"{above} of {len(labels)} labels are {_MOST_CLASSES:,} or more, and count as none of the classes: if they are "
                "classes, give num_classes=",
                stacklevel=4,
            )
        return max(2, int(labels[labels < _MOST_CLASSES].max(initial=0)) + 1)
    if isinstance(num_classes, bool) or num_classes < 2:
        raise BadInput(f"num_classes={num_classes!r}: a whole number from 2 is needed")
    return int(num_classes)


def _check_classifier(learner: Any) -> None:
    """Refuse estimators that give no classes: regressors, transformers, clusterings."""
    from sklearn.base import is_classifier

    if not is_classifier(learner):
        raise BadInput(
            f"learner={type(learner).__name__} is no classifier: votes are about classes, so a scikit-learn classifier is needed "
            "(LogisticRegression, RandomForestClassifier, a pipeline that ends with one); regressors and transformers have none"
        )


def _module_trainer(
    build: Callable[[], Any], shape: Sequence[int], dtype: np.dtype[Any], num_classes: int | None
) -> ModuleTrainer:
    with torch.random.fork_rng():
        module = build()
    if not isinstance(module, torch.nn.Module):
        raise BadInput(f"learner() returned {type(module).__name__}, which is no torch module: {_NEEDED} is needed")
    if num_classes is None:
        num_classes = ModuleTrainer(build, 2).scores_a_sample(np.zeros((1, *shape), dtype))
        if num_classes < 2:
            raise BadInput(
                f"the module returns {num_classes} score a sample, as a regression or a single logit does: one for each class is "
                "needed, two or more"
            )
    return ModuleTrainer(build, _classes(np.zeros(0, np.int64), num_classes))
