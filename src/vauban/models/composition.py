"""The text form of models made of models: ensembles `A + B + C`, and a denoiser in front of a classifier, `D > A`; no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vauban.errors import BadInput
from vauban.specs import Parameter, Spec, natural, read_params
from vauban.validation import is_whole

ENSEMBLE = "ensemble"
"""The first piece of an ensemble's text, which holds its rule."""

DENOISED_NAMES = ("denoiser.", "classifier.")
"""What the names of the tensors of a denoiser and its classifier begin with."""

_PLUS = re.compile(r"(?<!\d[eE])\+|\+(?!\d)")  # not that of a number such as 1e+5
_RULE = {"consensus": Parameter(natural, default=0)}


@dataclass(frozen=True)
class Ensembled:
    """Several models whose scores are averaged. `consensus`: the first so many are asked; the rest only where these disagree."""

    parts: tuple[str, ...]
    consensus: int = 0

    def __post_init__(self) -> None:
        check_members(len(self.parts), self.consensus)

    def __str__(self) -> str:
        return " + ".join((f"{ENSEMBLE}:consensus={self.consensus}", *self.parts))

    @property
    def names(self) -> tuple[str, ...]:
        """What the names of each part's tensors begin with, in a file as in the module."""
        return member_names(len(self.parts))


@dataclass(frozen=True)
class Denoised:
    """A denoiser, and the classifier that is given its pictures."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return " > ".join(self.parts)

    @property
    def names(self) -> tuple[str, ...]:
        """What the names of each part's tensors begin with, in a file as in the module."""
        return DENOISED_NAMES


Composed = Ensembled | Denoised


def member_names(members: int) -> tuple[str, ...]:
    """What the names of each member's tensors begin with."""
    return tuple(f"members.{i}." for i in range(members))


def check_members(members: int, consensus: int) -> None:
    """Refuse an ensemble of fewer than two models, and a consensus that would never ask the rest, or always."""
    if members < 2:
        raise BadInput(f"an ensemble of {members} model: two or more are needed, joined by +")
    if not is_whole(consensus) or (consensus and not 2 <= consensus < members):
        allowed = "2" if members == 3 else f"a number from 2 to {members - 1}"
        advice = (
            f"give {allowed}, how many are asked first, or 0, which asks all"
            if members > 2
            else "two models have no others to ask where they disagree: give 0, which asks both"
        )
        raise BadInput(f"consensus={consensus!r} in an ensemble of {members}: {advice}")


def composed(text: str) -> Composed | None:
    """Return the parts of a composed model's text, or None for one model. `>` binds its two sides more closely than `+`.

    >>> composed("ensemble:consensus=2+a.safetensors+b.safetensors+c.safetensors")
    Ensembled(parts=('a.safetensors', 'b.safetensors', 'c.safetensors'), consensus=2)
    >>> composed("dncnn:depth=5 > resnet18")
    Denoised(parts=('dncnn:depth=5', 'resnet18'))
    >>> composed("pkg.nets:make:scale=1e+5") is None
    True
    """
    pieces = _stripped(text, _PLUS.split(text))
    rule = Spec.parse(pieces[0]) if pieces[0].partition(":")[0] == ENSEMBLE else None
    if rule is not None:
        return Ensembled(pieces[1:], read_params(rule, _RULE)["consensus"])
    if len(pieces) > 1:
        return Ensembled(pieces)
    sides = _stripped(text, text.split(">"))
    if len(sides) > 2:
        raise BadInput(f"{text!r} has more than one >; one denoiser in front of one classifier is possible")
    return Denoised(sides) if len(sides) == 2 else None


def _stripped(text: str, split: list[str]) -> tuple[str, ...]:
    pieces = tuple(piece.strip() for piece in split)
    if len(pieces) > 1 and not all(pieces):
        raise BadInput(f"{text!r} has nothing on one side of + or >; write a model on both sides")
    return pieces
