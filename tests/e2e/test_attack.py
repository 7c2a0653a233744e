"""vauban attack through the command line: on a run, on an undefended model, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from vauban.cli import app
from vauban.runs.run import Run

SMALL = "--views 4 --votes 100 --confirm-votes 300 --attack minimal:steps=10 --seed 1"


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, " ".join(words).split())
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("attacked") / "run"
    code, said = run(f"certify --smoothing gaussian:sigma=0.5 -n 200 --alpha 0.01 --limit 2 --seed 1 --out {out}")
    assert code == 0, said
    return out


def test_a_run_is_attacked_shown_and_resumed(certified: Path, tmp_path: Path) -> None:
    command = f"attack {certified} {SMALL} --out {tmp_path / 'a'}"
    code, said = run(command, "--json")
    assert code == 0, said
    summary = json.loads(said[said.index("{") :])
    assert summary["inputs"] == summary["attacked"] == 2
    assert summary["threat"] == "l2"
    assert summary["alarms"] == []
    assert all(line["certified"] <= line["under_attack"] for line in summary["curve"])
    for name in ("attack.json", "results.jsonl", "table.csv", "curves.png"):
        assert (tmp_path / "a" / name).stat().st_size > 0, name
    if summary["found"]:
        with np.load(tmp_path / "a/adversarial.npz") as kept:
            assert kept["images"].dtype == np.uint8
    before = (tmp_path / "a/results.jsonl").read_bytes()
    code, said = run(command)
    assert code == 0, said
    assert "under attack" in said
    assert (tmp_path / "a/results.jsonl").read_bytes() == before


@pytest.mark.parametrize("option", ["--precision bf16", "--rows 50"])
@pytest.mark.parametrize("what", ["{run}", "--smoothing none --threat l2"])
def test_an_option_that_would_be_ignored_is_refused(what: str, option: str, certified: Path, tmp_path: Path) -> None:
    code, said = run(f"attack {what.format(run=certified)} {SMALL} {option} --out {tmp_path / 'a'}")
    assert code == 2
    assert f"{option}:" in said
    assert "leave it out" in said
    assert not (tmp_path / "a").exists()


def test_a_network_of_fixed_rows_is_attacked_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vauban.smoothed import SmoothedClassifier

    made: list[int | None] = []
    honest = SmoothedClassifier.__init__

    def look(self: SmoothedClassifier, *given: Any, **options: Any) -> None:
        honest(self, *given, **options)
        made.append(self.rows)

    monkeypatch.setattr(SmoothedClassifier, "__init__", look)
    code, said = run(f"attack --smoothing gaussian:sigma=0.5 {SMALL} --limit 1 --rows 50 --out {tmp_path / 'a'}")
    assert code == 0, said
    code, said = run("predict --smoothing gaussian:sigma=0.5 --limit 1 -n 100 --rows 50")
    assert code == 0, said
    assert set(made) == {50}


def test_an_alarm_ends_with_exit_code_1(certified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Run.certificates
    monkeypatch.setattr(Run, "certificates", lambda self: replace(honest(self), radius=20 * honest(self).radius))
    stronger = "--views 8 --votes 200 --confirm-votes 1000 --attack minimal:steps=25 --seed 1 --limit 1"
    code, said = run(f"attack {certified} {stronger} --out {tmp_path / 'd'}")
    assert code == 1, said
    assert "attacking 1 inputs\n" in said  # before anything was found
    assert "ALARM: inputs 0 have another answer inside their certified radius" in said
    assert "1 of 1 certificates are contradicted; at alpha = 0.01 each, at most 0.01 false ones are expected" in said
    command = json.loads((tmp_path / "d/alarm/alarm.json").read_text())["command"].removeprefix("vauban ")
    code, said = run(command, "--json")
    assert code == 0, said
    assert json.loads(said[said.index("{") :])["correct"] == 0


def test_an_undefended_model_is_attacked_in_a_threat(tmp_path: Path) -> None:
    command = f"attack --smoothing none --limit 3 --out {tmp_path / 'b'} --attack minimal:steps=20 --json"
    code, said = run(command)
    assert code == 2
    assert "--threat" in said
    code, said = run(command, "--threat linf")
    assert code == 0, said
    found = json.loads(said[said.index("{") :])
    assert found["found"] == 3
    assert 0 < found["median_distance"] < 0.5


def test_refusals_say_what_to_do(certified: Path, tmp_path: Path) -> None:
    for words, advice in (
        (f"{certified} --budget 0", "60s"),
        (f"{certified} --attack pointwise", "use minimal, pgd, random"),
        (f"{certified} --attack pgd:stride=2", "no parameter 'stride'"),
        ("", "--smoothing none"),
        (f"{certified} --smoothing none", "both a run and --smoothing"),
    ):
        code, said = run(f"attack {words} --out {tmp_path / 'c'}")
        assert code in (1, 2), said
        assert advice in said, said
        assert "Traceback" not in said
