"""Random words are addressed, the same on every path, and uniform."""

import numpy as np
import pytest
import torch

from vauban.seed import Seed
from vauban.smoothing.random import STAGES, Stream, addressed_words, addresses, keys_of, round_keys, words_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", [0, 7, 2**40])
def test_torch_arithmetic_gives_numpys_words(stage: str, number: int) -> None:
    stream = Stream(Seed.of(3), stage, number)
    for first, count in [(0, 50), (12345, 7), (2**40, 3), (77, 9_001)]:
        assert np.array_equal(stream.raw_words(first, 4 * count) >> 1, stream._torch_words(first, count, CPU).numpy())


@pytest.mark.parametrize("per_view", [1, 3, 4, 10])
def test_a_view_has_the_same_words_whatever_is_drawn_with_it(per_view: int) -> None:
    stream = Stream(Seed.of(1), "count", 5)
    together = stream.words(0, 20, per_view, CPU)
    for start, count in [(0, 1), (3, 5), (19, 1), (10, 10)]:
        assert torch.equal(stream.words(start, count, per_view, CPU), together[start : start + count])


@pytest.mark.parametrize("per_view", [1, 3, 4, 10])
def test_many_inputs_in_one_call_have_the_words_they_have_alone(per_view: int) -> None:
    seed = Seed.of(2)
    streams = [Stream(seed, stage, i) for stage, i in (("count", 0), ("choose", 7), ("count", 2**40), ("probe", 3))]
    starts = [0, 12_345, 2**33, 100]
    alone = torch.cat([stream.words(start, 6, per_view, CPU) for stream, start in zip(streams, starts, strict=True)])
    assert torch.equal(words_of(streams, starts, 6, per_view, CPU), alone)
    by_torch = addressed_words(round_keys(seed, CPU), addresses(streams, starts), 6, per_view)
    assert torch.equal(by_torch, alone)


@pytest.mark.parametrize("per_view", [1, 3, 10])
def test_inputs_of_several_seeds_in_one_call_have_the_words_they_have_alone(per_view: int) -> None:
    streams, starts = [Stream(Seed.of(i), "count", 0) for i in (5, 6, 5)], [0, 70, 2**33]
    alone = torch.cat([stream.words(start, 6, per_view, CPU) for stream, start in zip(streams, starts, strict=True)])
    assert torch.equal(words_of(streams, starts, 6, per_view, CPU), alone)
    by_torch = addressed_words(keys_of(streams, CPU), addresses(streams, starts), 6, per_view)
    assert torch.equal(by_torch, alone)
    assert torch.equal(keys_of(streams[:1], CPU), round_keys(Seed.of(5), CPU))


def test_seed_stage_input_and_view_all_change_the_words() -> None:
    streams = [Stream(Seed.of(s), stage, i) for s in (1, 2) for stage in ("count", "choose") for i in (0, 1)]
    words = torch.cat([stream.words(0, 50, 4, CPU) for stream in streams])
    assert len(torch.unique(words)) == words.numel()


def test_words_are_63_bits_and_uniform() -> None:
    words = Stream(Seed.of(1), "count", 0).words(0, 1000, 1000, CPU)
    assert int(words.min()) >= 0
    cells = torch.bincount((words >> 55).flatten(), minlength=256).double()
    chi2 = ((cells - 1e6 / 256) ** 2 / (1e6 / 256)).sum()
    assert 150 < chi2 < 400  # 255 degrees of freedom; outside with probability under 1e-7
    assert abs(float((words & 1).double().mean()) - 0.5) < 0.0025


def test_a_fresh_seed_differs_and_a_commitment_hides_it() -> None:
    assert Seed.of(None) != Seed.of(None)
    assert Seed.of(1) == Seed.of(1)
    assert Seed.of(1).secret.hex() not in Seed.of(1).commitment
