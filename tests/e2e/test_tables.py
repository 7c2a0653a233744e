"""Tables from training to replay: ranges, standardisation by training data, sigmas of features, codes, and what claims say."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.cli.build import read_range
from vauban.data import load
from vauban.errors import BadInput, Lie, RunRefused
from vauban.runs.verify import verify_run
from vauban.standardise import Standardisation


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of two classes: features of very different size, far outside [0, 1]."""
    rng = np.random.default_rng(1)
    label = np.arange(200) % 2
    values = rng.normal([900, 0.02, -5], [50, 0.001, 1], (200, 3)) + label[:, None] * np.array([200, 0.004, 4])
    rows = [",".join([*map(repr, row.tolist()), "ab"[y]]) for row, y in zip(values, label, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["size,weight,age,kind", *rows, ""]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLE = "table:path=t.csv,label=kind"


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())  # type: ignore[no-any-return]


def test_a_standardised_table_is_trained_certified_verified_and_replayed(world: Path) -> None:
    run(
        "train", "--data", f"{TABLE},split=train", "--smoothing", "gaussian:sigma=0.5", "--standardise", "--epochs", "20",
        "--validate", "0", "--out", "m.safetensors", "--json",
    )  # fmt: skip
    settings = (
        "--model",
        "m.safetensors",
        "--smoothing",
        "gaussian:sigma=0.5",
        "-n",
        "200",
        "--limit",
        "12",
        "--seed",
        "1",
    )
    test = f"{TABLE},split=test"
    run("certify", "--data", test, *settings, "--out", "run")
    made = manifest(world / "run")
    own = Standardisation.of(load(f"{TABLE},split=train"))
    assert made["inputs"]["standardised"] == own.to_json()
    assert made["inputs"]["range"] is None
    assert made["data"]["features"] == ["size", "weight", "age"]
    assert set(made["requires"]) >= {"inputs.standardised", "data.features"}
    assert "the 3 features, each minus its mean and divided by its scale, which the manifest lists" in made["claim"]
    assert "picture" not in made["claim"]
    certs = vb.Run.open(world / "run").certificates()
    assert "features" in certs.claim
    assert "picture" not in certs.claim
    assert certs.accuracy(0.2) > 0.8
    assert "every input, at most 12, of 40" in run("verify", "run", "--data", test)
    assert "votes of 12 of 12 inputs" in run(
        "verify", "run", "--replay", "--all", "--model", "m.safetensors", "--data", test
    )
    run("certify", "--data", test, *settings, "--out", "same", "--standardise", f"{TABLE},split=train")
    assert (world / "same" / "claims.csv").read_bytes() == (world / "run" / "claims.csv").read_bytes()
    refused = run("certify", "--data", f"{TABLE},split=train", *settings, "--out", "own", code=2)
    assert "the statistics to standardise it are its own" in refused
    assert "features" in run("plan", "--data", test, *settings[:4], "--seconds", "0.1")
    pytest.importorskip("fastapi")
    asked = ("--input", "3", "--input-range", "any", "--runs", "served")
    assert "the service scales none" in run("serve", *settings[:4], *asked, code=2)


def test_a_forged_standardisation_is_found(world: Path) -> None:
    table = load(f"{TABLE},split=test")
    stats = Standardisation.of(load(f"{TABLE},split=train"))
    smoothed = vb.SmoothedClassifier(
        lambda views: torch.stack([-views[:, 0], views[:, 0]], dim=1), "gaussian:sigma=0.5", num_classes=2,
        input_range=None, arithmetic="float", standardise=stats,
    )  # fmt: skip
    smoothed.certify(table, n=100, seed=1, out=world / "run", progress=False)
    made, file = manifest(world / "run"), world / "run" / "manifest.json"
    other = made["inputs"] | {"standardised": made["inputs"]["standardised"] | {"scale": [1.0, 1.0, 1.0]}}
    bare = {key: value for key, value in made["inputs"].items() if key != "standardised"}
    for inputs, requires in ((other, made["requires"]), (bare, ["data.features"]), (made["inputs"], [])):
        file.write_text(json.dumps(made | {"inputs": inputs, "requires": requires}))
        with pytest.raises((Lie, RunRefused)):
            verify_run(world / "run")
    with pytest.raises(BadInput, match="neither a grid nor a range"):
        vb.SmoothedClassifier(lambda views: views, "gaussian:sigma=1", num_classes=2, standardise=stats).collect(table)


def test_ranges_of_inputs_on_the_command_line(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (world / "sizes.py").write_text(
        "import torch\ndef make(classes='2'):\n    return lambda x: torch.stack([1000 - x[:, 0], x[:, 0] - 1000], dim=1)\n"
    )
    monkeypatch.syspath_prepend(str(world))
    np.savez(world / "t.npz", images=load(TABLE).images, labels=load(TABLE).labels)
    settings = ("--model", "sizes:make:classes=2", "--smoothing", "gaussian:sigma=50", "-n", "100", "--limit", "4")
    run("certify", "--data", TABLE, *settings, "--out", "table")
    assert "units of the 3 features)" in manifest(world / "table")["claim"]
    npz = ("--data", "npz:path=t.npz")
    assert "outside [0, 1]" in run("certify", *npz, *settings, "--out", "x", code=2)
    assert "outside [-10, 10]" in run("certify", *npz, *settings, "--out", "x", "--input-range=-10,10", code=2)
    run("certify", *npz, *settings, "--out", "any", "--input-range", "none")
    assert manifest(world / "any")["inputs"]["range"] is None
    run("certify", *npz, *settings, "--out", "some", "--input-range=-1e4,1e4")
    assert manifest(world / "some")["inputs"]["range"] == [-1e4, 1e4]
    for wrong in ("1", "2,1", "a,b", "0,inf", "0,1,2"):
        with pytest.raises(BadInput, match="LOW below HIGH"):
            read_range(wrong)


def test_a_sigma_for_each_feature_is_noise_on_scaled_features(world: Path) -> None:
    table, sigmas = load(f"{TABLE},split=test"), np.array([50.0, 0.001, 1.0])

    def judged(views: torch.Tensor) -> torch.Tensor:
        score = (views[:, 0] - 1000) / 50 + (views[:, 1] - 0.022) / 0.001 + views[:, 2] + 3
        return torch.stack([-score, score], dim=1)

    options: dict[str, Any] = {"num_classes": 2, "input_range": None, "arithmetic": "float"}
    own = vb.SmoothedClassifier(judged, vb.Gaussian(sigma=sigmas), **options)
    certs = own.certify(table, n=1000, seed=1, progress=False, out=world / "run")
    assert certs.threat.name == "l2-scaled"
    made = manifest(world / "run")
    assert made["smoothing"] == "gaussian:sigma=50.0/0.001/1.0"
    assert "L2 norm, every number divided by its own sigma, is less than its radius" in made["claim"]
    verify_run(world / "run")
    right = ~certs.abstained & (certs.label == table.labels)
    score = (table.images[:, 0] - 1000) / 50 + (table.images[:, 1] - 0.022) / 0.001 + table.images[:, 2] + 3
    true_radius = np.abs(score) / np.sqrt(3)  # to the hyperplane, in scaled units
    assert right.mean() > 0.8
    assert (certs.radius[right] <= true_radius[right]).all()
    with pytest.raises(BadInput, match="2 sigmas, and inputs of shape"):
        vb.SmoothedClassifier(judged, "gaussian:sigma=50/0.001", **options).certify(table, n=100, progress=False)
    grid = vb.SmoothedClassifier(judged, "gaussian:sigma=1/1/1", num_classes=2)
    with pytest.raises(BadInput, match="they are for floats"):
        grid.certify(np.zeros((1, 3), np.uint8), [0], n=100, progress=False)
    for wrong in ([1, -1], [], [[1, 2]], "a"):
        with pytest.raises(BadInput, match="sigma"):
            vb.Gaussian(sigma=wrong)  # type: ignore[arg-type]


def test_codes_of_categories_under_discrete_noise(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{'rgb'[i % 3]},{'xy'[i % 2]},{i % 3},{int(i % 3 == 0)}" for i in range(60)]
    (world / "c.csv").write_text("\n".join(["colour,shape,again,kind", *rows, ""]))
    (world / "red.py").write_text(
        "import torch\ndef make(classes='2'):\n"
        "    def judge(x):\n        far = (x[:, [0, 2]] * 255 - torch.tensor([2, 0])).abs().sum(1)\n"
        "        return torch.stack([far, torch.full((len(x),), 1.5)], 1)\n    return judge\n"
    )
    monkeypatch.syspath_prepend(str(world))
    settings = (
        "--model",
        "red:make:classes=2",
        "-n",
        "200",
        "--limit",
        "6",
        "--data",
        "table:path=c.csv,label=kind,codes=all",
    )
    run("certify", *settings, "--smoothing", "discrete:keep=0.9,values=3,codes=true", "--out", "run")
    claim = manifest(world / "run")["claim"]
    assert "Features are whole numbers from 0 to 2; the claim covers attacks in which all of them still are." in claim
    assert "number of changed features is at most its radius" in claim
    verify_run(world / "run")
    refused = run("certify", *settings, "--smoothing", "discrete:keep=0.9,values=2,codes=true", "--out", "x", code=2)
    assert "has the code 2: values=2 allows 0 to 1" in refused
    assert "write values=256" in run(
        "certify", *settings, "--smoothing", "discrete:keep=0.9,values=3", "--out", "x", code=2
    )
    with pytest.raises(BadInput, match="l0-codes cannot be converted"):
        vb.Run.open(world / "run").certificates().in_threat("l0", (3,))


@pytest.mark.slow
def test_the_example_of_a_table_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "table.py"))["main"](tmp_path)
    said = capsys.readouterr().out
    assert "units of the 30 features, each minus its mean" in said
    assert "verified: 113 claims" in said
    certified = next(line for line in said.splitlines() if line.startswith("certified at 0.50"))
    assert float(certified.split(":")[1].split("%")[0]) > 85
