"""Certification methods: their settings, which counts an input still needs, and which certificates counts give.

Three methods share one interface. Fixed: every input gets n votes. Sequential: votes stop input by input, by a policy of
`vauban.stopping`. Exact: every view votes. The same object serves a live call, a run that is resumed, and verification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vauban.bounds.simultaneous import ALPHA_SPLIT, default_bounds
from vauban.certificates import Certificates, derive, derive_exact, derive_sequential
from vauban.counted_votes import CountedVotes
from vauban.errors import BadInput, Incomplete
from vauban.last_votes import LastVotes
from vauban.laws.exact import ExactLaw, as_kept
from vauban.laws.from_counts import refuse_too_few
from vauban.laws.law import AnyLaw, Law
from vauban.stopping.policies import Policy, Rule, looks_up_to, policy, refuse_other_claims, until_decided
from vauban.validation import check_alpha, check_k, check_n0, check_seconds, check_votes, refuse_sampled_settings
from vauban.votes import BallotVotes, CountRequest, CountRequests, KeptCounts, SampledVotes, VoteTable, counts_at

CERTIFY_VOTES, CHOOSING_VOTES = 100_000, 100
DEFAULT_ALPHA = 1e-3
LABELS = ("given", "votes")


@dataclass(frozen=True)
class CertifySettings:
    """Every setting a certificate depends on besides the law; the manifest stores them unchanged.

    `label`: "given" certifies the true label, "votes" the one that n0 uncounted votes choose (exact: the winner). `stop`: when
    an input has enough votes; n is the most it can get, None with "anytime". Exact methods have only k, label and `keep`.
    `keep`: "counts" keeps counts in place of ballots; "last", of a fixed n, the counts at n alone.
    """

    k: int = 1
    n: int | None = None
    alpha: float = 0.0
    bounds: str = "exact"
    stop: str | None = None
    label: str = "given"
    n0: int = 0
    keep: str | None = None

    @classmethod
    def of(
        cls,
        law: AnyLaw,
        num_classes: int,
        *,
        k: int = 1,
        n: int | None = None,
        alpha: float | None = None,
        bounds: str | None = None,
        stop: str | Policy = "fixed",
        label: str = "given",
        n0: int | None = None,
        seconds: float | None = None,
        seed: int | None = None,
        keep: str | None = None,
    ) -> CertifySettings:
        """Checked settings with defaults filled in; a setting that the law's method does not have is refused."""
        check_k(k, num_classes)
        if label not in LABELS:
            raise BadInput(f"label={label!r}: 'given' or 'votes' is needed")
        when = stop if isinstance(stop, Policy) else policy(stop)
        spec = str(when.spec)
        if law.exact:
            sequential = None if when.fixed else spec
            refuse_sampled_settings(
                str(law.spec), stop=sequential, seconds=seconds, n=n, alpha=alpha, bounds=bounds, n0=n0, seed=seed
            )
            return cls(k=int(k), label=label, keep=as_kept(keep, law))
        if keep != "last":
            as_kept(keep, law)
        elif not when.fixed:
            raise BadInput(f"keep=last with stop={spec}, which decides at every look: leave it out, or stop=fixed")
        if seconds is not None:
            check_seconds(seconds)
            if not when.endless:
                raise BadInput(f"seconds={seconds} with stop={spec}, which stops by itself: only anytime takes seconds")
        if label == "votes" and k != 1:
            raise BadInput(f"k={k} with labels chosen by votes: k=1 is needed, or certify given labels")
        if label == "given" and n0 is not None:
            raise BadInput(f"n0={n0} with given labels: n0 votes choose a label (label='votes'); leave n0 out")
        if not when.fixed and bounds not in (None, "binocp"):
            raise BadInput(
                f"bounds={bounds} with stop={spec}: sequential tests use only the label's count, which is binocp; "
                "leave bounds out, or stop=fixed"
            )
        votes = CERTIFY_VOTES if n is None and not when.endless else n
        return cls(
            k=int(k),
            n=None if votes is None else check_votes(votes),
            alpha=check_alpha(DEFAULT_ALPHA if alpha is None else alpha),
            bounds=bounds or (default_bounds(k) if when.fixed else "binocp"),
            stop=spec,
            label=label,
            n0=check_n0(CHOOSING_VOTES if n0 is None else n0) if label == "votes" else 0,
            keep=keep if keep == "last" else None,
        )

    def looks(self) -> list[int]:
        """Sample sizes at which a finished run of a fixed n keeps counts."""
        return [self.n or 0] if self.keep == "last" else looks_up_to(self.n or 0)

    def checked(self, law: AnyLaw, num_classes: int) -> CertifySettings:
        """The same settings, checked again; those of a manifest must come out unchanged."""
        given = {key: value for key, value in self.to_json().items() if key != "n0" or value}
        return CertifySettings.of(law, num_classes, **given)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an exact method has only k and label."""
        values = {key: value for key, value in asdict(self).items() if value is not None}
        kept = {} if self.keep is None else {"keep": self.keep}
        return values if self.stop is not None else {"k": self.k, "label": self.label, **kept}


@dataclass(frozen=True)
class Method(ABC):
    """`law`: fitted to inputs of this `shape`. `deviation`: total variation per view between sampled noise and law."""

    settings: CertifySettings
    law: AnyLaw
    num_classes: int
    shape: tuple[int, ...]
    deviation: float = 0.0

    name: ClassVar[str]
    shares_shapes: ClassVar[bool] = False  # whether inputs share a compute shape unless the user says otherwise

    @property
    def endless(self) -> bool:
        """Whether only time or an interruption ends the voting."""
        return False

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The manifest's fields of the method beyond its settings, as plain values; verify recomputes them."""

    @abstractmethod
    def empty_votes(self, index: Sequence[int], truth: Sequence[int] | None) -> VoteTable:
        """An empty vote table for inputs with these numbers and true labels."""

    @abstractmethod
    def pending(self, votes: Any) -> list[int]:
        """Positions of the inputs that still need votes."""

    def finished(self, votes: Any, sealed: bool = False) -> bool:
        """Whether every input has the votes its claim needs."""
        return not self.pending(votes)

    @abstractmethod
    def votes_left(self, votes: Any) -> int | None:
        """How many votes are still to be cast; None where that depends on their outcome."""

    @abstractmethod
    def certificates(self, votes: Any, n: int | None = None) -> Certificates:
        """Certificates for every input that has enough votes; `n` selects an earlier look (fixed method only)."""

    @abstractmethod
    def changed(self, law: AnyLaw, changes: dict[str, Any]) -> Method:
        """The method of another claim from the same votes (k, alpha, bounds, label, a law with another bound), or a refusal."""


def method_for(
    settings: CertifySettings, law: AnyLaw, num_classes: int, shape: Sequence[int], deviation: float = 0.0
) -> Method:
    """The method behind settings: exact where the law lists its views, else fixed or sequential."""
    fitted, sides = law.for_shape(shape), tuple(shape)
    if not isinstance(fitted, Law):
        return ExactMethod(settings, fitted, num_classes, sides)
    fixed = policy(settings.stop or "fixed").fixed
    return (FixedMethod if fixed else SequentialMethod)(settings, fitted, num_classes, sides, deviation)


@dataclass(frozen=True)
class SampledMethod(Method):
    """Base of the fixed and sequential methods: labels that uncounted votes choose, and counts at looks."""

    law: Law

    @abstractmethod
    def look_at(self, number: int) -> int | None:
        """The number of votes at look `number` (0, 1, …); None if there is no such look."""

    @abstractmethod
    def requests(self, label: int | None, kept: KeptCounts) -> CountRequests:
        """Requests for the counts that one input with this `label` still needs; None lets n0 uncounted votes choose it."""

    def empty_votes(self, index: Sequence[int], truth: Sequence[int] | None) -> SampledVotes:
        if self.settings.label == "given" and truth is None:
            raise BadInput("there are no labels to certify: give them, or let votes choose them (label='votes')")
        return SampledVotes(index, self.num_classes, self.look_at, truth, self.settings.n0)

    def pending(self, votes: SampledVotes) -> list[int]:
        needs = (next(self.requests(votes.label(p), votes.kept(p)), None) for p in range(len(votes.index)))
        return [position for position, need in enumerate(needs) if need is not None]


@dataclass(frozen=True)
class FixedMethod(SampledMethod):
    """Every input gets n votes; counts are kept at the looks up to n, and up to each of `extensions` to more votes."""

    extensions: tuple[int, ...] = ()
    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        s = self.settings
        refuse_too_few(s.n or 0, s.k, s.alpha, self.num_classes, s.bounds, self.law, self.deviation)

    @cached_property
    def looks(self) -> list[int]:
        """Sample sizes at which counts are taken."""
        looks = looks_up_to(self.settings.n or 0)
        for n in self.extensions:
            looks += [look for look in looks_up_to(n) if look > looks[-1]]
        return looks

    @property
    def kept_looks(self) -> list[int]:
        """Those of them at which a finished run keeps counts."""
        return [self.settings.n or 0, *self.extensions] if self.settings.keep == "last" else self.looks

    def empty_votes(self, index: Sequence[int], truth: Sequence[int] | None) -> SampledVotes:
        votes = super().empty_votes(index, truth)
        if self.settings.keep != "last":
            return votes
        return LastVotes(index, self.num_classes, self.looks, self.kept_looks, truth, self.settings.n0)

    def describe(self) -> dict[str, Any]:
        return {"looks": self.settings.looks(), "alpha_split": ALPHA_SPLIT[self.settings.bounds]}

    def look_at(self, number: int) -> int | None:
        return self.looks[number] if number < len(self.looks) else None

    def requests(self, label: int | None, kept: KeptCounts) -> CountRequests:
        if label is None:
            yield CountRequest("choose", self.settings.n0, most=self.settings.n0)
        before = kept.looks[-1] if kept.looks else None
        after = 0 if before is None else int(before.sum())
        yield from counts_at("count", [look for look in self.looks if look > after], after, before)

    def votes_left(self, votes: SampledVotes) -> int | None:
        uncounted = self.settings.n0 * sum(chosen is None for chosen in votes.chosen)
        return self.looks[-1] * len(votes.index) - votes.votes_cast + uncounted

    def certificates(self, votes: SampledVotes, n: int | None = None) -> Certificates:
        look = self.settings.n if n is None else n
        if look not in self.kept_looks:
            kept = ", ".join(map(str, self.kept_looks))
            raise BadInput(f"n={n} is not a look of this run; it kept counts at {kept}: give one of these as n")
        found = {p: counts for p, looks in enumerate(votes.looks) for counts in looks if int(counts.sum()) == look}
        where = list(found)
        if not where:
            raise Incomplete(f"no input has {look} votes yet: run the same certify command again to continue")
        certs = derive(
            np.stack(list(found.values())),
            votes.labels(where, given=self.settings.label == "given"),
            self.law,
            k=self.settings.k,
            alpha=self.settings.alpha,
            bounds=self.settings.bounds,
            deviation=self.deviation,
        )
        return certs.about(votes.index, votes.truth, where)

    def changed(self, law: AnyLaw, changes: dict[str, Any]) -> Method:
        s, k = self.settings, check_k(changes.get("k", self.settings.k), self.num_classes)
        bounds = changes.get("bounds") or (s.bounds if k == s.k else default_bounds(k))
        alpha = check_alpha(changes.get("alpha", s.alpha))
        assert isinstance(law, Law)
        label = changes.get("label", s.label)
        return replace(self, law=law, settings=replace(s, k=k, bounds=bounds, alpha=alpha, label=label))


@dataclass(frozen=True)
class SequentialMethod(SampledMethod):
    """Votes stop input by input, when the policy's rule has decided about its label."""

    name: ClassVar[str] = "sequential"
    shares_shapes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _ = self.rule

    @property
    def endless(self) -> bool:
        return self.rule.last_look is None

    @cached_property
    def rule(self) -> Rule:
        """The stopping rule of this law and these settings; a radius that it can never certify is refused."""
        s = self.settings
        return policy(s.stop or "").rule(self.law, n=s.n, alpha=s.alpha, k=s.k, deviation=self.deviation)

    def describe(self) -> dict[str, Any]:
        return {**self.rule.describe(), "alpha_split": ALPHA_SPLIT["binocp"]}

    def look_at(self, number: int) -> int | None:
        return self.rule.next_look(self.rule.votes_at(number))

    def requests(self, label: int | None, kept: KeptCounts) -> CountRequests:
        return until_decided(self.rule, label, self.settings.n0, kept)

    def finished(self, votes: SampledVotes, sealed: bool = False) -> bool:
        """An endless method finishes once every input has a first look. So does a `sealed` run: another version's rule may have
        given up an input one look earlier, which can only shrink its radius."""
        return all(votes.looks) if sealed or self.endless else not self.pending(votes)

    def votes_left(self, votes: SampledVotes) -> int | None:
        return None

    def certificates(self, votes: SampledVotes, n: int | None = None) -> Certificates:
        where = votes.begun
        if not where:
            raise Incomplete("no input has reached its first look yet: run the same certify command again to continue")
        certs = derive_sequential(
            [np.stack(votes.looks[p]) for p in where],
            votes.labels(where),
            self.law,
            self.rule,
            k=self.settings.k,
            alpha=self.settings.alpha,
        )
        return certs.about(votes.index, votes.truth, where)

    def changed(self, law: AnyLaw, changes: dict[str, Any]) -> Method:
        refuse_other_claims(asdict(self.settings) | {"smoothing": self.law.spec}, changes | {"smoothing": law.spec})
        return self


@dataclass(frozen=True)
class ExactMethod(Method):
    """Every view votes; certificates are exact."""

    name: ClassVar[str] = "exact"

    @property
    def listed(self) -> ExactLaw:
        """The exact law, which lists its views."""
        assert isinstance(self.law, ExactLaw)
        return self.law

    @property
    def threshold(self) -> float | None:
        """The probability from which a view votes for a class; None where it votes for its best class."""
        return getattr(self.law, "threshold", None)

    def describe(self) -> dict[str, Any]:
        views_hash = self.listed.views_hash(self.shape)
        return {
            "views": self.listed.views,
            "sha256": views_hash,
            "threshold": self.threshold,
            **self.listed.manifest_fields(),
        }

    def empty_votes(self, index: Sequence[int], truth: Sequence[int] | None) -> BallotVotes:
        if self.settings.label == "given" and truth is None:
            raise BadInput("there are no labels to certify: give them, or certify the votes' winner (label='votes')")
        kind = CountedVotes if self.settings.keep == "counts" else BallotVotes
        return kind(index, self.num_classes, self.listed.views, self.threshold is not None, truth)

    def pending(self, votes: BallotVotes) -> list[int]:
        return np.flatnonzero(~votes.cast.all(axis=1)).tolist()

    def votes_left(self, votes: BallotVotes) -> int | None:
        return votes.cast.size - votes.votes_cast

    def certificates(self, votes: BallotVotes, n: int | None = None) -> Certificates:
        where = votes.complete
        if not where:
            raise Incomplete("no input has all its votes yet: run the same certify command again to continue")
        counts = votes.counts(where)
        given = votes.truth if self.settings.label == "given" else None
        labels = counts.argmax(axis=1) if given is None else [given[p] for p in where]
        if isinstance(votes, CountedVotes):
            certs = derive(counts, labels, self.listed, k=self.settings.k)
        else:
            certs = derive_exact(votes.ballots(where), labels, self.listed, k=self.settings.k)
        return certs.about(votes.index, votes.truth, where)

    def changed(self, law: AnyLaw, changes: dict[str, Any]) -> Method:
        asked = {"k": self.settings.k, "label": self.settings.label} | changes
        k, label = check_k(asked.pop("k"), self.num_classes), str(asked.pop("label"))
        refuse_sampled_settings(str(law.spec), **asked)
        return replace(self, law=law, settings=replace(self.settings, k=k, label=label))
