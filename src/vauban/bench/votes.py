"""Benchmark of stopping policies: votes per input of sequential tests and of the fixed one, on probabilities of real inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws import law as law_of
from vauban.laws.law import Law
from vauban.stopping import Fixed, Grid, Policy, Rule, Target

_CHUNK = 1 << 17  # rows simulated at once
_ENOUGH = 1 << 20  # simulated inputs: about a thousand of them are close to any boundary


def read_probabilities(path: str | Path) -> Floats:
    """The label's probability for each input [m]: a number from 0 to 1 per line, # begins a comment."""
    try:
        p = np.loadtxt(path, ndmin=1, dtype=float)
    except (OSError, UnicodeDecodeError, ValueError) as problem:
        raise BadInput(f"{path} cannot be read as one probability per line: {problem}") from None
    return _checked(p, str(path))


def measure(
    probabilities: ArrayLike,
    smoothing: str = "gaussian:sigma=0.25",
    *,
    n: int = 100_000,
    alpha: float = 1e-3,
    k: int = 1,
    radii: Sequence[float] | None = None,
    step: float | None = None,
    trials: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[dict[str, Any]]:
    """Mean votes per input of each stopping policy and the fraction it certifies, by simulation with its own rule.

    `probabilities` [m]; `radii`: by default one, two and three times the law's scale; `step`: by default the scale. Each row of
    the result: "stop", "radius" (a grid has a row for each of its radii), "votes" (mean per input), "votes_error" (its standard
    error over `trials` polls of all inputs), "fewer" (n divided by "votes"), "certified" and "fixed" (the fraction of inputs that
    this policy and the fixed test certify at that radius, on the same votes). `on_progress` is called with every poll.
    """
    p = _checked(np.asarray(probabilities, dtype=float), "the list")
    noise = law_of(smoothing)
    if not isinstance(noise, Law):
        raise BadInput(f"{smoothing} is exact, so every view votes and no votes can be saved; give a sampled smoothing")
    targets = list(radii) if radii is not None else [noise.scale, 2 * noise.scale, 3 * noise.scale]
    stops: list[Policy] = [Target(r, test) for r in targets for test in ("group", "eprocess")]
    stops += [Grid(step or noise.scale, test) for test in ("group", "eprocess")]
    simulated = [_Simulated(stop, stop.rule(noise, n=n, alpha=alpha, k=k)) for stop in stops]
    fixed = Fixed().rule(noise, n=n, alpha=alpha, k=k)
    polls = trials or polls_for(len(p))
    at_once = max(1, min(polls, _CHUNK // len(p)))
    rng = np.random.default_rng(seed)
    looks = simulated[0].rule.looks_until(n)
    for begun in range(0, polls, at_once):
        size = min(at_once, polls - begun)
        wins = _simulate(rng, np.tile(p, size), looks)
        whole = np.nan_to_num(fixed.decide(wins[:, -1:]).radius, nan=-1.0)
        for one in simulated:
            one.count(wins, whole, looks, size)
        on_progress(size)
    return [row for one in simulated for row in one.rows(n)]


def polls_for(inputs: int) -> int:
    """The default number of simulated polls for this many inputs."""
    return max(20, _ENOUGH // inputs)


@dataclass
class _Simulated:
    """One stopping policy and its results so far."""

    stop: Policy
    rule: Rule

    def __post_init__(self) -> None:
        self.radii: tuple[float, ...] = getattr(self.rule, "radii")  # noqa: B009
        self.votes: list[float] = []
        self.certified = np.zeros(len(self.radii), dtype=np.int64)
        self.fixed = np.zeros(len(self.radii), dtype=np.int64)
        self.simulated = 0

    def count(self, wins: NDArray[np.int64], whole: Floats, looks: Sequence[int], polls: int) -> None:
        """Add `polls` polls of all inputs, one after the other in `wins` [polls * m, J]; `whole`: the fixed test's radii."""
        decision = self.rule.decide(wins)
        votes = np.asarray(looks)[decision.looks - 1].reshape(polls, -1)
        mine = np.nan_to_num(decision.radius, nan=-1.0)
        self.votes += votes.mean(axis=1).tolist()
        self.certified += (mine[:, None] >= np.array(self.radii)).sum(axis=0)
        self.fixed += (whole[:, None] >= np.array(self.radii)).sum(axis=0)
        self.simulated += len(mine)

    def rows(self, n: int) -> list[dict[str, Any]]:
        """The table's rows, one per radius."""
        votes = float(np.mean(self.votes))
        error = float(np.std(self.votes, ddof=1) / np.sqrt(len(self.votes))) if len(self.votes) > 1 else float("nan")
        mine, whole = self.certified / self.simulated, self.fixed / self.simulated
        shared = {"stop": str(self.stop.spec), "votes": votes, "votes_error": error, "fewer": n / votes}
        return [
            {**shared, "radius": r, "certified": float(a), "fixed": float(b)}
            for r, a, b in zip(self.radii, mine, whole, strict=True)
        ]


def _simulate(rng: np.random.Generator, p: Floats, looks: Sequence[int]) -> NDArray[np.int64]:
    """Cumulative wins [len(p), J] at each look."""
    new = np.diff(np.array([0, *looks]))
    return np.cumsum(np.stack([rng.binomial(m, p) for m in new], axis=1), axis=1)


def _checked(p: Floats, source: str) -> Floats:
    if p.ndim != 1 or not len(p) or not ((p >= 0) & (p <= 1)).all():
        raise BadInput(f"{source} must hold one probability per input, each between 0 and 1")
    return p
