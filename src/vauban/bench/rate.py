"""How many votes a second a smoothed classifier casts on its inputs."""

from __future__ import annotations

import time

import torch

from vauban.inputs import Inputs
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing.random import Stream


def votes_per_second(smoothed: SmoothedClassifier, inputs: Inputs, seconds: float) -> float:
    """Cast votes on the first input for about `seconds`, after a warm-up, and return the rate."""
    if smoothed.exact:
        return _listed_per_second(smoothed, inputs, seconds)
    voter = smoothed.voter(inputs)
    stream = Stream(Seed.of(0), "probe", 0)
    voter.probe(inputs.values, inputs.levels)
    cast, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or cast == 0:
        votes = voter.rows * max(1, int(cast / voter.rows))
        for _ in voter.cast(inputs.values[0], stream, [votes], inputs.levels):
            pass
        cast += votes
        if device_waits(voter.device):
            torch.cuda.synchronize(voter.device)
        spent = time.perf_counter() - began
    return cast / spent


def _listed_per_second(smoothed: SmoothedClassifier, inputs: Inputs, seconds: float) -> float:
    """The same where every view votes: as many numbers as take about so long, over and over if there are few."""
    enumerator, views = smoothed.enumerator(inputs.values.shape[1:]), smoothed.exact_law(inputs).views
    enumerator.probe(inputs.values, views)
    cast, began = 0, time.perf_counter()
    while True:
        for _, votes in enumerator.cast(inputs.values, views):
            cast += len(votes)
            if (spent := time.perf_counter() - began) >= seconds:
                return cast / spent


def device_waits(device: torch.device) -> bool:
    """Whether work on the device is queued, so that a clock must wait for it."""
    return device.type == "cuda"
