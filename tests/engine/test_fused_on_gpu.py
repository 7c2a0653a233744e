"""What a fused network does on a GPU, tried without one: which kernels it calls, with what, and what happens where they fail."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fusable import CPU, DATA, NETWORKS, SETTINGS, fused, small, trained
from torch.nn import functional

from vauban.engine.fusing import runner as runners
from vauban.engine.fusing.runner import FusedRunner, Program

GPU = torch.device("cuda")


def cudnn(x: Any, weight: Any, z: Any, alpha: float, bias: Any, *sides: Any) -> torch.Tensor:
    """As `torch.cudnn_convolution_add_relu`, of a tensor z that it always reads."""
    found = functional.conv2d(x, weight, bias, *sides)
    assert found.shape == z.shape
    assert z.is_contiguous(memory_format=torch.channels_last)
    assert alpha in (0.0, 1.0)
    assert alpha or not z.any()  # 0 times what may be NaN would be NaN
    return functional.relu(found + alpha * z)


def written(entry: Any, views: torch.Tensor, out: torch.Tensor) -> None:
    """As the kernel of that name."""
    runners.replace(entry, by_kernel=False).write(views, out)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The kernels, in torch's operations."""
    made = SimpleNamespace(write=written, max_pool=lambda x, *sides: functional.max_pool2d(x, *map(list, sides)))
    monkeypatch.setitem(sys.modules, "vauban.engine.fusing.kernels", made)
    monkeypatch.setattr("vauban.engine.fusing.kernels", made, raising=False)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", cudnn)
    return made


def test_arguments_of_cudnn_are_in_the_order_of_its_schema() -> None:
    schema = torch.ops.aten.cudnn_convolution_add_relu.default._schema
    names = ["self", "weight", "z", "alpha", "bias", "stride", "padding", "dilation", "groups"]
    assert [argument.name for argument in schema.arguments] == names


@pytest.mark.parametrize("name", ["bottleneck", "in place", "twice"])
def test_the_graph_of_kernels_computes_the_same(name: str, kernels: SimpleNamespace) -> None:
    make, side, _ = NETWORKS[name]
    with torch.random.fork_rng():
        module = trained(make())
    views = torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(2)) * 2 - 0.5
    program, plain = (Program.of(module, tuple(views.shape), CPU, "fp32", by) for by in (True, False))
    assert program.sha256 == plain.sha256
    called = {str(getattr(node.target, "__name__", "")) for node in program.network.graph.nodes}
    assert not called & {"conv_relu", "conv_add_relu", "max_pool"}
    with torch.inference_mode():
        program.write(views)
        assert (program.scores() - module(views)).abs().max() <= 1e-5 * (module(views).max() - module(views).min())


def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs for a GPU be made for the CPU."""
    of = Program.of

    def made(source: Any, shape: Any, device: Any, precision: str, by_kernels: bool = False) -> Program:
        return of(source, shape, CPU, precision, by_kernels)

    monkeypatch.setattr(runners.Program, "of", made)


def test_kernels_that_fail_are_replaced_by_torch_with_a_word(
    monkeypatch: pytest.MonkeyPatch, kernels: SimpleNamespace
) -> None:
    def fails(*arguments: Any) -> torch.Tensor:
        raise RuntimeError("Unable to find an engine to execute this computation")

    def tried(program: Program, shape: Any) -> None:
        program.scores()

    on_the_cpu(monkeypatch)
    monkeypatch.setattr(Program, "try_out", tried)
    monkeypatch.setattr(Program, "_record", lambda program: None)
    runner = FusedRunner(trained(small()), GPU, "bf16", "")
    assert runner.fit((2, 3, 8, 8))
    assert "operations" not in runner.describe()
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", fails)
    with pytest.warns(UserWarning, match=r"failed \(RuntimeError: Unable to find an engine.*by torch's own operations"):
        assert runner.fit((3, 3, 8, 8))
    assert runner.describe()["operations"] == "torch"
    monkeypatch.setattr(Program, "try_out", fails)
    with pytest.warns(UserWarning, match="by torch's own"), pytest.raises(runners.CannotRun, match="--backend torch"):
        runner.fit((4, 3, 8, 8))


class Writer:
    """A kernel for noise that does not what it should."""

    wrong: BaseException | None

    def __init__(self, *about: Any):
        if self.wrong is not None:
            raise self.wrong

    def __call__(self, pictures: Any, at: Any, keys: Any, out: torch.Tensor) -> None:
        out.fill_(0.5)


@pytest.mark.parametrize("wrong", [None, RuntimeError("PTX was compiled for another chip")])
def test_a_noise_kernel_that_is_wrong_is_not_used(
    wrong: BaseException | None, monkeypatch: pytest.MonkeyPatch, kernels: SimpleNamespace
) -> None:
    monkeypatch.setattr(Writer, "wrong", wrong, raising=False)
    kernels.NoiseWriter = Writer
    module = trained(small())
    expected = fused(module).certify(DATA, **SETTINGS).counts
    monkeypatch.setattr(FusedRunner, "makes", lambda self, smoothing, levels: True)
    why = "it wrote other numbers" if wrong is None else "RuntimeError: PTX was compiled"
    with pytest.warns(UserWarning, match=rf"the kernel for noise cannot be used \({why}"):
        found = fused(module).certify(DATA, **SETTINGS).counts
    assert np.array_equal(found, expected)
