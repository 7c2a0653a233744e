"""Classifiers of scikit-learn, and what works like one, as base classifiers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from vauban.columns import refuse_other_columns
from vauban.errors import BadInput, NoGradients

METHODS = ("predict_proba", "decision_function")
_SHOWN = 5  # classes that a warning lists


def is_estimator(model: Any) -> bool:
    """Whether a model is a classifier or pipeline with scikit-learn's methods, which is not called itself."""
    return not callable(model) and not isinstance(model, type) and hasattr(model, "predict")


class Estimator(nn.Module):
    """A fitted classifier or pipeline: views [rows, ...], flattened to float64 [rows, features], to scores [rows, classes].

    `method`: `predict_proba` or `decision_function`; the first it has unless given. Class i is the i-th of its `classes_`. A
    decision function with one value per view decides for class 1 above 0, as `predict` does.
    """

    def __init__(self, estimator: Any, method: str | None = None):
        super().__init__()
        has = [name for name in METHODS if _has(estimator, name)]
        kind = type(estimator).__name__
        if not has and _predicts_numbers(estimator):
            raise BadInput(f"{kind} is a regressor: a classifier is needed, since certificates are about classes")
        if not has:
            raise BadInput(
                f"{kind} has neither predict_proba nor decision_function: a classifier with scores is needed, for example "
                "CalibratedClassifierCV around it"
            )
        if method is not None and method not in has:
            raise BadInput(f"method={method!r}: {kind} has {' and '.join(has)}")
        self.estimator, self.method = estimator, method or has[0]
        self.num_classes = len(_classes(estimator))

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        if views.requires_grad:
            raise NoGradients(
                f"no gradients pass through {type(self.estimator).__name__} of scikit-learn: certify, predict, or use an attack "
                "that needs none"
            )
        flat = views.flatten(1).double().cpu().numpy()
        wanted = getattr(self.estimator, "n_features_in_", None)
        if wanted is not None and flat.shape[1] != wanted:
            raise BadInput(other_features(flat.shape[1], int(wanted)))
        scores = np.asarray(getattr(self.estimator, self.method)(self._table(flat)))
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        if scores.shape[1] != self.num_classes:
            raise BadInput(
                f"{self.method} of {type(self.estimator).__name__} gives {scores.shape[1]} columns for {self.num_classes} "
                "classes: one per class is needed (decision_function_shape='ovr', or method='predict_proba')"
            )
        return torch.from_numpy(np.ascontiguousarray(scores)).to(views.device)

    def check_names(self, data: Any) -> None:
        """Refuse a table whose columns or classes have other names than those that the estimator knows, or another order."""
        from vauban.data.dataset import Dataset

        refuse_other_columns([str(name) for name in getattr(self.estimator, "feature_names_in_", ())], data)
        if not isinstance(data, Dataset) or data.features is None:
            return
        classes = np.asarray(self.estimator.classes_)
        names = list(map(str, classes))
        if data.class_names and classes.dtype.kind in "UO" and names != list(data.class_names):
            from vauban.data.classes import stating

            advice = "labels that are its classes are needed"
            if data.used_classes() <= set(names):
                advice = f"name them in its order ({stating(names, data=data.spec)})"
            raise BadInput(
                f"the classes of the data are {', '.join(data.class_names)}, and the classifier has {', '.join(names)}: {advice}"
            )

    def _table(self, flat: np.ndarray[Any, Any]) -> Any:
        """The features, with the names of their columns where the estimator was fitted on a table with names."""
        names = getattr(self.estimator, "feature_names_in_", None)
        if names is None:
            return flat
        try:
            import pandas
        except ImportError:
            from vauban.errors import MissingExtra

            raise MissingExtra("pandas", "pandas", "an estimator that was fitted on a table with names") from None
        return pandas.DataFrame(flat, columns=list(names))


def other_features(found: int, wanted: int) -> str:
    """What is said of views that have another number of features than a classifier was fitted on."""
    advice = "fit it on such views"
    if found == 2 * wanted:
        advice = "this smoothing shows each number v as v and 1 - v: fit it on such views, or give ablation null=mean"
    return f"views have {found} features, and the classifier was fitted on {wanted}: {advice}"


def _predicts_numbers(estimator: Any) -> bool:
    try:
        from sklearn.base import is_regressor
    except ImportError:
        return False
    return bool(is_regressor(estimator))


def _has(estimator: Any, name: str) -> bool:
    """Whether an estimator has a method; those of pipelines and of SVC exist only under conditions."""
    try:
        return callable(getattr(estimator, name, None))
    except Exception:
        return False


def _classes(estimator: Any) -> list[Any]:
    try:
        classes = np.asarray(estimator.classes_)
    except AttributeError:
        raise BadInput(f"{type(estimator).__name__} has no classes_: fit it first, model.fit(x, y)") from None
    if classes.ndim != 1 or len(classes) < 2:
        raise BadInput(
            f"{type(estimator).__name__} has classes_ of shape {classes.shape}: two or more classes are needed"
        )
    listed: list[Any] = classes.tolist()
    if classes.dtype.kind in "iuf" and listed != list(range(len(listed))):
        shown = ", ".join(map(str, listed[:_SHOWN])) + (", …" if len(listed) > _SHOWN else "")
        warnings.warn(
            f"the classes of {type(estimator).__name__} are {shown}: here class i is the i-th of them, so true labels must be "
            f"positions from 0 to {len(listed) - 1}",
            stacklevel=4,
        )
    return listed
