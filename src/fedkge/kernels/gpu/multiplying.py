"""Gradients of shared negatives and their queries as products on the GPU, in float32 or on tensor cores."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.similarity import DOT
from fedkge.kernels.gpu.sloping import true

TILE = (64, 64, 4)  #: rows and coordinates in a tile, and warps
STEP = 32  #: rows that a product takes at a time


@triton.jit
def for_queries(
    rows,
    by_query,
    chunk,
    slot,  # [ROWS, 1]
    d,  # [1, COLUMNS]
    live,
    front,
    slots,
    there,
    LONG: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What a chunk's negatives give to queries [ROWS, COLUMNS]."""
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, there, STEP):
        j = start + tl.arange(0, STEP)
        e_at = rows + (front + chunk * there + j)[:, None] * LONG + d
        e = tl.load(e_at, mask=(j < there)[:, None] & live, other=0.0)
        g_at = by_query + (chunk * slots + slot) * there + j[None, :]
        g = tl.load(g_at, mask=(slot < slots) & (j < there)[None, :], other=0.0)
        sums = tl.dot(g, e, sums, input_precision=PRECISION)
    return sums


@triton.jit
def for_negatives(
    rows,
    by_negative,
    each,  # [b] if TIMES
    starts,
    last,
    chunk,
    j,  # [ROWS, 1]
    d,  # [1, COLUMNS]
    live,
    front,
    slots,
    there,
    TIMES: tl.constexpr,
    LONG: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What a chunk's queries give to negatives [ROWS, COLUMNS]."""
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, slots, STEP):
        slot = start + tl.arange(0, STEP)
        q_at = rows + (chunk * slots + slot)[:, None] * LONG + d
        q = tl.load(q_at, mask=(slot < slots)[:, None] & live, other=0.0)
        g_at = by_negative + j.to(tl.int64) * front + (chunk * slots + slot)[None, :]
        g = tl.load(g_at, mask=(j < there) & (slot < slots)[None, :], other=0.0)
        if TIMES:
            i = tl.minimum(tl.load(starts + chunk) + slot, last)  # slots without one have a slope of 0
            g *= tl.load(each + i)[None, :]
        sums = tl.dot(g, q, sums, input_precision=PRECISION)
    return sums


@triton.jit
def _multiply(
    d_query,
    d_true,
    values,
    rows,
    table,
    truth,
    starts,
    by_query,
    by_negative,
    own,
    each,  # [b] if TIMES
    last,
    front,
    slots,
    there,
    n,
    TIMES: tl.constexpr,
    WIDTH: tl.constexpr,
    LONG: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """First a chunk's queries, then its negatives."""
    tiles, others = tl.cdiv(slots, ROWS), tl.cdiv(there, ROWS)
    chunk = (tl.program_id(0) // (tiles + others)).to(tl.int64)
    tile = tl.program_id(0) % (tiles + others)
    d = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    live = d < LONG
    k = tl.arange(0, ROWS)[:, None]
    if tile < tiles:
        slot = tile * ROWS + k
        sums = for_queries(
            rows, by_query, chunk, slot, d, live, front, slots, there, LONG, ROWS, COLUMNS, STEP, PRECISION
        )
        i = tl.load(starts + chunk) + slot
        mine = (slot < slots) & (i < tl.load(starts + chunk + 1))
        times = tl.load(each + i, mask=mine, other=0.0) if TIMES else 1.0
        x = tl.load(rows + (chunk * slots + slot) * LONG + d, mask=mine & live, other=0.0)
        true(
            i, mine, d, d < WIDTH, times, d_query, d_true, times * sums, sums, x, x, table, truth, own,
            DOT, WIDTH, WIDTH,
        )  # fmt: skip
    else:
        j = (tile - tiles) * ROWS + k
        sums = for_negatives(
            rows, by_negative, each, starts, last, chunk, j, d, live, front, slots, there, TIMES, LONG, ROWS,
            COLUMNS, STEP, PRECISION,
        )  # fmt: skip
        tl.store(values + (chunk * n + j) * WIDTH + d, sums, mask=(j < n) & (d < WIDTH))


def multiply(
    out: tuple[Tensor, Tensor, Tensor],
    ids: tuple[Tensor, ...],
    factors: tuple[Tensor, ...],
    sizes: tuple[int, ...],
    times: bool,
    width: int,
    precision: str,
) -> None:
    """What `pulling.gradients` asks for."""
    _, front, slots, there, _ = sizes
    long, (height, columns, warps) = ids[0].shape[1], TILE
    tiles = sum(triton.cdiv(some, height) for some in (slots, there))
    grid = (front // slots * tiles, triton.cdiv(long, columns))
    meta = {"TIMES": times, "WIDTH": width, "LONG": long, "PRECISION": precision}
    tile = {"ROWS": height, "COLUMNS": columns, "STEP": STEP, "num_warps": warps}
    launch(_multiply, grid, *out, *ids, *factors, *sizes, **meta, **tile)
