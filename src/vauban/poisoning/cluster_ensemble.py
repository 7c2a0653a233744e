"""SS-DPA with one partition for each sample and two clusters as features. [Levine2023] section F.2"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from vauban import __version__
from vauban.errors import BadInput, Incomplete, MissingExtra
from vauban.poisoning.manifest_file import KIND, SCHEMA
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.partitioning.samples import content_keys, sample_problems, set_sha256, training_labels
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.failures import RULE
from vauban.poisoning.training.weights_folder import WeightsFolder, fingerprints
from vauban.poisoning.votes.checkpoint import VotesCheckpoint
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.poisoning.voting_ensemble import VotingEnsemble
from vauban.validation import path_of

_STARTS = 10


class ClusterEnsemble(VotingEnsemble):
    """One base classifier for each distinct training sample, computed from two clusters of the unlabelled set and one label.

    It gives inputs in its sample's cluster the sample's label, and inputs in the other cluster the other label. So the votes
    follow from `table` [cluster, label], the number of samples of each cluster with each label. Copies of one input are one
    sample (F.7), with the label of most of them, ties to 0. The base classifier of a sample with a label other than 0 and 1
    votes for class 0, whatever the input. Certificates are against label flips only.
    """

    def __init__(self, manifest: dict[str, Any], centres: NDArray[np.float64], table: NDArray[np.int64]):
        super().__init__(manifest)
        self.centres, self.table = centres, table

    @classmethod
    def fit(cls, x: NDArray[Any], y: ArrayLike, *, source: dict[str, Any] | None = None) -> ClusterEnsemble:
        """Find two clusters among the inputs `x` [n, ...], sorted by content, and count the labels `y` [n] in each."""
        labels = training_labels(x, y)
        if not np.isfinite(x).all():
            raise BadInput("an input holds NaN or infinity: clusters are found among all inputs, which must be finite")
        _, first, inverse = np.unique(content_keys(x), return_index=True, return_inverse=True)
        if len(first) < 2:
            raise BadInput("two clusters need two different samples at least")
        centres = _two_means(_flat(x[first]))
        problems = sample_problems(x, labels, 2)
        failed = np.unique(inverse[list(problems)])
        for_one = np.bincount(inverse, weights=labels == 1, minlength=len(first))
        majority = (2 * for_one > np.bincount(inverse, minlength=len(first))).astype(np.int64)
        table = np.zeros((2, 2), dtype=np.int64)
        np.add.at(table, (np.delete(_assigned(_flat(x[first]), centres), failed), np.delete(majority, failed)), 1)
        if problems:
            warnings.warn(
                f"{len(failed)} of {len(first)} base classifiers cannot be trained ({next(iter(problems.values()))}): "
                "by rule they vote for class 0",
                stacklevel=2,
            )
        manifest = {
            "schema": SCHEMA,
            "kind": KIND,
            "against": "labels",
            "partition": {
                "spec": str(Partition(len(first), by="sort")),
                "models": len(first),
                "empty": [],
                "failed": failed.tolist(),
            },
            "failure_rule": RULE,
            "data": {
                **(source or {}),
                "sha256": set_sha256(x, labels),
                "samples": len(x),
                "shape": list(x.shape[1:]),
                "dtype": x.dtype.name,
            },
            "num_classes": 2,
            "preprocessing": "none",
            "trainer": {"trainer": "clusters", "starts": _STARTS},
            "versions": {"vauban": __version__, "numpy": np.__version__},
        }
        return cls(json.loads(json.dumps(manifest)), centres, table)

    def save(self, folder: str | Path) -> None:
        """Write the clusters and counts to a folder."""
        store = WeightsFolder.begin(path_of("folder", folder), self.manifest)
        store.write_shared({"centres": torch.from_numpy(self.centres), "table": torch.from_numpy(self.table)})

    @classmethod
    def load(cls, folder: str | Path) -> ClusterEnsemble:
        """The clusters and counts in a folder."""
        store = WeightsFolder.open(path_of("folder", folder))
        shared = store.shared()
        if shared is None:
            raise Incomplete(f"{folder} holds no clusters yet: run the same train command again")
        return cls(store.manifest, shared["centres"].numpy(), shared["table"].numpy())

    @property
    def weights_sha256(self) -> str:
        """A hash of clusters and counts."""
        tensors = {"centres": torch.from_numpy(self.centres)[None], "table": torch.from_numpy(self.table)[None]}
        return fingerprints(tensors)[0]

    def rounds(self, aggregate: str) -> int:
        """Every base classifier votes once, since two classes need no second round."""
        if aggregate != "plurality":
            raise BadInput("two classes are decided in one round: take --aggregate plurality")
        return 1

    def tally(
        self,
        x: NDArray[Any],
        aggregate: str = "plurality",
        on_progress: ProgressCallback | None = None,
        checkpoint: VotesCheckpoint | None = None,
        keep_votes: bool = False,
        on: str = "here",
    ) -> EnsembleVotes:
        """Votes on the inputs `x` [m, ...]: n_c counts the samples of the input's cluster labelled c, and of the other not c."""
        self.check_inputs(x)
        self.rounds(aggregate)
        if keep_votes:
            raise BadInput(
                "keep_votes: two clusters have a base classifier for each sample and keep counts only; leave it out"
            )
        if on != "here":
            raise BadInput(f"--on {on}: the votes of two clusters are counted at once, in this process; leave it out")
        by_cluster = np.stack([self.table[a] + self.table[1 - a, ::-1] for a in (0, 1)])
        by_cluster[:, 0] += len(self.failed)
        return EnsembleVotes(by_cluster[_assigned(_flat(x), self.centres)], against="labels")


def _flat(x: NDArray[Any]) -> NDArray[np.float64]:
    scale = 255.0 if x.dtype == np.uint8 else 1.0
    return x.reshape(len(x), -1).astype(np.float64) / scale


def _assigned(rows: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """The nearer of two centres, the first if both are equally near: |s - a|^2 > |s - b|^2 as one product per row."""
    a, b = centres
    return (2 * (rows * (b - a)).sum(axis=1) > (b * b).sum() - (a * a).sum()).astype(np.int64)


def _two_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two centres; in one thread, since k-means adds up in an order that depends on the threads."""
    try:
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("scikit-learn", "poisoning", "two-means clustering") from None
    with threadpool_limits(1):
        fitted = KMeans(2, n_init=_STARTS, random_state=0).fit(rows)
    return np.asarray(fitted.cluster_centers_, dtype=np.float64)
