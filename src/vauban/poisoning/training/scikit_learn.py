"""Trains base classifiers of scikit-learn; imports torch only when they vote, so that joblib's workers start quickly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import MissingExtra
from vauban.poisoning.training.failures import Failure, attempt
from vauban.poisoning.training.trainer import SEEDS
from vauban.specs import choose
from vauban.validation import check_seed

if TYPE_CHECKING:
    import torch

    from vauban.poisoning.partitioning.partition import TrainingSet
    from vauban.poisoning.progress import ProgressCallback


@dataclass(frozen=True)
class SklearnTrainer:
    """Trains any scikit-learn classifier: a fresh clone for each partition, `jobs` of them at a time through joblib.

    `seeds`: "partition" sets random_state = seed + i in clone i, also inside a pipeline, and seeds NumPy's global generator
    with the same number; "shared" uses `seed` for all clones. A clone that cannot be fitted to its partition has a constant
    vote. `Ensemble.save` keeps fitted classifiers as skops files; pickles are neither written nor read.
    """

    estimator: Any
    num_classes: int
    jobs: int = 1
    seeds: str = "partition"
    seed: int = 0

    def __post_init__(self) -> None:
        choose("way to seed", self.seeds, SEEDS)
        object.__setattr__(self, "seed", check_seed(self.seed))
        _check_parameters(self.estimator)

    @property
    def spec(self) -> dict[str, Any]:
        """The settings, for a manifest."""
        kind = type(self.estimator)
        settings = {key: repr(value) for key, value in self.estimator.get_params().items()}
        return {
            "trainer": "scikit-learn",
            "estimator": f"{kind.__module__}.{kind.__qualname__}",
            "settings": settings,
            "num_classes": self.num_classes,
            "seeds": self.seeds,
            "seed": self.seed,
        }

    def fit(
        self, parts: Sequence[TrainingSet], numbers: Sequence[int], on_progress: ProgressCallback | None = None
    ) -> Iterator[tuple[list[int], list[Any] | Failure]]:
        """Yield ([number], [fitted classifier]) for each partition; of one class only, the class instead of a classifier."""
        try:
            import joblib
        except ImportError:
            raise MissingExtra("joblib", "poisoning", "an ensemble of scikit-learn classifiers") from None
        seeds = [self.seed + (number if self.seeds == "partition" else 0) for number in numbers]
        jobs = (joblib.delayed(_fit)(self.estimator, seed, *parts[i]) for i, seed in enumerate(seeds))
        results = joblib.Parallel(n_jobs=self.jobs, return_as="generator")(jobs)
        for number, fitted in zip(numbers, results, strict=True):
            if on_progress:
                on_progress(1)
            yield [number], fitted if isinstance(fitted, Failure) else [fitted]

    def scores(self, weights: list[Any], x: NDArray[Any]) -> torch.Tensor:
        """Scores [group, inputs, classes]: probabilities, decision values, or 1 for the prediction; -inf for unseen classes."""
        import torch

        rows = x.reshape(len(x), -1)
        scores = np.full((len(weights), len(x), self.num_classes), -np.inf)
        for i, fitted in enumerate(weights):
            if isinstance(fitted, int):
                scores[i, :, fitted] = 1.0
            else:
                scores[i][:, fitted.classes_.astype(np.int64)] = _known_scores(fitted, rows)
        return torch.from_numpy(scores)


def _known_scores(fitted: Any, rows: NDArray[Any]) -> NDArray[Any]:
    """Scores [inputs, classes] of the classes that the classifier was trained on."""
    if hasattr(fitted, "predict_proba"):
        return fitted.predict_proba(rows)
    if hasattr(fitted, "decision_function"):
        values = fitted.decision_function(rows)
        return np.stack([-values, values], axis=1) if values.ndim == 1 else values
    return fitted.predict(rows)[:, None] == fitted.classes_.astype(np.int64)


def _check_parameters(estimator: Any) -> None:
    """Refuse parameters that no training set makes right, before samples are seen."""
    for one in (estimator, *estimator.get_params().values()):
        if hasattr(one, "_parameter_constraints") and hasattr(one, "_validate_params") and not isinstance(one, type):
            one._validate_params()


def _fit(estimator: Any, seed: int, x: NDArray[Any], y: NDArray[np.int64]) -> Any:
    """A fresh classifier fitted to these samples, their class if they have only one, or a `Failure`."""
    if len(np.unique(y)) == 1:
        return int(y[0])
    return attempt(partial(_fitted, estimator, seed, x.reshape(len(x), -1), y))


def _fitted(estimator: Any, seed: int, rows: NDArray[Any], y: NDArray[np.int64]) -> Any:
    from sklearn.base import clone

    fresh = clone(estimator)
    seeded = {key: seed for key in fresh.get_params() if key == "random_state" or key.endswith("__random_state")}
    fresh.set_params(**seeded)
    state = np.random.get_state()  # some estimators use NumPy's global generator despite random_state
    np.random.seed(seed % 2**32)
    try:
        return fresh.fit(rows, y)
    finally:
        np.random.set_state(state)
