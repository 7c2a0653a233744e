"""wrap: any classifier as a base classifier from views in [0, 1] to scores, its preprocessing inside it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vauban.engine.adapters.estimators import Estimator, is_estimator
from vauban.engine.adapters.outputs import chosen, scores_in
from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput
from vauban.validation import check_num_classes, is_whole

LAYOUTS = ("nchw", "nhwc")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic")

Numbers = float | Sequence[float]


class Wrapped(nn.Module):
    """A model between its preprocessing and its scores; made by `wrap`."""

    def __init__(
        self,
        model: Any,
        *,
        num_classes: int | None = None,
        output: int | str | None = None,
        threshold: float | None = None,
        layout: str = "nchw",
        arrays: bool = False,
        mean: Numbers | None = None,
        std: Numbers | None = None,
        size: tuple[int, int] | None = None,
        interpolation: str = "bilinear",
    ):
        super().__init__()
        self.model, self.num_classes, self.output, self.threshold = model, num_classes, output, threshold
        self.layout, self.arrays, self.size, self.interpolation = layout, arrays, size, interpolation
        for name, numbers in (("mean", mean), ("std", std)):
            values = None if numbers is None else torch.tensor(_numbers(name, numbers)).reshape(-1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        given = self._prepared(views)
        returned = self.model(given.detach().cpu().numpy() if self.arrays else given)
        if self.output is not None:
            scores = chosen(returned, self.output, views)
        elif isinstance(returned, torch.Tensor):
            scores = returned
        else:
            scores = scores_in(returned, views, 1 if self.threshold is not None else self.num_classes)
        return scores if self.threshold is None else self._of_two(scores, len(views), self.threshold)

    def _prepared(self, views: torch.Tensor) -> torch.Tensor:
        if self.size is not None and tuple(views.shape[-2:]) != self.size:
            smooth = self.interpolation != "nearest"
            views = functional.interpolate(views, self.size, mode=self.interpolation, antialias=smooth)
        if isinstance(self.mean, torch.Tensor):
            views = views - self.mean
        if isinstance(self.std, torch.Tensor):
            views = views / self.std
        return views.permute(0, 2, 3, 1).contiguous() if self.layout == "nhwc" else views

    def _of_two(self, scores: torch.Tensor, rows: int, threshold: float) -> torch.Tensor:
        """Scores [rows, 2] from one score per view: class 1 where it is above the threshold, else class 0."""
        if tuple(scores.shape) not in ((rows,), (rows, 1)):
            raise BadInput(
                f"threshold={threshold} is for models with one score per view, and this one returned "
                f"{tuple(scores.shape)} for {rows} views: leave threshold out"
            )
        above = scores.reshape(rows)
        return torch.stack([torch.full_like(above, threshold), above], dim=1)


def wrap(
    model: Any,
    *,
    num_classes: int | None = None,
    output: int | str | None = None,
    threshold: float | None = None,
    method: str | None = None,
    layout: str = "nchw",
    mean: Numbers | None = None,
    std: Numbers | None = None,
    size: int | tuple[int, int] | None = None,
    interpolation: str | None = None,
    preprocess: str | None = None,
) -> nn.Module:
    """Return any classifier as a module from views, float32 [rows, ...] with values around [0, 1], to scores [rows, classes].

    `model`: a torch module or another callable that returns scores, an object with `logits`, a mapping or a tuple; or a fitted
    classifier or pipeline of scikit-learn. `output`: the position or name of the scores among several outputs. `threshold`: for a
    model with one score per view, the score above which it is class 1: 0 for a logit, 0.5 for a probability. `method` of a
    scikit-learn classifier: "predict_proba" or "decision_function". `layout`: "nhwc" for a model that takes [rows, height, width,
    channels]; one of Keras gets NumPy arrays. `mean`, `std`: (x - mean) / std is its input, one number or one per channel.
    `size`, `interpolation` ("nearest", "bilinear", "bicubic"): pictures of another size are resized first. `preprocess="own"`
    takes mean, std, size and interpolation from the model's `pretrained_cfg` (timm).

    Noise is added before any of this, so that a radius is about the picture itself.

    >>> import torch, vauban as vb
    >>> one_logit = vb.wrap(lambda views: views.mean(dim=1) - 0.5, threshold=0)
    >>> one_logit(torch.tensor([[0.2, 0.4], [0.8, 1.0]])).argmax(dim=1).tolist()
    [0, 1]
    """
    pictures = {"mean": mean, "std": std, "size": size, "interpolation": interpolation, "preprocess": preprocess}
    if is_estimator(model):
        of_networks = {"output": output, "threshold": threshold, **pictures}
        given = [name for name, value in of_networks.items() if value is not None] + ["layout"] * (layout != "nchw")
        if given:
            raise BadInput(f"{given[0]} is not for {type(model).__name__}: preprocessing belongs into its pipeline")
        return Estimator(model, method)
    if not callable(model) or isinstance(model, type):
        raise not_a_model(model)
    if method is not None:
        raise BadInput(f"method={method!r} is for scikit-learn, and {type(model).__name__} is called: leave it out")
    own = _own_preprocessing(model, preprocess)
    chosen_size = _size(size if size is not None else own.get("size"))
    return Wrapped(
        model,
        num_classes=_classes(num_classes, threshold, model),
        output=_output(output),
        threshold=_threshold(threshold),
        layout=_one_of("layout", layout, LAYOUTS),
        arrays=type(model).__module__.split(".")[0] in ("keras", "tensorflow", "tf_keras"),
        mean=mean if mean is not None else own.get("mean"),
        std=std if std is not None else own.get("std"),
        size=chosen_size,
        interpolation=_one_of("interpolation", interpolation or own.get("interpolation", "bilinear"), INTERPOLATIONS),
    )


def adapted(model: Any) -> Any:
    """The model as it is where it can be called, with a warning if it lacks the preprocessing that it states; a classifier of
    scikit-learn wrapped; anything else is refused."""
    if is_estimator(model):
        return Estimator(model)
    if not callable(model) or isinstance(model, type):
        raise not_a_model(model)
    _warn_of_unused_preprocessing(model)
    return model


def described(model: Any) -> BaseClassifier:
    """A model as a base classifier, with the number of classes that it states."""
    module = adapted(model)
    return BaseClassifier(module, num_classes=classes_of(module))


def classes_of(model: Any) -> int | None:
    """The number of classes that a model states: `num_classes` (timm, `wrap`), or `config.num_labels` (Hugging Face)."""
    stated = getattr(model, "num_classes", None), getattr(getattr(model, "config", None), "num_labels", None)
    return next((int(found) for found in stated if is_whole(found) and found and found > 1), None)


def not_a_model(model: Any) -> BadInput:
    """The error for an object that maps no views to scores."""
    if isinstance(model, type):
        return BadInput(
            f"model is the class {model.__name__}: an object that maps a batch of views to scores is needed, such as an instance "
            f"of it, {model.__name__}()"
        )
    return BadInput(
        f"model {model!r} cannot be called: anything that maps a batch of views to scores is needed, or a fitted "
        "classifier of scikit-learn"
    )


def _warn_of_unused_preprocessing(model: Any) -> None:
    """Warn of a model that states how its inputs are normalised, and is called with views as they are."""
    config = _config(model)
    if config.get("mean") is not None and not isinstance(model, Wrapped):
        warnings.warn(
            f"{type(model).__name__} states (pretrained_cfg) that it takes inputs normalised by mean {config['mean']} and std "
            f"{config.get('std')}, and gets views around [0, 1] as they are: vb.wrap(model, preprocess='own') normalises them "
            "inside the model",
            stacklevel=4,
        )


def _config(model: Any) -> Mapping[str, Any]:
    """What a model of timm states about its inputs; empty for others."""
    for name in ("pretrained_cfg", "default_cfg"):
        config = getattr(model, name, None)
        config = config if isinstance(config, Mapping) else getattr(config, "__dict__", None)
        if isinstance(config, Mapping) and config:
            return config
    return {}


def _own_preprocessing(model: Any, preprocess: str | None) -> dict[str, Any]:
    if preprocess is None:
        return {}
    config = _config(model)
    if _one_of("preprocess", preprocess, ("own",)) and config.get("mean") is None:
        raise BadInput(
            f"preprocess='own': {type(model).__name__} has no pretrained_cfg with mean and std: give mean=, std="
        )
    found = {name: config[name] for name in ("mean", "std", "interpolation") if config.get(name) is not None}
    return {**found, "size": tuple(config["input_size"][-2:])} if config.get("input_size") else found


def _numbers(name: str, numbers: Any) -> list[float]:
    listed = list(numbers) if isinstance(numbers, Sequence) and not isinstance(numbers, str) else [numbers]
    try:
        found = [float(number) for number in listed]
    except (TypeError, ValueError):
        raise BadInput(f"{name}={numbers!r}: a number, or one for each channel, is needed") from None
    if not found or not all(torch.tensor(found).isfinite()) or (name == "std" and min(found) <= 0):
        raise BadInput(f"{name}={numbers!r}: finite numbers are needed{', above zero' if name == 'std' else ''}")
    return found


def _size(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = (size, size) if is_whole(size) else tuple(size) if isinstance(size, Sequence) else ()
    if len(sides) != 2 or not all(is_whole(side) and side > 0 for side in sides):
        raise BadInput(f"size={size!r}: a side or (height, width) in pixels is needed, for example size=224")
    return int(sides[0]), int(sides[1])


def _one_of(what: str, given: Any, allowed: Sequence[str]) -> str:
    if given not in allowed:
        raise BadInput(f"{what}={given!r}: {' or '.join(map(repr, allowed))} is needed")
    return str(given)


def _output(output: Any) -> int | str | None:
    if output is not None and not isinstance(output, str) and not is_whole(output):
        raise BadInput(f"output={output!r}: the position or the name of an output is needed")
    return output if output is None or isinstance(output, str) else int(output)


def _threshold(threshold: Any) -> float | None:
    return None if threshold is None else _numbers("threshold", threshold)[0]


def _classes(num_classes: Any, threshold: Any, model: Any) -> int | None:
    if threshold is not None and num_classes not in (None, 2):
        raise BadInput(
            f"num_classes={num_classes!r} with threshold={threshold!r}: one score per view is for two classes"
        )
    if threshold is not None:
        return 2
    return classes_of(model) if num_classes is None else check_num_classes(num_classes)
