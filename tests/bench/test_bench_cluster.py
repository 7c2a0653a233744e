"""What is measured of a cluster, and what follows on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vauban.bench.cluster import draw, estimate, measure
from vauban.errors import BadInput

COSTS: dict[str, float] = {"seconds_a_block": 0.002, "writer_tallies": 20_000, "start": 100}


def test_on_paper_voting_is_shared_and_writing_is_not() -> None:
    one, many, most = (estimate(gpus, **COSTS) for gpus in (1, 64, 4096))
    assert one["voting"] == pytest.approx(50_000 * 1_800 / 24_000)
    assert many["voting"] == pytest.approx(one["voting"] / 64)
    assert many["seconds"] == pytest.approx(100 + many["voting"])
    assert most["seconds"] == pytest.approx(100 + 50_000 * 10 / 20_000 / (1 - 64 * 0.002))


@pytest.mark.slow
def test_measured_on_two_workers_and_drawn(ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vauban.bench.cluster._SMALL", 50)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        result = measure("cnn-small", "gaussian:sigma=0.5", on=ray_cluster.on, rounds=1, seconds=0.3)
    finally:
        torch.set_num_threads(before)
    assert 0 < result["efficiency"] < 2
    assert min(result[rate] for rate in ("here", "one", "all", "writer_tallies", "start_seconds")) > 0
    draw(tmp_path / "cluster.png", result, [estimate(gpus, **COSTS) for gpus in (1, 64)])
    assert (tmp_path / "cluster.png").stat().st_size > 10_000
    with pytest.raises(BadInput, match="--on here"):
        measure("cnn-small", "gaussian:sigma=0.5", on="here")
