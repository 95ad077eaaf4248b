"""Gradients of shared negatives and their queries on the GPU, without atomics: a program owns what it sums.

Similarities are symmetric, so that one kernel serves both: a tile of rows in registers, past which all rows
that they were compared with are led, one by one. Products go through `tl.dot`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Shared, Similarity
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.sharing import products, tile_of
from fedkge.kernels.gpu.similarity import DOT, L2, MODULUS, pull, pull_complex

#: rows and coordinates in a tile, and warps
PULL = dict.fromkeys(Similarity, (16, 64, 8)) | {Similarity.MODULUS: (16, 64, 4)}
PRODUCT = (64, 64, 4)  #: the same for products
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
def _slopes(by_query, by_negative, scores, d_scores, each, b, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """The negatives' slopes in both orders, [b, n] and [n, b], times each [b]."""
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None].to(tl.int64)
    j = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    there = (i < b) & (j < n)
    at = i * (n + 1) + 1 + j
    score = tl.load(scores + at, mask=there, other=0.0)
    g = tl.load(d_scores + at, mask=there, other=0.0) * tl.load(each + i, mask=i < b, other=0.0)
    g = _slope(score, g, KIND)
    tl.store(by_query + i * n + j, g, mask=there)
    tl.store(by_negative + j.to(tl.int64) * b + i, g, mask=there)


@triton.jit
def _load(base, at, mask, KIND: tl.constexpr, SPAN: tl.constexpr):
    x = tl.load(base + at, mask=mask, other=0.0)
    if KIND == MODULUS:
        return x, tl.load(base + at + SPAN, mask=mask, other=0.0)
    else:
        return x, x


@triton.jit
def _step(x, y, other_x, other_y, weight, KIND: tl.constexpr):
    """weight * d similarity / d row, real and imaginary."""
    if KIND == MODULUS:
        return pull_complex(x, y, other_x, other_y, weight)
    else:
        step = pull(x, other_x, weight, KIND)
        return step, step


@triton.jit
def _pull_queries(
    tile,  # of queries, in all chunks
    d_query,
    d_true,
    query,
    table,
    true,
    negatives,
    starts,
    by_negative,
    scores,
    d_scores,
    each,
    tiles,
    b,
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    chunk, first, end = tile_of(tile, starts, tiles, ROWS)
    if first < end:
        i = (first + tl.arange(0, ROWS))[:, None]
        d = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
        live, mine = d < SPAN, i < end
        x, y = _load(query, i * WIDTH + d, live & mine, KIND, SPAN)
        sum_x = tl.zeros((ROWS, COLUMNS), table.dtype.element_ty)
        sum_y = tl.zeros((ROWS, COLUMNS), table.dtype.element_ty)
        wide = chunk * 0 + b  # in 64 bits
        for start in range(0, n, UNROLL):
            for u in tl.static_range(UNROLL):
                j = start + u
                row = tl.load(negatives + chunk * n + j)
                e_x, e_y = _load(table, row * WIDTH + d, live, KIND, SPAN)
                weight = tl.load(by_negative + j * wide + i, mask=mine, other=0.0)
                step_x, step_y = _step(x, y, e_x, e_y, weight, KIND)
                sum_x += step_x
                if KIND == MODULUS:
                    sum_y += step_y
        e_x, e_y = _load(table, tl.load(true + i, mask=mine, other=0) * WIDTH + d, live & mine, KIND, SPAN)
        own = i * (n + 1)
        weight = tl.load(d_scores + own, mask=mine, other=0.0) * tl.load(each + i, mask=mine, other=0.0)
        weight = _slope(tl.load(scores + own, mask=mine, other=0.0), weight, KIND)
        step_x, step_y = _step(x, y, e_x, e_y, weight, KIND)
        at = i * WIDTH + d
        tl.store(d_query + at, sum_x + step_x, mask=live & mine)
        tl.store(d_true + at, weight * x if KIND == DOT else -step_x, mask=live & mine)
        if KIND == MODULUS:
            tl.store(d_query + at + SPAN, sum_y + step_y, mask=live & mine)
            tl.store(d_true + at + SPAN, -step_y, mask=live & mine)


@triton.jit
def _pull_negatives(
    tile,  # of negatives, in all chunks
    values,
    query,
    table,
    negatives,
    starts,
    by_query,
    tiles,
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    chunk = (tile // tiles).to(tl.int64)
    j = (tile % tiles * ROWS + tl.arange(0, ROWS))[:, None]
    d = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    live, mine = d < SPAN, j < n
    row = tl.load(negatives + chunk * n + j, mask=mine, other=0)
    x, y = _load(table, row * WIDTH + d, live & mine, KIND, SPAN)
    sum_x = tl.zeros((ROWS, COLUMNS), table.dtype.element_ty)
    sum_y = tl.zeros((ROWS, COLUMNS), table.dtype.element_ty)
    for i in range(tl.load(starts + chunk), tl.load(starts + chunk + 1)):
        q_x, q_y = _load(query, i * WIDTH + d, live, KIND, SPAN)
        weight = tl.load(by_query + i * n + j, mask=mine, other=0.0)
        step_x, step_y = _step(x, y, q_x, q_y, weight, KIND)
        sum_x += step_x
        if KIND == MODULUS:
            sum_y += step_y
    at = (chunk * n + j) * WIDTH + d
    tl.store(values + at, sum_x, mask=live & mine)
    if KIND == MODULUS:
        tl.store(values + at + SPAN, sum_y, mask=live & mine)


@triton.jit
def _pull(
    d_query,  # [b, WIDTH], written
    d_true,  # [b, WIDTH], written
    values,  # [c n, WIDTH], written
    query,
    table,
    true,
    negatives,
    starts,
    by_query,  # [b, n]
    by_negative,  # [n, b]
    scores,
    d_scores,
    each,
    queries,  # tiles of them, in all chunks
    tiles,  # of a chunk's queries
    others,  # and of its negatives
    b,
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Both at once, as either alone leaves the device half idle."""
    tile = tl.program_id(0)
    if tile < queries:
        _pull_queries(
            tile, d_query, d_true, query, table, true, negatives, starts, by_negative, scores, d_scores, each,
            tiles, b, n, KIND, WIDTH, SPAN, ROWS, COLUMNS, UNROLL,
        )  # fmt: skip
    else:
        _pull_negatives(
            tile - queries, values, query, table, negatives, starts, by_query, others, n,
            KIND, WIDTH, SPAN, ROWS, COLUMNS,
        )  # fmt: skip


@triton.jit
def _multiply_queries(
    d_query,
    d_true,
    query,
    table,
    true,
    negatives,
    starts,
    by_query,  # [b, n]
    d_scores,
    each,
    tiles,
    n,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    chunk, first, end = tile_of(tl.program_id(0), starts, tiles, ROWS)
    if first < end:
        i = first + tl.arange(0, ROWS)
        d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        live, mine = (d < WIDTH)[None, :], (i < end)[:, None]
        sums = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, n, STEP):
            j = start + tl.arange(0, STEP)
            row = tl.load(negatives + chunk * n + j, mask=j < n, other=0)
            e = tl.load(table + row[:, None] * WIDTH + d[None, :], mask=(j < n)[:, None] & live, other=0.0)
            g = tl.load(by_query + i[:, None] * n + j[None, :], mask=mine & (j < n)[None, :], other=0.0)
            sums = tl.dot(g, e, sums, input_precision=PRECISION)
        at = i[:, None] * WIDTH + d[None, :]
        x = tl.load(query + at, mask=live & mine, other=0.0)
        target = tl.load(true + i, mask=i < end, other=0)
        e = tl.load(table + target[:, None] * WIDTH + d[None, :], mask=live & mine, other=0.0)
        weight = tl.load(d_scores + i * (n + 1), mask=i < end, other=0.0)
        weight = (weight * tl.load(each + i, mask=i < end, other=0.0))[:, None]
        tl.store(d_query + at, sums + weight * e, mask=live & mine)
        tl.store(d_true + at, weight * x, mask=live & mine)


@triton.jit
def _multiply_negatives(
    values,
    query,
    starts,
    by_query,
    tiles,
    n,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    chunk = (tl.program_id(0) // tiles).to(tl.int64)
    j = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = (d < WIDTH)[None, :]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    end = tl.load(starts + chunk + 1)
    for start in range(tl.load(starts + chunk), end, STEP):
        i = start + tl.arange(0, STEP)
        mine = (i < end)[:, None]
        g = tl.load(by_query + i[:, None] * n + j[None, :], mask=mine & (j < n)[None, :], other=0.0)
        q = tl.load(query + i[:, None] * WIDTH + d[None, :], mask=mine & live, other=0.0)
        sums = tl.dot(tl.trans(g), q, sums, input_precision=PRECISION)
    at = (chunk * n + j)[:, None] * WIDTH + d[None, :]
    tl.store(values + at, sums, mask=(j < n)[:, None] & live)


def gradients(
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    shared: Shared,
    scores: Tensor,
    d_scores: Tensor,
    each: Tensor,
    precision: str | None = None,
) -> tuple[Tensor, Tensor]:
    b, (c, n), width = len(query), shared.negatives.shape, table.shape[1]
    span = width // 2 if kind is Similarity.MODULUS else width
    d_query, values = table.new_empty(b, width), table.new_empty(b + c * n, width)
    multiplies = kind is Similarity.DOT and table.dtype is torch.float32
    by_query, by_negative = table.new_empty(b, n), table.new_empty(n, b)
    grid = (triton.cdiv(b, 32), triton.cdiv(n, 32))
    factors = (scores, d_scores, each)
    launch(_slopes, grid, by_query, by_negative, *factors, b, n, KIND=int(kind), BLOCK=32)
    rows = (query, table, shared.true, shared.negatives, shared.starts)
    sizes = _sizes(PRODUCT if multiplies else PULL[kind])
    tiles = [triton.cdiv(long, sizes["ROWS"]) for long in (shared.longest, n)]
    columns = triton.cdiv(span, sizes["COLUMNS"])
    out = (d_query, values[:b])
    if multiplies:
        meta = {"WIDTH": width, "STEP": STEP, "PRECISION": precision or products(), **sizes}
        slopes = (by_query, d_scores, each)
        launch(_multiply_queries, (c * tiles[0], columns), *out, *rows, *slopes, tiles[0], n, **meta)
        by_rows = (query, shared.starts, by_query)
        launch(_multiply_negatives, (c * tiles[1], columns), values[b:], *by_rows, tiles[1], n, **meta)
        return d_query, values
    unroll = next(u for u in (8, 4, 2, 1) if n % u == 0)
    kinds = {"KIND": int(kind), "WIDTH": width, "SPAN": span, "UNROLL": unroll, **sizes}
    slopes_both = (by_query, by_negative, *factors)
    grid = (c * sum(tiles), columns)
    launch(_pull, grid, *out, values[b:], *rows, *slopes_both, c * tiles[0], *tiles, b, n, **kinds)
    return d_query, values


def _sizes(of: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("ROWS", "COLUMNS", "num_warps"), of, strict=True))
