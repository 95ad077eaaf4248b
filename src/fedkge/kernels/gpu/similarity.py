"""Indexed similarity on the GPU: forward by blocks of candidates, backward by one program per query.

A program holds BLOCK candidate rows at a time, CHUNK coordinates wide; nothing of size [b, n, width] exists.
Offsets are 64-bit. At zero distance every gradient is zero.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Similarity
from fedkge.kernels.gpu.launch import LONGEST, Tiles, launch

FORWARD = Tiles(4096)
BACKWARD = Tiles(2048)

L1, L2, MODULUS, DOT = (tl.constexpr(int(kind)) for kind in Similarity)
TINY = tl.constexpr(1.1754944e-38)  # the least normal float32: what rsqrt takes for zero is less


@triton.jit
def weights(d_scores, scores, at, mask, KIND: tl.constexpr):
    """The factors of the pairs' gradients: d_scores, which L2 divides by the scores (minus the distances)."""
    g = tl.load(d_scores + at, mask=mask, other=0.0)
    if KIND == L2:
        score = tl.load(scores + at, mask=mask, other=0.0)
        g = tl.where(score < 0, g / tl.where(score < 0, score, -1.0), 0.0)
    return g


@triton.jit
def pull(x, other, weight, KIND: tl.constexpr):
    """weight * d similarity(x, other) / d x, for the similarities of real numbers."""
    if KIND == DOT:
        return weight * other
    elif KIND == L1:
        return tl.where(x > other, -weight, tl.where(x < other, weight, 0.0))
    else:
        return weight * (x - other)


@triton.jit
def pull_complex(x, y, other_x, other_y, weight):
    """weight * d similarity / d (x + iy) for the modulus, as real and imaginary part."""
    dx, dy = x - other_x, y - other_y
    square = dx * dx + dy * dy
    step = tl.where(square >= TINY, -weight * tl.rsqrt(tl.maximum(square, TINY)), 0.0)
    return step * dx, step * dy


@triton.jit
def _forward(
    scores,  # [b, n]
    query,  # [b, WIDTH]
    table,  # [e, WIDTH]
    index,  # [b, n]
    n,
    blocks,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    i = (tl.program_id(0) // blocks).to(tl.int64)
    j = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    there = j < n
    row = tl.load(index + i * n + j, mask=there, other=0)[:, None] * WIDTH
    total = tl.zeros((BLOCK,), table.dtype.element_ty)
    for start in tl.static_range(0, SPAN, CHUNK):
        d = start + tl.arange(0, CHUNK)[None, :]
        mask = there[:, None] & (d < SPAN)
        q = tl.load(query + i * WIDTH + d, mask=d < SPAN, other=0.0)
        e = tl.load(table + row + d, mask=mask, other=0.0)
        if KIND == DOT:
            terms = q * e
        elif KIND == L1:
            terms = tl.abs(q - e)
        elif KIND == L2:
            terms = (q - e) * (q - e)
        else:
            x = q - e
            y = tl.load(query + i * WIDTH + SPAN + d, mask=d < SPAN, other=0.0)
            y -= tl.load(table + row + SPAN + d, mask=mask, other=0.0)
            terms = tl.sqrt(x * x + y * y)
        total += tl.sum(terms, 1)
    if KIND == L2:
        total = tl.sqrt(total)
    if KIND != DOT:
        total = -total
    tl.store(scores + i * n + j, total, mask=there)


def forward(
    scores: Tensor, kind: Similarity, query: Tensor, table: Tensor, index: Tensor, tiles: Tiles = FORWARD
) -> None:
    b, n = index.shape
    shape = tiles.fit(kind, table.shape[1], n)
    blocks = triton.cdiv(n, shape["BLOCK"])
    launch(_forward, (b * blocks,), scores, query, table, index, n, blocks, **shape)


@triton.jit
def _moments(out, table, kept, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    gap = tl.zeros((CHUNK,), table.dtype.element_ty)
    square = tl.zeros((CHUNK,), table.dtype.element_ty)
    product = tl.zeros((CHUNK,), table.dtype.element_ty)
    for start in tl.static_range(0, WIDTH, CHUNK):
        d = start + tl.arange(0, CHUNK)
        x = tl.load(table + row * WIDTH + d, mask=d < WIDTH, other=0.0)
        k = tl.load(kept + row * WIDTH + d, mask=d < WIDTH, other=0.0)
        gap += (x - k) * (x - k)
        square += x * x
        product += x * k
    tl.store(out + row * 3, tl.sum(gap, 0))
    tl.store(out + row * 3 + 1, tl.sum(square, 0))
    tl.store(out + row * 3 + 2, tl.sum(product, 0))


def moments(out: Tensor, table: Tensor, kept: Tensor) -> None:
    width = table.shape[1]
    chunk = min(triton.next_power_of_2(width), LONGEST)
    launch(_moments, (len(table),), out, table, kept, WIDTH=width, CHUNK=chunk, num_warps=1)


@triton.jit
def _backward_query(
    d_query,  # [b, WIDTH], written
    query,
    table,
    index,
    scores,  # [b, n]
    d_scores,  # [b, n]
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)[None, :]
    q = tl.load(query + i * WIDTH + d, mask=d < SPAN, other=0.0)
    total = tl.zeros((BLOCK, CHUNK), table.dtype.element_ty)
    if KIND == MODULUS:
        q_y = tl.load(query + i * WIDTH + SPAN + d, mask=d < SPAN, other=0.0)
        total_y = tl.zeros((BLOCK, CHUNK), table.dtype.element_ty)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        there = j < n
        mask = there[:, None] & (d < SPAN)
        at = tl.load(index + i * n + j, mask=there, other=0)[:, None] * WIDTH + d
        g = weights(d_scores, scores, i * n + j, there, KIND)[:, None]
        e = tl.load(table + at, mask=mask, other=0.0)
        if KIND == MODULUS:
            e_y = tl.load(table + at + SPAN, mask=mask, other=0.0)
            step, step_y = pull_complex(q, q_y, e, e_y, g)
            total_y += step_y
        else:
            step = pull(q, e, g, KIND)
        total += step
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    tl.store(d_query + i * WIDTH + d, tl.sum(total, 0), mask=d < SPAN)
    if KIND == MODULUS:
        tl.store(d_query + i * WIDTH + SPAN + d, tl.sum(total_y, 0), mask=d < SPAN)


def backward_query(
    d_query: Tensor,
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    index: Tensor,
    scores: Tensor,
    d_scores: Tensor,
    tiles: Tiles = BACKWARD,
) -> None:
    n = index.shape[1]
    shape = tiles.fit(kind, table.shape[1], n)
    grid = (len(query), triton.cdiv(shape["SPAN"], shape["CHUNK"]))
    launch(_backward_query, grid, d_query, query, table, index, scores, d_scores, n, **shape)
