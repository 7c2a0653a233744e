"""Kernels of fused networks against the same in torch: on a GPU where there is one, else by Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn import functional
from triton_here import DEVICE

from vauban.engine import compiled as compiling
from vauban.engine.block_convolution import by_blocks
from vauban.engine.fusing import kernels
from vauban.engine.fusing.entry import Entry
from vauban.engine.fusing.runner import FusedRunner
from vauban.engine.sampler import Sampler
from vauban.laws.gaussian import GaussianLaw
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing.gaussian import Gaussian
from vauban.smoothing.grid import grid_noise
from vauban.smoothing.random import Stream, addresses, keys_of, words_of


def entry(shape: tuple[int, int, int], stride: int = 2, scaled: bool = False, layout: str = "blocks") -> Entry:
    channels, stride = shape[0], stride if layout == "blocks" else 1
    scale = torch.linspace(0.5, 2, channels) if scaled else torch.ones(channels)
    shift = torch.linspace(-1, 1, channels) if scaled else torch.zeros(channels)
    pads = (3, 3 + (shape[2] % 2), 3, 3 + (shape[1] % 2)) if stride == 2 else (0, 0, 0, 0)
    return Entry(shape, stride, pads, scale.to(DEVICE), shift.to(DEVICE), layout=layout)


def in_place(one: Entry, views: torch.Tensor) -> torch.Tensor:
    scaled = views * one.scale[:, None, None] + one.shift[:, None, None]
    return by_blocks(functional.pad(scaled, one.pads), one.stride) if one.layout == "blocks" else scaled


@pytest.mark.parametrize(("stride", "layout"), [(1, "blocks"), (2, "blocks"), (1, "first"), (1, "last")])
def test_views_are_written_in_every_layout(stride: int, layout: str) -> None:
    one = entry((3, 9, 12), stride, scaled=True, layout=layout)
    views = torch.rand(4, 3, 9, 12, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    out = one.buffer(4, torch.float32)
    kernels.write(one, views, out)
    torch.testing.assert_close(out, in_place(one, views))
    again = one.buffer(4, torch.float32)
    one.write(views, again)
    torch.testing.assert_close(again, in_place(one, views))
    assert again.is_contiguous(memory_format=torch.contiguous_format if layout == "first" else torch.channels_last)


@pytest.mark.parametrize("layout", ["blocks", "last", "first"])
@pytest.mark.parametrize("sigma", [0.25, 5.0])
@pytest.mark.parametrize(
    ("shape", "seeds"), [((3, 8, 9), (7,)), ((3, 8, 9), (7, 8)), ((2, 5, 5), (7,)), ((1, 47, 47), (9,))]
)
def test_noise_is_written_bit_for_bit(
    layout: str, sigma: float, shape: tuple[int, int, int], seeds: tuple[int, ...]
) -> None:
    """Several blocks of several seeds, three channels or not; the wide noise leaves a third of all numbers undecided."""
    smoothing, one, block = Gaussian(sigma), entry(shape, layout=layout), 3
    pictures = torch.randint(0, 256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    streams = [Stream(Seed.of(seed), "count", number) for seed, number in zip(seeds * 2, (3, 2**40 + 1), strict=False)]
    starts = [0, 1234567]
    cpu = torch.device("cpu")
    words = words_of(streams, starts, block, smoothing.words(torch.Size(shape), 255), cpu)
    each = pictures[:, None].expand(2, block, *shape).flatten(0, 1)
    want = smoothing.views(each, words, 255).to(DEVICE)
    out = one.buffer(2 * block, torch.float32)
    writer = kernels.NoiseWriter(one, grid_noise(GaussianLaw(sigma), 255), 255, 2 * block, block)
    for _ in range(2):  # into a buffer that was used before
        writer(pictures.to(DEVICE), addresses(streams, starts).to(DEVICE), keys_of(streams, DEVICE), out)
        assert torch.equal(out, in_place(one, want))


def test_numbers_beyond_a_tile_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_WORDS", 32)
    monkeypatch.setattr(kernels, "_CUT", 4)
    test_noise_is_written_bit_for_bit("blocks", 5.0, (3, 8, 9), (7,))


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "padding"), [(9, 3, 2, 1), (8, 3, 2, 1), (8, 2, 2, 0), (7, 3, 1, 0)]
)
def test_the_largest_of_each_window(side: int, kernel: int, stride: int, padding: int) -> None:
    x = torch.randn(3, 5, side, side + 2, generator=torch.Generator().manual_seed(side)).to(DEVICE)
    x[1, 2, 3, 3] = float("nan")
    laid = x.contiguous(memory_format=torch.channels_last)
    found = kernels.max_pool(laid, (kernel, kernel), (stride, stride), (padding, padding))
    want = functional.max_pool2d(x, kernel, stride, padding)
    assert torch.equal(found.isnan(), want.isnan())
    assert torch.equal(found.nan_to_num(), want.nan_to_num())
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_votes_of_a_network_whose_noise_a_kernel_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way through the sampler: the same views, so the same counts as from views that are made first."""
    monkeypatch.setattr(FusedRunner, "makes", lambda self, smoothing, levels: True)
    monkeypatch.setattr("vauban.engine.network._PROBE_SECONDS", 0.0)
    pictures = torch.randint(0, 256, (2, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(36, 3)
    )
    options = {"num_classes": 3, "rows": 4, "block": 2, "backend": "fused", "device": DEVICE}
    direct = SmoothedClassifier(model.to(DEVICE), "gaussian:sigma=0.5", **options)
    found = direct.certify(pictures, [0, 1], n=12, alpha=0.1, seed=1, progress=False).counts
    monkeypatch.setattr(FusedRunner, "makes", lambda self, smoothing, levels: False)
    made = SmoothedClassifier(model, "gaussian:sigma=0.5", **options)
    assert torch.equal(
        torch.tensor(found), torch.tensor(made.certify(pictures, [0, 1], n=12, alpha=0.1, seed=1).counts)
    )


@pytest.mark.parametrize("channels_last", [True, False])
def test_votes_of_a_compiled_network_whose_noise_is_written_apart(
    channels_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every view that it votes on has the bits of those that are made without the kernel."""
    monkeypatch.setattr(Sampler, "probe", lambda *_, **__: True)
    monkeypatch.setattr(compiling, "compiled", lambda function, *_, **__: function)
    monkeypatch.setattr(compiling, "_written_apart", lambda *_: True)
    pictures = torch.randint(0, 256, (2, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3))
    options = {"num_classes": 3, "rows": 4, "block": 2, "device": DEVICE, "channels_last": channels_last}
    settings = {"n": 12, "alpha": 0.1, "seed": 1, "progress": False}
    found, written = [], []
    for apart in (True, False):
        monkeypatch.setattr(Sampler, "_fuses", apart)
        smoothed = SmoothedClassifier(model.to(DEVICE), "gaussian:sigma=0.5", **options)
        seen: list[torch.Tensor] = []
        own = Sampler.votes_and_scores

        def voting(self: Sampler, views: torch.Tensor, own: Any = own, seen: Any = seen) -> Any:
            seen.append(views.clone())
            return own(self, views)

        with monkeypatch.context() as patched:
            patched.setattr(Sampler, "votes_and_scores", voting)
            found.append(smoothed.certify(pictures, [0, 1], **settings).counts)
        written.append(seen)
    assert (found[0] == found[1]).all()
    apart, plain = (seen[-6:] for seen in written)  # 12 votes of two inputs, 4 at a time
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(apart, plain, strict=True))


PLACES = {"C": 3, "H": 224, "W": 224, "S": 2, "TOP": 3, "LEFT": 3, "ACROSS": 115, "WIDE": 16, "PLANE": 1}
PLACES["ROW"] = 115 * 115 * 16
POINTERS = {
    "views": "*fp32",
    "scale": "*fp32",
    "shift": "*fp32",
    "out": "*bf16",
    "x": "*bf16",
    "pictures": "*u8",
    "at": "*i64",
    "keys": "*i64",
    "guide": "*i16",
    "thresholds": "*i64",
    "unit": "*fp64",
    "waiting": "*i16",
    "counts": "*i32",
    "before": "*i32",
}
CONSTANTS = {
    "_write": {**PLACES, "B": 1024},
    "_noisy": {**PLACES, "UNDECIDED": -(2**15), "B": 1024},
    "_searched": {**PLACES, "STEPS": 11, "B": 1024, "N": 32},
    "_max_pool": {"C": 64, "KH": 3, "KW": 3, "SH": 2, "SW": 2, "PH": 1, "PW": 1, "B": 1024},
}
COMPILING = """
import json, sys
sys.path.append(sys.argv[1])
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vauban.engine.fusing import kernels
pointers, constants = map(json.loads, sys.argv[2:])
for name, given in constants.items():
    kernel = getattr(kernels, name)
    names = kernel.arg_names
    kinds = {one: "constexpr" if one in given else pointers.get(one, "i32") for one in names}
    source = ASTSource(fn=kernel, signature=kinds, constexprs={(names.index(one),): value for one, value in given.items()})
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"], name
"""


def test_the_kernels_compile_for_a_gpu_that_is_not_here() -> None:
    """Types and shapes are checked by the compiler, which the interpreter does not do."""
    folder, texts = os.environ.get("TRITON_FOLDER", ""), (json.dumps(POINTERS), json.dumps(CONSTANTS))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILING, folder, *texts]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
