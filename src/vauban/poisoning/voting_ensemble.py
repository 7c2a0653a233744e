"""Base class of ensembles: certifies inputs by the votes of the base classifiers, in memory or into a run folder."""

from __future__ import annotations

import functools
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data import Dataset
from vauban.errors import BadInput, RunRefused
from vauban.files import arrays_sha256, locked
from vauban.poisoning.learners import columns_of, to_array
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.progress import ProgressCallback, ProgressReporter, reporter
from vauban.poisoning.selection import select
from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
from vauban.poisoning.votes.checkpoint import VotesCheckpoint
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.poisoning.votes.poisoning_manifest import compose
from vauban.poisoning.votes.run_folder import InputSource, PoisoningRecord, finished_run, refuse_other_run, write_run
from vauban.poisoning.votes.settings import PoisoningSettings
from vauban.poisoning.votes.votes_file import VotesFile, check_votes_path, write_votes_file
from vauban.validation import check_index, check_labels, path_of


class VotingEnsemble(ABC):
    """Base classifiers over a partition of a training set, and their certificates.

    `manifest`: everything the base classifiers are a function of. `against`: what may be poisoned, "samples" or "labels".
    """

    def __init__(self, manifest: dict[str, Any]):
        self.manifest = manifest
        self.partition = Partition.from_spec(manifest["partition"]["spec"])
        self.against: str = manifest["against"]
        self._key = secrets.token_hex(16)

    @property
    def models(self) -> int:
        """The number of base classifiers."""
        return self.partition.models

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return int(self.manifest["num_classes"])

    @property
    def empty(self) -> list[int]:
        """Numbers of the base classifiers without training samples, which vote for class 0."""
        return list(self.manifest["partition"]["empty"])

    @property
    def failed(self) -> list[int]:
        """Numbers of the base classifiers that cannot be trained on their samples, which vote for class 0."""
        return list(self.manifest["partition"].get("failed", ()))

    @property
    def constant(self) -> list[int]:
        """Numbers of all base classifiers with a constant vote: they score every class 0."""
        return sorted([*self.empty, *self.failed])

    @property
    def group_numbers(self) -> Sequence[list[int]]:
        """Numbers of the base classifiers of each group, in the order in which groups vote."""
        return []

    @property
    def device(self) -> str:
        """The device on which base classifiers vote."""
        return "cpu"

    @property
    @abstractmethod
    def weights_sha256(self) -> str:
        """One hash of all base classifiers; "unknown" if nothing is known of them, so that only this object resumes its votes."""

    @property
    def identified(self) -> bool:
        """Whether the manifest and the hash of the weights say what votes: stored votes can then be used in place of new ones."""
        return self.weights_sha256 != "unknown"

    @abstractmethod
    def rounds(self, aggregate: str) -> int:
        """How often every model votes in `tally`."""

    @abstractmethod
    def tally(
        self,
        x: NDArray[Any],
        aggregate: str = "plurality",
        on_progress: ProgressCallback | None = None,
        checkpoint: VotesCheckpoint | None = None,
        keep_votes: bool = False,
        on: str = "here",
    ) -> EnsembleVotes:
        """The votes on the inputs `x` [m, ...] that certificates of this aggregate need.

        `on_progress` is called with numbers of models. `checkpoint` saves votes while models vote; voting continues from
        those it holds. `keep_votes`: the vote of every model, also where counts would do. `on`: "ray" votes on a Ray cluster.
        """

    def as_inputs(self, x: Any) -> NDArray[Any]:
        """Inputs [m, ...] of the type of the training samples, from an array, a tensor, lists or a data frame.

        Numbers of another type are taken where each has the same value in that of the samples; but floats are never taken for
        whole numbers, since pictures of the range 0 to 1 are others than those of 0 to 255.
        """
        known, columns = self.manifest["data"].get("columns"), columns_of(x)
        if known is not None and columns is not None and columns != known:
            raise BadInput(
                f"a data frame with the columns {columns}: the ensemble was trained on {known}, in this order"
            )
        inputs, dtype = to_array(x, "inputs"), np.dtype(self.manifest["data"]["dtype"])
        if inputs.dtype != dtype and inputs.dtype.kind in ("uif" if dtype.kind == "f" else "ui"):
            with np.errstate(invalid="ignore", over="ignore"):
                same = inputs.astype(dtype)
            if np.array_equal(same, inputs):
                inputs = same
        self.check_inputs(inputs)
        return inputs

    def predict(
        self, x: Any, aggregate: str = "plurality", *, progress: bool | ProgressReporter = True
    ) -> NDArray[np.int64]:
        """The ensemble's answers [m] for the inputs `x` [m, ...]; `certify` also says what they withstand."""
        with reporter(progress)("voting", self._votings(aggregate), "models") as on_progress:
            return self.tally(self.as_inputs(x), aggregate, on_progress).answer(aggregate)

    def check_inputs(self, x: NDArray[Any]) -> None:
        """Refuse no inputs at all, and those of another shape or type than the training samples."""
        if x.size == 0:
            raise BadInput(f"inputs are empty, of shape {list(x.shape)}: one input or more is needed")
        shape, dtype = self.manifest["data"]["shape"], self.manifest["data"]["dtype"]
        if list(x.shape[1:]) != shape or x.dtype.name != dtype:
            raise BadInput(
                f"inputs of shape {list(x.shape[1:])}, {x.dtype}: the ensemble was trained on {shape}, {dtype}"
            )

    def certify(
        self,
        x: Any,
        y: Any = None,
        aggregate: str = "plurality",
        *,
        k: int = 1,
        label: str | None = None,
        out: str | Path | None = None,
        keep_votes: bool = False,
        source: InputSource | None = None,
        on: str = "here",
        progress: bool | ProgressReporter = True,
    ) -> PoisoningCertificates:
        """Certificates for the inputs `x` [m, ...] with true labels `y` [m], if known; `derive` documents k and label.

        `out`: a run folder to write, as `vauban poison certify` does. Votes are saved while models vote, so the same call
        continues after Ctrl-C or a kill, and takes the votes of a finished run, where base classifiers and inputs are known to
        be the same; a folder that holds another run is refused. `keep_votes`: the folder holds the vote of
        every base classifier, which `PoisoningRun.collective` needs. `source`: where the inputs come from. `on`: "ray" lets the
        workers of a Ray cluster vote, with the same votes.
        """
        x, y = self.as_inputs(x), None if y is None else to_array(y, "labels")
        truth = None if y is None else check_labels(y, len(x), self.num_classes, name="y")
        index = check_index(None if source is None else source.index, len(x))
        settings = PoisoningSettings.of(self.num_classes, truth is not None, aggregate=aggregate, k=k, label=label)
        _check_kept(keep_votes, out, settings)
        voting = functools.partial(reporter(progress), "voting", self._votings(aggregate), "models")
        if out is not None:
            return self._certify_into(
                path_of("out", out), x, truth, settings, source, voting, keep_votes, on
            ).certificates()
        with voting() as on_progress:
            votes = self.tally(x, aggregate, on_progress, on=on)
        return derive(votes, truth, **vars(settings), index=index, training=self.manifest)

    def export(
        self,
        path: str | Path,
        x: Any,
        y: Any = None,
        aggregate: str = "plurality",
        *,
        source: InputSource | None = None,
        progress: bool | ProgressReporter = True,
    ) -> None:
        """Write the votes on `x` [m, ...] to a .npz, with what a claim needs: spread, offsets, threat, partition, training.

        `vauban claim` and `vauban poison import` read it, and so does whoever has NumPy. Arguments are those of `certify`.
        """
        check_votes_path(path := path_of("path", path))
        x, y = self.as_inputs(x), None if y is None else to_array(y, "labels")
        truth = None if y is None else check_labels(y, len(x), self.num_classes, name="y")
        index = check_index(None if source is None else source.index, len(x))
        with reporter(progress)("voting", self._votings(aggregate), "models") as on_progress:
            votes = self.tally(x, aggregate, on_progress)
        file = VotesFile(votes, truth, index, str(self.partition), self._training())
        write_votes_file(path, file, aggregate)

    def certify_data(
        self,
        data: str | Dataset,
        aggregate: str = "plurality",
        *,
        every: int = 1,
        limit: int | None = None,
        k: int = 1,
        label: str | None = None,
        out: str | Path | None = None,
        keep_votes: bool = False,
        on: str = "here",
        progress: bool | ProgressReporter = True,
    ) -> PoisoningCertificates:
        """`certify` for inputs 0, every, 2*every, … (at most `limit`) of a data set, its test split unless another is named.

        An ensemble trained on some classes only is certified on these.
        """
        classes = self.manifest["data"].get("classes")
        chosen = select(data, split="test", every=every, limit=limit, classes=classes, labels_needed=False)
        return self.certify(
            chosen.x,
            chosen.y,
            aggregate,
            k=k,
            label=label,
            out=out,
            keep_votes=keep_votes,
            source=chosen.source,
            on=on,
            progress=progress,
        )

    def _votings(self, aggregate: str) -> int:
        return (self.models - len(self.constant)) * self.rounds(aggregate)

    def _training(self) -> dict[str, Any]:
        """How the base classifiers were trained and where they vote, for the manifest of a run."""
        return {**self.manifest, "weights_sha256": self.weights_sha256, "voted_on": self.device}

    def _certify_into(
        self,
        out: Path,
        x: NDArray[Any],
        y: NDArray[Any] | None,
        settings: PoisoningSettings,
        source: InputSource | None,
        voting: Callable[..., AbstractContextManager[ProgressCallback]],
        keep_votes: bool,
        on: str,
    ) -> PoisoningRecord:
        source = source or InputSource.of_arrays(x, y)
        data = source.section(y, self.num_classes)
        training = self._training()
        manifest = compose(str(self.partition), self.against, settings, training=training, data=data)
        refuse_other_run(out, manifest)
        aggregate = settings.aggregate
        about = {"data": vars(data), "training": training, "aggregate": aggregate, "groups": list(self.group_numbers)}
        about["inputs"] = arrays_sha256(x)
        if keep_votes:
            about["votes"] = "kept"
        if training["weights_sha256"] == "unknown":
            about["ensemble"] = self._key
        with locked(out):
            checkpoint = VotesCheckpoint(out, about)
            if self.identified and source.identifies(x, y) and (stored := finished_run(out, manifest)) is not None:
                if keep_votes and stored.votes.ballots is None:
                    raise RunRefused(
                        f"{out} holds the finished run without the vote of every base classifier: choose another --out to keep "
                        "them, or leave keep_votes (--keep-votes) out"
                    )
                with voting(done=self._votings(aggregate)):
                    checkpoint.remove()
                return stored
            with voting() as on_progress:
                votes = self.tally(x, aggregate, on_progress, checkpoint, keep_votes, on)
            record = write_run(out, PoisoningRecord(manifest, votes))
            checkpoint.remove()
        return record


def _check_kept(keep_votes: bool, out: str | Path | None, settings: PoisoningSettings) -> None:
    """Refuse to keep votes where there is no folder, or for a run-off, whose second round they do not hold."""
    if keep_votes and out is None:
        raise BadInput("keep_votes: a run folder holds the votes; name one (out), or call ensemble.votes(x)")
    if keep_votes and settings.aggregate == "runoff":
        raise BadInput(
            "keep_votes: claims about many inputs at once are about plurality votes; leave it out for a run-off"
        )
