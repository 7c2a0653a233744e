"""The claim of a run in words: what a radius guarantees, about which classifier, and what is presupposed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vauban.certificates import sentence
from vauban.report.numbers import confidence

if TYPE_CHECKING:
    from vauban.certificates import Certificates
    from vauban.runs.manifest import Manifest
    from vauban.runs.sections import ComputeSection


LABELS_FIXED = (
    "labels that were fixed before these votes were cast: a label read off the same votes is certified with no such "
    "probability"
)
"""What a claim from bare counts presupposes of its labels."""


def wording(manifest: Manifest) -> str:
    """The claim in words: what a radius in this run guarantees, and about which classifier."""
    settings, inputs = manifest.settings, manifest.inputs
    exact = manifest.method_name == "exact"
    if settings.label == "given":
        label = "the given label"
    else:
        label = "the label with the most votes" if exact else f"the label chosen by {settings.n0} uncounted votes"
    sure = "" if exact else f"with probability at least 1 - {settings.alpha!r} over the votes, "
    views = f": {manifest.described['views']} views, each with its vote" if exact else ""
    attacks = (
        "Inputs are 8-bit pictures; the claim covers attacks that are pictures on that grid."
        if inputs.arithmetic == "grid"
        else "Views are made in floating point, and its rounding is not accounted for."
    )
    stopped = "" if exact or settings.stop == "fixed" else f" Votes stopped by {settings.stop}."
    return (
        f"For each input that is not abstained, {sure}{label} is among the top {settings.k} of the smoothed classifier "
        f"({manifest.smoothing}{views}, over the base classifier {manifest.model.sha256[:12]} in the arithmetic recorded "
        f"here) for {sentence(manifest.method.law.threat, 'its radius', inputs.range)}. "
        f"{'This is exact: no probability is left. ' if exact else ''}{attacks}{stopped} {presupposed(manifest.compute)}"
    )


def presupposed(compute: ComputeSection) -> str:
    """What the claim presupposes of the base classifier, in words."""
    if compute.stochastic is not None:
        calls = (
            "called with one view at a time" if compute.stochastic == "views" else "whose rows are declared independent"
        )
        return f"The base classifier is random by design, {calls}: its votes are presupposed to be independent."
    differ = " Its scores depend on the row by rounding: the claim speaks of the average over rows."
    return (
        "The base classifier is presupposed to judge each view by itself and to give it always the same answer, which was "
        f"checked on a sample of views.{differ if compute.rows_differ else ''}"
    )


def certificates_claim(certs: Certificates) -> str:
    """What a radius of these certificates guarantees, and what is presupposed."""
    grid = " to another 8-bit picture" if certs.arithmetic == "grid" else ""
    changes = sentence(certs.threat, "the radius", certs.input_range).replace("every change", f"every change{grid}", 1)
    stays = f"the label is among the top {certs.k} under {changes}"
    claimed = f"{stays}; this is exact, no probability is left"
    if not certs.exact:
        claimed = f"with probability at least {confidence(certs.alpha)}, {stays}"
    rounding = (
        "; views are made in floating point, whose rounding is not accounted for" if certs.arithmetic == "float" else ""
    )
    compute = None if certs.record is None else certs.record.manifest.compute
    if compute is not None and compute.stochastic is not None:
        model = "a base classifier that is random by design, with independent votes"
    else:
        rows = ", on average over the rows of a batch" if compute is not None and compute.rows_differ else ""
        model = f"a base classifier that judges each view by itself and always alike{rows}"
    labels = "" if certs.exact or certs.record is not None else f"; {LABELS_FIXED}"
    return f"{claimed}{rounding}; presupposed: {model}{labels}"
