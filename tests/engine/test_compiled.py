"""A compiled shape casts the votes of the plain one; where nothing can be compiled, votes are cast without it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vauban.engine.compiled import noise
from vauban.engine.network import Network
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import ViewBlock
from vauban.errors import BadInput
from vauban.models import build as network
from vauban.runs.verify import verify_run
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build, grid
from vauban.smoothing.grid import GridNoise
from vauban.smoothing.random import Stream, addresses, round_keys

CPU = torch.device("cpu")
TRUTH = [0, 1, 2, 0]
X = torch.randint(0, 256, (4, 1, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
BLOCKS = [ViewBlock(X[i], Stream(Seed.of(3), "count", 10 + i), 40 * i) for i in range(2)]


def pixels(views: torch.Tensor) -> torch.Tensor:
    """Scores that are the view itself, so that every bit of it shows."""
    return views.flatten(1) + 0.0


def test_a_compiler_that_fails_costs_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler here\nat all")

    monkeypatch.setattr(torch, "compile", broken)
    net = network("cnn-small:channels=1,classes=3,size=6", seed=1).eval()
    smoothed = SmoothedClassifier(net, "gaussian:sigma=0.25", num_classes=3, compile=True)
    with pytest.warns(UserWarning, match="torch.compile failed .no compiler here.: votes are cast without it"):
        smoothed.certify(X, TRUTH, n=100, alpha=0.01, seed=1, out=tmp_path / "run")
    assert "compile" not in json.loads((tmp_path / "run" / "manifest.json").read_text())["compute"]
    verify_run(tmp_path / "run")


def test_tuning_is_asked_of_the_compiler_and_said_in_the_manifest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, object]] = []

    def same(function: object, **how: object) -> object:
        asked.append(how)
        return function

    monkeypatch.setattr(torch, "compile", same)
    net = network("cnn-small:channels=1,classes=3,size=6", seed=1).eval()
    smoothed = SmoothedClassifier(net, "gaussian:sigma=0.25", num_classes=3, compile="tuned")
    smoothed.certify(X, TRUTH, n=100, alpha=0.01, seed=1, out=tmp_path / "run")
    assert asked
    assert all(how["options"]["max_autotune"] for how in asked)  # type: ignore[index]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["compute"]["compile"] == "tuned"
    verify_run(tmp_path / "run")
    with pytest.raises(BadInput, match="compile='fast': True, False or 'tuned'"):
        SmoothedClassifier(net, "gaussian:sigma=0.25", num_classes=3, compile="fast")


@pytest.mark.slow
def test_compiled_votes_are_the_plain_ones_and_the_manifest_says_so(tmp_path: Path) -> None:
    net = network("cnn-small:channels=1,classes=3,size=6", seed=1).eval()
    lines = []
    for compile_ in (False, True, "tuned"):
        smoothed = SmoothedClassifier(net, "gaussian:sigma=0.25", num_classes=3, rows=40, block=20, compile=compile_)
        folder = tmp_path / str(compile_)
        smoothed.certify(X, TRUTH, n=400, alpha=0.01, stop="target:radius=0.1", seed=1, out=folder)
        verify_run(folder)
        text = (folder / "tallies.jsonl").read_text()
        lines.append([{**json.loads(line), "check": ""} for line in text.splitlines()])
    assert lines[0] == lines[1] == lines[2]
    assert json.loads((tmp_path / "True" / "manifest.json").read_text())["compute"]["compile"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "long"),
    [
        ("gaussian:sigma=0.25", False),
        ("gaussian:sigma=0.25", True),
        ("uniform:sigma=0.4", False),
        ("splitting:sigma=0.5,sampled=true", False),
    ],
)
def test_noise_compiled_with_the_network_has_the_same_bits_and_is_one_graph(
    spec: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU as a GPU would do it: no number is waited for, no part of the work stays outside."""
    want = Sampler(Network(pixels, CPU), build(spec), 36, 255, 20, block=10)
    plain = want.answer(want.made(BLOCKS))
    monkeypatch.setattr(GridNoise, "_on_cpu", lambda self, words: False)
    monkeypatch.setattr(grid, "_LONG", 0 if long else grid._LONG)
    monkeypatch.setattr(Sampler, "_fuses", property(lambda self: self.compiled))
    torch._dynamo.utils.counters.clear()
    fast = Sampler(Network(pixels, CPU), build(spec), 36, 255, 20, block=10, compiled=True)
    got = fast.answer(fast.made(BLOCKS))
    assert torch.equal(got.scores, plain.scores)
    assert np.array_equal(got.votes(), plain.votes())
    assert not torch._dynamo.utils.counters["graph_break"]
    program = noise(want, torch.stack([block.x for block in BLOCKS]))
    assert program is not None
    streams, starts = [block.stream for block in BLOCKS], [block.start for block in BLOCKS]
    with torch.inference_mode():
        views = program(X[:2], addresses(streams, starts), round_keys(Seed.of(3), CPU))
    assert torch.equal(pixels(views), plain.scores)
    again = fast.answer(fast.made(BLOCKS[::-1]))
    assert torch.equal(again.scores.view(2, 10, 36).flip(0), plain.scores.view(2, 10, 36))


def test_exact_votes_are_compiled_where_asked_and_the_manifest_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The compiler is replaced by one that changes nothing, and by one that fails."""
    net, asked = network("cnn-small:channels=2,classes=3,size=6", seed=1).eval(), []

    def unchanged(function: Any, **how: Any) -> Any:
        asked.append(how)
        return function

    monkeypatch.setattr(torch, "compile", unchanged)
    plain = SmoothedClassifier(net, "band:size=2", num_classes=3, rows=16).certify(X, TRUTH)
    fast = SmoothedClassifier(net, "band:size=2", num_classes=3, rows=16, compile=True)
    assert np.array_equal(fast.certify(X, TRUTH, out=tmp_path / "run").counts, plain.counts)
    assert len(asked) == 1
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["compute"]["compile"] is True
    verify_run(tmp_path / "run")

    def failing(function: Any, **how: Any) -> Any:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", failing)
    with pytest.warns(UserWarning, match="no compiler here"):
        SmoothedClassifier(net, "band:size=2", num_classes=3, rows=16, compile=True).certify(X, TRUTH)


@pytest.mark.slow
def test_compiled_exact_votes_are_the_plain_ones() -> None:
    net = network("cnn-small:channels=2,classes=3,size=6", seed=1).eval()
    found = [
        SmoothedClassifier(net, "band:size=2", num_classes=3, rows=16, compile=how).certify(X, TRUTH).counts
        for how in (False, True)
    ]
    assert np.array_equal(*found)
