"""Scores and the gradient of the queries in one pass over the candidates: they are the whole cost of a step.

A candidate's weight depends on all scores of its query. As they come, sums are kept relative to the highest
score so far, and scaled down when a higher one comes (Milakov & Gimelshein, 2018); parts of the candidates
are put together in the same way.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Similarity
from fedkge.kernels.gpu.launch import Tiles, launch
from fedkge.kernels.gpu.losses import soften
from fedkge.kernels.gpu.similarity import DOT, L1, L2, MODULUS, pull, pull_complex

CONTRAST = Tiles(1024, warps=1, longest=1 << 20)
PROGRAMS = 8192  #: what keeps a GPU busy: the candidates of few queries are dealt out to several programs
MOST = 16  #: parts that the candidates of a query are dealt out to


@triton.jit
def row_similarity(q, q_y, e, e_y, KIND: tl.constexpr):
    """Of a query [1, CHUNK] and rows [BLOCK, CHUNK]: [BLOCK]."""
    if KIND == DOT:
        return tl.sum(q * e, 1)
    elif KIND == L1:
        return -tl.sum(tl.abs(q - e), 1)
    elif KIND == L2:
        return -tl.sqrt(tl.sum((q - e) * (q - e), 1))
    else:
        return -tl.sum(tl.sqrt((q - e) * (q - e) + (q_y - e_y) * (q_y - e_y)), 1)


@triton.jit
def _pull(q, q_y, e, e_y, similarity, g, KIND: tl.constexpr):
    """What rows with the weights g [BLOCK] add to the query's gradient, as real and imaginary part."""
    if KIND == MODULUS:
        return pull_complex(q, q_y, e, e_y, g[:, None])
    else:
        if KIND == L2:
            g = tl.where(similarity < 0, g / tl.where(similarity < 0, similarity, -1.0), 0.0)
        step = pull(q, e, g[:, None], KIND)
        return step, step


@triton.jit
def rows_of(table, at, mask, KIND: tl.constexpr, SPAN: tl.constexpr):
    e = tl.load(table + at, mask=mask, other=0.0)
    if KIND == MODULUS:
        return e, tl.load(table + at + SPAN, mask=mask, other=0.0)
    else:
        return e, e


@triton.jit
def _negatives(
    similarities,  # [b, n], written but for the first of each row
    pulled,  # [b, parts, WIDTH], written: sums of weight * slope * gradient, by the highest score of the part
    tops,  # [b, parts], written: the highest score, times the temperature
    totals,  # [b, parts], written: the sum of the weights
    query,
    table,
    index,  # [b, n], the first of each row is true
    n,
    size,  # candidates in a part
    margin: tl.float64,
    temperature: tl.float64,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    i, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = i * tl.num_programs(1) + part
    dtype: tl.constexpr = table.dtype.element_ty
    shift, scale = tl.cast(margin, dtype), tl.cast(temperature, dtype)
    d = tl.arange(0, CHUNK)[None, :]
    live = d < SPAN
    q, q_y = rows_of(query, i * WIDTH + d, live, KIND, SPAN)
    sums = tl.zeros((BLOCK, CHUNK), dtype)
    sums_y = tl.zeros((BLOCK, CHUNK), dtype)
    top = tl.full((1,), float("-inf"), dtype)
    total = tl.zeros((1,), dtype)
    end = tl.minimum(n, 1 + (part + 1) * size)
    for start in range(1 + part * size, end, BLOCK):
        j = start + tl.arange(0, BLOCK)
        there = j < end
        at = tl.load(index + i * n + j, mask=there, other=0)[:, None] * WIDTH + d
        e, e_y = rows_of(table, at, there[:, None] & live, KIND, SPAN)
        s = row_similarity(q, q_y, e, e_y, KIND)
        tl.store(similarities + i * n + j, s, mask=there)
        hot = tl.where(there, scale * (s + shift), float("-inf"))
        highest = tl.maximum(top, tl.max(hot, 0))
        fade = tl.exp(top - highest)
        weight = tl.exp(hot - highest)
        total = total * fade + tl.sum(weight, 0)
        top = highest
        _, slope = soften(s + shift)
        step, step_y = _pull(q, q_y, e, e_y, s, weight * slope, KIND)
        sums = sums * fade[:, None] + step
        if KIND == MODULUS:
            sums_y = sums_y * fade[:, None] + step_y
    tl.store(pulled + place * WIDTH + d, tl.sum(sums, 0)[None, :], mask=live)
    if KIND == MODULUS:
        tl.store(pulled + place * WIDTH + SPAN + d, tl.sum(sums_y, 0)[None, :], mask=live)
    tl.store(tops + place + tl.arange(0, 1), top)
    tl.store(totals + place + tl.arange(0, 1), total)


@triton.jit
def _queries(
    similarities,  # [b, n], the first of each row written
    d_query,  # [b, WIDTH], written
    pulled,  # [b, parts, WIDTH]
    tops,  # [b, parts]
    totals,  # [b, parts]
    query,
    table,
    index,
    n,
    parts,
    margin: tl.float64,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,  # parts
    CHUNK: tl.constexpr,
):
    """The true candidate, and the parts of the others put together."""
    i = tl.program_id(0).to(tl.int64)
    shift = tl.cast(margin, table.dtype.element_ty)
    d = tl.arange(0, CHUNK)[None, :]
    live = d < SPAN
    q, q_y = rows_of(query, i * WIDTH + d, live, KIND, SPAN)
    e, e_y = rows_of(table, tl.load(index + i * n) * WIDTH + d, live, KIND, SPAN)
    s = row_similarity(q, q_y, e, e_y, KIND)
    tl.store(similarities + i * n + tl.arange(0, 1), s)
    _, slope = soften(-s - shift)
    step, step_y = _pull(q, q_y, e, e_y, s, -0.5 * slope, KIND)
    k = tl.arange(0, BLOCK)
    place = i * parts + k
    total = tl.load(totals + place, mask=k < parts, other=0.0)
    top = tl.load(tops + place, mask=k < parts, other=float("-inf"))
    share = tl.where(total > 0, tl.exp(top - tl.max(top, 0)), 0.0)
    whole = tl.sum(share * total, 0)
    share = (tl.where(whole > 0, 0.5 / whole, 0.0) * share)[:, None]
    sums, sums_y = rows_of(pulled, place[:, None] * WIDTH + d, (k < parts)[:, None] & live, KIND, SPAN)
    tl.store(d_query + i * WIDTH + d, step + tl.sum(share * sums, 0)[None, :], mask=live)
    if KIND == MODULUS:
        tl.store(d_query + i * WIDTH + SPAN + d, step_y + tl.sum(share * sums_y, 0)[None, :], mask=live)


def contrast_rows(
    similarities: Tensor,
    d_query: Tensor,
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    index: Tensor,
    margin: float,
    temperature: float,
    tiles: Tiles = CONTRAST,
    programs: int = PROGRAMS,
) -> None:
    b, n = index.shape
    parts = max(1, min(MOST, programs // max(b, 1), n - 1))
    pulled = query.new_empty(b, parts, query.shape[1])
    tops, totals = query.new_empty(2, b, parts)
    rows = (query, table, index, n)
    shape = tiles.fit(kind, table.shape[1], n)
    sums = (pulled, tops, totals)
    size = triton.cdiv(n - 1, parts)
    launch(_negatives, (b, parts), similarities, *sums, *rows, size, margin, temperature, **shape)
    shape["BLOCK"] = triton.next_power_of_2(parts)
    launch(_queries, (b,), similarities, d_query, *sums, *rows, parts, margin, **shape)
