"""The bench of updates says what it measured; speed itself is no matter for a test."""

from __future__ import annotations

import pytest

from vauban.bench.rl import measure


@pytest.mark.parametrize(("algo", "env"), [("dqn", "BitFlipping-v0:dim=4"), ("ddpg", "DriveSeek-v0:max_goals=3")])
def test_the_bench_compares_the_same_updates(algo: str, env: str) -> None:
    told: list[int] = []
    line = measure(algo, env, 4, 0.2, 0.05, "cpu", told.append)
    assert (line["algo"], line["env"], line["batch"]) == (algo, env, 4)
    assert line["overhead"] > 0
    assert line["library_ms"] > 0
    assert line["vauban_ms"] > 0
    assert len(told) == 12
