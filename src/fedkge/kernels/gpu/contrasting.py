"""Scores and the gradient of the queries in one pass over the candidates: they are the whole cost of a step.

A candidate's weight depends on all scores of its query. As they come, sums are kept relative to the highest
score so far, and scaled down when a higher one comes (Milakov & Gimelshein, 2018).
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


@triton.jit
def _similarity(q, q_y, e, e_y, KIND: tl.constexpr):
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
def _rows(table, at, mask, KIND: tl.constexpr, SPAN: tl.constexpr):
    e = tl.load(table + at, mask=mask, other=0.0)
    if KIND == MODULUS:
        return e, tl.load(table + at + SPAN, mask=mask, other=0.0)
    else:
        return e, e


@triton.jit
def _contrast_rows(
    similarities,  # [b, n], written
    d_query,  # [b, WIDTH], written
    query,
    table,
    index,  # [b, n], the first of each row is true
    n,
    margin: tl.float64,
    temperature: tl.float64,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = table.dtype.element_ty
    shift, scale = tl.cast(margin, dtype), tl.cast(temperature, dtype)
    d = tl.arange(0, CHUNK)[None, :]
    live = d < SPAN
    q, q_y = _rows(query, i * WIDTH + d, live, KIND, SPAN)
    pulled = tl.zeros((BLOCK, CHUNK), dtype)
    pulled_y = tl.zeros((BLOCK, CHUNK), dtype)
    top = tl.full((1,), float("-inf"), dtype)
    total = tl.zeros((1,), dtype)
    for start in range(1, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        there = j < n
        at = tl.load(index + i * n + j, mask=there, other=0)[:, None] * WIDTH + d
        e, e_y = _rows(table, at, there[:, None] & live, KIND, SPAN)
        s = _similarity(q, q_y, e, e_y, KIND)
        tl.store(similarities + i * n + j, s, mask=there)
        hot = tl.where(there, scale * (s + shift), float("-inf"))
        highest = tl.maximum(top, tl.max(hot, 0))
        fade = tl.exp(top - highest)
        weight = tl.exp(hot - highest)
        total = total * fade + tl.sum(weight, 0)
        top = highest
        _, slope = soften(s + shift)
        step, step_y = _pull(q, q_y, e, e_y, s, weight * slope, KIND)
        pulled = pulled * fade[:, None] + step
        if KIND == MODULUS:
            pulled_y = pulled_y * fade[:, None] + step_y
    e, e_y = _rows(table, tl.load(index + i * n) * WIDTH + d, live, KIND, SPAN)
    s = _similarity(q, q_y, e, e_y, KIND)
    tl.store(similarities + i * n + tl.arange(0, 1), s)
    _, slope = soften(-s - shift)
    step, step_y = _pull(q, q_y, e, e_y, s, -0.5 * slope, KIND)
    share = tl.where(total > 0, 0.5 / total, 0.0)[:, None]
    tl.store(d_query + i * WIDTH + d, step + tl.sum(pulled, 0)[None, :] * share, mask=live)
    if KIND == MODULUS:
        tl.store(d_query + i * WIDTH + SPAN + d, step_y + tl.sum(pulled_y, 0)[None, :] * share, mask=live)


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
) -> None:
    b, n = index.shape
    shape = tiles.fit(kind, table.shape[1], n)
    launch(_contrast_rows, (b,), similarities, d_query, query, table, index, n, margin, temperature, **shape)
