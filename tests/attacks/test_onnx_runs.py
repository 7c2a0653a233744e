"""Runs of ONNX files under attack: the file's own backend votes, attacks need no gradients, and those that do are refused."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vauban as vb
from vauban.attacks.passes import RunByBackend
from vauban.attacks.targets import BaseTarget
from vauban.cli import app
from vauban.data import load as load_data
from vauban.engine.backends.runner import Runner
from vauban.engine.network import Network
from vauban.errors import BadInput, Lie, NoGradients
from vauban.models import load
from vauban.runs.run import Run

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'vauban[onnxruntime]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'vauban[onnxruntime]'")

SMALL: dict[str, Any] = {"views": 8, "votes": 100, "confirm_votes": 1_000, "seed": 1, "progress": False}
OPTIONS = "--views 8 --votes 100 --confirm-votes 1000 --seed 1 --budget 10000 --json --device cpu"
SMOOTHING = "gaussian:sigma=0.25"
ROWS = 20


def classifier() -> torch.nn.Module:
    """A dense layer fitted to 2,000 digits by least squares."""
    digits = load_data("mnist")
    x = digits.images[:2_000].reshape(2_000, -1) / 255
    centred = x - x.mean(axis=0)
    wanted = np.eye(10)[digits.labels[:2_000]] - 0.1
    weights = np.linalg.solve(centred.T @ centred + 100 * np.eye(784), centred.T @ wanted)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    with torch.no_grad():
        network[1].weight.copy_(torch.from_numpy(weights.T))
        network[1].bias.copy_(torch.from_numpy(-x.mean(axis=0) @ weights))
    return network.eval()


@pytest.fixture(scope="module")
def torch_model() -> torch.nn.Module:
    return classifier()


@pytest.fixture(scope="module")
def file(torch_model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network as an ONNX file that takes any number of views."""
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            torch_model,
            (torch.rand(2, 1, 28, 28),),
            path,
            dynamo=True,
            external_data=False,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim("rows")},),
        )
    return path


@pytest.fixture(scope="module")
def fixed_file(file: Path) -> Path:
    """The same network in a file that takes ROWS views."""
    model = onnx.load(file)
    for value in (model.graph.input[0], model.graph.output[0], *model.graph.value_info):
        value.type.tensor_type.shape.dim[0].dim_value = ROWS
    path = file.with_name("fixed.onnx")
    path.write_bytes(model.SerializeToString())
    return path


def certified(file: Path, out: Path, backend: str, rows: int | None = None) -> None:
    """A run of three digits."""
    smoothed = vb.SmoothedClassifier(load(file), SMOOTHING, num_classes=10, backend=backend, rows=rows)
    digits = load_data("mnist")
    some = replace(digits, images=digits.images[:3], labels=digits.labels[:3], index=digits.index[:3])
    smoothed.certify(some, n=500, seed=1, out=out, progress=False)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, int]]:
    """Backend, precision and number of views of every pass that a backend makes."""
    seen: set[tuple[str, str, int]] = set()
    call = Runner.__call__

    def recorded(self: Runner, views: torch.Tensor) -> torch.Tensor:
        seen.add((self.backend.name, self.precision, len(views)))
        return call(self, views)

    monkeypatch.setattr(Runner, "__call__", recorded)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_run_is_attacked_by_its_own_backend(
    backend: str, file: Path, tmp_path: Path, passes: set[tuple[str, str, int]]
) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed: pip install 'vauban[{backend}]'")
    certified(file, tmp_path / "run", backend)
    passes.clear()
    found = vb.attack(tmp_path / "run", load_data("mnist"), model=load(file), budget=30_000, **SMALL)
    assert passes == {(backend, "fp32", 100)}
    assert np.isfinite(found.distance).all()
    assert {one.attack for one in found.results if one is not None} == {"random"}
    assert not found.alarms
    assert (found.distance > found.radius).all()
    kept = found.adversarial()
    smoothed = vb.SmoothedClassifier(load(file), SMOOTHING, num_classes=10, backend=backend)
    again = smoothed.predict(kept["images"], n=1_000, seed=2, progress=False)
    assert [a and a[0] for a in again] == kept["answer"][:, 0].tolist()
    certs = Run.open(tmp_path / "run").certificates()
    same = vb.attack(certs, load_data("mnist"), model=load(file), budget=30_000, **SMALL)
    assert np.array_equal(same.distance, found.distance)


def test_the_search_finds_what_it_finds_with_the_torch_model(file: Path, torch_model: torch.nn.Module) -> None:
    digits = load_data("mnist")
    x, y = digits.images[:3], digits.labels[:3]
    options = SMALL | {"attacks": "random:steps=20"}
    smoothed = [vb.SmoothedClassifier(one, SMOOTHING, num_classes=10) for one in (torch_model, load(file))]
    by_torch, by_file = (vb.attack(one, x, y, **options) for one in smoothed)
    assert np.allclose(by_torch.distance, by_file.distance, rtol=0.05)


def test_a_file_that_takes_one_number_of_views_is_attacked(
    fixed_file: Path, file: Path, tmp_path: Path, passes: set[tuple[str, str, int]]
) -> None:
    certified(fixed_file, tmp_path / "run", "onnxruntime", rows=ROWS)
    passes.clear()
    options = SMALL | {"attacks": "random:steps=5", "limit": 1}
    found = vb.attack(tmp_path / "run", load_data("mnist"), model=load(fixed_file), **options)
    assert passes == {("onnxruntime", "fp32", ROWS)}
    assert found.attacked.all()
    with pytest.raises(Lie, match="fingerprint"):
        vb.attack(tmp_path / "run", load_data("mnist"), model=load(file), **options)


@pytest.mark.parametrize("count", [1, 7, ROWS, 2 * ROWS + 3])
def test_a_search_may_ask_about_any_number_of_views(count: int, fixed_file: Path, torch_model: torch.nn.Module) -> None:
    model = RunByBackend(Network(load(fixed_file).module, torch.device("cpu")))
    views = torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(model(views), torch_model(views), atol=1e-5)
    with pytest.raises(NoGradients, match=r"no gradients pass through fixed\.onnx"):
        model(views.requires_grad_())


@pytest.mark.parametrize(("threat", "chosen"), [("l0", ["pointwise", "sparse"]), ("linf", ["random"])])
def test_a_file_without_smoothing_is_attacked(threat: str, chosen: list[str], file: Path, tmp_path: Path) -> None:
    digits = load_data("mnist")
    model, x, y = load(file), digits.images[:2], digits.labels[:2]
    options = SMALL | {"threat": threat, "budget": 2_000, "num_classes": 10}
    found = vb.attack(model, x, y, out=tmp_path, **options)
    assert np.isfinite(found.distance).all()
    assert json.loads((tmp_path / "attack.json").read_text())["attacks"] == chosen
    answers, _ = BaseTarget(model, 10).confirm(found.adversarial()["images"], 0)
    assert (answers[:, 0] != y).all()


def test_attacks_that_need_gradients_are_refused(file: Path, tmp_path: Path) -> None:
    certified(file, tmp_path / "run", "onnxruntime")
    options: dict[str, Any] = {"model": load(file), "out": tmp_path / "a", **SMALL}
    run, data = tmp_path / "run", load_data("mnist")
    with pytest.raises(BadInput, match=r"pgd needs gradients.*ONNX files.*: use an attack without gradients, random"):
        vb.attack(run, data, attacks=["random", "pgd"], **options)
    with pytest.raises(BadInput, match=r"saliency needs gradients.*, pointwise or sparse"):
        vb.attack(run, data, attacks="saliency", threat="l0", **options)
    with pytest.raises(BadInput, match=r"every attack that fits patch .* needs them; give threat="):
        vb.attack(run, data, threat="patch", **options)
    assert not (tmp_path / "a/attack.json").exists()


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, " ".join(words).split())
    return done.exit_code, done.output


@pytest.mark.slow
def test_the_command_line_attacks_a_run_whose_file_lies_beside_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.onnx").write_bytes(file.read_bytes())
    model = f"--model {tmp_path / 'net.onnx'} --backend onnxruntime --device cpu"
    code, said = run(f"certify {model} --smoothing {SMOOTHING} -n 500 --limit 2 --seed 1 --out {tmp_path / 'run'}")
    assert code == 0, said
    command = f"attack {tmp_path / 'run'} {OPTIONS} --out {tmp_path / 'a'}"
    code, said = run(command, "--attack minimal")
    assert code == 2
    assert "use an attack without gradients, random" in said
    code, said = run(command)  # in the same folder: the refusal left no settings there
    assert code == 0, said
    summary = json.loads(said[said.index("{") :])
    assert (summary["attacked"], summary["found"], summary["alarms"]) == (2, 2, [])
    honest = Run.certificates
    monkeypatch.setattr(Run, "certificates", lambda self: replace(honest(self), radius=50 * honest(self).radius))
    code, said = run(f"attack {tmp_path / 'run'} {OPTIONS} --out {tmp_path / 'b'}")
    assert code == 1, said
    alarm = json.loads((tmp_path / "b/alarm/alarm.json").read_text())
    assert " --backend onnxruntime" in alarm["command"]
    code, said = run(alarm["command"].removeprefix("vauban "), "--json --device cpu")
    assert code == 0, said
    assert json.loads(said[said.index("{") :])["correct"] == 0
