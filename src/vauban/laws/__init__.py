"""Mathematics: from probability bounds to certified radii. Pure functions, no torch."""

from __future__ import annotations

from vauban.errors import BadInput
from vauban.laws.ablation import AblationLaw
from vauban.laws.discrete import DiscreteLaw
from vauban.laws.exact import ExactLaw
from vauban.laws.flow import FlowLaw
from vauban.laws.fractional import ExactFractionalLaw, FractionalLaw
from vauban.laws.gaussian import GaussianLaw
from vauban.laws.laplace import LaplaceLaw
from vauban.laws.law import AnyLaw, Law
from vauban.laws.patches.exact import ExactBandLaw, ExactBlockLaw
from vauban.laws.patches.sampled import BandLaw, BlockLaw
from vauban.laws.sparse import SparseLaw
from vauban.laws.splitting import ExactSplittingLaw, SplittingLaw
from vauban.laws.uniform import UniformLaw
from vauban.specs import Spec, choose, flag

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

EXACT: dict[str, type[ExactLaw]] = {
    "band": ExactBandLaw,
    "block": ExactBlockLaw,
    "fractional": ExactFractionalLaw,
    "sparse": SparseLaw,
    "splitting": ExactSplittingLaw,
}


def law(smoothing: str | Spec) -> AnyLaw:
    """The law behind a smoothing, for example `law("gaussian:sigma=0.5")`; a wrong text is answered with right ones.

    Where there is an exact form it is meant, unless the text says sampled=true.
    """
    spec = Spec.parse(smoothing) if isinstance(smoothing, str) else smoothing
    name = choose("smoothing", spec.name, {**LAWS, **EXACT})
    if name in EXACT and not (name in LAWS and _sampled(spec)):
        return EXACT[name].from_spec(spec)
    return LAWS[name].from_spec(spec)


def sampled_law(smoothing: str | Spec) -> Law:
    """The law behind a sampled smoothing; an exact one is refused."""
    found = law(smoothing)
    if not isinstance(found, Law):
        raise BadInput(f"{found.spec} is exact, and a sampled form is needed here: add sampled=true where there is one")
    return found


def _sampled(spec: Spec) -> bool:
    """Whether a text asks for the sampled form of a smoothing that has both."""
    try:
        return flag(spec.params.get("sampled", "false"))
    except ValueError:
        return True  # the sampled law says what is wrong with it
