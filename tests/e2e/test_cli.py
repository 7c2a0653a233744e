"""certify, predict, plan, claim and verify as a person types them, with real digits and real files."""

import csv
import json
from pathlib import Path

import pytest
from commands import vauban

from vauban.cli import common
from vauban.runs.verify import verify_run

SIGMA = "gaussian:sigma=0.5"
SMALL = ["--smoothing", SIGMA, "--every", "500", "--limit", "6", "-n", "300", "--seed", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits"
    vauban("certify", "--data", "mnist:split=test", *SMALL, "--out", folder)
    return folder


def test_certify_prints_a_table_a_curve_and_json(run: Path, tmp_path: Path) -> None:
    shown = vauban("certify", "--data", "mnist:split=test", *SMALL, "--out", run)
    for word in ("clean accuracy", "not certified", "certified at radius 0", "median radius", "proven at 0.999"):
        assert word in shown
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads(vauban("certify", "--data", "mnist:split=test", *SMALL, "--out", run, "--json"))
    assert summary["inputs"] == 6
    assert summary["run"] == str(run)
    assert {"radius", "accuracy", "at_least"} == summary["certified"][0].keys()


def test_batch_changes_no_byte_of_the_tallies(run: Path, tmp_path: Path) -> None:
    vauban("certify", "--data", "mnist:split=test", *SMALL, "--batch", "5", "--out", tmp_path / "run")
    assert (tmp_path / "run" / "tallies.jsonl").read_bytes() == (run / "tallies.jsonl").read_bytes()


def test_votes_choose_the_label(tmp_path: Path) -> None:
    vauban("certify", *SMALL, "--n0", "100", "--out", tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["settings"]["label"] == "votes"
    assert "chosen by 100 uncounted votes" in manifest["claim"]
    verify_run(tmp_path / "run")


def test_predict(tmp_path: Path) -> None:
    out = tmp_path / "answers.csv"
    arguments = [
        "predict",
        "--smoothing",
        SIGMA,
        "-k",
        "2",
        "-n",
        "300",
        "--every",
        "500",
        "--limit",
        "6",
        "--out",
        out,
    ]
    result = json.loads(vauban(*arguments, "--json"))
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == len(result["predictions"]) == 6
    for row in rows:
        assert (row["labels"] == "") == (row["abstained"] == "true")
    assert result["correct"] + result["wrong"] + result["undecided"] == pytest.approx(1)


def test_plan_says_what_is_possible_and_what_it_costs() -> None:
    arguments = ["plan", "--smoothing", SIGMA, "-n", "100000", "--alpha", "0.001", "--seconds", "0.2"]
    plan = json.loads(vauban(*arguments, "--json"))
    assert plan["least_n"] == 10
    assert plan["largest_radius"] == pytest.approx(1.9057, abs=1e-4)
    assert plan["votes"] == 10_000 * 100_000
    assert plan["seconds"] == pytest.approx(plan["votes"] / plan["votes_per_second"])
    assert "1.9057" in vauban(*arguments)
    assert "the least is 10" in vauban("plan", "--smoothing", SIGMA, "-n", "9", "--seconds", "0.1", code=2)


def test_plan_answers_without_a_model_what_needs_none() -> None:
    shown = vauban("plan", "--smoothing", SIGMA, "--shape", "4")
    assert "1.9057" in shown
    assert "Skipped: speed and time, which need a model: give --model" in shown
    assert "for 10 classes" in vauban("plan", "--smoothing", SIGMA, "--shape", "4", "-k", "3")
    assert "least wins that certify 1 " in (
        shown := vauban("plan", "-s", "ablation:retained=2", "--shape", "4", "--radius", "1")
    )
    assert "none below 1" in shown
    assert "not even all" in shown
    assert "no model is packaged" in vauban("plan", "-s", SIGMA, "--shape", "4", "--weights", "w.safetensors", code=2)


def test_numbers_in_a_table_are_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    headers = ["run", *(f"a long title {i}" for i in range(12))]
    common.print_table(headers, [["gaussian:sigma=0.5", *["100.00 %"] * 12]])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "sigma=0.5" in line)
    assert row.split() == ["gaussian:sigma=0.5", *["100.00", "%"] * 12]


@pytest.mark.slow
def test_plan_says_which_noise_a_radius_needs_what_votes_buy_and_the_cost_without_weights() -> None:
    arguments = ["plan", "--radius", "0.5", "--votes", "1000", "--seconds", "0.05"]
    shown = vauban(*arguments, "--model", "cnn-small", "--shape", "1x28x28")
    assert "gaussian:sigma=0.203 " in shown
    assert "votes per second of cnn-small on 1x28x28" in shown
    plan = json.loads(vauban(*arguments, "--smoothing", "laplace", "--json"))
    assert plan["levels"][0]["smoothing"] == "laplace:sigma=0.1651"
    assert plan["levels"][0]["wins"] == plan["n"] == 1_000
    assert plan["votes_per_second"] > 0
    assert "not measured; the model takes 1 channels" in vauban(*arguments, "--smoothing", "ablation:retained=45")
    assert "neither --smoothing nor --radius" in vauban("plan", code=2)
    assert "leave --stop" in vauban(*arguments, "--stop", "anytime", code=2)


def test_plan_takes_the_classes_of_an_own_model_from_its_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "import torch",
        "def fresh(classes=7):",
        "    class Net(torch.nn.Module):",
        "        def forward(self, x):",
    ]
    (tmp_path / "planned_net.py").write_text(
        "\n".join([*lines, "            return x.flatten(1)[:, :7]", "    return Net()"])
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["plan", "--smoothing", SIGMA, "-n", "1000", "--seconds", "0.05", "--model", "planned_net:fresh"]
    assert "votes per second, measured" in vauban(*arguments, "--shape", "1x8x8")
    assert "votes per second, measured" in vauban(*arguments, "--shape", "1x8x8", "--data", "npz:path=a.npz,classes=7")
    told = vauban(*arguments[:-1], "cnn-small:classes=3", code=2)
    assert "the model has 3 classes, and mnist, which is taken where --data is not given, has 10" in told


def test_claim_from_plain_counts(tmp_path: Path) -> None:
    counts = tmp_path / "counts.txt"
    counts.write_text("99000 600 300 100 0\n30000 40000 20000 10000 0\n20000 20000 20000 40000 0\n")
    arguments = ["claim", counts, "--smoothing", SIGMA, "-k", "3", "--alpha", "0.001", "--bounds", "simuem"]
    vauban(*arguments, "--out", tmp_path / "claims.csv")
    rows = list(csv.DictReader((tmp_path / "claims.csv").open()))
    assert list(rows[0]) == ["index", "label", "radius", "abstained", "truth"]
    radii = [float(row["radius"]) for row in rows[:2]]
    assert radii[0] > radii[1] > 0
    found = json.loads(vauban(*arguments, "--json"))
    claims, (note, counted) = found["claims"], found["notes"]
    assert "taken for the true one" in counted
    assert "labels that were fixed before these votes were cast" in note
    assert f"note: {note}" in vauban(*arguments)
    assert [c["radius"] for c in claims] == [float(row["radius"]) if row["radius"] else None for row in rows]
    assert "gaussian:sigma=0.5" in vauban("claim", counts, code=2)


@pytest.mark.parametrize("smoothing", ["gaussian:sigma=1e30", "laplace:sigma=1e300,bound=theorem1"])
def test_claim_of_any_scale_ends(tmp_path: Path, smoothing: str) -> None:
    counts = tmp_path / "counts.txt"
    counts.write_text("990 10 0\n500 500 1\n")
    summary = json.loads(vauban("claim", counts, "--smoothing", smoothing, "--json"))
    assert 3 < len(summary["certified"]) < 10


def test_claim_for_fewer_votes_and_another_law(run: Path) -> None:
    fewer = json.loads(vauban("claim", run, "-n", "100", "--json"))
    assert fewer["votes_per_input"] == 100
    assert "kept counts at 100, 200, 300" in vauban("claim", run, "-n", "150", code=2)
    assert "votes were cast under" in vauban("claim", run, "--smoothing", "gaussian:sigma=1", code=2)


def test_verify_exits_with_one_at_a_lie(run: Path, tmp_path: Path) -> None:
    assert json.loads(vauban("verify", run, "--json"))["inputs"] == 6
    for name, old, new in [("claims.csv", ",false", "1,false"), ("tallies.jsonl", '"votes":100', '"votes":101')]:
        copy = tmp_path / name
        copy.mkdir()
        for path in run.iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        text = (copy / name).read_text()
        assert old in text
        (copy / name).write_text(text.replace(old, new, 1))
        assert "error:" in vauban("verify", copy, code=1)
    assert "is not a run" in vauban("verify", tmp_path, code=2)


@pytest.mark.parametrize(
    "option", [["--parts", "3"], ["--inputs", "3"], ["--all"], ["--model", "m"], ["--training", "t"]]
)
def test_verify_refuses_options_of_a_replay_that_is_not_asked_for(run: Path, option: list[str]) -> None:
    assert f"{option[0]} is for --replay, which is not given" in vauban("verify", run, *option, code=2)


def test_verify_refuses_parts_of_a_run_that_has_none(run: Path) -> None:
    assert "--parts is not for a smoothing run" in vauban("verify", run, "--replay", "--parts", "3", code=2)


KINDS = {"mnist", "cifar10", "gtsrb", "idx", "images", "imagenet", "npz", "table"}


def test_names_in_a_table_are_not_broken_into_lines(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_table(["name", "what"], [["n" * 40, "w " * 200]], numbers=False)
    assert "n" * 40 in capsys.readouterr().out


@pytest.mark.parametrize(("radii", "lines"), [(4, 1), (10, 2), (20, 2)])
def test_a_number_with_its_error_is_broken_before_the_sign_alone(
    radii: int, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ["  against the first", *("-14.50 ± 2.50" for _ in range(radii))]
    common.print_table(["run", *(f"at {i}" for i in range(radii))], [row])
    said = capsys.readouterr().out.splitlines()
    written = [" ".join(line.split()) for line in said if "50" in line]
    if lines == 1:
        assert written == [" ".join(["against the first", *["-14.50 ± 2.50"] * radii])]
    else:
        assert written == [" ".join(["against the first", *["-14.50"] * radii]), " ".join(["±2.50"] * radii)]
    assert max(map(len, said)) <= (120 if radii < 20 else 240)


def test_listings() -> None:
    assert {row["name"] for row in json.loads(vauban("data", "--json"))} == KINDS
    assert "resnet110" in vauban("models")
