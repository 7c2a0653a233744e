"""What `attack` is asked to attack: a run or its certificates, a smoothed classifier, or a base classifier alone."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.attacks.concave.elementwise import concave_threat
from vauban.attacks.targets import BaseTarget, SmoothedTarget, Target
from vauban.certificates import UNIT_RANGE, Certificates
from vauban.engine.backends.onnx_network import OnnxNetwork
from vauban.engine.fingerprint import model_fingerprint, model_name
from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput, Lie
from vauban.files import arrays_sha256
from vauban.inputs import Batch, collect, prepare
from vauban.laws.concave import CONCAVE, ConcaveLaw
from vauban.replay import refuse_other_model, run_classifier, run_inputs
from vauban.runs.manifest import Manifest
from vauban.runs.opened import OpenedRun
from vauban.runs.run import Run
from vauban.smoothed import SmoothedClassifier
from vauban.standardise import METADATA, Standardisation
from vauban.threats import Threat, named

NONE = "none"
"""The smoothing of an undefended classifier, as text."""


@dataclass(frozen=True)
class Subject:
    """A target, m inputs `x` [m, ...] with the labels [m] that an attack must remove from the top k, and their certificates.

    `truth` [m]: true labels, or None. `radius` [m]: certified radii in `threat`, NaN where nothing is certified, and `certs`
    their source; None without certificates. `about`: what identifies all this, as JSON. `command`: options of `vauban predict`
    that ask the same classifier.
    """

    target: Target
    x: torch.Tensor
    index: NDArray[np.int64]
    labels: NDArray[np.int64]
    truth: NDArray[np.int64] | None
    threat: Threat
    certs: Certificates | None
    radius: NDArray[np.float64]
    about: dict[str, Any]
    command: str

    def __len__(self) -> int:
        return len(self.x)

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which inputs [m] have a certificate."""
        return ~np.isnan(self.radius)


@dataclass(frozen=True)
class SearchNoise:
    """How a smoothed classifier is searched: views of a gradient, votes of a hard label, fresh votes, the noise's seed, and the
    alpha of a classifier whose abstentions count, if they do."""

    views: int
    votes: int
    confirm_votes: int
    seed: int
    abstain: float | None = None


def subject_of(
    given: Any,
    data: Any = None,
    y: Any = None,
    *,
    model: Any = None,
    certificates: Certificates | None = None,
    threat: str | None = None,
    k: int | None = None,
    every: int = 1,
    limit: int | None = None,
    num_classes: int | None = None,
    input_range: tuple[float, float] | None = UNIT_RANGE,
    standardise: Standardisation | None = None,
    device: torch.device | str | None = None,
    search: SearchNoise,
    called: str = "",
) -> Subject:
    """Resolve the arguments of `attack`; see there."""
    classifier, certificates, manifest = _classifier(given, data, model, certificates, device)
    smoothed = isinstance(classifier, SmoothedClassifier)
    if data is None:
        raise BadInput("there is nothing to attack: give inputs, or a data set (--data)")
    if not smoothed:
        batch = collect(data, y, None, partial(prepare, input_range=input_range, by=standardise), num_classes)
    else:
        batch = classifier.collect(data, y) if manifest is None else run_inputs(manifest, classifier, data, y)
    if k is not None and certificates is not None and k != certificates.k:
        raise BadInput(f"k={k}, and the certificates are for k={certificates.k}: leave k out")
    levels, top = batch.inputs.levels, certificates.k if certificates is not None else k or 1
    target: Target
    if smoothed:
        target = SmoothedTarget(classifier, batch.shape, levels=levels, k=top, **vars(search))
    else:
        read: dict[str, Any] = {"levels": levels, "input_range": input_range, "standardise": standardise}
        target = BaseTarget(classifier, num_classes, device=device, k=top, **read)
    aim, certs = _aim(classifier, certificates, threat, batch)
    x = batch.inputs.values.float() / levels if levels else batch.inputs.values.float()
    chosen, radius, labels, truth = _matched(batch, certs, target, x)
    if smoothed and manifest is None and certificates is not None:
        _refuse_other_subject(classifier, certificates, tuple(batch.shape), data, y)
    chosen = chosen[::every][:limit]
    return Subject(
        target,
        x[chosen].to(target.device),
        batch.index[chosen],
        labels[chosen],
        None if truth is None else truth[chosen],
        aim,
        certs,
        radius[chosen],
        _about(classifier, batch, manifest, target, aim, labels[chosen], radius[chosen], certs),
        _command(classifier, called or "--model MODEL"),
    )


def _classifier(
    given: Any, data: Any, model: Any, certificates: Certificates | None, device: torch.device | str | None
) -> tuple[Any, Certificates | None, Manifest | None]:
    """The classifier, its certificates if there are any, and the manifest of its run."""
    opened = Run.open(given) if isinstance(given, str | Path) else given
    if isinstance(opened, OpenedRun) and not isinstance(opened, Run):
        raise BadInput(
            f"{given} is a poisoning run, whose training data is attacked, not its inputs: see docs/attacks.md"
        )
    if isinstance(opened, Run):
        opened = opened.certificates() if certificates is None else certificates
    if not isinstance(opened, Certificates):
        return opened, certificates, None
    if opened.record is None:
        raise BadInput(
            "these certificates were derived from bare counts, and nothing says of which classifier: attack the smoothed "
            "classifier, and give them as certificates="
        )
    if model is None or data is None:
        raise BadInput("a run keeps neither model nor inputs: give model= and data= (--model and --data)")
    manifest = opened.record.manifest
    classifier = run_classifier(manifest, model, device)
    if isinstance(classifier.network.source, OnnxNetwork):
        classifier.rows = manifest.compute.rows  # the file may take no other number of views
    return classifier, opened, manifest


def _refuse_other_subject(
    classifier: SmoothedClassifier, certs: Certificates, shape: tuple[int, ...], data: Any, y: Any
) -> None:
    """Refuse certificates of another classifier or other inputs, as far as they say: an alarm about them would be false."""
    if not certs.law.for_shape(shape).same_views(classifier.smoothing.law.for_shape(shape)):
        raise BadInput(
            f"the certificates were not made with {classifier.smoothing.spec}: give the smoothed classifier that was certified"
        )
    if certs.record is None:  # of bare counts
        return
    try:
        refuse_other_model(classifier, certs.record.manifest)
        run_inputs(certs.record.manifest, classifier, data, y)
    except Lie as problem:
        raise BadInput(
            f"the certificates were not made for this classifier and these inputs ({problem}): give what was certified, in its "
            "order and type of number"
        ) from None


def _aim(
    classifier: Any, certs: Certificates | None, threat: str | None, batch: Batch
) -> tuple[Threat, Certificates | None]:
    """The threat, and the certificates in it."""
    law = classifier.smoothing.law if isinstance(classifier, SmoothedClassifier) else None
    if isinstance(law, ConcaveLaw) and threat in (None, CONCAVE.name):
        return concave_threat(law), certs
    if certs is not None:
        own: Threat | None = certs.threat
    else:
        own = None if law is None else classifier.smoothing.threat
    if threat is None:
        if own is None:
            raise BadInput(
                "a classifier without smoothing has no threat of its own: give threat= (--threat l2, l1, linf, l0, …)"
            )
        return own, certs
    if own is not None and threat == own.name:
        return own, certs
    aim = named(threat)
    return (aim, None) if certs is None else ((other := certs.in_threat(threat, tuple(batch.shape))).threat, other)


def _matched(
    batch: Batch, certs: Certificates | None, target: Target, x: torch.Tensor
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64] | None]:
    """Positions that are attacked, and for all inputs the radius, the label to remove and the true label.

    Without certificates the label is the true one, or the answer of the classifier where that is not known.
    """
    radius, everyone = np.full(len(batch), np.nan), np.arange(len(batch))
    if certs is None:
        answers = batch.labels
        if answers is None:
            answers = torch.cat([target.hard(part.to(target.device)) for part in x.split(32)]).argmax(1).cpu().numpy()
        return everyone, radius, answers, batch.labels
    where = {int(number): position for position, number in enumerate(batch.index)}
    missing = [int(number) for number in certs.index if int(number) not in where]
    if missing:
        raise BadInput(
            f"the certificates speak of input {missing[0]}, which {batch.spec} does not have: give their inputs"
        )
    chosen = np.array([where[int(number)] for number in certs.index], dtype=np.int64)
    labels, truth = np.zeros(len(batch), dtype=np.int64), certs.truth if certs.truth is not None else None
    labels[chosen] = certs.label
    radius[chosen] = np.where(certs.abstained, np.nan, certs.radius)
    known = batch.labels
    if truth is not None and known is not None and not np.array_equal(known[chosen], truth):
        first = int(certs.index[np.flatnonzero(known[chosen] != truth)[0]])
        raise BadInput(
            f"input {first} has another true label here than in the certificates: give the inputs that were certified, in "
            "their order"
        )
    if truth is not None:
        known = np.zeros(len(batch), dtype=np.int64)
        known[chosen] = truth
    return chosen, radius, labels, known


def _about(
    opened: Any,
    batch: Batch,
    manifest: Any,
    target: Target,
    threat: Threat,
    labels: NDArray[np.int64],
    radius: NDArray[np.float64],
    certs: Certificates | None,
) -> dict[str, Any]:
    """What identifies an attack besides its own settings."""
    if isinstance(opened, SmoothedClassifier):
        smoothing, (spec, fingerprint) = str(opened.smoothing.spec), opened.identity()
    else:
        base = opened if isinstance(opened, BaseClassifier) else BaseClassifier(opened)
        smoothing, spec = NONE, base.spec or model_name(base.module)
        fingerprint = base.current_fingerprint() or model_fingerprint(base.module, spec)
    by = target.units.by
    return ({} if by is None else {"standardised": arrays_sha256(np.array([by.mean, by.scale]))}) | {
        "run": None if manifest is None else manifest.identity,
        "model": {"spec": spec, "sha256": fingerprint},
        "data": {"spec": batch.spec, "sha256": batch.sha256},
        "smoothing": smoothing,
        "threat": threat.name,
        "k": target.k,
        "alpha": None if certs is None or certs.exact else certs.alpha,
        "claims": arrays_sha256(labels, radius),
    }


def _command(opened: Any, called: str) -> str:
    """Options of `vauban predict` that ask the same classifier."""
    if not isinstance(opened, SmoothedClassifier):
        return ""
    words = f"--smoothing {opened.smoothing.spec} {called} --precision {opened.network.precision}"
    words += "" if opened.rows is None else f" --rows {opened.rows}"
    if opened.network.backend is not None:
        words += f" --backend {opened.network.backend}"
    if opened.input_range != UNIT_RANGE:
        words += " --input-range " + (
            "none" if opened.input_range is None else "{:.17g},{:.17g}".format(*opened.input_range)
        )
    words += _standardised(opened)
    if opened.compile:
        words += " --tune" if opened.compile == "tuned" else " --compile"
    return words if opened.network.stochastic is None else f"{words} --stochastic {opened.network.stochastic}"


def _standardised(opened: SmoothedClassifier) -> str:
    """The option of `vauban predict` that standardises as this classifier does; none where the model file says it."""
    by, held = opened.standardise, getattr(opened.base, "metadata", {}).get(METADATA)
    if by is None:
        return "" if held is None else " --standardise none"
    if held is not None and Standardisation.from_json(held) == by:
        return ""
    return f" --standardise {'TRAINING_DATA' if by.source.isidentifier() else shlex.quote(by.source)}"
