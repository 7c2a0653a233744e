"""Fused networks: the same function as the module, named in the manifest, and refused where a graph cannot be trusted."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fusable import CPU, DATA, NETWORKS, SETTINGS, fused, small, trained
from torch import nn

from vauban.engine.backends import choice
from vauban.engine.backends.protocol import CannotRun
from vauban.engine.fusing import runner as runners
from vauban.engine.fusing.folding import folded
from vauban.engine.fusing.graph import flat
from vauban.engine.fusing.runner import FusedRunner, Program
from vauban.engine.network import Network
from vauban.errors import BadInput
from vauban.models import build
from vauban.models.resnet import Basic, Bottleneck, ResNet
from vauban.replay import replay
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier


@pytest.mark.parametrize("name", NETWORKS)
def test_a_fused_graph_computes_what_its_module_does(name: str) -> None:
    make, side, expected = NETWORKS[name]
    with torch.random.fork_rng():
        module = trained(make())
    views = torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(2)) * 2 - 0.5
    program = Program.of(module, tuple(views.shape), CPU, "fp32")
    with torch.inference_mode():
        program.write(views)
        found, want = program.scores(), module(views)
    assert (found - want).abs().max() <= 1e-5 * (want.max() - want.min())
    called = Counter(str(getattr(node.target, "__name__", "")).split(".")[0] for node in program.network.graph.nodes)
    assert {name: called[name] for name in expected} == expected
    assert not called["batch_norm"]


def test_a_strided_first_convolution_reads_blocks_of_pixels() -> None:
    program = Program.of(trained(small(Bottleneck, True)), (2, 3, 33, 32), CPU, "fp32")
    assert program.entry is not None
    assert (program.entry.stride, program.laid.shape) == (2, (2, 16, 20, 19))
    assert program.laid.is_contiguous(memory_format=torch.channels_last)


def test_a_run_is_fused_named_resumed_verified_and_replayed(tmp_path: Path) -> None:
    one = fused()
    claims = one.certify(DATA, **SETTINGS, out=tmp_path / "run")
    plain = fused(backend="torch").certify(DATA, **SETTINGS)
    assert np.allclose(claims.counts, plain.counts, atol=4)
    compute = json.loads((tmp_path / "run" / "manifest.json").read_text())["compute"]
    assert {"name": "fused", "version": "1", "precision": "fp32"}.items() <= compute["backend"].items()
    assert compute["backend"]["sha256"] == Program.of(one.network.source, (20, 3, 8, 8), CPU, "fp32").sha256  # type: ignore[arg-type]
    again = fused(backend=None).certify(DATA, **SETTINGS, out=tmp_path / "run")
    assert np.array_equal(again.counts, claims.counts)
    assert verify_run(tmp_path / "run")
    assert replay(tmp_path / "run", fused().base, DATA, progress=False).rounding is None


def test_changed_weights_are_fused_again() -> None:
    one = fused()
    first = one.certify(DATA, **SETTINGS)
    one.network.source.fc.weight.data *= -1  # type: ignore[union-attr, operator]
    assert not np.array_equal(first.counts, one.certify(DATA, **SETTINGS).counts)


class Deciding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)[:, :3]
        return flat if flat.sum() > 0 else -flat


class Aliased(nn.Module):
    """Changes in place what another name still sees."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.flatten(1)
        y.relu_()
        return z[:, :3]


@pytest.mark.parametrize(("model", "why"), [(Deciding(), "no fixed graph"), (Aliased(), "in place")])
def test_what_cannot_be_fused_is_refused_or_left_to_torch(model: nn.Module, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        fused(model).certify(DATA, **SETTINGS)
    with pytest.warns(UserWarning, match=why):
        assert not FusedRunner(model, CPU, "fp32", "", optional=True).fit((2, 3, 8, 8))


def test_narrow_networks_are_left_to_torch_without_a_word() -> None:
    """Where `auto` chose: a ResNet-110 has convolutions of 16 channels, for which compiled kernels are faster."""
    for width, fits in ((16, False), (64, True)):
        module = ResNet(Basic, (1,), width, 3, 3).eval()
        assert FusedRunner(module, CPU, "fp32", "", optional=True).fit((2, 3, 8, 8)) == fits


def test_auto_falls_back_to_torch_and_its_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_may_fuse", lambda network: True)
    one = fused(backend="auto")
    one.certify(DATA, **SETTINGS)
    assert one.network.runner is None
    assert one.network.backend == "torch"


def test_auto_does_not_fuse_on_the_cpu_or_in_fp32() -> None:
    module = small()
    assert not choice._may_fuse(Network(module, CPU, "bf16"))
    assert not choice._may_fuse(Network(module, torch.device("cuda"), "fp32"))
    assert choice._may_fuse(Network(module, torch.device("cuda"), "bf16"))


def test_a_graph_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(module: Any) -> None:
        folded(module)
        for buffer in module.buffers():
            buffer.data = buffer.data * 1.5

    monkeypatch.setattr(runners, "folded", wrong)
    module = trained(small())
    with pytest.raises(CannotRun, match="does not compute this model as torch does"):
        fused(module).certify(DATA, **SETTINGS)


def test_what_has_no_graph_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match="needs a torch module"):
        SmoothedClassifier(lambda x: x.flatten(1)[:, :3], "gaussian:sigma=0.5", num_classes=3, backend="fused").certify(
            DATA
        )
    with pytest.raises(BadInput, match="a random model has no fixed graph"):
        fused(stochastic="rows").certify(DATA)


def test_bfloat16_is_computed_from_constants_of_64_bits() -> None:
    module = trained(small())
    program = Program.of(module, (4, 3, 8, 8), CPU, "bf16")
    assert program.laid.dtype == torch.bfloat16
    assert {buffer.dtype for buffer in program.network.buffers()} == {torch.bfloat16}
    assert fused(module, precision="bf16").certify(DATA, **SETTINGS).counts.sum() == 600


def test_exact_smoothings_are_fused_too() -> None:
    made = {
        backend: SmoothedClassifier(
            trained(build("resnet18:width=8,classes=3,channels=6", seed=1)),
            "band:size=3",
            num_classes=3,
            rows=16,
            backend=backend,
        ).certify(DATA, progress=False)
        for backend in ("fused", "torch")
    }
    assert np.array_equal(made["fused"].counts, made["torch"].counts)


def test_the_graph_of_a_module_keeps_its_module_as_it_was() -> None:
    module = trained(small())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    flat(module, (2, 3, 8, 8), CPU)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


ZOO = {
    "resnet18": (3, 32),
    "resnet50": (3, 64),
    "resnet110": (3, 32),
    "wideresnet40-2": (3, 32),
    "cnn": (1, 28),
    "vit": (3, 32),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_networks_by_name_are_fused(name: str) -> None:
    channels, side = ZOO[name]
    module = build(name, seed=1).eval()
    views = torch.rand(4, channels, side, side, generator=torch.Generator().manual_seed(2))
    runner = FusedRunner(module, CPU, "fp32", "")
    with torch.inference_mode():
        assert runner(views).shape == (4, module(views).shape[1])  # compared with the module's on the way
