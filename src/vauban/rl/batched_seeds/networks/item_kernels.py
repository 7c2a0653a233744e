"""What `Items` does, as Triton kernels: numbers of goals are bfloat16 or float32, sums float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from vauban.rl.batched_seeds.networks.items import width

if TYPE_CHECKING:
    from vauban.rl.batched_seeds.networks.items import Items

_FEW, _MANY = 16, 64  # goals in a tile
_PROGRAMS = 128  # for each agent, where sums over the whole room are made


@triton.jit
def _lay(state, points, rows, out, room, S: tl.constexpr, K: tl.constexpr, W: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    item = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = (item < room)[:, None]
    row = tl.load(rows + item, mask=item < room, other=0)
    column = tl.arange(0, W)[None, :]
    source = tl.where(column < K, column, column - K)
    of_state = there & (source < S)
    of_point = there & (source >= S) & (column < 2 * K)
    value = tl.load(state + row[:, None] * S + source, mask=of_state, other=0.0)
    value += tl.load(points + item[:, None] * 2 + source - S, mask=of_point, other=0.0)
    first = value.to(tl.bfloat16).to(tl.float32)
    one = tl.where(column == 2 * K, 1.0, 0.0)
    laid = tl.where(column < K, first, tl.where(column < 2 * K, value - first, one))
    tl.store(out + item[:, None] * W + column, laid.to(tl.bfloat16), mask=there)


@triton.jit
def _sums(x, weights, ends, out, sets, room, n, WEIGHTED: tl.constexpr, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    of = tl.program_id(0)
    agent = of // sets
    stop = tl.load(ends + of)
    begin = tl.load(ends + of - 1, mask=of % sets > 0, other=0)
    column = tl.arange(0, N)
    total = tl.zeros((B, N), tl.float32)
    for start in range(begin, stop, B):
        item = start + tl.arange(0, B)
        at = agent.to(tl.int64) * room + item
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
def _back(  # type: ignore[no-untyped-def]
    x, slope, weights, y, rows, gates, out, total, room, n, tiles,
    WEIGHTED: tl.constexpr, N: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    agent = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, N)
    added = tl.zeros((B, N), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        place = tile * B + tl.arange(0, B)
        item = agent * room + place
        known = place < room
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
def _first(x, weight, out, room, n, W: tl.constexpr, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    agent = tl.program_id(2).to(tl.int64)
    place, source = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, W)
    column = tl.program_id(1) * N + tl.arange(0, N)
    item = agent * room + place
    left = tl.load(x + item[:, None] * W + source[None, :], mask=(place < room)[:, None], other=0.0)
    known = (column < n)[None, :] & (source < W)[:, None]
    right = tl.load(weight + agent * W * n + source[:, None] * n + column[None, :], mask=known, other=0.0)
    found = tl.maximum(tl.dot(left, right), 0.0).to(out.dtype.element_ty)
    tl.store(out + item[:, None] * n + column[None, :], found, mask=(place < room)[:, None] & (column < n)[None, :])


@triton.jit
def _inner(x, slope, h, out, room, n, tiles, W: tl.constexpr, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    agent = tl.program_id(1).to(tl.int64)
    column, source = tl.arange(0, N), tl.arange(0, W)
    total = tl.zeros((W, N), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        place = tile * B + tl.arange(0, B)
        item = agent * room + place
        known = place < room
        there = known[:, None] & (column < n)[None, :]
        right = tl.load(slope + item[:, None] * n + column[None, :], mask=there, other=0.0)
        seen = tl.load(h + item[:, None] * n + column[None, :], mask=there, other=0.0)
        right = tl.where(seen.to(tl.float32) > 0, right, 0.0).to(x.dtype.element_ty)
        left = tl.load(x + item[None, :] * W + source[:, None], mask=known[None, :], other=0.0)
        total += tl.dot(left, right)
    at = agent * W * n + source[:, None] * n + column[None, :]
    tl.atomic_add(out + at, total, mask=(column < n)[None, :] & (source >= 0)[:, None])


def lay(items: Items, state: Tensor) -> Tensor:
    """`Items.lay` in bfloat16."""
    state, room = state.contiguous().float(), items.rows.numel()
    known = state.shape[-1] + items.points.shape[-1]
    wide = width(2 * known + 1)
    out = torch.empty(*items.rows.shape, wide, dtype=torch.bfloat16, device=state.device)
    grid = (triton.cdiv(room, _MANY),)
    _lay[grid](state, items.points, items.rows, out, room, S=state.shape[-1], K=known, W=wide, B=_MANY)
    return out


def sums(items: Items, x: Tensor, weights: Tensor | None) -> Tensor:
    """`Items.sums`, one program a set."""
    agents, sets = items.ends.shape
    n = x.shape[-1]
    out = torch.empty(agents, sets, n, device=x.device)
    _sums[(agents * sets,)](
        x, out if weights is None else weights, items.ends, out, sets, items.rows.shape[1], n,
        WEIGHTED=weights is not None, N=width(n), B=_FEW, num_warps=4,
    )  # fmt: skip
    return out


def dots(items: Items, x: Tensor, y: Tensor) -> Tensor:
    """`Items.dots`, one program for a few goals."""
    room, n = items.rows.numel(), x.shape[-1]
    out = torch.empty(items.rows.shape, device=x.device)
    grid = (triton.cdiv(room, _FEW),)
    _dots[grid](x, y.contiguous(), items.rows, items.gates, out, room, n, N=width(n), B=_FEW, num_warps=4)
    return out


def back(items: Items, x: Tensor, slope: Tensor, weights: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """`Items.back`; every program goes through many tiles and adds up once."""
    agents, room = items.rows.shape
    n = x.shape[-1]
    out, total = torch.empty_like(x), torch.zeros(agents, 1, n, device=x.device)
    nothing: Any = total
    _back[(_PROGRAMS, agents)](
        x, slope.contiguous(), nothing if weights is None else weights, nothing if y is None else y.contiguous(),
        items.rows, items.gates, out, total, room, n, triton.cdiv(room, _FEW),
        WEIGHTED=weights is not None, N=width(n), B=_FEW, num_warps=4,
    )  # fmt: skip
    return out, total


def first(x: Tensor, weight: Tensor) -> Tensor:
    """relu(x_i W), (agents, room, w) and (agents, w, n) to (agents, room, n): few numbers read, many written."""
    agents, room, wide = x.shape
    n = weight.shape[-1]
    out = torch.empty(agents, room, n, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(room, _MANY), triton.cdiv(n, 128), agents)
    _first[grid](x, weight, out, room, n, W=wide, N=128, B=_MANY, num_warps=4)
    return out


def inner(x: Tensor, slope: Tensor, h: Tensor) -> Tensor:
    """sum_i x_i (slope_i where h_i > 0), (agents, room, w) and twice (agents, room, n) to (agents, w, n)."""
    agents, room, wide = x.shape
    n = slope.shape[-1]
    out = torch.zeros(agents, wide, n, device=x.device)
    _inner[(_PROGRAMS // 2, agents)](
        x, slope, h, out, room, n, triton.cdiv(room, 32), W=wide, N=width(n), B=32, num_warps=8, num_stages=2
    )
    return out
