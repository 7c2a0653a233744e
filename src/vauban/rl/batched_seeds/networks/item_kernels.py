"""The methods of `Items` as Triton kernels: values of items are bfloat16 or float32, sums float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from vauban.rl.batched_seeds.networks.items import width

if TYPE_CHECKING:
    from vauban.rl.batched_seeds.networks.items import Items

_FEW, _MANY = 16, 64  # items in a tile
_PROGRAMS = 128  # programs for each agent in kernels that sum over all items


@triton.jit
def _encoder_inputs(  # type: ignore[no-untyped-def]
    state, points, rows, out, capacity, S: tl.constexpr, K: tl.constexpr, W: tl.constexpr, B: tl.constexpr
):
    item = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = (item < capacity)[:, None]
    row = tl.load(rows + item, mask=item < capacity, other=0)
    column = tl.arange(0, W)[None, :]
    source = tl.where(column < K, column, column - K)
    of_state = there & (source < S)
    of_point = there & (source >= S) & (column < 2 * K)
    value = tl.load(state + row[:, None] * S + source, mask=of_state, other=0.0)
    value += tl.load(points + item[:, None] * 2 + source - S, mask=of_point, other=0.0)
    first = value.to(tl.bfloat16).to(tl.float32)
    one = tl.where(column == 2 * K, 1.0, 0.0)
    inputs = tl.where(column < K, first, tl.where(column < 2 * K, value - first, one))
    tl.store(out + item[:, None] * W + column, inputs.to(tl.bfloat16), mask=there)


@triton.jit
def _sums(x, weights, ends, out, sets, capacity, n, WEIGHTED: tl.constexpr, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    of = tl.program_id(0)
    agent = of // sets
    stop = tl.load(ends + of)
    begin = tl.load(ends + of - 1, mask=of % sets > 0, other=0)
    column = tl.arange(0, N)
    total = tl.zeros((B, N), tl.float32)
    for start in range(begin, stop, B):
        item = start + tl.arange(0, B)
        at = agent.to(tl.int64) * capacity + item
        there = (item < stop)[:, None] & (column < n)[None, :]
        value = tl.load(x + at[:, None] * n + column[None, :], mask=there, other=0.0).to(tl.float32)
        if WEIGHTED:
            value *= tl.load(weights + at, mask=item < stop, other=0.0)[:, None]
        total += value
    tl.store(out + of.to(tl.int64) * n + column, tl.sum(total, axis=0), mask=column < n)


@triton.jit
def _dots(x, y, rows, gates, out, items, n, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    item = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    column = tl.arange(0, N)
    known = item < items
    there = known[:, None] & (column < n)[None, :]
    row = tl.load(rows + item, mask=known, other=0)
    gate = tl.load(gates + item, mask=known, other=0.0)
    left = tl.load(x + item[:, None] * n + column[None, :], mask=there, other=0.0).to(tl.float32)
    right = tl.load(y + row[:, None] * n + column[None, :], mask=there, other=0.0)
    tl.store(out + item, gate * tl.sum(left * right, axis=1), mask=known)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    x, slope, weights, y, rows, gates, out, total, capacity, n, tiles,
    WEIGHTED: tl.constexpr, N: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    agent = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, N)
    added = tl.zeros((B, N), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        index = tile * B + tl.arange(0, B)
        item = agent * capacity + index
        known = index < capacity
        there = known[:, None] & (column < n)[None, :]
        row = tl.load(rows + item, mask=known, other=0)
        gate = tl.load(gates + item, mask=known, other=0.0)
        value = tl.load(x + item[:, None] * n + column[None, :], mask=there, other=0.0)
        found = tl.load(slope + row[:, None] * n + column[None, :], mask=there, other=0.0)
        if WEIGHTED:
            weight = tl.load(weights + item, mask=known, other=0.0)
            found += weight[:, None] * tl.load(y + row[:, None] * n + column[None, :], mask=there, other=0.0)
        found = tl.where(value.to(tl.float32) > 0, found, 0.0) * gate[:, None]
        tl.store(out + item[:, None] * n + column[None, :], found.to(out.dtype.element_ty), mask=there)
        added += found
    tl.atomic_add(total + agent * n + column, tl.sum(added, axis=0), mask=column < n)


@triton.jit
def _first_layer(x, weight, out, capacity, n, W: tl.constexpr, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    agent = tl.program_id(2).to(tl.int64)
    index, source = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, W)
    column = tl.program_id(1) * N + tl.arange(0, N)
    item = agent * capacity + index
    left = tl.load(x + item[:, None] * W + source[None, :], mask=(index < capacity)[:, None], other=0.0)
    known = (column < n)[None, :] & (source < W)[:, None]
    right = tl.load(weight + agent * W * n + source[:, None] * n + column[None, :], mask=known, other=0.0)
    found = tl.maximum(tl.dot(left, right), 0.0).to(out.dtype.element_ty)
    tl.store(out + item[:, None] * n + column[None, :], found, mask=(index < capacity)[:, None] & (column < n)[None, :])


@triton.jit
def _first_layer_gradient(x, slope, h, out, capacity, n, tiles, W: tl.constexpr, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    agent = tl.program_id(1).to(tl.int64)
    column, source = tl.arange(0, N), tl.arange(0, W)
    total = tl.zeros((W, N), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        index = tile * B + tl.arange(0, B)
        item = agent * capacity + index
        known = index < capacity
        there = known[:, None] & (column < n)[None, :]
        right = tl.load(slope + item[:, None] * n + column[None, :], mask=there, other=0.0)
        seen = tl.load(h + item[:, None] * n + column[None, :], mask=there, other=0.0)
        right = tl.where(seen.to(tl.float32) > 0, right, 0.0).to(x.dtype.element_ty)
        left = tl.load(x + item[None, :] * W + source[:, None], mask=known[None, :], other=0.0)
        total += tl.dot(left, right)
    at = agent * W * n + source[:, None] * n + column[None, :]
    tl.atomic_add(out + at, total, mask=(column < n)[None, :] & (source >= 0)[:, None])


def encoder_inputs(items: Items, state: Tensor) -> Tensor:
    """`Items.encoder_inputs` in bfloat16."""
    state, capacity = state.contiguous().float(), items.rows.numel()
    known = state.shape[-1] + items.points.shape[-1]
    wide = width(2 * known + 1)
    out = torch.empty(*items.rows.shape, wide, dtype=torch.bfloat16, device=state.device)
    grid = (triton.cdiv(capacity, _MANY),)
    _encoder_inputs[grid](state, items.points, items.rows, out, capacity, S=state.shape[-1], K=known, W=wide, B=_MANY)
    return out


def sums(items: Items, x: Tensor, weights: Tensor | None) -> Tensor:
    """`Items.sums`, one program for each set."""
    agents, sets = items.ends.shape
    n = x.shape[-1]
    out = torch.empty(agents, sets, n, device=x.device)
    _sums[(agents * sets,)](
        x, out if weights is None else weights, items.ends, out, sets, items.rows.shape[1], n,
        WEIGHTED=weights is not None, N=width(n), B=_FEW, num_warps=4,
    )  # fmt: skip
    return out


def dots(items: Items, x: Tensor, y: Tensor) -> Tensor:
    """`Items.dots`, one program for a few items."""
    capacity, n = items.rows.numel(), x.shape[-1]
    out = torch.empty(items.rows.shape, device=x.device)
    grid = (triton.cdiv(capacity, _FEW),)
    _dots[grid](x, y.contiguous(), items.rows, items.gates, out, capacity, n, N=width(n), B=_FEW, num_warps=4)
    return out


def backward(items: Items, x: Tensor, slope: Tensor, weights: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """`Items.backward`; each program goes through many tiles and adds its sum once."""
    agents, capacity = items.rows.shape
    n = x.shape[-1]
    out, total = torch.empty_like(x), torch.zeros(agents, 1, n, device=x.device)
    nothing: Any = total
    _backward[(_PROGRAMS, agents)](
        x, slope.contiguous(), nothing if weights is None else weights, nothing if y is None else y.contiguous(),
        items.rows, items.gates, out, total, capacity, n, triton.cdiv(capacity, _FEW),
        WEIGHTED=weights is not None, N=width(n), B=_FEW, num_warps=4,
    )  # fmt: skip
    return out, total


def first_layer(x: Tensor, weight: Tensor) -> Tensor:
    """relu(x_i W), (agents, capacity, w) and (agents, w, n) to (agents, capacity, n): few numbers read, many written."""
    agents, capacity, wide = x.shape
    n = weight.shape[-1]
    out = torch.empty(agents, capacity, n, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(capacity, _MANY), triton.cdiv(n, 128), agents)
    _first_layer[grid](x, weight, out, capacity, n, W=wide, N=128, B=_MANY, num_warps=4)
    return out


def first_layer_gradient(x: Tensor, slope: Tensor, h: Tensor) -> Tensor:
    """sum_i x_i (slope_i where h_i > 0), (agents, capacity, w) and twice (agents, capacity, n) to (agents, w, n)."""
    agents, capacity, wide = x.shape
    n = slope.shape[-1]
    out = torch.zeros(agents, wide, n, device=x.device)
    _first_layer_gradient[(_PROGRAMS // 2, agents)](
        x, slope, h, out, capacity, n, triton.cdiv(capacity, 32), W=wide, N=width(n), B=32, num_warps=8, num_stages=2
    )
    return out
