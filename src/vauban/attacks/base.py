"""Base class and registry of attacks, which search for the nearest input with another answer."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.attacks.search import Search
from vauban.attacks.targets import BaseTarget, SmoothedTarget, Target
from vauban.errors import BadInput
from vauban.registry import Registry, import_modules
from vauban.specs import Parameter, Spec, flag, read_params
from vauban.threats import Threat

__all__ = ["ATTACKS", "Attack", "BaseTarget", "Found", "Search", "SmoothedTarget", "Target", "build", "register"]


@dataclass(frozen=True)
class Found:
    """What an attack found for b inputs. `x` [b, ...]: the nearest adversarial input, float32, the input itself where there is
    none; `distance` [b]: how far it is, infinity where there is none; `evaluations` [b]: how many views it took."""

    x: torch.Tensor
    distance: NDArray[np.float64]
    evaluations: NDArray[np.int64]

    @classmethod
    def of(cls, search: Search) -> Found:
        """The best of a search."""
        return cls(search.best, search.distance.copy(), search.evaluations.copy())


@dataclass(frozen=True)
class Attack(ABC):
    """An attack; the fields of a subclass, all with defaults, are the keys of its text form `name:key=value,…`.

    `name`: registered; `threats`: the names of those whose distance it makes small; `gradient`: whether it needs gradients.
    """

    name: ClassVar[str]
    threats: ClassVar[tuple[str, ...]]
    gradient: ClassVar[bool]

    @abstractmethod
    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        """Search inputs near x [b, ...] for which the target does not answer `labels` [b].

        `x`: float32 on the target's device, `generator`: on the CPU, the source of every random choice. An input is adversarial
        where `target.adversarial` says so of it as `target.allowed` rounds it; a `Search` keeps the nearest of them. Loops run
        over `target.steps(count)`, which ends where the budget is spent.
        """

    def fits(self, threat: Threat) -> bool:
        """Whether this attack makes the distance of the threat small."""
        return threat.name in self.threats

    @property
    def spec(self) -> Spec:
        """The text form, without what is as by default."""
        fields = [f for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return Spec(self.name, {f.name: _text(getattr(self, f.name)) for f in fields})

    def run(self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, seed: int) -> Found:
        """`attack` with its arguments checked and a generator of this seed."""
        if not self.fits(threat):
            raise unfit(self.name, threat)
        if self.gradient and not target.differentiable(x[:8], labels[:8]):
            raise no_gradients(self.name, threat)
        return self.attack(target, x, labels, threat, torch.Generator().manual_seed(seed))


class AttackRegistry(Registry[type[Attack]]):
    """Attacks by name."""

    group, kind = "vauban.attacks", "attack"

    def accept(self, thing: Any) -> type[Attack]:
        if not (isinstance(thing, type) and issubclass(thing, Attack)):
            raise BadInput(f"{thing!r} is no subclass of vauban.attacks.base.Attack")
        return thing


ATTACKS = AttackRegistry()


def register(name: str) -> Callable[[type[Attack]], type[Attack]]:
    """Decorator that registers an attack under its name."""

    def add(attack: type[Attack]) -> type[Attack]:
        attack.name = name
        return ATTACKS.register(name)(attack)

    return add


def build(text: str | Spec | Attack) -> Attack:
    """Build an attack from its text form, for example `build("pgd:steps=100")`."""
    if isinstance(text, Attack):
        return text
    _load()
    spec = Spec.parse(text) if isinstance(text, str) else text
    kind = ATTACKS[spec.name]
    parameters = {f.name: Parameter(_reader(f.default), f.default) for f in dataclasses.fields(kind)}
    return kind(**read_params(spec, parameters))


def fitting(threat: Threat) -> list[str]:
    """The names of the attacks that make the distance of a threat small."""
    _load()
    return [name for name in ATTACKS.names() if ATTACKS[name]().fits(threat)]


def without_gradients(threat: Threat) -> list[str]:
    """The names of the attacks that make the distance of a threat small and need no gradients."""
    return [name for name in fitting(threat) if not ATTACKS[name].gradient]


def no_gradients(name: str, threat: Threat) -> BadInput:
    """The error for an attack that needs gradients where the model has none."""
    others = without_gradients(threat)
    advice = f"use an attack without gradients, {' or '.join(others)}"
    if not others:
        advice = (
            f"every attack that fits {threat.name} ({threat.metric}) needs them; give threat= (--threat), such as l2 or l0, or "
            "attack the torch model that the file was made from"
        )
    return BadInput(
        f"{name} needs gradients, and torch finds none through the model (ONNX files and scikit-learn classifiers have none): "
        f"{advice}"
    )


def unfit(name: str, threat: Threat) -> BadInput:
    """The error for an attack that does not fit a threat."""
    known = fitting(threat)
    advice = f"use {', '.join(known)}" if known else "no attack here does"
    return BadInput(
        f"{name} makes distances of {', '.join(ATTACKS[name].threats)} small, not {threat.name} ({threat.metric}): {advice}"
    )


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a parameter of an attack that is below the least."""
    if not value >= least:
        raise BadInput(f"{name}={value}: at least {least} is needed")


def _load() -> None:
    import_modules("vauban.attacks")


def _reader(default: Any) -> Callable[[str], Any]:
    """How the text of a parameter is read: as its default is."""
    return flag if isinstance(default, bool) else type(default)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
