"""Networks run by ONNX Runtime and OpenVINO: the same path, named in the manifest, and refused where they cannot be trusted."""

import hashlib
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from vauban.data import Dataset
from vauban.engine.backends import choice, runner
from vauban.engine.backends.export import exported
from vauban.engine.backends.protocol import CannotRun
from vauban.engine.network import threads
from vauban.engine.worker import Worker
from vauban.engine.worker_pool import worker_setup
from vauban.errors import BadInput, Lie, MissingExtra, RunRefused
from vauban.inputs import Inputs
from vauban.methods import CertifySettings, Method, method_for
from vauban.replay import replay
from vauban.report.summary import title_of
from vauban.runs.verify import verify_run
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier

PICTURES = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
SPEC, SETTINGS = "gaussian:sigma=0.25", {"n": 200, "alpha": 0.01, "progress": False}
TRUTH = [0, 1, 2]
FASTER = ["openvino", pytest.param("onnxruntime", marks=pytest.mark.slow)]
DATA = Dataset(PICTURES.numpy(), np.array(TRUTH), 3, ("a", "b", "c"), "three")


def needs(*packages: str) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'vauban[{packages[0]}]'")


@pytest.fixture(params=[pytest.param("onnxruntime", marks=pytest.mark.slow), "openvino"])
def backend(request: pytest.FixtureRequest) -> str:
    needs(request.param, "onnx", "onnxscript")
    return str(request.param)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small(channels: int = 1) -> torch.nn.Module:
    """A convolution and a dense layer whose votes on these pictures are divided."""
    chance = torch.Generator().manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(channels, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    )
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=chance) / 5
    grey = net(PICTURES.float().expand(3, channels, 8, 8) / 255).mean(0)
    net[-1].bias.data -= grey.detach()
    return net


def smoothed(backend: str | None, spec: str = SPEC, model: Any = None, **more: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model or small(), spec, num_classes=3, rows=20, backend=backend, **more)


def method_of(mine: SmoothedClassifier, inputs: Inputs) -> Method:
    law = mine.smoothing.law
    return method_for(CertifySettings.of(law, 3, n=200), law, 3, PICTURES.shape[1:], mine.deviation(inputs))


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.slow
def test_a_run_by_a_backend_is_named_verified_resumed_and_replayed(backend: str, tmp_path: Path) -> None:
    out, model = tmp_path / "run", small()
    model.train()
    first = smoothed(backend, model=model).certify(PICTURES, TRUTH, out=out, seed=3, **SETTINGS)
    assert model.training  # exported in evaluation mode, and left as it was
    said = manifest(out)["compute"]
    assert said["backend"]["name"] == backend
    assert said["backend"]["version"]
    assert said["backend"]["precision"] in ("f32", "fp32")
    content = exported(small().eval(), (20, 1, 8, 8), backend)
    assert said["backend"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert str(Path.cwd()).encode() not in content
    verify_run(out)
    by_torch = smoothed("torch").certify(PICTURES, TRUTH, seed=3, **SETTINGS)
    assert (by_torch.counts > 0).sum() >= 6
    assert np.abs(first.counts - by_torch.counts).sum() <= 4  # rounding decides few of 600 views
    again = smoothed(None).certify(PICTURES, TRUTH, out=out, seed=3, extend=400, **SETTINGS)
    assert again.counts.sum() == 3 * 400
    replayed = replay(out, small(), DATA, progress=False)
    assert (replayed.votes, replayed.rounding) == (3 * 400, None)


@pytest.mark.parametrize("backend", FASTER, indirect=True)
def test_exact_and_sequential_votes_by_a_backend(backend: str) -> None:
    exact = [smoothed(one, "band:size=2", small(2)).ballots(PICTURES).votes for one in (backend, "torch")]
    assert (exact[0] == exact[1]).mean() > 0.99
    early = smoothed(backend).certify(
        PICTURES, TRUTH, seed=1, n=400, alpha=0.01, stop="target:radius=0.1", progress=False
    )
    assert len(early.radius) == 3


@pytest.mark.slow
@pytest.mark.parametrize("backend", FASTER, indirect=True)
def test_a_worker_has_the_backend_of_the_run(backend: str) -> None:
    mine, model = smoothed(backend), small()
    inputs = mine.prepare(PICTURES)
    method = method_of(mine, inputs)
    with mine.ready(inputs):
        sampler = mine.sampler(inputs, method)
        setup = worker_setup(sampler, model, SPEC, inputs, method, Seed.of(1), "0" * 64, pickle.dumps)
    assert backend in setup.fingerprint["backend"]
    assert Worker().prepare(setup).complaints == []


def test_bf16_is_computed_by_openvino_or_refused() -> None:
    needs("openvino", "onnx", "onnxscript")
    mine = smoothed("openvino", precision="bf16")
    if "bf16" not in choice.OpenVINO().precisions():
        with pytest.raises(BadInput, match="computes in fp32 on this machine"):
            mine.certify(PICTURES, TRUTH, seed=1, **SETTINGS)
        return
    mine.certify(PICTURES, TRUTH, seed=1, **SETTINGS)
    assert mine.network.runner.describe()["precision"] == "bf16"


def test_bf16_on_a_cpu_is_computed_by_openvino_unless_something_is_asked_for(tmp_path: Path) -> None:
    needs("openvino", "onnx", "onnxscript")
    mine = smoothed(None, precision="bf16")
    if "bf16" in choice.OpenVINO().precisions():
        certs = mine.certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)
        assert manifest(tmp_path / "run")["compute"]["backend"]["name"] == "openvino"
        assert title_of(certs).endswith(", bf16 by openvino")
    for asked in (smoothed("torch", precision="bf16"), smoothed(None, precision="bf16", compile=True), smoothed(None)):
        with asked.ready(asked.prepare(PICTURES)):
            assert asked.network.runner is None


class _Chooses(torch.nn.Module):
    def forward(self, views: torch.Tensor) -> torch.Tensor:
        scores = torch.stack([views.flatten(1).mean(1), views.flatten(1).amax(1), views.flatten(1).amin(1)], 1)
        return scores if float(views.sum()) > 0 else -scores


@pytest.mark.parametrize("backend", FASTER, indirect=True)
def test_what_cannot_be_exported_is_said(backend: str) -> None:
    with pytest.raises(BadInput, match=f"cannot be exported for backend {backend}.*use --backend torch"):
        smoothed(backend, model=_Chooses()).certify(PICTURES, TRUTH, seed=1, **SETTINGS)


# What follows needs no library: a backend of plain torch, whose answers are changed.


class Fake:
    """A backend that runs the module of the test, and does something to its scores."""

    name = "openvino"
    module: torch.nn.Module
    compiled_for: ClassVar[list[int]] = []

    def version(self) -> str:
        return "1.0"

    def precisions(self) -> Sequence[str]:
        return ("fp32",)

    def change(self, scores: torch.Tensor) -> torch.Tensor:
        return scores

    def compile(self, content: bytes, shape: Sequence[int], threads: int, precision: str) -> Any:
        Fake.compiled_for.append(threads)

        class Program:
            def __init__(self, fake: Fake):
                self.precision, self.fake = precision, fake

            def __call__(self, views: Any) -> Any:
                with torch.inference_mode():
                    return self.fake.change(self.fake.module(torch.from_numpy(views))).numpy()

        return Program(self)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    Fake.module = small().eval()
    Fake.compiled_for.clear()
    monkeypatch.setattr(runner, "exported", lambda module, shape, backend: b"onnx")
    monkeypatch.setattr(runner, "exporter", lambda: "none")
    monkeypatch.setattr(choice, "installed", lambda *packages: True)
    monkeypatch.setattr(choice, "MADE", {"openvino": Fake})
    return Fake


def test_scores_that_are_not_the_modules_are_refused(fake: type[Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "change", lambda self, scores: scores.roll(1, 1))
    for asked in ("openvino", "auto"):
        with pytest.raises(BadInput, match=r"does not compute this model as torch does.*use --backend torch"):
            smoothed(asked).certify(PICTURES, TRUTH, seed=1, **SETTINGS)
    monkeypatch.setattr(fake, "change", lambda self, scores: scores * float("nan"))
    with pytest.raises(BadInput, match="does not compute this model"):
        smoothed("openvino").certify(PICTURES, TRUTH, seed=1, **SETTINGS)


def test_nan_is_refused(fake: type[Fake]) -> None:
    class Nan(torch.nn.Module):
        def forward(self, views: torch.Tensor) -> torch.Tensor:
            return views.flatten(1)[:, :3] * float("nan")

    fake.module = Nan()
    with pytest.raises(BadInput, match="returned NaN on 20 views"):
        smoothed("openvino", model=Nan()).certify(PICTURES, TRUTH, seed=1, **SETTINGS)


def test_rows_that_round_differently_allow_no_exact_and_no_sequential_claim(
    fake: type[Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    by_row = 1 + 1e-6 * torch.arange(20)[:, None]
    monkeypatch.setattr(fake, "change", lambda self, scores: scores * by_row)
    smoothed("openvino").certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)
    assert manifest(tmp_path / "run")["compute"]["rows_differ"] is True
    with pytest.raises(BadInput, match="votes that stop early.*need rows that agree"):
        smoothed("openvino").certify(
            PICTURES, TRUTH, seed=1, n=400, alpha=0.01, stop="target:radius=0.1", progress=False
        )
    fake.module = small(2).eval()
    with pytest.raises(BadInput, match="exact claims need another compute shape"):
        smoothed("openvino", "band:size=2", small(2)).certify(PICTURES, TRUTH, progress=False)


def test_auto_leaves_to_torch_what_a_backend_cannot_run(
    fake: type[Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def cannot(self: Any, *arguments: Any) -> Any:
        raise RuntimeError("no operator Fold")

    monkeypatch.setattr(fake, "compile", cannot)
    with pytest.raises(CannotRun, match=r"openvino 1.0 cannot run the model \(RuntimeError: no operator Fold\)"):
        smoothed("openvino").certify(PICTURES, TRUTH, seed=1, **SETTINGS)
    model = small()
    model.train()
    mine = smoothed("auto", model=model)
    with pytest.warns(UserWarning, match="no operator Fold.*Votes are cast by torch"):
        counts = mine.certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS).counts
    assert np.array_equal(counts, smoothed("torch").certify(PICTURES, TRUTH, seed=1, **SETTINGS).counts)
    said = manifest(tmp_path / "run")["compute"]
    assert "backend" not in said
    assert said["channels_last"]
    assert smoothed("auto").certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS).counts.sum() == 600


def test_auto_takes_torch_for_what_only_torch_does(fake: type[Fake]) -> None:
    for more in ({"stochastic": "views"}, {"compile": True}, {"precision": "bf16"}, {"precision": "fp16"}):
        mine = SmoothedClassifier(small(), SPEC, num_classes=3, backend="auto", **more)
        with mine.ready(mine.prepare(PICTURES)):
            assert mine.network.runner is None
    mine = smoothed("auto")
    with mine.ready(mine.prepare(PICTURES)):
        assert mine.network.runner.backend.name == "openvino"


def test_a_resumed_run_keeps_its_backend(fake: type[Fake], tmp_path: Path) -> None:
    for asked in ("openvino", None, "auto"):
        smoothed(asked).certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)
    with pytest.raises(RunRefused, match=r"compute\.backend"):
        smoothed("torch").certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)
    mine = smoothed(None)
    mine.certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)
    mine.certify(PICTURES, TRUTH, seed=1, out=tmp_path / "torch", **SETTINGS)  # a new run, which is torch's
    assert "backend" not in manifest(tmp_path / "torch")["compute"]
    smoothed("auto").certify(PICTURES, TRUTH, seed=1, out=tmp_path / "torch", **SETTINGS)
    with pytest.raises(RunRefused, match=r"compute\.backend"):
        smoothed("openvino").certify(PICTURES, TRUTH, seed=1, out=tmp_path / "torch", **SETTINGS)


def test_replay_by_another_version_is_no_lie(fake: type[Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smoothed("openvino").certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)
    assert replay(tmp_path / "run", small(), DATA, progress=False).rounding is None
    monkeypatch.setattr(fake, "change", lambda self, scores: scores * (1 + 5e-4))
    with pytest.raises(Lie, match="by more than rounding"):
        replay(tmp_path / "run", small(), DATA, progress=False)
    monkeypatch.setattr(fake, "version", lambda self: "2.0")
    with pytest.raises(RunRefused, match=r"openvino 2\.0; the run: .*, openvino 1\.0"):
        replay(tmp_path / "run", small(), DATA, progress=False)


def test_changed_weights_are_exported_again_and_others_are_not(
    fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: list[tuple[int, ...]] = []
    monkeypatch.setattr(runner, "exported", lambda module, shape, backend: exports.append(shape) or b"onnx")
    model = fake.module = small()
    mine = smoothed("openvino", model=model)
    for _ in range(2):
        before = mine.certify(PICTURES, TRUTH, seed=1, **SETTINGS).counts
    assert exports == [(20, 1, 8, 8)]
    with torch.no_grad():
        list(model.parameters())[-1].copy_(torch.tensor([5.0, 0.0, -5.0]))
    after = mine.certify(PICTURES, TRUTH, seed=1, **SETTINGS).counts
    assert len(exports) == 2
    assert not np.array_equal(before, after)


def test_a_backend_takes_the_threads_of_the_run(fake: type[Fake]) -> None:
    mine = smoothed("openvino")
    inputs = mine.prepare(PICTURES)
    for count in (2, 1, 2):
        with threads(count), mine.ready(inputs):
            mine.sampler(inputs, method_of(mine, inputs))
    assert fake.compiled_for == [2, 1]  # once for each number of threads


@pytest.mark.parametrize("spec", [SPEC, "splitting:sigma=0.5"])
@pytest.mark.parametrize(("name", "expected"), [("openvino", 1), ("torch", 2)])
def test_threads_of_torch_do_not_wait_beside_those_of_a_backend(
    fake: type[Fake], monkeypatch: pytest.MonkeyPatch, spec: str, name: str, expected: int
) -> None:
    """Waiting threads take processors from the backend (cnn, two threads, two cores: 0.64 of bare torch instead of 1.1)."""
    mine = smoothed(name, spec)
    counted: list[int] = []
    of_smoothing = type(mine.smoothing).views

    def views(*given: Any, **named: Any) -> torch.Tensor:
        counted.append(torch.get_num_threads())
        return of_smoothing(*given, **named)

    with threads(2):
        monkeypatch.setattr(type(mine.smoothing), "views", views)
        mine.certify(PICTURES, TRUTH, **({} if spec != SPEC else SETTINGS))
        assert torch.get_num_threads() == 2
    assert set(counted) == {expected}


def test_what_a_backend_cannot_do_is_said(fake: type[Fake]) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"backend": "openvin"}, "not a known backend"),
        ({"backend": "openvino", "stochastic": "views"}, "a random model draws from torch's generators"),
        ({"backend": "openvino", "compile": True}, "leave out --compile"),
        ({"backend": "openvino", "precision": "fp16"}, "precision fp16 with backend openvino, which computes in fp32"),
        ({"backend": "openvino", "model": lambda views: views.flatten(1)[:, :3]}, "a torch module or an ONNX file"),
    ]
    for options, sentence in wrong:
        with pytest.raises(BadInput, match=sentence):
            smoothed(**options).certify(PICTURES, TRUTH, seed=1, **SETTINGS)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_backend_that_is_not_installed_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingExtra, match=rf"needs {name}, which is not installed: pip install 'vauban\[{name}\]'"):
        smoothed(name).certify(PICTURES, TRUTH, seed=1, **SETTINGS)


def test_a_run_of_a_backend_that_this_version_does_not_know_is_refused(fake: type[Fake], tmp_path: Path) -> None:
    smoothed("openvino").certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)
    said = manifest(tmp_path / "run")
    said["compute"]["backend"]["name"] = "abacus"
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(said))
    with pytest.raises((RunRefused, BadInput), match="abacus"):
        smoothed(None).certify(PICTURES, TRUTH, seed=1, out=tmp_path / "run", **SETTINGS)


def test_bf16_without_instructions_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False}, raising=False)
    mine = smoothed("torch", precision="bf16")
    with pytest.warns(UserWarning, match="no instructions for bf16"), mine.ready(mine.prepare(PICTURES)):
        pass
