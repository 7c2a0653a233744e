"""Base classifiers that are random by design: seeded generators for a call, and the check that rows vote independently."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincc

from vauban.errors import BadInput
from vauban.models.unchanged import generator_states


def check_dispersion(calls: NDArray[np.integer], num_classes: int) -> None:
    """Refuse votes [calls, rows] of a random base classifier that vary more between calls than independent rows can.

    Every call sees the same views. For each class the variance of its votes per call, over what independent rows give, is about
    chi-squared; one coin for a whole batch makes it as many times larger as there are rows. Refused at one in a million.
    """
    for label in range(num_classes):
        votes = calls == label
        expected = float((votes.mean(axis=0) * (1 - votes.mean(axis=0))).sum()) * len(calls) / (len(calls) - 1)
        if (
            expected > 0
            and gammaincc((len(calls) - 1) / 2, (len(calls) - 1) * votes.sum(axis=1).var(ddof=1) / expected / 2) < 1e-6
        ):
            raise BadInput(
                "stochastic='rows': the votes of one call are not independent (their counts vary more from call to call than "
                "independent rows allow): declare stochastic='views', one view per call"
            )


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed torch's, NumPy's and Python's generators, and put them back into their states afterwards."""
    before = generator_states()
    try:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        yield
    finally:
        torch.set_rng_state(before["torch"])
        np.random.set_state(before["numpy"])
        random.setstate(before["random"])
        if "torch.cuda" in before:
            torch.cuda.set_rng_state_all(before["torch.cuda"])
