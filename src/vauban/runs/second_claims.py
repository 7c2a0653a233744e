"""Further claims from the votes of a run: what they cost together with its own, and the claim at all its looks at once.

A run whose votes stopped early proves what they were stopped for and nothing else: `stopping.policies.refuse_other_claims`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vauban.certificates import Certificates
from vauban.errors import BadInput
from vauban.laws.from_counts import radii_of_looks
from vauban.laws.law import Law
from vauban.methods import LABELS, CertifySettings, FixedMethod
from vauban.runs.store import RunRecord, extensions_of
from vauban.votes import SampledVotes

CHOOSE_FIRST = (
    "choose n, k, alpha and bounds before you look: the best of several settings costs the sum of all their alphas"
)


def derived(record: RunRecord, changes: dict[str, Any], smoothing: str | None, all_looks: bool) -> Certificates:
    """The claims of a run for these changes of its settings, with notes on what they cost besides the run's own."""
    own = record.manifest.settings
    _refuse_other_labels(record, changes.get("label", own.label))
    if all_looks:
        certs, looks = _at_all_looks(record, changes, smoothing), own.looks()
    else:
        certs, looks = record.changed(dict(changes), smoothing), [changes.get("n", own.n or 0)]
    return with_notes(record, certs, looks)


def _refuse_other_labels(record: RunRecord, label: str) -> None:
    """Refuse labels that no vote chose before the votes were counted, or that were not given before."""
    own = record.manifest.settings
    if label not in LABELS:
        raise BadInput(f"label={label!r}: 'given' or 'votes' is needed")
    if label == own.label:
        return
    if label == "given" and record.manifest.data.label is None:
        raise BadInput("label=given: the inputs of this run have no true labels in its manifest; leave label out")
    if label == "votes" and own.stop is not None:
        raise BadInput(
            "label=votes: this run certifies given labels and cast no uncounted votes that choose others; leave label out, or "
            "certify again with label=votes"
        )


def with_notes(record: RunRecord, certs: Certificates, looks: list[int]) -> Certificates:
    """These claims at these looks, with notes on what they cost besides the run's own."""
    return replace(certs, notes=(*certs.notes, *_notes(record, certs, looks)))


def _at_all_looks(record: RunRecord, changes: dict[str, Any], smoothing: str | None) -> Certificates:
    """The claims that hold at all J looks of the manifest at once: alpha / J at each, and the largest radius of any look."""
    method, votes, own = record.method, record.votes, record.manifest.settings
    if not isinstance(method, FixedMethod) or not isinstance(votes, SampledVotes):
        why = "an exact run has no looks, every view votes"
        if own.stop is not None:
            why = f"a run stopped by {own.stop} has one claim, which holds whenever it stopped"
        raise BadInput(f"all looks at once: {why}; leave this out")
    if own.keep == "last":
        at = " and ".join(f"{look:,}" for look in method.kept_looks)
        raise BadInput(f"all looks at once: this run kept counts at {at} votes alone (keep=last); leave this out")
    if "n" in changes:
        raise BadInput(f"n={changes['n']} and all looks at once: leave one of them out")
    certs, looks = record.changed(dict(changes), smoothing), own.looks()
    assert isinstance(certs.law, Law)
    position = {number: p for p, number in enumerate(votes.index)}
    kept = [votes.looks[position[number]] for number in certs.index.tolist()]
    radii, best = radii_of_looks(
        [np.stack([counts[look] for counts in kept]) for look in range(len(looks))],
        certs.label,
        certs.law,
        k=certs.k,
        alpha=certs.alpha,
        bounds=certs.bounds,
        deviation=method.deviation,
    )
    lost = np.isnan(radii)
    return replace(certs, radius=radii, abstained=lost, look=np.where(lost, 0, np.array(looks)[best]))


def _notes(record: RunRecord, certs: Certificates, looks: list[int]) -> tuple[str, ...]:
    """What a reader must know of claims at these looks, besides the run's own: none if they are the run's own."""
    own = record.manifest.settings
    if own.stop != "fixed":
        return ()
    notes = []
    if len(looks) > 1:
        listed = ", ".join(f"{look:,}" for look in looks)
        notes.append(
            f"one claim at all {len(looks)} looks at once ({listed} votes): alpha / {len(looks)} at each, and for each input the "
            "largest radius of any"
        )
    labels = record.method.settings.label if certs.record is None else certs.record.method.settings.label
    said, asked = (own.k, own.alpha, own.bounds, own.label), (certs.k, certs.alpha, certs.bounds, labels)
    if looks == [own.n] and asked == said:
        return (*notes, *_extended(record))
    doublings = claimed_looks(record)
    if len(looks) == 1 and looks[0] in doublings and asked == said:
        return (*notes, _cost_of_extension(own, doublings, looks[0]))
    return (*notes, _cost(own, doublings, certs, looks, labels))


def _extended(record: RunRecord) -> tuple[str, ...]:
    """What the claim at the first n of an extended run leaves out: the claims at more votes, which certify then returned."""
    further = extensions_of(record.method)
    if not further:
        return ()
    listed = " and ".join(f"{n:,} (n={n}, claims-{n}.csv)" for n in further)
    return (
        f"this is the claim at the run's first {record.manifest.settings.n or 0:,} votes; it was extended to {listed}",
    )


def claimed_looks(record: RunRecord) -> list[int]:
    """The numbers of votes at which the run makes claims: n, and its doublings up to the last extension.

    A doubling that was passed over counts too: whether to stop there was decided after looking.
    """
    looks = [record.manifest.settings.n or 0]
    while looks[-1] < max(extensions_of(record.method), default=0):
        looks.append(2 * looks[-1])
    return looks


def _cost_of_extension(own: CertifySettings, doublings: list[int], look: int) -> str:
    """What the claim of an extension costs together with the run's other claims."""
    from vauban.report.numbers import total

    return (
        f"this is the run's claim at {look:,} votes, an extension: its claims {_at(doublings)} (top {own.k}, alpha {own.alpha} "
        f"each, {own.bounds}) together fail with probability at most {total(*[own.alpha] * len(doublings))}, the sum of their "
        f"alphas"
    )


def _cost(own: CertifySettings, doublings: list[int], certs: Certificates, looks: list[int], labels: str) -> str:
    """What a second claim, about these labels, costs together with the run's own, at n and at its doublings.

    Bounds of one kind for one label on the same votes hold for every k at once, and those at the smaller alpha hold wherever
    those at the larger do; so both claims fail no more often than the one at the larger alpha. Otherwise their alphas add up.
    """
    from vauban.report.numbers import total

    votes = f"{looks[-1]:,} votes" if len(looks) == 1 else "all looks"
    nested = len(looks) == 1 and looks[0] in doublings and (certs.bounds, labels) == (own.bounds, own.label)
    others = [own.alpha] * (len(doublings) - 1)
    cost = total(*others, max(own.alpha, certs.alpha)) if nested else total(*others, own.alpha, certs.alpha)
    why = ", the sum of their alphas"
    if nested:
        sum_of = f", the sum of the alphas at {len(doublings)} numbers of votes, here" if others else ","
        why = f"{sum_of} the larger alpha: the bounds of one are inside those of the other"
    each, together = (" each", "all of them") if others else ("", "the two")
    return (
        f"this is a second claim (top {certs.k} at {votes}, alpha {certs.alpha}, {certs.bounds}{_about(labels, own)}) besides "
        f"the run's own (top {own.k} {_at(doublings)}, alpha {own.alpha}{each}, {own.bounds}): {together} together fail with "
        f"probability at most {cost}{why}; {CHOOSE_FIRST}"
    )


def _about(labels: str, own: CertifySettings) -> str:
    """The labels of a claim, where they are others than the run's own."""
    return "" if labels == own.label else ", of the given labels"


def _at(doublings: list[int]) -> str:
    more = "" if len(doublings) == 1 else f" and at every doubling up to {doublings[-1]:,}"
    return f"at {doublings[0]:,} votes{more}"
