"""`attack`: runs attacks on every input of a run or a classifier, confirms what they find by fresh votes, and raises alarms."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vauban import __version__
from vauban.attacks.alarms import raise_alarms
from vauban.attacks.base import Attack, Found, build, fitting, no_gradients, unfit, without_gradients
from vauban.attacks.budgets import Budget, Meter
from vauban.attacks.concave.elementwise import exponent
from vauban.attacks.distances import distance
from vauban.attacks.folder import ADVERSARIAL, TABLE, AttackFolder, kept_seed, write_arrays, write_table
from vauban.attacks.lp.norms import NORMS
from vauban.attacks.results import Attacked, InputResult
from vauban.attacks.subjects import SearchNoise, Subject, subject_of
from vauban.attacks.targets import CONFIRM_ALPHA, CONFIRM_VOTES, VIEWS, VOTES
from vauban.certificates import UNIT_RANGE, Certificates
from vauban.errors import BadInput
from vauban.files import check_folder, locked
from vauban.report.numbers import floor_text
from vauban.report.progress import bar
from vauban.standardise import Standardisation
from vauban.threats import Threat
from vauban.validation import check_alpha, check_at_least_one, check_seed, path_of

DEFAULTS = {
    "l2": ("minimal", "pgd"),
    "l1": ("minimal", "pgd"),
    "linf": ("minimal", "pgd"),
    "l0": ("saliency", "pointwise:restarts=2"),
    "l0-features": ("saliency", "pointwise:restarts=2"),
    "patch": ("patch-ifgsm:size=2,largest=8,places=30,steps=60",),
    "wasserstein": ("frank-wolfe:factor=1.25", "wasserstein:factor=1.25"),
    "wasserstein-l2": ("frank-wolfe:factor=1.25", "wasserstein:factor=1.25"),
    "concave": ("coordinates",),
    "lp": ("coordinates", "star"),
}
"""Which attacks are run where none is asked for; concave: whatever g is; lp: fractional, l1/2 and the like."""

TOGETHER = 16
_NAMED = 5  # of the inputs that a budget leaves out
_PUSHED = (1.03, 1.1, 1.25)
"""How much further along its direction a candidate is tried again where fresh votes did not confirm it."""


def attack(
    subject: Any,
    data: Any = None,
    y: Any = None,
    *,
    model: Any = None,
    certificates: Certificates | None = None,
    attacks: str | Attack | Sequence[str | Attack] = (),
    threat: str | None = None,
    budget: str | int | float | None = None,
    whole: bool | int = False,
    k: int | None = None,
    every: int = 1,
    limit: int | None = None,
    views: int = VIEWS,
    votes: int = VOTES,
    confirm_votes: int = CONFIRM_VOTES,
    abstain: float | None = None,
    together: int = TOGETHER,
    num_classes: int | None = None,
    input_range: tuple[float, float] | None = UNIT_RANGE,
    standardise: Standardisation | None = None,
    device: torch.device | str | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    called: str = "",
) -> Attacked:
    """How near is an input with another answer? An upper bound beside each certificate.

    `subject`: a run folder, a `Run` or its `Certificates`, with the run's `model` and its whole data set as `data`; a
    `SmoothedClassifier`, with inputs (and `y`) as in `certify`, and `certificates` about them if there are any; or a model alone
    (an undefended classifier, with `num_classes`, `threat`, and `input_range` and `standardise` as a `SmoothedClassifier` has
    them). A model with another fingerprint than the run's is refused.

    `attacks`: texts such as "pgd:steps=100"; by default those of the threat, and for a model without gradients, such as an ONNX
    file, those that need none. The nearest adversarial input of all of them counts, once fresh votes (`confirm_votes`, wrong with
    probability at most 1e-6) give another answer there: an abstention does not count. Where features are standardised, distances
    are in standardised units, as radii are, and inputs in those of the data.
    `threat`: certificates are converted to it. `budget`: seconds ("60s") or views, shared by all inputs; with `whole` an input
    is attacked to the end or not at all, one at first (or as many as `whole` says, which suits a GPU), then as many as fit into
    what is left, and no more than `together`.
    `views`: of common noise behind a gradient; `votes`: of common noise behind a hard label. `abstain`: count it as a success, as
    some papers do, where the classifier with `confirm_votes` votes and this alpha abstains or errs; alarms ignore that.
    `together`: inputs that are attacked at once. `out`: a folder, in which the same call goes on where it was stopped. `called`:
    options of the command line that name the model, for the command that reproduces an alarm.
    """
    shared = replace(Budget.of(budget), whole=whole)
    numbers: dict[str, Any] = {
        "every": every,
        "limit": limit,
        "views": views,
        "votes": votes,
        "confirm_votes": confirm_votes,
    }
    check_at_least_one("together", together, "a whole number from 1 is needed")
    if not isinstance(whole, bool):
        check_at_least_one("whole", whole, "True, False, or a whole number from 1 is needed")
    for name, value in numbers.items():
        check_at_least_one(name, value, "a whole number from 1 is needed")
    if abstain is not None:
        numbers["abstain"] = check_alpha(abstain)
    if together != TOGETHER:
        numbers["together"] = together
    with ExitStack() as stack:
        if out is not None:
            check_folder(out := path_of("out", out))
        secret = check_seed(seed) if seed is not None else kept_seed(out) or secrets.randbits(62)
        found = subject_of(
            subject,
            data,
            y,
            model=model,
            certificates=certificates,
            threat=threat,
            k=k,
            every=every,
            limit=limit,
            num_classes=num_classes,
            input_range=input_range,
            standardise=standardise,
            device=device,
            search=SearchNoise(views, votes, confirm_votes, _number(secret, "noise"), abstain),
            called=called,
        )
        chosen = _chosen(attacks, found)
        settings = {"vauban": __version__, **found.about, **numbers, "attacks": [str(one.spec) for one in chosen]}
        given = found.target.units.given(found.x[:1])
        folder = None
        if out is not None:
            stack.enter_context(locked(out))
            folder = AttackFolder(out, settings | {"seed": secret}, given.shape[1:], given.dtype.name)
            stack.callback(folder.close)
        work = _Work(found, chosen, secret, CONFIRM_ALPHA if abstain is None else abstain, abstain is not None)
        results = _all_results(work, shared, together, folder, progress)
        return _finished(found, results, secret, folder)


def _chosen(attacks: str | Attack | Sequence[str | Attack], subject: Subject) -> list[Attack]:
    """The attacks that were asked for, or those of the threat; one that does not fit it, or needs gradients where the model has
    none, is refused."""
    threat, target, x = subject.threat, subject.target, subject.x[:8]
    asked = [build(one) for one in ([attacks] if isinstance(attacks, str | Attack) else attacks)]
    for one in asked:
        if not one.fits(threat):
            raise unfit(one.name, threat)
    chosen = asked or [build(name) for name in _defaults(threat)]
    needing = [one.name for one in chosen if one.gradient]
    labels = torch.as_tensor(subject.labels[:8], device=x.device)
    if needing and not target.differentiable(x, labels):
        others = without_gradients(threat)
        if asked or not others:
            raise no_gradients(needing[0], threat)
        chosen = [build(name) for name in others]
    if not chosen:
        raise BadInput(f"no attack fits {threat.name} ({threat.metric}): give threat= (--threat), such as l2 or l0")
    return chosen


@dataclass(frozen=True)
class _Work:
    """What is attacked and by what; `alpha`: of fresh votes; `abstaining`: whether their abstentions count."""

    subject: Subject
    attacks: list[Attack]
    secret: int
    alpha: float
    abstaining: bool


def _defaults(threat: Threat) -> Sequence[str]:
    """The attacks of a threat; of one that nobody here knows, every attack that fits."""
    family = threat.name.split("-")[0] if threat.name.startswith("concave-") else threat.name
    if family not in DEFAULTS and exponent(threat) is not None:
        family = "lp"
    return DEFAULTS.get(family) or fitting(threat)


def _all_results(
    work: _Work, budget: Budget, together: int, folder: AttackFolder | None, progress: bool
) -> dict[int, InputResult]:
    """Results by the number of their input: those in the folder, and those of the rest as far as the budget goes.

    With a `whole` budget a chunk is dropped if the budget stopped one of its attacks. Other chunks are kept, also where they took
    more than was left.
    """
    subject = work.subject
    results = {} if folder is None else dict(folder.results)
    everyone = range(len(subject))
    chunks = [everyone[first : first + together] for first in everyone[::together]]
    pending = [left for chunk in chunks if (left := [i for i in chunk if int(subject.index[i]) not in results])]
    waiting = sum(map(len, pending))
    done = len(subject) - waiting
    label = f"attacking {waiting} inputs" + (f", {together} at a time" if waiting > together else "")
    label += f" ({done} of {len(subject)} are done already)" if done else ""
    meter = Meter(subject.target, budget)
    with bar(label, waiting, "inputs", quiet=not progress, at_once=True) as advance:
        while pending and not meter.spent:
            chunk = pending.pop(0)
            if (size := meter.fitting(len(chunk))) < len(chunk):
                pending.insert(0, chunk[size:])
                chunk = chunk[:size]
            if not chunk:
                break
            with meter.timing(size):
                found = _attacked(work, chunk, meter, waiting)
            if budget.whole and meter.cut_short:
                break
            for result in found:
                results[result.input] = result
                if folder is not None:
                    folder.keep(result)
            waiting -= len(chunk)
            advance(len(chunk))
    return results


def _attacked(work: _Work, chunk: list[int], meter: Meter, waiting: int) -> list[InputResult]:
    """Run all attacks on the inputs at these positions, and confirm what they found."""
    subject, attacks = work.subject, work.attacks
    x = subject.x[chunk]
    labels = torch.as_tensor(subject.labels[chunk], device=x.device)
    target, begun, found = subject.target, subject.target.views, []
    seeds = [_number(work.secret, "attack", chunk[0], number) for number in range(len(attacks))]
    runs = [
        (i, rung) for i, one in enumerate(attacks) for rung in (target.rungs if one.gradient else target.rungs[-1:])
    ]
    for number, (i, rung) in enumerate(runs):
        if number and meter.spent:
            target.stopped = True
            break
        left = sum(views for _, views in runs[number:])
        meter.share(len(chunk) / waiting * rung / left)
        with target.following(rung):
            found.append(attacks[i].run(target, x, labels, subject.threat, seeds[i]))
    names = [attacks[i].name for i, _ in runs[: len(found)]]
    results = _confirmed(work, chunk, _candidates(subject, x, found, names))
    views = -(-(target.views - begun) // len(chunk))
    return [replace(result, views=views, cut_short=target.stopped) for result in results]


@dataclass(frozen=True)
class _Candidate:
    distance: float
    x: torch.Tensor
    attack: str


def _candidates(subject: Subject, x: torch.Tensor, found: list[Found], names: list[str]) -> list[list[_Candidate]]:
    """For each input what was found, and the same a little further in its direction where the threat is a norm, nearest first."""
    listed: list[list[_Candidate]] = [[] for _ in range(len(x))]
    units = subject.target.units
    own = units.read(units.given(x))  # distances are those between the inputs that the classifier is given
    for one, name in zip(found, names, strict=True):
        further = _PUSHED if subject.threat.name in NORMS and subject.target.sampled else ()
        for t in (1.0, *further):
            moved = one.x if t == 1 else subject.target.allowed(x + t * (one.x - x))
            far = distance(own, units.read(units.given(moved)), subject.threat)
            for i in np.flatnonzero(np.isfinite(one.distance) & ((one.distance > 0) | (t == 1))):
                listed[i].append(_Candidate(float(far[i]), moved[i], name))
    return [sorted(candidates, key=lambda one: one.distance) for candidates in listed]


def _confirmed(work: _Work, chunk: list[int], listed: list[list[_Candidate]]) -> list[InputResult]:
    """The nearest candidate of each input for which fresh votes give another answer; abstentions are counted apart, or as
    successes without an answer."""
    subject = work.subject
    results = [InputResult(int(subject.index[position])) for position in chunk]
    for number in range(max(map(len, listed), default=0)):
        open_ = [i for i in range(len(chunk)) if results[i].x is None and len(listed[i]) > number]
        if not open_:
            break
        x = torch.stack([listed[i][number].x for i in open_])
        given = subject.target.units.given(x)
        answers, _ = subject.target.confirm(given, _number(work.secret, "confirm", chunk[0], number), work.alpha)
        for row, i in enumerate(open_):
            answer, old, one = answers[row], results[i], listed[i][number]
            abstains = answer[0] < 0
            if abstains:
                results[i] = old = replace(old, abstained=old.abstained + 1)
            elif subject.labels[chunk[i]] in answer:
                results[i] = replace(old, refuted=old.refuted + 1)
                continue
            if not abstains or work.abstaining:
                labels = () if abstains else tuple(int(label) for label in answer)
                results[i] = replace(old, distance=one.distance, x=given[row], attack=one.attack, answer=labels)
    return results


def _finished(subject: Subject, results: dict[int, InputResult], secret: int, folder: AttackFolder | None) -> Attacked:
    """All results together; alarms are confirmed once more, and everything is written to the folder."""
    attacked = Attacked(
        index=subject.index,
        label=subject.labels,
        truth=subject.truth,
        radius=subject.radius,
        results=tuple(results.get(int(number)) for number in subject.index),
        originals=subject.target.units.given(subject.x),
        threat=subject.threat,
        k=subject.target.k,
        certs=subject.certs,
        folder=None if folder is None else folder.path,
    )
    left = attacked.index[~attacked.attacked]
    if len(left):
        named = ", ".join(map(str, left[:_NAMED])) + (", …" if len(left) > _NAMED else "")
        note = (
            f"the budget was spent before {len(left)} of {len(attacked)} inputs were attacked ({named}): accuracy under attack "
            "is that of the others; the same command goes on with them"
        )
        attacked = replace(attacked, notes=(*attacked.notes, note))
    short = sum(result is not None and result.cut_short for result in attacked.results)
    if short:
        note = (
            f"the budget stopped the search on {short} of {len(attacked)} inputs: with more, in another folder, nearer ones may "
            "be found"
        )
        attacked = replace(attacked, notes=(*attacked.notes, note))
    attacked = raise_alarms(subject, attacked, _number(secret, "alarm"))
    if folder is not None:
        _write(attacked, folder)
    return attacked


def _write(attacked: Attacked, folder: AttackFolder) -> None:
    if np.isfinite(attacked.distance).any():
        write_arrays(folder.path / ADVERSARIAL, attacked.adversarial())
    header = ("index", "label", "truth", "radius", "distance", "attack", "answer", "abstained", "refuted", "views")
    rows = []
    for i, found in enumerate(attacked.results):
        truth = "" if attacked.truth is None else attacked.truth[i]
        radius = "" if np.isnan(attacked.radius[i]) else floor_text(float(attacked.radius[i]))
        start = (attacked.index[i], attacked.label[i], truth, radius)
        if found is None:
            rows.append((*start, *[""] * 6))
            continue
        far = "" if np.isinf(found.distance) else f"{found.distance:.9g}"
        answer = " ".join(map(str, found.answer))
        rows.append((*start, far, found.attack or "", answer, found.abstained, found.refuted, found.views))
    write_table(folder.path / TABLE, header, rows)


def _number(secret: int, *purpose: object) -> int:
    """A number below 2^62 for one purpose of an attack with this seed."""
    text = " ".join(map(str, (secret, *purpose)))
    return int.from_bytes(hashlib.sha256(f"vauban attack {text}".encode()).digest()[:8], "little") >> 2
