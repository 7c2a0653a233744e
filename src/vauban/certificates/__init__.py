"""Mathematics: from probability bounds to certified radii. Pure functions, no torch."""

from __future__ import annotations

from vauban.certificates.ablation import AblationLaw
from vauban.certificates.discrete import DiscreteLaw
from vauban.certificates.flow import FlowLaw
from vauban.certificates.fractional import FractionalLaw
from vauban.certificates.gaussian import GaussianLaw
from vauban.certificates.laplace import LaplaceLaw
from vauban.certificates.law import Law
from vauban.certificates.patches import BandLaw, BlockLaw
from vauban.certificates.uniform import SplittingLaw, UniformLaw
from vauban.specs import Spec, choose

LAWS: dict[str, type[Law]] = {
    "ablation": AblationLaw,
    "band": BandLaw,
    "block": BlockLaw,
    "discrete": DiscreteLaw,
    "flow": FlowLaw,
    "fractional": FractionalLaw,
    "gaussian": GaussianLaw,
    "laplace": LaplaceLaw,
    "splitting": SplittingLaw,
    "uniform": UniformLaw,
}


def law(smoothing: str | Spec) -> Law:
    """The law behind a smoothing, for example `law("gaussian:sigma=0.5")`; a wrong text is answered with right ones."""
    spec = Spec.parse(smoothing) if isinstance(smoothing, str) else smoothing
    return LAWS[choose("smoothing", spec.name, LAWS)].from_spec(spec)
