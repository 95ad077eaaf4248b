"""Gradients of products on the GPU, added to rows of entities and relations by the launch that makes them."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Room, Shared
from fedkge.kernels.gpu.composing import MULTIPLY
from fedkge.kernels.gpu.finishing import finish, where
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout
from fedkge.kernels.gpu.meeting import products
from fedkge.kernels.gpu.multiplying import for_negatives, for_queries
from fedkge.kernels.gpu.similarity import DOT
from fedkge.kernels.gpu.sloping import Slopes, to_true

TILE = (64, 64, 4)  #: rows and coordinates in a tile, and warps
STEP = 16  #: rows that a product takes at a time


@triton.jit
def _heap(
    sums,
    touched,
    relation_sums,
    relation_touched,
    entities,
    anchor,
    factors,
    relation,
    sign: tl.float64,
    scale: tl.float64,
    rows,
    truth,
    starts,
    negatives,  # [c, n]
    by_query,
    by_negative,
    own,
    each,  # [b]
    last,
    front,
    slots,
    there,
    n,
    MADE: tl.constexpr,
    FACTORS: tl.constexpr,
    WIDTH: tl.constexpr,
    LONG: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """First a chunk's queries, then its negatives; of complex numbers a tile has both parts."""
    tiles, others = tl.cdiv(slots, ROWS), tl.cdiv(there, ROWS)
    chunk = (tl.program_id(0) // (tiles + others)).to(tl.int64)
    tile = tl.program_id(0) % (tiles + others)
    parts: tl.constexpr = 2 if MADE >= MULTIPLY else 1
    part: tl.constexpr = COLUMNS // parts
    span: tl.constexpr = WIDTH // parts
    column = tl.arange(0, COLUMNS)
    low = tl.program_id(1) * part + column % part
    d, live = (column // part * span + low)[None, :], (low < span)[None, :]
    k = tl.arange(0, ROWS)[:, None]
    if tile < tiles:
        slot = tile * ROWS + k
        got = for_queries(
            rows, by_query, chunk, slot, d, live, front, slots, there, LONG, ROWS, COLUMNS, STEP, PRECISION
        )
        i = tl.load(starts + chunk) + slot
        mine = (slot < slots) & (i < tl.load(starts + chunk + 1))
        times = tl.load(each + i, mask=mine, other=0.0)
        x = tl.load(rows + (chunk * slots + slot) * LONG + d, mask=mine & live, other=0.0)
        step, _, to, _ = to_true(
            i, mine, d, mine & live, times, x, x, entities, truth, own, DOT, WIDTH, WIDTH
        )  # fmt: skip
        row = tl.load(truth + i, mask=mine, other=0)
        tl.atomic_add(sums + row * WIDTH + d, to, mask=mine & live, sem="relaxed")
        tl.store(touched + row, 1, mask=mine & (tl.program_id(1) == 0))
        got = times * got + step
        dx, dy = got, got
        if parts == 2:
            dx, dy = tl.split(tl.permute(tl.reshape(got, (ROWS, 2, part)), (0, 2, 1)))
        at = (tl.program_id(1) * part + tl.arange(0, part))[None, :]
        finish(
            i, mine, at, at < span, dx, dy, sums, touched, relation_sums, relation_touched, entities, anchor,
            factors, relation, sign, scale, MADE, WIDTH, FACTORS,
        )  # fmt: skip
    else:
        j = (tile - tiles) * ROWS + k
        got = for_negatives(
            rows, by_negative, each, starts, last, chunk, j, d, live, front, slots, there, True, LONG, ROWS,
            COLUMNS, STEP, PRECISION,
        )  # fmt: skip
        row = tl.load(negatives + chunk * n + j, mask=j < n, other=0)
        tl.atomic_add(sums + row * WIDTH + d, got, mask=(j < n) & live, sem="relaxed")
        tl.store(touched + row, 1, mask=(j < n) & (tl.program_id(1) == 0))


def heap(
    entities: Tensor,
    made: Composed,
    shared: Shared,
    layout: Layout,
    slopes: Slopes,
    each: Tensor,
    rooms: tuple[Room, Room],
) -> None:
    """Add the gradients of entities' and relations' rows."""
    n, width, long = shared.negatives.shape[1], entities.shape[1], layout.rows.shape[1]
    height, columns, warps = TILE
    tiles = sum(triton.cdiv(some, height) for some in (layout.slots, layout.there))
    grid = (layout.front // layout.slots * tiles, triton.cdiv(width, columns))
    ids = (layout.rows, shared.true, shared.starts, shared.negatives)
    factors = (slopes.by_query, slopes.by_negative, slopes.own, each)
    sizes = (len(each) - 1, layout.front, layout.slots, layout.there, n)
    shape = {"MADE": int(made.kind), "FACTORS": made.factors.shape[1], "WIDTH": width, "LONG": long}
    tile = {"ROWS": height, "COLUMNS": columns, "STEP": STEP, "num_warps": warps}
    out = where(rooms, entities, made)
    launch(_heap, grid, *out, *ids, *factors, *sizes, PRECISION=products(), **shape, **tile)
