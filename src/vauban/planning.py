"""Plans: what given settings can certify at most, and how many votes and seconds they cost, before any run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from vauban.bounds.ranks import least_votes_with
from vauban.engine.enumerator import Enumerator
from vauban.engine.sampler import Sampler
from vauban.errors import BadInput
from vauban.inputs import Inputs
from vauban.laws.from_counts import largest_radius, least_n
from vauban.laws.law import Law
from vauban.methods import CertifySettings, ExactMethod, FixedMethod, Method, SequentialMethod, method_for
from vauban.report.wording import covered, of_inputs
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing.random import Stream
from vauban.stopping.policies import GridRule


@dataclass(frozen=True)
class RadiusTest:
    """The test at one radius of a sequential policy: the probability it needs, the least wins that certify at each look, and
    the least number of votes, all won, that certifies (None if none does)."""

    radius: float
    needed: float
    boundaries: list[int]
    least_votes: int | None


@dataclass(frozen=True)
class CertifyPlan:
    """What a call of `certify` can prove and what it costs.

    `largest_radius`: of an input on which all votes agree; None where even that is not certified. `votes`: the most in total;
    None where there is no last vote. `votes_per_second` is measured, None where it is not. `least_n`, `least_n_predict`: the
    fewest votes that can certify and predict anything; the second is None where none can. `tests`: of a sequential policy, by
    radius.
    """

    method: str
    smoothing: str
    threat: str
    k: int
    alpha: float
    bounds: str
    stop: str | None
    n: int | None
    inputs: int
    largest_radius: float | None
    votes: int | None
    votes_per_second: float | None
    least_n: int | None = None
    least_n_predict: int | None = None
    looks: list[int] = field(default_factory=list)
    tests: list[RadiusTest] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        """The longest time it takes; None where it has no end or was not measured."""
        return None if self.votes is None or self.votes_per_second is None else self.votes / self.votes_per_second

    def to_json(self) -> dict[str, Any]:
        """Plain values; those that do not apply are left out."""
        values = {key: value for key, value in asdict(self).items() if value not in (None, [])}
        values |= {"radii": values.pop("tests", []), "seconds": self.seconds}
        return values | ({"views": self.n, "exact": True} if self.method == "exact" else {})


def plan(
    smoothed: SmoothedClassifier,
    x: Any,
    *,
    k: int = 1,
    n: int | None = None,
    alpha: float | None = None,
    bounds: str | None = None,
    stop: str = "fixed",
    seconds: float | None = 2.0,
) -> CertifyPlan:
    """What `smoothed.certify(x, …)` with these settings can prove, and what it costs on this machine.

    The speed is measured for about `seconds`; None leaves it out, and then the model is not called. A radius that n votes can
    never certify is refused with the n that could.
    """
    batch = smoothed.collect(x)
    inputs, count = batch.inputs, len(batch)
    law = smoothed.smoothing.law.for_shape(batch.shape)
    classes, deviation = smoothed.num_classes, smoothed.deviation(inputs)
    settings = CertifySettings.of(law, classes, k=k, n=n, alpha=alpha, bounds=bounds, stop=stop)
    read = inputs.section(smoothed.input_range, law, deviation, smoothed.standardise)
    common: dict[str, Any] = {
        "smoothing": str(smoothed.smoothing.spec),
        "threat": of_inputs(covered(law.threat, "the radius", read, batch.section(classes)), batch.shape),
        "k": k,
        "alpha": settings.alpha,
        "bounds": settings.bounds,
        "stop": settings.stop,
        "inputs": count,
    }
    if settings.stop == "fixed" and isinstance(law, Law):
        common |= {
            "least_n": least_n(k, settings.alpha, classes, settings.bounds, law, deviation),
            "least_n_predict": least_votes_with(deviation, k, settings.alpha),
        }
        largest = None
        if settings.n:
            largest = largest_radius(settings.n, k, settings.alpha, classes, settings.bounds, law, deviation)
        if largest is None:
            raise BadInput(
                f"n={settings.n} can certify nothing at alpha={settings.alpha:g}: the least is {common['least_n']}"
            )
        common |= {"largest_radius": largest}
    method = method_for(settings, law, classes, batch.shape, deviation)
    votes, radius = _cost(method, common.pop("largest_radius", None))
    rate = None if seconds is None else votes_per_second(smoothed, inputs, method, seconds)
    return CertifyPlan(
        method=method.name,
        n=votes,
        largest_radius=radius,
        votes=None if votes is None else count * votes,
        votes_per_second=rate,
        **common,
        **_tests(method),
    )


def _cost(method: Method, radius: float | None) -> tuple[int | None, float | None]:
    """The most votes per input, and the largest radius; `radius`: that of a fixed method."""
    if isinstance(method, ExactMethod):
        return method.listed.views, method.listed.largest_radius(method.settings.k, method.num_classes)
    if isinstance(method, SequentialMethod) and isinstance(method.rule, GridRule):
        radius = method.rule.radii[-1]
    return method.settings.n, radius


def _tests(method: Method) -> dict[str, Any]:
    if isinstance(method, FixedMethod):
        return {"looks": method.looks}
    rule = getattr(method, "rule", None)
    if not isinstance(rule, GridRule):
        return {} if rule is None else {"looks": [rule.next_look(0)]}
    tests = []
    for i, radius in enumerate(rule.radii):
        boundaries = rule.least[i].tolist()
        least = next((look for look, wins in zip(rule.looks, boundaries, strict=True) if wins <= look), None)
        tests.append(RadiusTest(radius, rule.p[i], boundaries, least))
    return {"looks": list(rule.looks), "tests": tests}


def votes_per_second(smoothed: SmoothedClassifier, inputs: Inputs, method: Method, seconds: float) -> float:
    """Cast votes for about `seconds`, after a warm-up, and return the rate."""
    with smoothed.ready(inputs):
        sampler, _ = smoothed.agreeing_sampler(inputs, method)
        if isinstance(sampler, Enumerator):
            return _listed_per_second(sampler, inputs, seconds)
        return _sampled_per_second(sampler, inputs, seconds)


def _sampled_per_second(sampler: Sampler, inputs: Inputs, seconds: float) -> float:
    stream = Stream(Seed.of(0), "probe", 0)
    cast, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or cast == 0:
        votes = sampler.rows * max(1, int(cast / sampler.rows))
        for _ in sampler.cast(inputs.values[0], stream, [votes]):
            pass
        cast += votes
        if sampler.device.type == "cuda":
            torch.cuda.synchronize(sampler.device)
        spent = time.perf_counter() - began
    return cast / spent


def _listed_per_second(enumerator: Enumerator, inputs: Inputs, seconds: float) -> float:
    """The same where every view votes: all views of all inputs, again from the start if they run out before `seconds`."""
    cast, began = 0, time.perf_counter()
    while True:
        for _, votes in enumerator.cast(inputs.values):
            cast += len(votes)
            if (spent := time.perf_counter() - began) >= seconds:
                return cast / spent
