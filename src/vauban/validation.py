"""Argument checks, each in one place; errors say what was given, what is needed and what to do."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.specs import choose

if TYPE_CHECKING:
    import torch

MOST_VOTES = 10**12
MOST_ROWS, MOST_IN_FLIGHT = 10**6, 1000
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
BACKENDS = ("torch", "onnxruntime", "openvino", "fused", "auto")
LEAST_PROBABILITY = 1e-200
"""The least alpha and rho. From 1e-241 on SciPy's tails lose digits or become 0, and a bound would pass its own check; what is
between is for shares of alpha, by class and by look."""

_NONCE = re.compile(r"([0-9a-f]{2}){16,64}")
_LONGEST_SOURCE = 200
_DEVICE = re.compile(r"(cpu|cuda|mps|xpu|xla|hpu|npu)(:\d+)?")

Ints = NDArray[np.int64]


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, and not a bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_bool(value: Any) -> bool:
    """Whether a value is True or False, also those of NumPy."""
    return isinstance(value, bool | np.bool_)


def refuse_bools(call: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Refuse True and False for parameters that are annotated as something else: Python would count them as 1 and 0."""
    if not any(map(is_bool, (*given, *named.values()))):
        return
    parameters = inspect.signature(call).parameters
    for name, value in (*zip(parameters, given, strict=False), *named.items()):
        said = parameters[name].annotation if name in parameters else inspect.Parameter.empty
        if is_bool(value) and said is not inspect.Parameter.empty and "bool" not in str(said):
            raise BadInput(
                f"{name}={value}: a value is needed, not True or False; give a number, such as {name}={value:d}"
            )


def path_of(name: str, path: Any, needed: str = "a path is needed, as text or as a pathlib.Path") -> Path:
    """A path that was given as text or as a path, with ~ as the home folder; `needed` says what else is refused for."""
    if not isinstance(path, str | PathLike):
        raise BadInput(f"{name}={path!r}: {needed}")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BadInput(f"{name}={str(path)!r}: no home folder of that name is known; write the folder out") from None


def check_radius(r: Any) -> float:
    """Check a radius that is asked about: one number, zero or more."""
    several = hasattr(r, "__len__") and not isinstance(r, str | bytes) and np.ndim(r) > 0
    try:
        if several or is_bool(r) or isinstance(r, str | bytes):
            raise TypeError
        number = float(r)
    except (TypeError, ValueError):
        advice = "; for several radii, ask for one at a time" if several else ""
        raise BadInput(f"radius {r!r}: one number is needed, 0 or more{advice}") from None
    if not number >= 0:
        raise BadInput(f"radius {r}: a number is needed, 0 or more")
    return number


def check_seed(seed: Any) -> int:
    """Check the number of a seed."""
    if not is_whole(seed):
        raise BadInput(
            f"seed={seed!r}: a whole number is needed, such as seed=1; to go on with a run, leave the seed out"
        )
    return int(seed)


def check_k(k: Any, num_classes: int) -> int:
    """Check k: a whole number from 1, below the number of classes."""
    if not is_whole(k):
        raise BadInput(f"k={k!r}: a whole number is needed")
    if not 1 <= k < num_classes:
        raise BadInput(f"k={k} of {num_classes} classes: k must be at least 1 and below the number of classes")
    return int(k)


def check_alpha(alpha: Any, below: float = 1.0) -> float:
    """Check alpha: a failure probability between 0 and `below`, both excluded, and at least `LEAST_PROBABILITY`."""
    return _probability("alpha", alpha, below)


def check_rho(rho: Any) -> float:
    """Check rho: the failure probability of a claim about a whole data set."""
    return _probability("rho", rho, 1.0)


def _probability(name: str, value: Any, below: float) -> float:
    is_number = isinstance(value, float | int | np.floating) and not isinstance(value, bool)
    if not is_number or not 0 < value < below:
        shown, limit = value if is_number else repr(value), "1" if below == 1 else f"{below:g}"
        raise BadInput(f"{name}={shown}: a probability strictly between 0 and {limit} is needed, for example 0.001")
    probability = float(value)
    if probability < LEAST_PROBABILITY:
        raise BadInput(
            f"{name}={probability}: at least {LEAST_PROBABILITY} is needed, since smaller tails cannot be computed in floating "
            "point; 0.001 is usual"
        )
    return probability


def check_votes(n: Any) -> int:
    """Check n: a number of votes per input."""
    if not is_whole(n):
        raise BadInput(f"n={n!r}: a whole number is needed")
    if n > MOST_VOTES:
        raise BadInput(f"n={n}: more than {MOST_VOTES:,} votes per input cannot be counted here")
    return int(n)


def check_n0(n0: Any) -> int:
    """Check n0: a number of uncounted votes that choose a label."""
    if not is_whole(n0) or n0 < 1:
        raise BadInput(f"n0={n0!r}: at least one uncounted vote is needed to choose the label, 100 is usual")
    return int(n0)


def check_deviation(deviation: Any) -> float:
    """Check a total variation: at least 0 and below 1."""
    if not 0 <= deviation < 1:
        raise BadInput(f"deviation={deviation}: a total variation is at least 0 and below 1")
    return float(deviation)


def check_seconds(seconds: Any) -> float:
    """Check a time limit in seconds."""
    if not isinstance(seconds, float | int) or not 0 < seconds < float("inf"):
        raise BadInput(f"seconds={seconds}: a time above zero is needed")
    return float(seconds)


def check_num_classes(num_classes: Any) -> int:
    """Check a number of classes: at least two."""
    if not is_whole(num_classes):
        raise BadInput(f"num_classes={num_classes!r}: a whole number is needed, for example num_classes=10")
    if num_classes < 2:
        raise BadInput(f"num_classes={num_classes}: at least two classes are needed")
    return int(num_classes)


def check_at_least_one(name: str, value: Any, what: str, most: int | None = None) -> int | None:
    """Check a whole number from 1 to `most` (None: any), or None where it is chosen later; `what` says what is needed."""
    if value is not None and (not is_whole(value) or value < 1):
        whole = "" if is_whole(value) else ", as a whole number"
        raise BadInput(f"{name}={value!r}: {what}{whole}")
    if value is not None and most is not None and value > most:
        raise BadInput(f"{name}={value}: at most {most:,} are possible; leave it out, and it is chosen by size")
    return value


def check_labels(
    labels: ArrayLike, count: int, num_classes: int | None, name: str = "labels", of: str = "input"
) -> Ints:
    """Labels [count] as int64, each one of the classes (None: any whole number); the error names the first that is not."""
    which = np.asarray(labels)
    if which.shape != (count,) or which.dtype.kind not in "iu":
        raise BadInput(
            f"{name} of shape {which.shape} and type {which.dtype} for {count} {of}s: one whole number each is needed"
        )
    if num_classes is None:
        return which.astype(np.int64)
    wrong = np.flatnonzero((which < 0) | (which >= num_classes))
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(f"label {which[row]} of {of} {row} is outside the classes 0..{num_classes - 1}")
    return which.astype(np.int64)


def check_index(index: Any, count: int) -> Ints:
    """The number of each input [count] in its data set, which addresses its noise: all different, 0 or more."""
    if index is None:
        return np.arange(count, dtype=np.int64)
    numbers = np.asarray(index)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu" or (numbers < 0).any() or (numbers >= 2**63).any():
        raise BadInput(
            f"index of shape {numbers.shape} and type {numbers.dtype} for {count} inputs: one whole number each, from 0 to "
            "2^63 - 1, is needed"
        )
    if len(np.unique(numbers)) != count:
        raise BadInput("index names an input twice: each input needs a number of its own")
    return numbers.astype(np.int64)


def refuse_sampled_settings(smoothing: str, **settings: Any) -> None:
    """Refuse settings of sampled votes for an exact smoothing."""
    for name, value in settings.items():
        if value is not None:
            raise BadInput(
                f"{name}={value} with {smoothing}, which is exact: every view votes and nothing is left to chance; "
                f"leave {name} out, or use the sampled form if there is one (sampled=true)"
            )


def check_seed_request(
    number: int | None, announce: bool, nonce_from: str | None, nonce: str | None, out: Any, exact: str | None
) -> None:
    """Check what a call that writes to `out` says of its seed; `exact`: the smoothing, if it is exact and has no noise."""
    if not announce and nonce_from is None and nonce is None:
        return
    if exact is not None:
        refuse_sampled_settings(exact, announce=announce or None, nonce_from=nonce_from, nonce=nonce)
    if out is None:
        raise BadInput("announce and nonce belong to a run folder, whose manifest is published: give out=… (--out)")
    if announce and nonce is not None:
        raise BadInput(
            "announce and nonce in one call: what is announced has no nonce yet; announce, publish the hash, and give --nonce in "
            "a second call once it exists"
        )
    if number is not None:
        raise BadInput(
            f"seed={number} with announce or nonce: a number can be tried beforehand and hides nothing; leave --seed out, and "
            "the operating system gives the secret"
        )
    if nonce is not None:
        check_nonce(nonce)
    if announce != (nonce_from is not None):
        raise BadInput(
            'announce and nonce_from belong together: say with --announce --nonce-from "WHO/WHAT" which one value, not known '
            "yet, will be the nonce"
        )
    if nonce_from is not None:
        _check_nonce_source(nonce_from)


def check_nonce(nonce: object) -> str:
    """Check a nonce: 16 to 64 bytes, written as lower-case hex; it is never normalised."""
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise BadInput(
            f"nonce {nonce!r}: 16 to 64 bytes in lower-case hex are needed (32 to 128 digits of 0-9a-f, an even number), exactly "
            "as their source published them"
        )
    return nonce


def _check_nonce_source(nonce_from: Any) -> None:
    if not isinstance(nonce_from, str) or not nonce_from.strip() or not nonce_from.isprintable():
        raise BadInput(f'nonce_from={nonce_from!r}: a line of text is needed, "WHO/WHAT", such as a round of a beacon')
    if len(nonce_from) > _LONGEST_SOURCE:
        raise BadInput(
            f"nonce_from has {len(nonce_from)} characters: at most {_LONGEST_SOURCE}, one source and one value"
        )


def check_precision(precision: str, device: str) -> str:
    """Check the precision of a network: its name, and that a device of this type supports it."""
    choose("precision", precision, PRECISIONS)
    if precision == "tf32" and device != "cuda":
        raise BadInput(f"precision tf32 is an arithmetic of NVIDIA GPUs, not of {device}: use fp32 or bf16")
    return precision


def check_compute_shape(rows: Any, block: Any, in_flight: Any) -> tuple[int | None, int | None, int | None]:
    """Check how many views a forward pass has, how many of them are a block, and how many such shapes are made ahead."""
    return (
        check_at_least_one("rows", rows, "a forward pass needs one view or more", MOST_ROWS),
        check_at_least_one("block", block, "a block needs one view or more", MOST_ROWS),
        check_at_least_one("in_flight", in_flight, "one shape or more is made ahead", MOST_IN_FLIGHT),
    )


def check_device(device: Any) -> str:
    """Check the name of a device of torch, such as cpu or cuda:1; None is the CPU."""
    name = "cpu" if device is None else f"cuda:{device}" if is_whole(device) else str(device)
    if isinstance(device, bytes) or not _DEVICE.fullmatch(name):
        raise BadInput(f"device={device!r}: the name of a device is needed, cpu, cuda or cuda:1")
    return name


def device_of(device: Any) -> torch.device:
    """The device of this name, which must be here; "auto" is a GPU if there is one, else the CPU."""
    import torch

    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.device(check_device(device))
    if where.type == "cuda":
        here = (where.index or 0) < torch.cuda.device_count()
    else:
        try:
            here = torch.empty(0, device=where) is not None
        except (RuntimeError, AssertionError):
            here = False
    if not here:
        raise BadInput(f"device={str(device)!r} does not exist here: 'auto' and 'cpu' always do, 'cuda' needs a GPU")
    return where


def check_input_range(input_range: Any) -> tuple[float, float] | None:
    """Check the allowed values of inputs: None for any, or the least and the largest."""
    if input_range is None:
        return None
    pair = input_range if isinstance(input_range, tuple | list) and len(input_range) == 2 else ()
    numbers = [side for side in pair if is_whole(side) or isinstance(side, float | np.floating)]
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)) or not numbers[0] < numbers[1]:
        raise BadInput(
            f"input_range={input_range!r}: the least and the largest value that an input may have are needed, such as (0, 1), or "
            "None for any"
        )
    return float(numbers[0]), float(numbers[1])


def check_way_of_running(backend: str | None, stochastic: str | None) -> None:
    """Check the name of a network's backend, and how a model that is random by design is called."""
    if backend is not None:
        choose("backend", backend, BACKENDS)
    if stochastic not in (None, "views", "rows"):
        raise BadInput(f"stochastic={stochastic!r}: 'views' (one view per call), 'rows' (rows independent) or None")


def check_shuffle(seed: Any) -> int:
    """Check the seed of the order in which inputs are selected: a whole number, zero or more."""
    if not is_whole(seed) or not 0 <= seed < 2**63:
        raise BadInput(
            f"shuffle={seed!r}: a whole number from 0 is needed, the seed of the order in which inputs are taken"
        )
    return int(seed)
