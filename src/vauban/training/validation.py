"""How good a network is during training: accuracy on views and certified accuracy at a radius, on pictures held out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from vauban.data import Dataset
from vauban.errors import BadInput
from vauban.laws.exact import ExactLaw
from vauban.laws.from_counts import largest_radius, radii_of_counts
from vauban.laws.law import Law
from vauban.runs.sections import Selection
from vauban.seed import Seed
from vauban.smoothing import Smoothing
from vauban.smoothing.random import Stream, words_of
from vauban.training.batches import Range, read_inputs

ROWS = 1000


@dataclass(frozen=True)
class Validation:
    """Pictures held out, how often they are tried, and the radius at which certified accuracy is measured.

    `votes` of each picture count; where an exact law has more views than that, a sample of them votes, and the radius is an
    estimate. These numbers guide training and choose its best weights: a claim about a network is made by `certify` alone.
    `times`: how often in one training.
    """

    data: Dataset
    radius: float | None = None
    votes: int = 200
    times: int = 10
    alpha: float = 0.001

    def __post_init__(self) -> None:
        if self.data.labels is None:
            raise BadInput(f"{self.data.name} has no labels to validate with: give pictures with labels")
        if self.votes < 1 or self.times < 1:
            raise BadInput(f"votes={self.votes}, times={self.times}: both must be 1 or more")
        if self.radius is not None and not 0 <= self.radius < math.inf:
            raise BadInput(f"radius={self.radius}: a finite number of at least 0 is needed (--radius)")

    def check(self, smoothing: Smoothing, input_range: Range) -> None:
        """Refuse pictures that `certify` would refuse; warn of a radius that no picture can reach with these votes."""
        smoothing = smoothing.first
        inputs = read_inputs(self.data.images, smoothing.law.exact, input_range=input_range)
        inputs.check_with(smoothing.check)
        law, classes = smoothing.law.for_shape(inputs.values.shape[1:]), self.data.num_classes
        if self.radius is None:
            return
        if isinstance(law, ExactLaw):
            most, by = law.largest_radius(1, classes), f"all {law.views:,} views"
        else:
            assert isinstance(law, Law)
            found = largest_radius(self.votes, 1, self.alpha, classes, "binocp", law)
            most, by = -1.0 if found is None else found, f"{self.votes} votes"
        if most < self.radius:
            can = f"at most {most:.4g}" if most >= 0 else "nothing"
            advice = "give a smaller radius" if law.exact else "give a smaller radius or more votes"
            warnings.warn(
                f"radius={self.radius:g}: under {law.spec}, {by} that agree certify {can}, so that certified accuracy is 0 in "
                f"every validation; {advice}",
                stacklevel=3,
            )

    def described(self) -> str:
        """What identifies these pictures and settings in a checkpoint."""
        settings = f"radius={self.radius},votes={self.votes},times={self.times},alpha={self.alpha}"
        return f"{len(self.data)} of {self.data.name} {self.data.fingerprint()} {settings}"

    def radius_for(self, smoothing: Smoothing) -> float:
        """The radius given, or one of the order of those that this smoothing certifies, whole where radii are counts."""
        if self.radius is not None:
            return self.radius
        law = smoothing.law.for_shape(self.data.images.shape[1:])
        if isinstance(law, ExactLaw):
            third = law.largest_radius(1, self.data.num_classes) / 3
            return float(math.ceil(third)) if law.threat.integer else third
        assert isinstance(law, Law)
        return float(math.ceil(law.scale)) if law.threat.integer else law.scale / 2


@dataclass(frozen=True)
class Validated:
    """Shares of the held-out pictures: views classified right, pictures smoothed right, and those certified at `radius`."""

    radius: float
    base_accuracy: float
    accuracy: float
    certified: float


def split(data: Dataset, held_out: int, seed: int) -> tuple[Dataset, Dataset]:
    """Training and validation pictures; the latter are `held_out` ones drawn by the seed, in their order."""
    if not 0 < held_out < len(data):
        raise BadInput(
            f"{held_out} of {len(data)} pictures cannot be held out: give at least 1, and leave some to train on"
        )
    generator = np.random.Generator(np.random.Philox(key=Seed.of(seed).key, counter=1 << 255))
    out = np.zeros(len(data), bool)
    out[generator.permutation(len(data))[:held_out]] = True
    return _part(data, ~out), _part(data, out)


def without_every(data: Dataset, step: int) -> Dataset:
    """Training pictures without those whose number in the whole data set is a multiple of `step`."""
    return _part(data, np.asarray(data.index) % step != 0)


def _part(data: Dataset, chosen: np.ndarray) -> Dataset:
    labels, whole = None if data.labels is None else data.labels[chosen], data.selection
    names = None if data.names is None else tuple(np.asarray(data.names, object)[chosen])
    taken = Selection(whole.size, whole.sha256)
    return replace(data, images=data.images[chosen], labels=labels, index=data.index[chosen], names=names, taken=taken)


def validate(
    network: torch.nn.Module,
    settings: Validation,
    smoothing: Smoothing,
    device: torch.device,
    precision: str,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Validated:
    """Let the network in evaluation mode vote on views of the held-out pictures; `on_progress` is called with how many have.

    Of several smoothings by turns, the first makes these views.
    """
    smoothing = smoothing.first
    labels = settings.data.labels
    assert labels is not None
    counts, right, votes = _counts(network, settings, smoothing, device, precision, on_progress)
    law, radius = smoothing.law.for_shape(settings.data.images.shape[1:]), settings.radius_for(smoothing)
    if isinstance(law, ExactLaw):
        radii = _estimated(law, counts, labels, votes)
    else:
        assert isinstance(law, Law)
        radii = radii_of_counts(counts, labels, law, k=1, alpha=settings.alpha, bounds="binocp")
    return Validated(
        radius,
        right,
        float((counts.argmax(1) == labels).mean()),
        float((np.nan_to_num(radii, nan=-1.0) >= radius).mean()),
    )


def _estimated(law: ExactLaw, counts: np.ndarray, labels: np.ndarray, votes: int) -> np.ndarray:
    """Radii of an exact law as if all views voted like the `votes` that did; NaN where the label does not win."""
    own = counts[np.arange(len(labels)), labels]
    rivals = counts.copy()
    rivals[np.arange(len(labels)), labels] = -1
    lead = (own - rivals.max(1)) / votes
    changed = np.floor(lead * law.views / 2 - 0.5)
    return np.where(changed >= 0, law.radius_tolerating(np.maximum(changed, 0).astype(np.int64)), np.nan)


def _counts(
    network: torch.nn.Module,
    settings: Validation,
    smoothing: Smoothing,
    device: torch.device,
    precision: str,
    on_progress: Callable[[int], None],
) -> tuple[np.ndarray, float, int]:
    """Votes per class [m, classes], the share of views whose highest score is the label's, and how many views of each voted.

    Where the law has a threshold, a view votes for every class whose probability reaches it.
    """
    inputs = read_inputs(settings.data.images, smoothing.law.exact, input_range=None)
    law = smoothing.law.for_shape(inputs.values.shape[1:])
    whole = isinstance(law, ExactLaw) and law.views <= settings.votes
    votes = law.views if isinstance(law, ExactLaw) and whole else settings.votes
    per_view, together = smoothing.words(inputs.values.shape[1:], inputs.levels), max(1, ROWS // votes)
    classes, threshold = settings.data.num_classes, getattr(law, "threshold", None)
    counts = torch.zeros(len(inputs.values), classes, dtype=torch.long, device=device)
    labels = torch.as_tensor(settings.data.labels, device=device)
    right = torch.zeros((), dtype=torch.long, device=device)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    was_training = network.training
    network.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            for first in range(0, len(counts), together):
                x = inputs.values[first : first + together].to(device)
                if whole:
                    words = torch.arange(votes, device=device)[:, None].repeat(len(x), 1)
                else:
                    streams = [Stream(Seed.of(0), "probe", first + i) for i in range(len(x))]
                    words = words_of(streams, [0] * len(x), votes, per_view, device)
                views = smoothing.views(x.repeat_interleave(votes, 0), words, inputs.levels)
                if views.dim() == 4:
                    views = views.contiguous(memory_format=torch.channels_last)
                scores = torch.cat([network(part) for part in views.split(ROWS)]).float()
                best = scores.argmax(1)
                right += (best == labels[first : first + len(x)].repeat_interleave(votes)).sum()
                one = functional.one_hot(best, classes)
                cast = one if threshold is None else (scores.softmax(1) >= threshold).long()
                counts[first : first + len(x)] = cast.view(len(x), votes, classes).sum(1)
                on_progress(first + len(x))
    finally:
        network.train(was_training)
    return counts.cpu().numpy(), right.item() / (votes * len(counts)), votes
