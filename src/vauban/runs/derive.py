"""Claims of a run, derived from its manifest and tallies alone; no torch, no model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vauban.certificates.law import Law
from vauban.claims import Certificates, derive, refuse_sampled_settings
from vauban.errors import BadInput, Incomplete, Lie
from vauban.runs import manifest as manifests
from vauban.runs import tallies as tally_files
from vauban.runs.ballots import KeptBallots, ballot_certificates, read_ballots
from vauban.runs.counts import claims_csv
from vauban.runs.manifest import Manifest
from vauban.runs.tallies import Tally

CLAIMS = "claims.csv"
SEAL = "seal.json"


@dataclass(frozen=True)
class Votes:
    """What a run's tallies hold, input by input, in the order of the manifest.

    `at[look][position]` is the tally of an input at a look, `chosen[position]` the one that chose its label.
    """

    manifest: Manifest
    tallies: list[Tally]
    at: dict[int, dict[int, Tally]]
    chosen: dict[int, Tally]
    sound_length: int

    @property
    def complete(self) -> list[int]:
        """Positions of the inputs whose last look is in."""
        n = self.manifest["statistics"]["n"]
        return sorted(self.at.get(n, {}))

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
    at: dict[int, dict[int, Tally]] = {look: {} for look in statistics["looks"]}
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
    looks = statistics["looks"]
    for position, index in enumerate(data["index"]):
        there = [at[look][position].counts if position in at[look] else None for look in looks]
        for look, earlier, later in zip(looks, there, there[1:], strict=False):
            if later is not None and (earlier is None or (earlier > later).any()):
                raise Lie(f"{folder}: input {index} loses votes after its look at {look}, or has no such look")
    return Votes(manifest, tallies, at, chosen, length)


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
    n = statistics["n"] if n is None else n
    if n not in votes.at:
        raise BadInput(f"n={n} is no look of this run; it kept counts at {', '.join(map(str, statistics['looks']))}")
    positions = sorted(votes.at[n])
    if not positions:
        raise Incomplete(f"no input has {n} votes yet: run the same certify command again to go on")
    k = statistics["k"] if k is None else k
    if bounds is None and k == statistics["k"]:
        bounds = statistics["bounds"]
    truth = np.array([data["label"][p] for p in positions], dtype=np.int64) if data["label"] is not None else None
    if statistics["label"] == "given":
        labels = truth
        if labels is None:
            raise Lie("the manifest certifies given labels and has none")
    else:
        missing = [p for p in positions if p not in votes.chosen]
        if missing:
            raise Lie(f"input {data['index'][missing[0]]} has no votes that chose its label")
        labels = np.array([int(votes.chosen[p].counts.argmax()) for p in positions], dtype=np.int64)
    certs = derive(
        np.stack([votes.at[n][p].counts for p in positions]),
        labels,
        claimed.for_shape(data["shape"]),
        k=k,
        alpha=statistics["alpha"] if alpha is None else alpha,
        bounds=bounds,
        deviation=manifest["arithmetic"]["deviation_per_view"],
    )
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
