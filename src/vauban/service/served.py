"""The classifier that a service answers with: makes jobs from requests, and the sealed records of their votes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from vauban.certificates import Certificates
from vauban.engine.casters import can_be_copied
from vauban.engine.network import in_precision, votes_of
from vauban.engine.sampler import choose_rows
from vauban.engine.scheduler import VotingJob
from vauban.errors import BadInput, RunRefused
from vauban.inputs import Batch
from vauban.laws.exact import ExactLaw
from vauban.methods import CertifySettings, Method, method_for
from vauban.prediction import predict_method
from vauban.runs import manifest as manifests
from vauban.runs.manifest import Manifest
from vauban.runs.saving import files_of
from vauban.runs.store import CLAIMS, RunRecord
from vauban.seed import FILE as SEED_FILE
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing.random import Stream
from vauban.votes import Record, Tally

CHOOSING_VOTES = 20
"""Uncounted votes that choose a request's label, unless it says otherwise: few, so that the first radius comes soon."""

_BLOCKS = 10  # blocks of a compute shape, so that many requests are in every forward pass
_SMALL = 20  # no more blocks where they would be smaller than this, which is enough for a first radius
_FEWEST = 4  # blocks of a compute shape at least
_MOST_WORKERS = 8  # of more, the Python code is expected to wait for the one interpreter
_LARGE = 2**19  # numbers of a compute shape above which one worker casts it with all threads, so that it ends sooner
_RECHECK_SECONDS = 600.0  # how often the model's determinism and fingerprint are checked again


def service_shape(shape: tuple[int, ...], device: str) -> tuple[int, int]:
    """Rows and block of the compute shape of a service for inputs of this shape.

    >>> service_shape((1, 28, 28), "cpu"), service_shape((3, 224, 224), "cpu")
    ((100, 20), (25, 5))
    """
    rows = choose_rows(torch.Size(shape), torch.device(device))
    return rows, service_block(rows)


def service_block(rows: int) -> int:
    """The block of a compute shape: a tenth of it, or what is enough for a first radius, so that many requests share it.

    >>> [service_block(rows) for rows in (1, 25, 100, 200, 1000)]
    [1, 5, 20, 20, 100]
    """
    most = max(1, rows // _BLOCKS, min(_SMALL, rows // _FEWEST))
    return max(part for part in range(1, rows + 1) if rows % part == 0 and part <= most)


def service_workers(smoothed: SmoothedClassifier, shape: tuple[int, ...], threads: int) -> int:
    """How many compute shapes a service casts at a time with so many threads: as many, where shapes are small and sampled."""
    numbers = (smoothed.rows or 1) * smoothed.smoothing.view_shape(torch.Size(shape)).numel()
    together = not smoothed.smoothing.law.exact and can_be_copied(smoothed.network)
    return min(threads, _MOST_WORKERS) if together and numbers <= _LARGE else 1


def split_threads(smoothed: SmoothedClassifier, shape: tuple[int, ...], workers: int | None) -> int:
    """Give each of so many workers (None: `service_workers`) an equal share of torch's threads; their number."""
    threads = torch.get_num_threads()
    if workers is not None and workers > 1 and (smoothed.smoothing.law.exact or not can_be_copied(smoothed.network)):
        raise BadInput(
            f"workers={workers}: several workers need a torch module on the CPU and a smoothing that samples its views; "
            "leave workers out"
        )
    count = workers or service_workers(smoothed, shape, threads)
    torch.set_num_threads(max(1, threads // count))
    return count


@dataclass(frozen=True)
class Asked:
    """A request in progress: its input, its method, its votes so far and the seed of its noise (None: exact)."""

    batch: Batch
    method: Method
    votes: Any
    secret: Seed | None
    template: Manifest

    @property
    def label(self) -> int | None:
        """The label that is certified, once it is known."""
        label: int | None = self.votes.label(0) if self.secret is not None else None
        return label

    def job(self, served: Served) -> VotingJob:
        """What the voting thread needs."""
        sampler = served.sampler(self.batch, self.method)
        return VotingJob(served.smoothed, self.batch, self.method, sampler, self.secret, self.votes, False, "voting")


class Served:
    """A smoothed classifier for inputs of one `shape`, and the manifests of its requests.

    A manifest is that of a call of `certify` on an example, made at the start and again every ten minutes with all its checks of
    the model, in which input, seed, settings and probe views are replaced by the request's own.
    """

    def __init__(self, smoothed: SmoothedClassifier, shape: tuple[int, ...]):
        self.smoothed, self.shape = smoothed, tuple(shape)
        if isinstance(smoothed.base.module, torch.nn.Module):
            smoothed.base.module.eval()
        self._templates: dict[int | None, Manifest] = {}
        self._checked = -np.inf
        self._method = lru_cache(256)(self._make_method)

    @property
    def exact(self) -> bool:
        """Whether every view votes and nothing is left to chance."""
        return self.smoothed.smoothing.law.exact

    def check(self) -> None:
        """Certify examples with all checks of the model; a model that is not what it was at the start is refused."""
        for levels in list(self._templates) or [None if self.smoothed.arithmetic == "float" else 255]:
            made, before = self._template(levels), self._templates.get(levels)
            if before is not None and (made.model, made.compute) != (before.model, before.compute):
                raise RunRefused("the model is not the one with which this service began: start the service again")
            self._templates[levels] = made
        self._checked = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the model is to be checked again."""
        return time.monotonic() - self._checked > _RECHECK_SECONDS

    def template(self, levels: int | None) -> Manifest:
        """The manifest of an example on the grid, or off it; made with the first request that needs it."""
        if levels not in self._templates:
            self._templates[levels] = self._template(levels)
        return self._templates[levels]

    def has_template(self, levels: int | None) -> bool:
        """Whether `template` needs no call of the model."""
        return levels in self._templates

    def _example(self, levels: int | None) -> np.ndarray:
        """An input on the grid, or off it."""
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, self.shape, dtype=np.uint8)
        low, high = self.smoothed.input_range or (0.0, 1.0)
        floats = (low + (high - low) * generator.random(self.shape)).astype(np.float32)
        return pixels if levels is not None else floats

    def example(self) -> tuple[Any, torch.Tensor]:
        """The sampler of requests, and inputs [1, ...] to try it on."""
        batch = self.collect(self._example(next(iter(self._templates))))
        return self.sampler(batch, self.certifying(batch).method), batch.inputs.values

    def _template(self, levels: int | None) -> Manifest:
        sampled: dict[str, Any] = (
            {} if self.exact else {"stop": "anytime", "seconds": 3600.0, "on": _first_look, "seed": 0}
        )
        certs = self.smoothed.certify(self._example(levels)[None], label="votes", progress=False, **sampled)
        made: Manifest = certs.record.manifest
        return made

    @cached_property
    def classifier(self) -> dict[str, str]:
        """What a batch is accepted for: the smoothing and the hash of the model, which `check` finds unchanged."""
        return {"smoothing": str(self.smoothed.smoothing.spec), "model": self.smoothed.identity()[1]}

    def sampler(self, batch: Batch, method: Method) -> Any:
        """The sampler or enumerator of a method."""
        return self.smoothed.sampler(batch.inputs, method)

    def collect(self, x: Any, label: int | None = None) -> Batch:
        """One input [...] as a batch."""
        return self.smoothed.collect(np.asarray(x)[None], None if label is None else [label])

    def certifying(self, batch: Batch, alpha: float | None = None, n0: int | None = None, k: int = 1) -> Asked:
        """A request to certify that a label stays among the top k: under the anytime rule, or exactly."""
        law, given = self.smoothed.smoothing.law, batch.labels is not None
        sampled: dict[str, Any] = {} if self.exact else {"stop": "anytime", "alpha": alpha}
        if not self.exact and not given:
            sampled["n0"] = n0 or CHOOSING_VOTES
        if k > 1 and not given and not self.exact:
            raise BadInput(f"k={k} without a label: votes choose a label for k=1 only; say which one with label=")
        label = "given" if given else "votes"
        settings = CertifySettings.of(law, self.smoothed.num_classes, k=k, label=label, **sampled)
        template = self.template(batch.inputs.levels)
        method = self._method(settings, batch.inputs.levels)
        labels = None if batch.labels is None else batch.labels.tolist()
        votes = method.empty_votes(batch.index.tolist(), labels)
        return Asked(batch, method, votes, None if self.exact else Seed.of(None), template)

    def predicting(self, batch: Batch, k: int, n: int | None, alpha: float | None) -> Asked:
        """A request for the top k labels."""
        law, classes = self.smoothed.smoothing.law, self.smoothed.num_classes
        deviation = self.smoothed.deviation(batch.inputs)
        method = predict_method(law, classes, batch.shape, deviation, k=k, n=n, alpha=alpha, seed=None)
        votes = method.empty_votes(batch.index.tolist(), None)
        return Asked(batch, method, votes, None if self.exact else Seed.of(None), self.template(batch.inputs.levels))

    def _make_method(self, settings: CertifySettings, levels: int | None) -> Method:
        template = self._templates[levels]
        deviation = template.inputs.deviation_per_view
        return method_for(settings, template.law(), self.smoothed.num_classes, self.shape, deviation)

    def record(self, asked: Asked, probed: tuple[str, str, str]) -> RunRecord:
        """The record of a request whose votes are in; `probed`: the sampler's `probe_entries` of its input."""
        template, classes = asked.template, self.smoothed.num_classes
        views, scores, kept = probed
        smoothed, deviation = self.smoothed, template.inputs.deviation_per_view
        read = asked.batch.inputs.section(smoothed.input_range, smoothed.smoothing.law, deviation, smoothed.standardise)
        manifest = manifests.compose(
            asked.method,
            smoothing=template.smoothing,
            inputs=read,
            compute=template.compute,
            model=replace(template.model, views=views, scores=scores, kept_scores=kept),
            data=asked.batch.section(classes),
            seed=None if asked.secret is None else asked.secret.section,
            versions=template.versions,
        )
        return RunRecord(manifest, asked.method, asked.votes, asked.secret)

    def shown_views(self, asked: Asked, count: int) -> tuple[np.ndarray, list[int]]:
        """Some views [count, ...] of an input, as floats, and their votes, from noise that no run uses; calls the model."""
        smoothing, network = self.smoothed.smoothing, self.smoothed.network
        inputs, rows = asked.batch.inputs, self.sampler(asked.batch, asked.method).rows
        per_view = smoothing.words(inputs.values.shape[1:], inputs.levels)
        words = Stream(Seed.of(None), "surrogate", 0).words(0, rows, per_view, network.device)
        if isinstance(smoothing.law, ExactLaw):
            words = (
                torch.linspace(0, smoothing.law.for_shape(self.shape).views - 1, rows)
                .long()[:, None]
                .to(network.device)
            )
        pictures = inputs.values.to(network.device).expand(rows, *self.shape)
        with torch.inference_mode(), in_precision(network.precision, network.device):
            views = network.laid_out(smoothing.views(pictures, words, inputs.levels))
            votes = votes_of(network.scores(views, self.smoothed.num_classes)).tolist()
        return views[:count].float().cpu().contiguous().numpy(), votes[:count]


def record_files(record: RunRecord, certs: Certificates) -> dict[str, str]:
    """The text of every file of a request's run folder, of these certificates, with its seed; the seal is the last."""
    seed = {} if record.secret is None else {SEED_FILE: record.secret.secret.hex() + "\n"}
    return seed | {name: content.decode() for name, content in files_of(record, {CLAIMS: certs}).items()}


def _first_look(job: VotingJob) -> Iterator[tuple[int, Record, bool]]:
    """Cast votes until the one input has its first look."""
    for item in job.vote_here():
        yield item
        if isinstance(item[1], Tally) and item[1].stage == "count":
            return
