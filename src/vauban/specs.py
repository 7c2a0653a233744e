"""Specs, the text form of everything that has parameters: `name:key=value,key=value`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vauban.errors import BadInput

JOINT = " | "  # between the texts of several specs that take turns
_NEXT_KEY = re.compile(r",(?=[A-Za-z_]\w*=)")


@dataclass(frozen=True)
class Spec:
    """A name and its parameters as text; `str(spec)` gives the text back, keys in the order given.

    >>> Spec.parse("gaussian:sigma=0.5")
    Spec(name='gaussian', params={'sigma': '0.5'})
    >>> str(Spec.parse("mnist:split=test,path=a,b"))
    'mnist:split=test,path=a,b'
    """

    name: str
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read `name` or `name:key=value,…`; a value may hold commas as long as no `key=` follows them."""
        if not isinstance(text, str):
            raise BadInput(f"{text!r} is not a text of the form name:key=value,…, for example gaussian:sigma=0.5")
        name, colon, rest = text.strip().partition(":")
        if not name or (colon and not rest):
            raise BadInput(f"{text!r} is not of the form name:key=value,…, for example gaussian:sigma=0.5")
        params: dict[str, str] = {}
        for piece in _NEXT_KEY.split(rest) if rest else []:
            key, equals, value = piece.partition("=")
            if not equals or not key.isidentifier() or not value:
                raise BadInput(f"{piece!r} in {text!r} is not key=value; write {name}:key=value,key=value")
            if key in params:
                raise BadInput(f"{key} is given twice in {text!r}; give it once")
            params[key] = value
        return cls(name, params)

    def __str__(self) -> str:
        pairs = ",".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}:{pairs}" if pairs else self.name


def one_alone(text: str) -> Spec:
    """The spec of one smoothing; texts of several, which are for training, are refused.

    >>> one_alone("gaussian:sigma=0.5").name
    'gaussian'
    """
    if isinstance(text, str) and JOINT.strip() in text:
        raise BadInput(
            f"{text}: several smoothings are for training alone, as votes on their views prove nothing together: give one of "
            f"them, such as {text.split(JOINT.strip())[0].strip()}"
        )
    return Spec.parse(text)


@dataclass(frozen=True)
class Parameter:
    """One parameter a spec may carry: how its text is read, and its default (none: it must be given)."""

    read: Callable[[str], Any]
    default: Any = None
    required: bool = False
    example: str = ""


def read_params(spec: Spec, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of `spec`'s parameters, defaults filled in; the error for a wrong one shows the right form."""
    usage = _usage(spec.name, parameters)
    for key in spec.params:
        if key not in parameters:
            raise BadInput(f"{spec.name} has no parameter {key!r}{_nearest(key, parameters)}; it is written {usage}")
    values: dict[str, Any] = {}
    for key, parameter in parameters.items():
        if key in spec.params:
            try:
                values[key] = parameter.read(spec.params[key])
            except (ValueError, ZeroDivisionError) as problem:
                reason = f": {problem}" if isinstance(problem, BadInput) else ""
                raise BadInput(
                    f"{key}={spec.params[key]} cannot be read{reason}; {spec.name} is written {usage}"
                ) from None
        elif parameter.required:
            raise BadInput(f"{spec.name} needs {key}; it is written {usage}")
        else:
            values[key] = parameter.default
    return values


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is among `known`, or raise an error that lists what is."""
    names = sorted(known)
    if not isinstance(name, str):
        raise BadInput(f"{kind}={name!r}: a name is needed, one of {', '.join(names)}")
    if name in names:
        return name
    raise BadInput(f"{name!r} is not a known {kind}{_nearest(name, names)}; known: {', '.join(names)}")


def _usage(name: str, parameters: Mapping[str, Parameter]) -> str:
    pairs = ",".join(f"{key}={p.example or p.default}" for key, p in parameters.items() if p.example or p.default)
    return f"{name}:{pairs}" if pairs else name


def _nearest(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {match[0]!r}?)" if match else ""


def positive(text: str) -> float:
    """Read a finite number above zero."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise BadInput(f"{text} is not a finite number above zero")
    return value


def natural(text: str) -> int:
    """Read a whole number, zero or more."""
    value = int(text)
    if value < 0:
        raise BadInput(f"{text} is not a whole number, zero or more")
    return value


def one_sigma(sigma: Any) -> float:
    """Check sigma, one standard deviation for all coordinates; other noise, such as correlated noise, is not certified."""
    try:
        value = float("no number" if isinstance(sigma, bool) else sigma)
    except (TypeError, ValueError):
        raise BadInput(
            f"sigma={sigma!r}: one number is needed. Noise must be independent and identically distributed in every "
            "coordinate: with correlated noise, a step as small as the certified radius can turn probability 1 into 0 "
            "(Levine 2023, Proposition 3.1)"
        ) from None
    if not 0 < value < float("inf"):
        raise BadInput(f"sigma={value}: a finite number above zero is needed, for example 0.5")
    return value


def sigmas(sigma: Any) -> float | tuple[float, ...]:
    """Check one standard deviation for all coordinates, or one for each: noise is independent, and isotropic once every
    coordinate is divided by its own.

    A list of one is that one: its text form is the same, and so must be what radii measure.

    >>> sigmas(0.5), sigmas([0.5, 2]), sigmas([0.5])
    (0.5, (0.5, 2.0), 0.5)
    """
    if isinstance(sigma, str) or not hasattr(sigma, "__len__"):
        return one_sigma(sigma)
    if len(sigma) == 0:
        raise BadInput("sigma is empty: give one number, or one for each feature")
    return one_sigma(sigma[0]) if len(sigma) == 1 else tuple(one_sigma(one) for one in sigma)


def read_sigmas(text: str) -> float | tuple[float, ...]:
    """Read one sigma, or those of all features joined by /."""
    numbers = tuple(positive(piece) for piece in text.split("/"))
    return numbers[0] if len(numbers) == 1 else numbers


def flag(text: str) -> bool:
    """Read true or false."""
    if text.lower() not in ("true", "false"):
        raise BadInput(f"{text} is neither true nor false")
    return text.lower() == "true"
