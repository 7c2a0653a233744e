"""Tables of votes per second: every smoothing and network has a row, results are written as they come, failures are said."""

import json
import os
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from vauban.bench import tables
from vauban.bench.apart import Apart, Failed, _usable
from vauban.bench.tables import Row, Setting, chosen, measured
from vauban.cli import app
from vauban.errors import BadInput
from vauban.models.registry import ARCHITECTURES
from vauban.smoothing import SMOOTHINGS, build

SETTING = Setting("cpu", seconds=0.01, rows=2, size=8)
FEW = (
    Row("resnet18:width=2,classes=3", "gaussian:sigma=0.5", backend="fused", with_loop=True),
    Row("resnet18:width=2,classes=3", "band:size=4"),
    Row("resnet18:width=2,classes=3", "block:size=10"),
)


def test_every_smoothing_has_its_rows() -> None:
    rows = [(build(row.smoothing).law.name, build(row.smoothing).law.exact) for row in tables.TABLES["smoothings"]]
    assert {name for name, _ in rows} == set(SMOOTHINGS.names())
    assert {name for name, exact in rows if exact} == {"band", "block", "splitting", "fractional", "sparse"}
    assert len(set(rows)) == len(rows) == 15
    assert {row.model.partition(":")[0] for row in tables.TABLES["networks"]} <= set(ARCHITECTURES)


def test_results_are_written_as_they_come_and_a_row_that_fails_is_named(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []
    for result in measured(FEW, SETTING, None, tmp_path / "out.jsonl", lambda done: None):
        found.append(result)
        assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == found
    fused, exact, failed = found
    assert {"bare", "fused", "loop", "vauban", "vauban_to_fused"} <= fused.keys()
    assert (fused["backend"], exact["backend"], exact["exact"]) == ("fused", "torch", True)
    assert exact["vauban"] > 0
    assert "a block must fit" in failed["problem"]
    assert all(result == {"model": row.model, "smoothing": row.smoothing, "skipped": True}
               for row, result in zip(FEW, measured(FEW, SETTING, -1.0, None, lambda done: None), strict=True))  # fmt: skip


def test_a_call_that_fails_or_ends_its_process_costs_no_other_call() -> None:
    apart = Apart()
    try:
        first = apart.call(os.getpid)
        with pytest.raises(Failed, match="ValueError: invalid literal"):
            apart.call(int, "x")
        assert apart.call(os.getpid) == first != os.getpid()
        with pytest.raises(Failed, match="the process ended with exit code 7"):
            apart.call(os._exit, 7)
        second = apart.call(os.getpid)
        with pytest.raises(Failed, match="not done after 0 s, and ended"):
            apart.call(time.sleep, 600, limit=0.01)
        assert apart.call(os.getpid) not in (first, second)
    finally:
        apart.stop()


def test_rows_on_a_gpu_are_measured_apart_and_a_broken_gpu_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, float]] = []

    class Process:
        def call(self, function: Any, row: Row, setting: Setting, limit: float) -> dict[str, Any]:
            asked.append((row, limit))
            if row is FEW[0]:
                raise Failed("AcceleratorError: CUDA error: an illegal memory access was encountered")
            return {"model": row.model, "smoothing": row.smoothing}

        def stop(self) -> None:
            asked.append((None, 0.0))

    monkeypatch.setattr(tables, "Apart", Process)
    first, second = measured(FEW[:2], Setting("cuda"), 40.0, None, lambda done: None)
    assert "illegal memory access" in first["problem"]
    assert "problem" not in second
    assert [row for row, _ in asked] == [*FEW[:2], None]
    assert all(limit <= 70 for _, limit in asked)
    lost = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True, synchronize=raises_of_cuda))
    monkeypatch.setitem(sys.modules, "torch", lost)
    assert not _usable()


def raises_of_cuda() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_row_keeps_what_was_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(row: Row, setting: Setting) -> dict[str, Any]:
        for _ in range(2):
            warnings.warn("torch.compile failed (no compiler)", stacklevel=1)
        return {"vauban": 1.0}

    monkeypatch.setattr(tables, "measure", measure)
    (found,) = measured(FEW[:1], SETTING, None, None, lambda done: None)
    assert found["warnings"] == ["torch.compile failed (no compiler)"]


def test_tables_are_printed_and_other_names_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.TABLES, "networks", FEW[1:])
    words = [
        "bench",
        "certify",
        "--table",
        "networks",
        "--seconds",
        "0.01",
        "--rows",
        "2",
        "--size",
        "8",
        "--device",
        "cpu",
    ]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0
    assert "exact, 8x8" in " ".join(said.output.split())
    assert "BadInput" in said.output
    assert [row["smoothing"] for row in json.loads(CliRunner().invoke(app, [*words, "--json"]).output)] == [
        "band:size=4",
        "block:size=10",
    ]
    with pytest.raises(BadInput, match="networks or smoothings"):
        chosen("words", None)
    with pytest.raises(BadInput, match="whose networks are resnet18"):
        chosen("networks", ["mlp"])
    assert {row.model for row in chosen("smoothings", ["cnn-small"])} == {"cnn-small"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--within", "5"), "--within 5.0 is for --table alone: name a table"),
        (("--out", "votes.jsonl"), "--out votes.jsonl is for --table alone"),
        (("--table", "networks", "--smoothing", "laplace:sigma=1"), "--smoothing laplace:sigma=1 with --table"),
        (("--table", "networks", "--batch", "4"), "--batch 4 with --table"),
    ],
)
def test_an_option_that_would_not_be_read_is_refused(given: tuple[str, ...], said: str) -> None:
    answer = CliRunner().invoke(app, ["bench", "certify", "--device", "cpu", *given])
    assert answer.exit_code == 2
    assert said in " ".join(answer.output.split())


def test_the_help_says_that_a_row_is_finished() -> None:
    assert "one that has begun is finished" in " ".join(
        CliRunner().invoke(app, ["bench", "certify", "--help"]).output.split()
    )
