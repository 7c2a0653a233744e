"""The command line as a person uses it: real processes, real digits, real files."""

import csv
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vauban.cli import app, common
from vauban.runs.verify import verify_run

SIGMA = "gaussian:sigma=0.5"
SMALL = ["--smoothing", SIGMA, "--every", "500", "--limit", "6", "-n", "300", "--seed", "1"]


def vauban(*arguments: str | Path, code: int = 0) -> str:
    """Run a command in this process, expect its exit code, and return what it printed (its errors, if it was to fail)."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, f"exit {done.exit_code}\n{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


# A shell that starts tests in the background lets its children ignore Ctrl-C: a command is started as a terminal starts it.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from vauban.cli import main; main()"


def process(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_bytes(started: subprocess.Popen[str], path: Path, size: int) -> None:
    """Until a file that a process writes has grown to some size."""
    while not path.exists() or path.stat().st_size < size:
        assert started.poll() is None
        time.sleep(0.005)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits"
    vauban("certify", "--data", "mnist:split=test", *SMALL, "--out", folder)
    return folder


@pytest.mark.slow
def test_train_certify_kill_resume_claim_verify(tmp_path: Path) -> None:
    model, folder = tmp_path / "model.safetensors", tmp_path / "run"
    out = vauban(
        "train",
        "--data",
        "mnist",
        "--smoothing",
        SIGMA,
        "--every",
        "30",
        "--epochs",
        "3",
        "--lr",
        "0.003",
        "--out",
        model,
    )
    assert "accuracy on training views" in out
    command = ["certify", "--model", str(model), "--data", "mnist:split=test", "--smoothing", SIGMA, "-k", "1"]
    command += ["-n", "2000", "--alpha", "0.001", "--every", "400", "--limit", "12", "--seed", "5", "--json", "--out"]
    started = process(*command, folder)
    wait_for_bytes(started, folder / "tallies.jsonl", 1500)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert "holds" in vauban("verify", folder, code=3)
    summary = json.loads(vauban(*command, folder))
    assert summary["inputs"] == 12
    assert summary["certified"][0]["accuracy"] > 0.4
    undisturbed = tmp_path / "undisturbed"
    vauban(*command, undisturbed)
    lines = [sorted((f / "tallies.jsonl").read_bytes().splitlines()) for f in (folder, undisturbed)]
    assert lines[0] == lines[1]
    assert "all hold" in vauban("verify", folder)
    vauban("claim", folder, "-k", "3", "--bounds", "simuem", "--out", tmp_path / "top3.csv")
    rows = list(csv.DictReader((tmp_path / "top3.csv").open()))
    assert [int(row["index"]) for row in rows] == list(range(0, 4800, 400))
    assert sum(row["radius"] != "" for row in rows) >= round(12 * summary["certified"][0]["accuracy"])


def test_ctrl_c_keeps_everything(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started = process("certify", "--smoothing", SIGMA, "-n", "100000", "--limit", "50", "--out", folder)
    wait_for_bytes(started, folder / "tallies.jsonl", 300)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate()
    assert started.returncode == 130
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    assert (folder / "tallies.jsonl").read_bytes().endswith(b"\n")


def test_certify_prints_a_table_a_curve_and_json(run: Path, tmp_path: Path) -> None:
    shown = vauban("certify", "--data", "mnist:split=test", *SMALL, "--out", run)
    for word in ("clean accuracy", "undecided", "certified at radius 0", "median radius", "proven at 0.999"):
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
    assert "no model is packaged for inputs of shape 3x8x8" in vauban(
        "plan", "--smoothing", SIGMA, "--shape", "3x8x8", code=2
    )
    assert "leave --stop" in vauban(*arguments, "--stop", "anytime", code=2)


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
    claims, (note,) = found["claims"], found["notes"]
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
    ("arguments", "complaint"),
    [
        (["--smoothing", "gausian:sigma=1"], "did you mean 'gaussian'"),
        (["--smoothing", "gaussian:sigm=1"], "gaussian:sigma=0.5"),
        (["--smoothing", SIGMA, "--data", "minst"], "did you mean 'mnist'"),
        (["--smoothing", SIGMA, "--data", "mnist:split=tset"], "split"),
        (["--smoothing", SIGMA, "-n", "9"], "the least is 10"),
        (["--smoothing", SIGMA, "-k", "10"], "k=10 of 10 classes"),
        (["--smoothing", SIGMA, "--alpha", "0"], "alpha=0"),
        (["--smoothing", SIGMA, "--alpha", "1.5"], "alpha=1.5"),
        (["--smoothing", SIGMA, "--bounds", "simu"], "simuem"),
        (["--smoothing", SIGMA, "--model", "cnn"], "weights"),
        (["--smoothing", SIGMA, "--model", "nothing.safetensors"], "nothing.safetensors"),
        (["--smoothing", SIGMA, "--batch", "0"], "--batch 0"),
        (["--smoothing", SIGMA, "--batch", "9" * 23], "a whole number from 1 to 1000"),
        (["--smoothing", SIGMA, "--batch", "9" * 5000], "a whole number from 1 to 1000"),
        (["--smoothing", SIGMA, "--batch", "²"], "--batch ²"),
        (["--smoothing", SIGMA, "--rows", "99999999999999"], "rows=99999999999999: at most 1,000,000"),
        (["--smoothing", SIGMA, "--radii", "a,b"], "--radii a,b"),
        (["--smoothing", SIGMA, "--device", "tpu"], "device 'tpu'"),
    ],
)
def test_mistakes_are_answered_and_leave_nothing(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    errors = vauban("certify", *arguments, "--limit", "2", "--out", tmp_path / "run", code=2)
    assert complaint in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_too_little_memory_is_answered_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 5.86 GiB")

    monkeypatch.setattr("vauban.smoothed.SmoothedClassifier.certify", full)
    errors = vauban("certify", *SMALL, "--out", tmp_path / "run", code=1)
    assert "too little memory (Unable to allocate 5.86 GiB): give smaller --rows" in errors


@pytest.mark.parametrize(
    "command",
    [
        ["certify", "--smoothing", SIGMA, "--limit", "1", "-n", "100"],
        ["demo"],
        ["attack", "RUN"],
        ["poison", "train", "--partitions", "2", "--limit", "10"],
        ["rl", "train", "--algo", "ddpg", "--env", "ContinuousSeek-v0"],
    ],
)
def test_an_empty_folder_name_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "the name is empty" in vauban(*command, "--out", "", code=2)
    assert list(tmp_path.iterdir()) == []


def test_train_refuses_a_folder_that_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "missing" / "m.safetensors"
    assert "its folder must exist" in vauban("train", "--smoothing", SIGMA, "--limit", "4", "--out", out, code=2)
    assert not out.parent.exists()


@pytest.mark.parametrize(
    "option", [["--parts", "3"], ["--inputs", "3"], ["--all"], ["--model", "m"], ["--training", "t"]]
)
def test_verify_refuses_options_of_a_replay_that_is_not_asked_for(run: Path, option: list[str]) -> None:
    assert f"{option[0]} is for --replay, which is not given" in vauban("verify", run, *option, code=2)


def test_verify_refuses_parts_of_a_run_that_has_none(run: Path) -> None:
    assert "--parts is not for a smoothing run" in vauban("verify", run, "--replay", "--parts", "3", code=2)


def test_a_strangers_model_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange.py").write_text(
        "import torch\n"
        "def build(bias=0.0):\n"
        "    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))\n"
        "    torch.nn.init.zeros_(net[1].weight); net[1].bias.data[7] = bias\n"
        "    return net\n"
        "def narrow():\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 3))\n"
        "def broken():\n"
        "    return lambda views: torch.full((len(views), 10), float('nan'))\n"
    )
    common = ["certify", "--smoothing", SIGMA, "--limit", "3", "-n", "100", "--json", "--out"]
    summary = json.loads(vauban(*common, "a", "--model", "strange:build:bias=1.0"))
    assert summary["clean_accuracy"] == pytest.approx(1 / 3)  # the first test digits are 7, 2, 1
    assert "(100, 3)" in vauban(*common, "b", "--model", "strange:narrow", code=2)
    assert "NaN" in vauban(*common, "c", "--model", "strange:broken", code=2)


def test_a_strangers_model_whose_code_changed_is_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import torch\ndef build():\n    return lambda views: torch.eye(10)[torch.full((len(views),), CLASS)]\n"
    common = ["certify", "--smoothing", SIGMA, "--limit", "2", "-n", "100", "--model", "changing:build", "--json"]
    for answer, code_ in (("7", 0), ("3", 2)):
        (tmp_path / "changing.py").write_text(code.replace("CLASS", answer))
        sys.modules.pop("changing", None)
        importlib.invalidate_caches()
        shown = vauban(*common, "--out", "run", code=code_)
        assert code_ == 0 or "model.sha256" in shown


def test_npz_data_without_a_grid_says_so_in_the_manifest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", images=rng.random((3, 1, 28, 28)).astype(np.float32), labels=np.array([1, 2, 3]))
    data = f"npz:path={tmp_path / 'data.npz'},classes=10"
    model = Path(__file__).parents[2] / "src/vauban/models/weights/mnist-gaussian.safetensors"
    vauban("certify", "--data", data, "--model", model, "--smoothing", SIGMA, "-n", "100", "--out", tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["inputs"]["arithmetic"] == "float"
    assert "its rounding is not accounted for" in manifest["claim"]
    vauban("verify", tmp_path / "run")


def test_a_selection_of_one_class_is_said_on_a_line(tmp_path: Path) -> None:
    x, y = np.zeros((20, 1, 28, 28), dtype=np.uint8), np.arange(20) // 10
    np.savez(tmp_path / "sorted.npz", images=x, labels=y)
    options = ["--data", f"npz:path={tmp_path}/sorted.npz,classes=10", "--model", "cnn-small", "--smoothing", SIGMA]
    done = CliRunner().invoke(app, ["plan", *options, "--limit", "10", "-n", "100", "--seconds", "0.1"])
    (line,) = [line for line in done.stderr.splitlines() if "of class 0" in line]
    assert line.startswith("warning: all 10 inputs selected from npz:")


def test_pictures_of_sixteen_bits_are_certified_only_as_rounded_ones(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 65_536, (2, 1, 28, 28)).astype(np.uint16)
    np.savez(tmp_path / "data.npz", images=pixels, labels=np.array([1, 2]))
    data = f"npz:path={tmp_path / 'data.npz'},classes=10"
    model = Path(__file__).parents[2] / "src/vauban/models/weights/mnist-gaussian.safetensors"
    arguments = ["--model", model, "--smoothing", SIGMA, "-n", "100", "--out", tmp_path / "run"]
    assert "give depth=8" in vauban("certify", "--data", data, *arguments, code=2)
    vauban("certify", "--data", f"{data},depth=8", *arguments)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["data"]["spec"].endswith(",depth=8")
    assert "Inputs are 8-bit pictures" in manifest["claim"]
    vauban("verify", tmp_path / "run")


KINDS = {"mnist", "cifar10", "gtsrb", "idx", "images", "imagenet", "npz", "table"}


@pytest.mark.parametrize("command", [["data"], ["reproduce", "--list"]])
def test_a_reader_who_leaves_gets_no_error(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "vauban", *command], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_names_in_a_table_are_not_broken_into_lines(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_table(["name", "what"], [["n" * 40, "w " * 200]], numbers=False)
    assert "n" * 40 in capsys.readouterr().out


def test_listings() -> None:
    assert {row["name"] for row in json.loads(vauban("data", "--json"))} == KINDS
    assert "resnet110" in vauban("models")


COMMANDS = [
    [],
    ["train"],
    ["certify"],
    ["predict"],
    ["plan"],
    ["claim"],
    ["verify"],
    ["data"],
    ["demo"],
    ["bench", "certify"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_an_example_and_loads_nothing_heavy(command: list[str]) -> None:
    code = (
        "import sys; from vauban.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print('loaded:', *(m for m in ('torch', 'scipy', 'numpy', 'matplotlib') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("loaded:")
    assert not command or "Example:\n" in done.stdout


def test_the_demo(tmp_path: Path) -> None:
    """The whole demo is a minute of voting; here its run is begun, stopped, and its folder checked."""
    started = process("demo", cwd=tmp_path)
    wait_for_bytes(started, tmp_path / "runs/demo/tallies.jsonl", 1)
    started.send_signal(signal.SIGINT)
    started.communicate()
    assert started.returncode == 130
    assert json.loads((tmp_path / "runs/demo/manifest.json").read_text())["data"]["spec"] == "mnist:split=test"
