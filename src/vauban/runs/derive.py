"""Claims of a run, derived from its manifest and tallies alone; no torch, no model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.claims import Certificates, derive, derive_stopped, refuse_sampled_settings
from vauban.errors import BadInput, Incomplete, Lie
from vauban.laws.law import Law
from vauban.runs import manifest as manifests
from vauban.runs import tallies as tally_files
from vauban.runs.ballots import KeptBallots, ballot_certificates, read_ballots
from vauban.runs.counts import claims_csv
from vauban.runs.manifest import Manifest
from vauban.runs.stopped import is_endless, is_fixed, rule_of
from vauban.runs.tallies import Tally
from vauban.stopping import Rule

CLAIMS = "claims.csv"
SEAL = "seal.json"


@dataclass(frozen=True)
class Votes:
    """What a run's tallies hold, input by input, in the order of the manifest.

    `at[look][position]` is the tally of an input at a look, `chosen[position]` the one that chose its label. `rule`: what
    says when an input has enough votes, None where all get the same number.
    """

    manifest: Manifest
    tallies: list[Tally]
    at: dict[int, dict[int, Tally]]
    chosen: dict[int, Tally]
    sound_length: int
    rule: Rule | None = None

    @cached_property
    def complete(self) -> list[int]:
        """Positions of the inputs whose last look is in: of which the rule wants no more, where there is one."""
        if self.rule is None:
            return sorted(self.at.get(self.manifest["statistics"]["n"], {}))
        if is_endless(self.manifest) or not self.begun:
            return self.begun
        wins = np.full((len(self.begun), len(self.at)), -1, dtype=np.int64)
        for row, position, label in zip(wins, self.begun, self.labels(self.begun), strict=True):
            counts = self.looks(position)
            row[: len(counts)] = [some[label] for some in counts]
        return [self.begun[i] for i in np.flatnonzero(~self.rule.decide(wins).going)]

    @cached_property
    def begun(self) -> list[int]:
        """Positions of the inputs with a first look: what they have earned by then stands, whether or not more votes come."""
        return sorted(self.at[min(self.at)]) if self.at else []

    def finished(self, sealed: bool) -> bool:
        """Whether every input has what it needs. In a sealed run one may have been given up a look sooner than by the rule of
        this version: that takes from its claim and adds nothing."""
        there = self.begun if sealed and self.rule is not None else self.complete
        return len(there) == len(self.manifest["data"]["index"])

    @property
    def votes_cast(self) -> int:
        """How many votes the claims rest on."""
        return sum(int(counts.votes) for counts in map(self.last, range(len(self.manifest["data"]["index"]))) if counts)

    def looks(self, position: int) -> list[NDArray[np.int64]]:
        """Counts of an input at its looks, in order."""
        return [there[position].counts for _, there in sorted(self.at.items()) if position in there]

    def labels(self, positions: list[int]) -> NDArray[np.int64]:
        """The labels that are certified: given, or chosen by votes that do not count."""
        data = self.manifest["data"]
        if self.manifest["statistics"]["label"] == "given":
            if data["label"] is None:
                raise Lie("the manifest certifies given labels and has none")
            return np.array([data["label"][p] for p in positions], dtype=np.int64)
        missing = [p for p in positions if p not in self.chosen]
        if missing:
            raise Lie(f"input {data['index'][missing[0]]} has no votes that chose its label")
        return np.array([int(self.chosen[p].counts.argmax()) for p in positions], dtype=np.int64)

    def digests(self, run: str) -> dict[str, str]:
        """What a seal says of the votes."""
        return {"tallies": tally_files.digest(self.tallies, run)}

    def last(self, position: int) -> Tally | None:
        """The furthest tally of an input."""
        looks = [look for look, there in self.at.items() if position in there]
        return self.at[max(looks)][position] if looks else None


def read_votes(folder: Path) -> Votes | KeptBallots:
    """Read the votes of a run: tallies where they were sampled, ballots where every view voted."""
    return read_ballots(folder) if manifests.exact(manifests.read(folder)) else read_tallies(folder)


def read_tallies(folder: Path) -> Votes:
    """Read a run and check that its tallies are ones this manifest could have: known inputs, looks in order, once each."""
    manifest = manifests.read(folder)
    try:
        return _sorted_votes(folder, manifest)
    except (KeyError, TypeError) as problem:
        raise Lie(f"{folder / manifests.FILE} lacks or garbles {problem}") from None


def _sorted_votes(folder: Path, manifest: Manifest) -> Votes:
    data, statistics = manifest["data"], manifest["statistics"]
    tallies, length = tally_files.read(folder, manifests.identity(manifest), data["num_classes"])
    positions = {index: position for position, index in enumerate(data["index"])}
    rule = None if is_fixed(manifest) else rule_of(manifest)
    most = max((tally.votes for tally in tallies if tally.stage == "count"), default=0)
    looks = statistics["looks"] if rule is None else rule.looks_until(rule.last_look or most)
    at: dict[int, dict[int, Tally]] = {look: {} for look in looks}
    chosen: dict[int, Tally] = {}
    for number, tally in enumerate(tallies, start=1):
        where = f"{folder / tally_files.FILE} line {number}"
        if tally.input not in positions:
            raise Lie(f"{where}: input {tally.input} is not in the manifest")
        home = chosen if tally.stage == "choose" else at.get(tally.votes) if tally.stage == "count" else None
        if home is None or (home is chosen and tally.votes != statistics["n0"]):
            raise Lie(f"{where}: {tally.votes} votes in stage {tally.stage!r} are not a look of this run")
        position = positions[tally.input]
        if position in home:
            raise Lie(f"{where}: input {tally.input} is counted twice at {tally.votes} votes")
        home[position] = tally
    for position, index in enumerate(data["index"]):
        there = [at[look][position].counts if position in at[look] else None for look in looks]
        for look, earlier, later in zip(looks, there, there[1:], strict=False):
            if later is not None and (earlier is None or (earlier > later).any()):
                raise Lie(f"{folder}: input {index} loses votes after its look at {look}, or has no such look")
    return Votes(manifest, tallies, at, chosen, length, rule)


def certificates(
    votes: Votes | KeptBallots,
    *,
    k: int | None = None,
    alpha: float | None = None,
    bounds: str | None = None,
    n: int | None = None,
    smoothing: str | None = None,
) -> tuple[Certificates, NDArray[np.int64]]:
    """Claims for every complete input, and their indices; other k, alpha, bounds or a smaller look n cost no votes.

    `smoothing` may ask for another proof about the same views, such as laplace:sigma=0.5,bound=lecuyer. Exact runs have
    neither alpha nor bounds nor looks.
    """
    manifest = votes.manifest
    statistics, data = manifest["statistics"], manifest["data"]
    claimed = manifests.claimed_law(manifest, smoothing)
    if isinstance(votes, KeptBallots):
        refuse_sampled_settings(str(claimed.spec), n=n, alpha=alpha, bounds=bounds)
        return ballot_certificates(votes, claimed, statistics["k"] if k is None else k)
    assert isinstance(claimed, Law)
    if votes.rule is not None:
        return _stopped(votes, claimed, {"k": k, "alpha": alpha, "bounds": bounds, "n": n})
    n = statistics["n"] if n is None else n
    if n not in votes.at:
        raise BadInput(f"n={n} is no look of this run; it kept counts at {', '.join(map(str, statistics['looks']))}")
    positions = sorted(votes.at[n])
    if not positions:
        raise Incomplete(f"no input has {n} votes yet: run the same certify command again to go on")
    k = statistics["k"] if k is None else k
    if bounds is None and k == statistics["k"]:
        bounds = statistics["bounds"]
    certs = derive(
        np.stack([votes.at[n][p].counts for p in positions]),
        votes.labels(positions),
        claimed.for_shape(data["shape"]),
        k=k,
        alpha=statistics["alpha"] if alpha is None else alpha,
        bounds=bounds,
        deviation=manifest["arithmetic"]["deviation_per_view"],
    )
    return _judged(certs, data, positions)


def _stopped(votes: Votes, law: Law, asked: dict[str, Any]) -> tuple[Certificates, NDArray[np.int64]]:
    """Claims of a run that stopped input by input, for what it was asked and nothing else."""
    statistics, data = votes.manifest["statistics"], votes.manifest["data"]
    assert votes.rule is not None
    others = [f"{key}={value}" for key, value in asked.items() if value not in (None, statistics[key])]
    if law.spec != manifests.claimed_law(votes.manifest).spec:
        others.append(f"smoothing={law.spec}")
    if others:
        raise BadInput(
            f"{', '.join(others)}: this run stopped each input by {statistics['stop']} at k={statistics['k']}, "
            f"alpha={statistics['alpha']:g}, and votes that stopped for one claim prove no other; certify again with these "
            "settings, or cast a fixed number of votes (--stop fixed), from which any claim can be derived"
        )
    positions = votes.begun
    if not positions:
        raise Incomplete("no input has come to its first look yet: run the same certify command again to go on")
    certs = derive_stopped(
        [np.stack(votes.looks(p)) for p in positions],
        votes.labels(positions),
        law.for_shape(data["shape"]),
        votes.rule,
        k=statistics["k"],
        alpha=statistics["alpha"],
    )
    return _judged(certs, data, positions)


def _judged(certs: Certificates, data: dict[str, Any], positions: list[int]) -> tuple[Certificates, NDArray[np.int64]]:
    """The claims with the true labels, if there are any, and the indices of their inputs."""
    truth = None if data["label"] is None else np.array([data["label"][p] for p in positions], dtype=np.int64)
    return replace(certs, truth=truth), np.array([data["index"][p] for p in positions], dtype=np.int64)


def seal(votes: Votes | KeptBallots) -> tuple[str, dict[str, str]]:
    """The claims file of a complete run, and the hashes that close it."""
    certs, index = certificates(votes)
    run = manifests.identity(votes.manifest)
    claims = claims_csv(certs, index)
    hashes = {
        "manifest": run,
        **votes.digests(run),
        "claims": hashlib.sha256(claims.encode()).hexdigest(),
    }
    return claims, hashes
