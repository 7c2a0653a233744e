"""Mathematics: from probability bounds to certified radii. Pure functions, no torch."""

from __future__ import annotations

from vauban.certificates.gaussian import GaussianLaw
from vauban.certificates.law import Law
from vauban.specs import Spec, choose

LAWS: dict[str, type[Law]] = {"gaussian": GaussianLaw}


def law(smoothing: str | Spec) -> Law:
    """The law behind a smoothing, for example `law("gaussian:sigma=0.5")`; a wrong text is answered with right ones."""
    spec = Spec.parse(smoothing) if isinstance(smoothing, str) else smoothing
    return LAWS[choose("smoothing", spec.name, LAWS)].from_spec(spec)
