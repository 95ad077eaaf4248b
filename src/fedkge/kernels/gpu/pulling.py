"""Gradients of shared negatives and their queries on the GPU, without atomics: a program owns what it sums.

Similarities are symmetric, so that one kernel serves both: a tile of rows in registers, past which all rows
that they were compared with are led, one by one. Products may go through tensor cores instead.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Shared, Similarity
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout
from fedkge.kernels.gpu.sharing import products
from fedkge.kernels.gpu.similarity import DOT, L1, L2, MODULUS, TINY, pull, pull_complex

#: rows and coordinates in a tile, and warps: a thread has all rows, and up to four coordinates
TILES = dict.fromkeys(Similarity, (4, 64, 1)) | {Similarity.DOT: (8, 128, 1)}
PRODUCT = (64, 64, 4)  #: rows and coordinates in a tile of products, and warps
STEP = 32  #: rows that a product takes at a time


@triton.jit
def _slope(score, g, KIND: tl.constexpr):
    """What gradients are multiplied with: nothing where rows are equal; L2 divides by minus the distance."""
    if KIND == L2:
        return tl.where(score < 0, g / tl.where(score < 0, score, -1.0), 0.0)
    elif KIND == DOT:
        return g
    else:
        return tl.where(score != 0, g, 0.0)


@triton.jit
def _slopes(
    by_query,  # [front, there], written
    by_negative,  # [there, front], written
    scores,
    d_scores,
    each,
    starts,
    front,
    slots,
    there,
    n,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The negatives' slopes times each [b], in both orders; 0 where there is no query or no negative."""
    r = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    j = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    asks = r < front
    chunk = tl.where(asks, r // slots, 0)
    i = tl.load(starts + chunk) + r % slots
    mine = asks & (i < tl.load(starts + chunk + 1))
    at, drawn = i * (n + 1) + 1 + j, mine & (j < n)
    score = tl.load(scores + at, mask=drawn, other=0.0)
    g = tl.load(d_scores + at, mask=drawn, other=0.0) * tl.load(each + i, mask=mine, other=0.0)
    g = _slope(score, g, KIND)
    inside = asks & (j < there)
    tl.store(by_query + r.to(tl.int64) * there + j, g, mask=inside)
    tl.store(by_negative + j.to(tl.int64) * front + r, g, mask=inside)


@triton.jit
def _turned(weight, by):
    """The weight, its sign turned where `by` is negative."""
    if weight.dtype == tl.float32:
        sign = by.to(tl.int32, bitcast=True) & -0x80000000
        return (weight.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)
    else:
        return tl.where(by < 0, -weight, weight)


@triton.jit
def _led_past(
    x,  # [ROWS, COLUMNS] in registers
    y,
    others,  # rows that they are compared with
    weights,  # [ROWS, 1] of the first of them
    count,  # of others
    stride,  # of weights
    d,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The sum of weight * d similarity / d row over others, real and imaginary."""
    sum_x = tl.zeros((ROWS, COLUMNS), others.dtype.element_ty)
    sum_y = tl.zeros((ROWS, COLUMNS), others.dtype.element_ty)
    w_a, a_x, a_y = _fetched(weights, others, 0, stride, d, KIND, WIDTH, SPAN)
    w_b, b_x, b_y = _fetched(weights, others, 1, stride, d, KIND, WIDTH, SPAN)
    w_c, c_x, c_y = _fetched(weights, others, 2, stride, d, KIND, WIDTH, SPAN)
    w_d, d_x, d_y = _fetched(weights, others, 3, stride, d, KIND, WIDTH, SPAN)
    for start in range(4, count + 4, 4):
        later = tl.minimum(start, count - 4)  # the last four are fetched twice
        w_e, e_x, e_y = _fetched(weights, others, later, stride, d, KIND, WIDTH, SPAN)
        w_f, f_x, f_y = _fetched(weights, others, later + 1, stride, d, KIND, WIDTH, SPAN)
        w_g, g_x, g_y = _fetched(weights, others, later + 2, stride, d, KIND, WIDTH, SPAN)
        w_h, h_x, h_y = _fetched(weights, others, later + 3, stride, d, KIND, WIDTH, SPAN)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_a, a_x, a_y, KIND)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_b, b_x, b_y, KIND)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_c, c_x, c_y, KIND)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_d, d_x, d_y, KIND)
        w_a, a_x, a_y, w_b, b_x, b_y = w_e, e_x, e_y, w_f, f_x, f_y
        w_c, c_x, c_y, w_d, d_x, d_y = w_g, g_x, g_y, w_h, h_x, h_y
    return sum_x, sum_y


@triton.jit
def _fetched(weights, others, k, stride, d, KIND: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr):
    """The weights of another row, its real and its imaginary part."""
    at = others + k * WIDTH + d
    x = tl.load(at)
    if KIND == MODULUS:
        return tl.load(weights + k * stride), x, tl.load(at + SPAN)
    else:
        return tl.load(weights + k * stride), x, x


@triton.jit
def _pulled(sum_x, sum_y, x, y, weight, other_x, other_y, KIND: tl.constexpr):
    """The sums with one more row."""
    if KIND == DOT:
        sum_x += weight * other_x
    elif KIND == L1:
        sum_x += _turned(weight, other_x - x)
    elif KIND == L2:
        sum_x += weight * (x - other_x)
    else:
        dx, dy = other_x - x, other_y - y
        step = weight * tl.rsqrt(dx * dx + (dy * dy + TINY))
        sum_x += step * dx
        sum_y += step * dy
    return sum_x, sum_y


@triton.jit
def _both(base, at, mask, KIND: tl.constexpr, SPAN: tl.constexpr):
    """Real and imaginary part."""
    x = tl.load(base + at, mask=mask, other=0.0)
    if KIND == MODULUS:
        return x, tl.load(base + at + SPAN, mask=mask, other=0.0)
    else:
        return x, x


@triton.jit
def _true(
    i,
    mine,
    d,
    live,
    d_query,
    d_true,
    sum_x,
    sum_y,
    query,
    table,
    true,
    scores,
    d_scores,
    each,
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Add what true candidates give to the gradients of queries; write these and those of the candidates."""
    there = live & mine
    x, y = _both(query, i * WIDTH + d, there, KIND, SPAN)
    e_x, e_y = _both(table, tl.load(true + i, mask=mine, other=0) * WIDTH + d, there, KIND, SPAN)
    own = i * (n + 1)
    weight = tl.load(d_scores + own, mask=mine, other=0.0) * tl.load(each + i, mask=mine, other=0.0)
    weight = _slope(tl.load(scores + own, mask=mine, other=0.0), weight, KIND)
    at = i * WIDTH + d
    if KIND == MODULUS:
        step_x, step_y = pull_complex(x, y, e_x, e_y, weight)
        tl.store(d_query + at + SPAN, sum_y + step_y, mask=there)
        tl.store(d_true + at + SPAN, -step_y, mask=there)
    else:
        step_x = pull(x, e_x, weight, KIND)
    tl.store(d_query + at, sum_x + step_x, mask=there)
    tl.store(d_true + at, weight * x if KIND == DOT else -step_x, mask=there)


@triton.jit
def _pull(
    d_query,  # [b, WIDTH], written
    d_true,  # [b, WIDTH], written
    values,  # [c n, WIDTH], written
    rows,  # [places, halves * PADDED]
    query,
    table,
    true,
    starts,
    by_query,  # [front, there]
    by_negative,  # [there, front]
    scores,
    d_scores,
    each,
    front,
    slots,
    there,
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    PADDED: tl.constexpr,  # coordinates
    LONG: tl.constexpr,  # numbers in a padded row
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """First all queries' tiles, then all negatives': at once, as either leaves the device half idle."""
    tile = tl.program_id(0) * ROWS
    place = tile.to(tl.int64)
    d = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    k = tl.arange(0, ROWS)[:, None]
    x = tl.load(rows + (place + k) * LONG + d)
    y = x
    if KIND == MODULUS:
        y = tl.load(rows + (place + k) * LONG + PADDED + d)
    if place < front:
        chunk = (tile // slots).to(tl.int64)
        others = rows + (front + chunk * there) * LONG
        sum_x, sum_y = _led_past(
            x, y, others, by_negative + place + k, there, front, d, KIND, LONG, PADDED, ROWS, COLUMNS
        )
        i = tl.load(starts + chunk) + tile % slots + k
        mine = i < tl.load(starts + chunk + 1)
        _true(
            i, mine, d, d < SPAN, d_query, d_true, sum_x, sum_y, query, table, true, scores, d_scores, each,
            n, KIND, WIDTH, SPAN,
        )  # fmt: skip
    else:
        chunk = ((tile - front) // there).to(tl.int64)
        j = place - front - chunk * there + k
        weights = by_query + chunk * slots * there + j
        others = rows + chunk * slots * LONG
        sum_x, sum_y = _led_past(x, y, others, weights, slots, there, d, KIND, LONG, PADDED, ROWS, COLUMNS)
        at, mask = values + (chunk * n + j) * WIDTH + d, (j < n) & (d < SPAN)
        tl.store(at, sum_x, mask=mask)
        if KIND == MODULUS:
            tl.store(at + SPAN, sum_y, mask=mask)


@triton.jit
def _multiply(
    d_query,
    d_true,
    values,
    rows,
    query,
    table,
    true,
    starts,
    by_query,
    by_negative,
    scores,
    d_scores,
    each,
    front,
    slots,
    there,
    n,
    WIDTH: tl.constexpr,
    LONG: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The same for products, through tensor cores."""
    tiles, others = tl.cdiv(slots, ROWS), tl.cdiv(there, ROWS)
    chunk = (tl.program_id(0) // (tiles + others)).to(tl.int64)
    tile = tl.program_id(0) % (tiles + others)
    d = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    live = d < LONG
    k = tl.arange(0, ROWS)[:, None]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    if tile < tiles:
        slot = tile * ROWS + k
        for start in range(0, there, STEP):
            j = start + tl.arange(0, STEP)
            e_at = rows + (front + chunk * there + j)[:, None] * LONG + d
            e = tl.load(e_at, mask=(j < there)[:, None] & live, other=0.0)
            g_at = by_query + (chunk * slots + slot) * there + j[None, :]
            g = tl.load(g_at, mask=(slot < slots) & (j < there)[None, :], other=0.0)
            sums = tl.dot(g, e, sums, input_precision=PRECISION)
        i = tl.load(starts + chunk) + slot
        mine = (slot < slots) & (i < tl.load(starts + chunk + 1))
        _true(
            i, mine, d, d < WIDTH, d_query, d_true, sums, sums, query, table, true, scores, d_scores, each,
            n, DOT, WIDTH, WIDTH,
        )  # fmt: skip
    else:
        j = (tile - tiles) * ROWS + k
        for start in range(0, slots, STEP):
            slot = start + tl.arange(0, STEP)
            q_at = rows + (chunk * slots + slot)[:, None] * LONG + d
            q = tl.load(q_at, mask=(slot < slots)[:, None] & live, other=0.0)
            g_at = by_negative + j.to(tl.int64) * front + (chunk * slots + slot)[None, :]
            g = tl.load(g_at, mask=(j < there) & (slot < slots)[None, :], other=0.0)
            sums = tl.dot(g, q, sums, input_precision=PRECISION)
        tl.store(values + (chunk * n + j) * WIDTH + d, sums, mask=(j < n) & (d < WIDTH))


def gradients(
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    shared: Shared,
    layout: Layout,
    scores: Tensor,
    d_scores: Tensor,
    each: Tensor,
    precision: str | None = None,
) -> tuple[Tensor, Tensor]:
    b, (c, n), width = len(query), shared.negatives.shape, table.shape[1]
    d_query, values = table.new_empty(b, width), table.new_empty(b + c * n, width)
    front, slots, there = layout.front, layout.slots, layout.there
    by_query, by_negative = table.new_empty(front, there), table.new_empty(there, front)
    grid = (triton.cdiv(front, 32), triton.cdiv(there, 32))
    factors, sizes = (scores, d_scores, each), (front, slots, there, n)
    meta: dict[str, Any] = {"KIND": int(kind), "BLOCK": 32}
    launch(_slopes, grid, by_query, by_negative, *factors, shared.starts, *sizes, **meta)
    out = (d_query, values[:b], values[b:])
    rows = (layout.rows, query, table, shared.true, shared.starts, by_query, by_negative)
    long = layout.rows.shape[1]
    precise = precision or products()
    if kind is Similarity.DOT and table.dtype is torch.float32 and precise != "ieee":
        height, columns, warps = PRODUCT
        grid = (c * sum(triton.cdiv(some, height) for some in (slots, there)), triton.cdiv(long, columns))
        meta = {"WIDTH": width, "LONG": long, "ROWS": height, "COLUMNS": columns, "STEP": STEP}
        meta |= {"PRECISION": precise, "num_warps": warps}
        launch(_multiply, grid, *out, *rows, *factors, *sizes, **meta)
        return d_query, values
    span = width // 2 if kind is Similarity.MODULUS else width
    meta = {"KIND": int(kind), "WIDTH": width, "SPAN": span, "PADDED": layout.span, "LONG": long}
    height, columns, warps = TILES[kind]
    columns = min(columns, layout.columns)
    tile = {"ROWS": height, "COLUMNS": columns, "num_warps": warps}
    grid = (len(layout.rows) // height, layout.span // columns)
    launch(_pull, grid, *out, *rows, *factors, *sizes, **meta, **tile)
    return d_query, values
