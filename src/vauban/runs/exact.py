"""Certifies a data set exactly into a run folder: every view of every input votes, and the ballots are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.asking import Tick
from vauban.claims import Certificates
from vauban.errors import BadInput, CannotWrite
from vauban.inputs import Inputs, check_labels
from vauban.runs import manifest as manifests
from vauban.runs.ballots import KeptBallots, Piece, Writer, read_ballots
from vauban.runs.derive import SEAL, certificates
from vauban.runs.folder import Outlook, Source, begin, check_sealed, close, locked, manifest_of
from vauban.smoothed import SmoothedClassifier

_WRITE_EVERY = 1.0


def check(smoothed: SmoothedClassifier, inputs: Inputs, source: Source, k: int, label: str) -> None:
    """Refuse what cannot be certified, before any vote is cast."""
    smoothed.check_exact(k, inputs)
    if label not in ("given", "votes"):
        raise BadInput(f"label={label!r}: 'given' or 'votes' is needed")
    if source.truth is not None:
        check_labels(np.asarray(source.truth), len(inputs.values), smoothed.num_classes)
    elif label == "given":
        raise BadInput(f"{source.data} has no labels to certify: certify the winner of the votes (--label votes)")


def certify(
    folder: Path,
    smoothed: SmoothedClassifier,
    inputs: Inputs,
    source: Source,
    k: int,
    label: str,
    *,
    bar: Callable[[Outlook], AbstractContextManager[Tick]] | None = None,
) -> Certificates:
    """Cast every vote that `folder` lacks and seal the claims; as `runs.certify.certify`, without randomness."""
    law = smoothed.exact_law(inputs)
    shape = inputs.values.shape[1:]
    threshold = getattr(law, "threshold", None)
    statistics = {"method": manifests.EXACT, "k": k, "n": law.views, "label": label, "threshold": threshold}
    with locked(folder):
        rest = {"list": {"views": law.views, "sha256": law.listed(shape), **law.kept()}}
        manifest = manifest_of(folder, smoothed, inputs, source, statistics, rest)
        smoothed.rows = manifest["compute"]["rows"]
        torch.set_num_threads(manifest["compute"]["threads"])
        begin(folder, manifest, lambda: smoothed.enumerator(shape).probe(inputs.values, law.views))
        kept = read_ballots(folder)
        if (folder / SEAL).exists() and len(kept.complete) == len(inputs.values):
            check_sealed(folder, kept)
            return certificates(kept)[0]
        outlook = Outlook(int((~kept.there).sum()), len(kept.complete), len(inputs.values))
        with bar(outlook) if bar else nullcontext(None) as tick:
            _poll(folder, smoothed, inputs, kept, law.views, tick)
        kept = read_ballots(folder)
        close(folder, kept)
    return certificates(kept)[0]


def _poll(
    folder: Path, smoothed: SmoothedClassifier, inputs: Inputs, kept: KeptBallots, views: int, tick: Tick | None
) -> None:
    enumerator = smoothed.enumerator(inputs.values.shape[1:])
    run = manifests.identity(kept.manifest)
    with Writer(folder, run, smoothed.num_classes, kept.sound_length) as writer:
        for start, stop in kept.missing:
            pending = _Pending(writer, kept.manifest["data"]["index"], views)
            try:
                for first, votes in enumerator.cast(inputs.values, views, start, stop, tick):
                    pending.add(first, votes)
            except CannotWrite:
                raise
            except BaseException:
                pending.write()
                raise
            pending.write()


class _Pending:
    """Votes that follow each other and are not written yet: an input's when it is whole, or all once a second.

    The number of the first one and the votes are replaced together, in one step, so that Ctrl-C at any instant can lose votes
    but never put them in another's place or write them twice: what is being written does not count as pending any more.
    """

    def __init__(self, writer: Writer, index: list[int], views: int):
        self._writer, self._index, self._views = writer, index, views
        self._held: tuple[int, tuple[NDArray, ...]] = (0, ())
        self._written = time.monotonic()

    def add(self, first: int, votes: NDArray) -> None:
        begun, held = self._held
        self._held = (begun, (*held, votes)) if held else (first, (votes,))
        self.write(whole=time.monotonic() - self._written <= _WRITE_EVERY)

    def write(self, whole: bool = False) -> None:
        """Write what is pending, a line per input; with `whole` only up to the last end of an input."""
        first, held = self._held
        stop = first + sum(map(len, held))
        if whole:
            stop -= stop % self._views
        if stop <= first:
            return
        votes = np.concatenate(held)
        while first < stop:
            position, view = divmod(first, self._views)
            count = min(self._views - view, stop - first)
            piece, votes, first = Piece(self._index[position], view, votes[:count]), votes[count:], first + count
            self._held = (first, (votes,) if len(votes) else ())
            self._writer.keep(piece)
        self._written = time.monotonic()
