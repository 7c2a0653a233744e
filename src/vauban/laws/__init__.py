"""Mathematics: certified radii, from probability bounds or from the votes of all views. Pure functions, no torch."""

from __future__ import annotations

from typing import Any

from vauban.errors import BadInput
from vauban.laws.exact import ExactLaw
from vauban.laws.law import LAWS, AnyLaw, Law, register
from vauban.registry import import_modules
from vauban.specs import Spec, flag, one_alone

__all__ = ["LAWS", "AnyLaw", "ExactLaw", "Law", "as_law", "law", "register", "sampled_law"]

import_modules(__name__)  # every law registers itself


def law(smoothing: str | Spec) -> AnyLaw:
    """The law of a smoothing, for example `law("gaussian:sigma=0.5")`; the error for a wrong text shows right ones.

    A smoothing with an exact and a sampled form gets the exact one unless the text says sampled=true.
    """
    spec = one_alone(smoothing) if isinstance(smoothing, str) else smoothing
    forms = LAWS[spec.name]
    exact = len(forms) == 1 or not _sampled(spec)
    chosen = next((form for form in forms if form.exact == exact), forms[0])
    other = next((form for form in forms if form is not chosen), chosen)
    for key in spec.params:
        if key not in chosen.parameters and key in other.parameters and key != "sampled":
            kind, instead = ("sampled", "add sampled=true") if exact else ("exact", "leave sampled=true out")
            raise BadInput(f"{key} belongs to {kind} {spec.name}: leave it out, or {instead}")
    return chosen.from_spec(spec)


def as_law(smoothing: Any) -> AnyLaw:
    """The law of a smoothing or of its text form; a law is returned as it is."""
    if isinstance(smoothing, AnyLaw):
        return smoothing
    found = law(smoothing) if isinstance(smoothing, str) else getattr(smoothing, "law", None)
    if not isinstance(found, AnyLaw):
        raise BadInput(f"smoothing {smoothing!r}: a smoothing or its text is needed, for example gaussian:sigma=0.5")
    return found


def sampled_law(smoothing: str | Spec) -> Law:
    """The law of a sampled smoothing; an exact one is refused."""
    found = law(smoothing)
    if not isinstance(found, Law):
        raise BadInput(f"{found.spec} is exact, and a sampled form is needed here: add sampled=true if it has one")
    return found


def _sampled(spec: Spec) -> bool:
    """Whether a text asks for the sampled form of a smoothing that has both."""
    try:
        return flag(spec.params.get("sampled", "false"))
    except ValueError:
        return True  # the sampled law raises the error
