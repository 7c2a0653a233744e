"""The claim of a run in words: what a radius guarantees, about which classifier, and what is presupposed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vauban.certificates import UNIT_RANGE
from vauban.files import canonical, sha256
from vauban.laws.conversions import in_unit_range
from vauban.report.numbers import confidence
from vauban.runs.sections import DIVIDED
from vauban.threats import L2_SCALED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vauban.certificates import Certificates, Claims
    from vauban.runs.manifest import Manifest
    from vauban.runs.sections import ComputeSection, DataSection, InputSection
    from vauban.threats import Threat


LABELS_FIXED = (
    "labels that were fixed before these votes were cast: a label read off the same votes is certified with no such "
    "probability"
)
"""What a claim from bare counts presupposes of its labels."""


def sentence(threat: Threat, radius: str, input_range: tuple[float, float] | None = UNIT_RANGE) -> str:
    """Which changes a radius covers, in words."""
    relation = "less than" if threat.ball == "open" else "at most"
    return f"every change whose {threat.metric} is {relation} {radius} ({unit_of(threat, input_range)})"


def unit_of(threat: Threat, input_range: tuple[float, float] | None) -> str:
    """The unit of a radius, in words for inputs of this range (None: any)."""
    if input_range == UNIT_RANGE:
        return threat.unit
    of = "inputs of any size" if input_range is None else f"inputs in [{input_range[0]:g},{input_range[1]:g}]"
    return threat.unit.replace("pictures in [0,1]", of)


def spoken(threat: Threat, inputs: InputSection, data: DataSection) -> Threat:
    """The threat in words for these inputs: of a table, and of standardised inputs, it speaks of features and of their units."""
    if data.features is None and inputs.standardised is None:
        return threat
    of, as_given = f"the {data.shape[0]} features", False
    if inputs.standardised is not None:
        of += ", each minus its mean and divided by its scale, which the manifest lists"
    elif inputs.levels is not None or inputs.preprocessing == DIVIDED:
        of += ", whole numbers from 0 to 255 divided by 255"
    else:
        as_given = True
        of += "" if inputs.range is None else f" in [{inputs.range[0]:g},{inputs.range[1]:g}]"
    pictures = "units of the input, pictures in [0,1]"
    metric = threat.metric.replace("changed pixels", "changed features")
    unit = threat.unit.replace(pictures, f"units of {of}")
    if threat.name == L2_SCALED.name and not as_given:
        unit += f", of {of}"
    return replace(threat, metric=metric, unit=f"{of} count once each" if "a pixel" in unit else unit)


def threat_of(claims: Claims) -> Threat:
    """The threat that the radii of these claims measure, in words for the inputs of their run."""
    manifest = getattr(getattr(claims, "record", None), "manifest", None)
    inputs = getattr(manifest, "inputs", None)
    if inputs is None:
        return claims.threat
    assert manifest is not None
    threat = spoken(claims.threat, inputs, manifest.data)
    return replace(threat, unit=of_inputs(threat.unit, manifest.data.shape))


def of_inputs(text: str, shape: Sequence[int]) -> str:
    """Words about a threat for printing: inputs of one axis are no pictures. What a manifest says of them stays as it is."""
    return text.replace("pictures in [0,1]", "inputs in [0,1]") if len(shape) == 1 else text


def scale_of(claims: Claims) -> str:
    """A hash of what numbers are divided by before a radius measures them: a standardisation, and sigmas of their own. Empty
    where they are not; radii of claims with other hashes are in other units."""
    inputs = getattr(getattr(getattr(claims, "record", None), "manifest", None), "inputs", None)
    stats = getattr(inputs, "standardised", None)
    by = [] if stats is None else [stats["mean"], stats["scale"]]
    by += [str(claims.law.spec)] if claims.threat.name == L2_SCALED.name else []  # type: ignore[attr-defined]
    return sha256(canonical(by).encode())[:16] if by else ""


def covered(threat: Threat, radius: str, inputs: InputSection, data: DataSection) -> str:
    """Which changes of these inputs a radius covers, in words."""
    if data.features is None and inputs.standardised is None:
        return sentence(threat, radius, inputs.range)
    return sentence(spoken(threat, inputs, data), radius)


def _grid(manifest: Manifest) -> str:
    """Which attacks a claim in whole numbers covers."""
    if manifest.data.features is None:
        return "Inputs are 8-bit pictures; the claim covers attacks that are pictures on that grid."
    law = manifest.method.law
    most = getattr(law, "values", 256) - 1 if getattr(law, "codes", False) else 255
    return f"Features are whole numbers from 0 to {most}; the claim covers attacks in which all of them still are."


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
        _grid(manifest)
        if inputs.arithmetic == "grid"
        else "Views are made in floating point, and its rounding is not accounted for."
    )
    stopped = "" if exact or settings.stop == "fixed" else f" Votes stopped by {settings.stop}."
    return (
        f"For each input that is not abstained, {sure}{label} is among the top {settings.k} of the smoothed classifier "
        f"({manifest.smoothing}{views}, over the base classifier {manifest.model.sha256[:12]} in the arithmetic recorded "
        f"here) for {covered(manifest.method.law.threat, 'its radius', inputs, manifest.data)}. "
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
    manifest = None if certs.record is None else certs.record.manifest
    if manifest is None or (manifest.data.features is None and manifest.inputs.standardised is None):
        shape = () if manifest is None else manifest.data.shape
        grid = "row of whole numbers from 0 to 255, divided by 255," if len(shape) == 1 else "8-bit picture"
        changes = of_inputs(sentence(certs.threat, "the radius", certs.input_range), shape)
    else:
        grid, changes = "row of such whole numbers", covered(certs.threat, "the radius", manifest.inputs, manifest.data)
    if certs.arithmetic == "grid":
        changes = changes.replace("every change", f"every change to another {grid}", 1)
    elif certs.converted is not None and in_unit_range(certs.law.threat, certs.converted.name):
        changes += " and after which all numbers are in [0, 1]"
    stays = f"the label is among the top {certs.k} under {changes}"
    claimed = f"{stays}; this is exact, no probability is left"
    if not certs.exact:
        claimed = f"with probability at least {confidence(certs.alpha)}, {stays}"
    rounding = (
        "; views are made in floating point, whose rounding is not accounted for" if certs.arithmetic == "float" else ""
    )
    compute = None if manifest is None else manifest.compute
    if compute is not None and compute.stochastic is not None:
        model = "a base classifier that is random by design, with independent votes"
    else:
        rows = ", on average over the rows of a batch" if compute is not None and compute.rows_differ else ""
        model = f"a base classifier that judges each view by itself and always alike{rows}"
    labels = "" if certs.exact or certs.record is not None else f"; {LABELS_FIXED}"
    return f"{claimed}{rounding}; presupposed: {model}{labels}"
