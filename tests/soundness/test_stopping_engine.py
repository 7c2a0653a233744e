"""The whole engine, noise to decision, at the very boundary: claims that are false are made no more often than alpha.

One pixel under Gaussian noise on the grid; a view votes for the label if its noise is at most some number of steps, so the
label's probability is known to the last bit of the table. All inputs are that pixel, each with randomness of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from scipy.stats import binom

from vauban.certificates import derive_sequential
from vauban.engine.network import Network
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import Scheduler, Work
from vauban.laws import law
from vauban.laws.topk import probability_needed
from vauban.seed import Seed
from vauban.smoothing import Gaussian
from vauban.stopping import AnytimeRule, GridRule, Rule
from vauban.stopping import policy as stop
from vauban.stopping.policies import until_decided
from vauban.votes import KeptCounts

SIGMA, ALPHA, N, INPUTS = 0.25, 0.05, 300, 3_000
LAW = law(f"gaussian:sigma={SIGMA}")
STEPS = 40  # of noise up to which a view votes for the label
PIXELS = torch.full((INPUTS, 1), 128, dtype=torch.uint8)


def votes_for_label(views: torch.Tensor) -> torch.Tensor:
    wins = (views[:, 0] * 255 - 128).round() <= STEPS
    return torch.stack([~wins, wins], dim=1).float()


def true_probability() -> float:
    """P[noise <= STEPS]: the part of all 63-bit words below the threshold where the noise becomes STEPS + 1."""
    table = LAW.rounded(255)
    return int(table.thresholds[STEPS + table.offset]) / 2**63


@dataclass(frozen=True)
class UpTo(AnytimeRule):
    """Anytime, interrupted after N votes, looking at every one of its looks."""

    def next_look(self, votes: int) -> int | None:
        look = super().next_look(votes)
        return look if look is not None and look <= N else None


def rule_of(text: str) -> Rule:
    if text == "anytime":
        return UpTo(LAW, ALPHA)
    return stop(text).rule(LAW, n=N, alpha=ALPHA)


def works(rule: Rule, chooses: bool) -> Iterator[Work]:
    for i in range(INPUTS):
        yield Work(i, PIXELS[i], until_decided(rule, None if chooses else 1, 20, KeptCounts()))


P = true_probability()
EDGE = SIGMA * float(ndtri(P))  # the largest radius that P allows; every larger claim is false
TARGET = f"target:radius={EDGE * (1 + 1e-6)!r}"
GRID = f"grid:step={EDGE / 2 * (1 + 1e-6)!r}"


@pytest.mark.parametrize(
    ("text", "chooses"),
    [
        (TARGET, False),
        (f"{TARGET},test=eprocess", False),
        *(pytest.param(*more, marks=pytest.mark.slow) for more in [(TARGET, True), (GRID, False), ("anytime", False)]),
    ],
)
def test_false_claims_are_as_rare_as_promised(text: str, chooses: bool, cases_tried: Callable[[int], None]) -> None:
    assert float(probability_needed(LAW, [EDGE * (1 + 1e-6)])[0]) >= P
    rule = rule_of(text)
    sampler = Sampler(Network(votes_for_label, torch.device("cpu")), Gaussian(SIGMA), 2, 255, 1_000, block=25)
    sampler.probe(PIXELS)
    looks: list[list[np.ndarray]] = [[] for _ in range(INPUTS)]
    label = np.ones(INPUTS, dtype=np.int64)
    for one, _ in Scheduler(sampler, Seed.of(11)).run(works(rule, chooses)):
        if one.stage == "choose":
            label[one.input] = int(one.counts.argmax())
        else:
            looks[one.input].append(one.counts)
    certs = derive_sequential([np.stack(some) for some in looks], label, LAW, rule, alpha=ALPHA)
    wins = sum(int(some[-1][1]) for some in looks)
    votes = sum(int(some[-1].sum()) for some in looks)
    assert abs(wins / votes - P) < 0.02  # the engine's noise has the table's law (early stopping moves this a little)
    false = int(((certs.radius > EDGE) & (label == 1)).sum())
    false += int((~certs.abstained & (label == 0)).sum())
    cases_tried(INPUTS)
    assert false <= binom.ppf(1 - 1e-6, INPUTS, ALPHA)  # 210: half as many again as alpha allows would be 225
    if text == TARGET and not chooses:
        assert false >= binom.ppf(1e-6, INPUTS, 0.4 * ALPHA)  # it is not idle: most of alpha is spent at the edge


def test_it_would_notice(cases_tried: Callable[[int], None]) -> None:
    """Boundaries three wins too low let too many through."""
    rule = stop(TARGET).rule(LAW, n=N, alpha=ALPHA)
    assert isinstance(rule, GridRule)
    rule = replace(rule, least=rule.least - 3)
    rng = np.random.default_rng(0)
    new = np.diff([0, *rule.looks_until(N)])
    wins = np.cumsum(np.stack([rng.binomial(m, P, INPUTS) for m in new], axis=1), axis=1)
    cases_tried(INPUTS)
    assert int(rule.decide(wins).certified.sum()) > binom.ppf(1 - 1e-6, INPUTS, ALPHA)
