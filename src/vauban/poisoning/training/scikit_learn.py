"""Trains base classifiers of scikit-learn; imports torch only when they vote, so that joblib's workers start quickly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import MissingExtra
from vauban.poisoning.training.trainer import SEEDS
from vauban.specs import choose

if TYPE_CHECKING:
    import torch

    from vauban.poisoning.partitioning.partition import TrainingSet
    from vauban.poisoning.progress import ProgressCallback


@dataclass(frozen=True)
class SklearnTrainer:
    """Trains any scikit-learn classifier: a fresh clone for each partition, `jobs` of them at a time through joblib.

    `seeds`: "partition" sets random_state = seed + i in clone i, also inside a pipeline, and seeds NumPy's global generator
    with the same number; "shared" uses `seed` for all clones. Fitted classifiers stay in memory: saving them would need
    pickles, which Vauban never loads.
    """

    estimator: Any
    num_classes: int
    jobs: int = 1
    seeds: str = "partition"
    seed: int = 0

    def __post_init__(self) -> None:
        choose("way to seed", self.seeds, SEEDS)

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
    ) -> Iterator[tuple[list[int], list[Any]]]:
        """Yield ([number], [fitted classifier]) for each partition; for a partition of one class, that class."""
        try:
            import joblib
        except ImportError:
            raise MissingExtra("joblib", "poisoning", "an ensemble of scikit-learn classifiers") from None
        seeds = [self.seed + (number if self.seeds == "partition" else 0) for number in numbers]
        jobs = (joblib.delayed(_fitted)(self.estimator, seed, *parts[i]) for i, seed in enumerate(seeds))
        for number, fitted in zip(numbers, joblib.Parallel(n_jobs=self.jobs, return_as="generator")(jobs), strict=True):
            if on_progress:
                on_progress(1)
            yield [number], [fitted]

    def scores(self, weights: list[Any], x: NDArray[Any]) -> torch.Tensor:
        """Scores [group, inputs, classes]: probabilities, decision values, or 1 for the prediction; -inf for unseen classes."""
        import torch

        return torch.stack([torch.from_numpy(self._scores(fitted, x.reshape(len(x), -1))) for fitted in weights])

    def _scores(self, fitted: Any, rows: NDArray[Any]) -> NDArray[np.float64]:
        out = np.full((len(rows), self.num_classes), -np.inf)
        if isinstance(fitted, int):
            out[:, fitted] = 1.0
            return out
        seen = fitted.classes_.astype(np.int64)
        if hasattr(fitted, "predict_proba"):
            out[:, seen] = fitted.predict_proba(rows)
        elif hasattr(fitted, "decision_function"):
            values = fitted.decision_function(rows)
            out[:, seen] = np.stack([-values, values], axis=1) if values.ndim == 1 else values
        else:
            out[:, seen] = fitted.predict(rows)[:, None] == seen
        return out


def _fitted(estimator: Any, seed: int, x: NDArray[Any], y: NDArray[np.int64]) -> Any:
    """A fresh classifier fitted to these samples; the class number where there is only one class."""
    from sklearn.base import clone

    if len(np.unique(y)) == 1:
        return int(y[0])
    fresh = clone(estimator)
    seeded = {key: seed for key in fresh.get_params() if key == "random_state" or key.endswith("__random_state")}
    fresh.set_params(**seeded)
    state = np.random.get_state()  # some estimators use NumPy's global generator despite random_state
    np.random.seed(seed % 2**32)
    try:
        return fresh.fit(x.reshape(len(x), -1), y)
    finally:
        np.random.set_state(state)
