"""Addressed random numbers: uniform, independent between lanes, and as SplitMix64 defines them."""

from __future__ import annotations

import torch

from vauban.poisoning.training.random_numbers import uniforms


def test_numbers_are_uniform_and_those_of_a_lane_its_own() -> None:
    lanes = torch.tensor([0, 1, 7, 2**40])
    u = uniforms(3, lanes, "steps", 5, 20_000)
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    assert torch.allclose(u.mean(dim=1), torch.tensor(0.5), atol=0.01)
    assert torch.allclose(u.var(dim=1), torch.tensor(1 / 12), atol=0.003)
    assert float(torch.corrcoef(u).fill_diagonal_(0).abs().max()) < 0.03
    assert float(torch.corrcoef(torch.stack([u[0, :-1], u[0, 1:]]))[0, 1].abs()) < 0.03
    assert torch.equal(uniforms(3, lanes[2:3], "steps", 5, 20_000)[0], u[2])
    assert torch.equal(uniforms(3, lanes, "steps", 5, 10), u[:, :10])
    others = (4, "steps", 5), (3, "views", 5), (3, "steps", 6)
    assert all(not torch.equal(uniforms(seed, lanes, why, step, 10), u[:, :10]) for seed, why, step in others)


def test_numbers_follow_the_definition() -> None:
    """SplitMix64 with Python's whole numbers."""

    def mix(z: int) -> int:
        z = (z + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    state = 11
    for word in (6, 1, 9):
        state = (mix(state) + word) % 2**64
    expected = [(mix((mix(state) + i * 0x9E3779B97F4A7C15) % 2**64) >> 40) / 2**24 for i in (1, 2, 3)]
    assert uniforms(11, torch.tensor([6]), "views", 9, 3)[0].tolist() == expected
