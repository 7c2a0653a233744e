"""Kernels for sets of goals against the same in torch: on a GPU where there is one, else by Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from stacks import some_sets
from triton_here import DEVICE, GPU

from vauban.rl.batched_seeds.networks import item_kernels
from vauban.rl.batched_seeds.networks.items import Items

KINDS = [torch.float32, torch.bfloat16]


@pytest.fixture(params=[17, 40])
def wide(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each goes through several tiles."""
    monkeypatch.setattr(item_kernels, "_PROGRAMS", 6)


def pair(capacity: int, agents: int = 3, sets: int = 7) -> tuple[Items, Items]:
    """The same goals twice; the second time for torch alone."""
    goals = some_sets(np.random.default_rng(0), agents, sets, 40).to(DEVICE)
    items = Items.of(goals, capacity)
    assert not items.overflow
    plain = replace(items)
    plain.__dict__["_kernels"] = None
    return items, plain


def some(*shape: int, kind: torch.dtype = torch.float32) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, kind)


@pytest.mark.parametrize("capacity", [280, 301])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_products(capacity: int, kind: torch.dtype, wide: int) -> None:
    items, plain = pair(capacity)
    x, y, weights = some(3, capacity, wide, kind=kind), some(3, 7, wide), some(3, capacity)
    near = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(item_kernels.sums(items, x, None), plain.sums(x), **near)
    torch.testing.assert_close(item_kernels.sums(items, x, weights), plain.sums(x, weights), **near)
    torch.testing.assert_close(item_kernels.dots(items, x, y), plain.dots(x, y), **near)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_backward_pass(kind: torch.dtype, weighted: bool, wide: int) -> None:
    items, plain = pair(301)
    x, slope = some(3, 301, wide, kind=kind), some(3, 7, wide)
    others = (some(3, 301), some(3, 7, wide + 1)[..., :wide]) if weighted else (None, None)
    got, total = item_kernels.backward(items, x, slope, *others)
    want, added = plain.backward(x, slope, *others)
    rounding = 2e-2 if kind == torch.bfloat16 else 1e-4  # the interpreter cuts numbers off
    torch.testing.assert_close(got, want, rtol=rounding, atol=1e-4)
    torch.testing.assert_close(total, added, rtol=1e-4, atol=1e-3)


def test_what_an_encoder_reads() -> None:
    items, plain = pair(301)
    state = 5 * some(3, 7, 6)
    got, want = item_kernels.encoder_inputs(items, state).float(), plain.encoder_inputs(state, True).float()
    assert got.shape == want.shape == (3, 301, 32)
    torch.testing.assert_close(got[..., :8] + got[..., 8:16], want[..., :8] + want[..., 8:16], rtol=0, atol=1e-3)
    assert torch.equal(got[..., 16:], want[..., 16:])
    if GPU:
        assert torch.equal(got, want)


@pytest.mark.parametrize("kind", KINDS if GPU else KINDS[:1])  # the interpreter multiplies no bfloat16
def test_the_first_layer_and_its_gradient(kind: torch.dtype) -> None:
    x, weight = some(3, 301, 32, kind=kind), some(3, 32, 150, kind=kind)
    slope, h = some(3, 301, 150, kind=kind), some(3, 301, 151, kind=kind)[..., :150].contiguous()
    rounding = {"rtol": 2e-2, "atol": 2e-2} if GPU else {"rtol": 1e-4, "atol": 1e-3}
    want = torch.bmm(x.float(), weight.float()).relu()
    torch.testing.assert_close(item_kernels.first_layer(x, weight).float(), want, **rounding)
    want = torch.bmm(x.float().mT, torch.where(h > 0, slope, 0).float())
    torch.testing.assert_close(item_kernels.first_layer_gradient(x, slope, h), want, **rounding)
