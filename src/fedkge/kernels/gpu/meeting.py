"""Queries and shared negatives meet in tiles on the GPU: sums over coordinates that similarities are made of.

A program holds a tile of queries and negatives in registers and walks along the coordinates. Products may go
through tensor cores instead, in less than float32.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Similarity
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout
from fedkge.kernels.gpu.similarity import DOT, L1, L2, MODULUS

#: queries and negatives in a tile, and warps: a thread has all queries, and four negatives
TILES = dict.fromkeys(Similarity, (8, 128, 1)) | {Similarity.MODULUS: (4, 128, 1)}
PROGRAMS = 2048  #: what keeps a GPU busy: with fewer tiles, several programs share the coordinates of each
PRODUCT = (64, 64, 4)  #: queries and negatives in a tile of products, and warps
PRODUCTS = 256  #: programs that keep a GPU busy with products
PRECISIONS = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}  #: of products, by torch's word for it
STEP = 16  #: coordinates of a product at a time


def products() -> str:
    """How exactly products are computed: in float32, or as `torch.set_float32_matmul_precision` says."""
    return PRECISIONS[torch.get_float32_matmul_precision()]


@triton.jit
def met(
    q,  # [QUERIES, SPLIT, 1]: where the coordinates of queries begin that each warp adds
    e,  # [1, SPLIT, NEGATIVES]
    inside,
    wide,  # from a coordinate to the next
    KIND: tl.constexpr,
    SPAN: tl.constexpr,
    PART: tl.constexpr,  # coordinates of a warp: a multiple of four
    QUERIES: tl.constexpr,
    SPLIT: tl.constexpr,
    NEGATIVES: tl.constexpr,
):
    """The sums over all coordinates [QUERIES, NEGATIVES]; each is fetched long before it is used."""
    sums = tl.zeros((QUERIES, SPLIT, NEGATIVES), q.dtype.element_ty)
    a, a_y, f, f_y = _fetched(q, e, inside, 0, wide, KIND, SPAN)
    b, b_y, g, g_y = _fetched(q, e, inside, 1, wide, KIND, SPAN)
    c, c_y, h, h_y = _fetched(q, e, inside, 2, wide, KIND, SPAN)
    d, d_y, m, m_y = _fetched(q, e, inside, 3, wide, KIND, SPAN)
    for k in range(4, PART + 4, 4):
        later = tl.minimum(k, PART - 4)  # the last four are fetched twice
        sums = _added(sums, a, a_y, f, f_y, KIND)
        a, a_y, f, f_y = _fetched(q, e, inside, later, wide, KIND, SPAN)
        sums = _added(sums, b, b_y, g, g_y, KIND)
        b, b_y, g, g_y = _fetched(q, e, inside, later + 1, wide, KIND, SPAN)
        sums = _added(sums, c, c_y, h, h_y, KIND)
        c, c_y, h, h_y = _fetched(q, e, inside, later + 2, wide, KIND, SPAN)
        sums = _added(sums, d, d_y, m, m_y, KIND)
        d, d_y, m, m_y = _fetched(q, e, inside, later + 3, wide, KIND, SPAN)
    return tl.sum(sums, 1)


@triton.jit
def _distances(
    parts,  # [PARTS, front, there], written: sums over a part of the coordinates
    laid,  # [.. * SPAN, places]
    places,
    front,
    slots,
    there,
    KIND: tl.constexpr,
    SPAN: tl.constexpr,
    PART: tl.constexpr,  # coordinates in a part
    ROWS: tl.constexpr,
    NEGATIVES: tl.constexpr,
):
    tile = tl.program_id(0) * ROWS
    first = tile.to(tl.int64)
    i = (first + tl.arange(0, ROWS))[:, None]
    j = (tl.program_id(1) * NEGATIVES + tl.arange(0, NEGATIVES))[None, :]
    wide = first * 0 + places  # in 64 bits
    begin = tl.program_id(2) * PART * wide
    q, e = laid + begin + i, laid + begin + front + (tile // slots).to(tl.int64) * there + j
    inside = j < there
    sums = tl.zeros((ROWS, NEGATIVES), laid.dtype.element_ty)
    a, a_y, f, f_y = _fetched(q, e, inside, 0, wide, KIND, SPAN)
    b, b_y, g, g_y = _fetched(q, e, inside, 1, wide, KIND, SPAN)
    c, c_y, h, h_y = _fetched(q, e, inside, 2, wide, KIND, SPAN)
    d, d_y, k, k_y = _fetched(q, e, inside, 3, wide, KIND, SPAN)
    for start in range(4, PART + 4, 4):
        sums = _added(sums, a, a_y, f, f_y, KIND)
        sums = _added(sums, b, b_y, g, g_y, KIND)
        sums = _added(sums, c, c_y, h, h_y, KIND)
        sums = _added(sums, d, d_y, k, k_y, KIND)
        later = tl.minimum(start, PART - 4)  # the last four are fetched twice
        a, a_y, f, f_y = _fetched(q, e, inside, later, wide, KIND, SPAN)
        b, b_y, g, g_y = _fetched(q, e, inside, later + 1, wide, KIND, SPAN)
        c, c_y, h, h_y = _fetched(q, e, inside, later + 2, wide, KIND, SPAN)
        d, d_y, k, k_y = _fetched(q, e, inside, later + 3, wide, KIND, SPAN)
    tl.store(parts + (tl.program_id(2) * front + i) * there + j, sums, mask=inside)


@triton.jit
def _fetched(q, e, inside, k, wide, KIND: tl.constexpr, SPAN: tl.constexpr):
    """A coordinate of queries and negatives, and its imaginary part; loaded long before it is used."""
    at = k * wide
    x, other_x = tl.load(q + at), tl.load(e + at, mask=inside)
    if KIND == MODULUS:
        at += SPAN * wide
        return x, tl.load(q + at), other_x, tl.load(e + at, mask=inside)
    else:
        return x, x, other_x, other_x


@triton.jit
def _added(sums, x, y, other_x, other_y, KIND: tl.constexpr):
    """The sums with one more coordinate."""
    if KIND == DOT:
        return sums + x * other_x
    elif KIND == L1:
        return sums + tl.abs(x - other_x)
    elif KIND == L2:
        return sums + (x - other_x) * (x - other_x)
    else:
        dx, dy = x - other_x, y - other_y
        return sums + tl.sqrt(dx * dx + dy * dy)


@triton.jit
def _products(
    parts,  # [PARTS, front, there], written
    rows,  # [places, WIDTH]
    front,
    slots,
    there,
    WIDTH: tl.constexpr,
    PART: tl.constexpr,  # coordinates in a part
    QUERIES: tl.constexpr,
    NEGATIVES: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tiles = tl.cdiv(slots, QUERIES)
    chunk = (tl.program_id(0) // tiles).to(tl.int64)
    i = tl.program_id(0) % tiles * QUERIES + tl.arange(0, QUERIES)
    j = tl.program_id(1) * NEGATIVES + tl.arange(0, NEGATIVES)
    mine, drawn = (i < slots)[:, None], (j < there)[:, None]
    q_at = rows + (chunk * slots + i)[:, None] * WIDTH
    e_at = rows + (front + chunk * there + j)[:, None] * WIDTH
    sums = tl.zeros((QUERIES, NEGATIVES), tl.float32)
    for start in range(0, PART, STEP):
        d = (tl.program_id(2) * PART + start + tl.arange(0, STEP))[None, :]
        q, e = tl.load(q_at + d, mask=mine, other=0.0), tl.load(e_at + d, mask=drawn, other=0.0)
        sums = tl.dot(q, tl.trans(e), sums, input_precision=PRECISION)
    at = parts + (tl.program_id(2) * front + chunk * slots + i)[:, None] * there + j[None, :]
    tl.store(at, sums, mask=mine & (j < there)[None, :])


def multiplied(kind: Similarity, rows: Tensor) -> bool:
    """Whether similarities are products that `tl.dot` can compute."""
    return kind is Similarity.DOT and rows.dtype is torch.float32


def _divided(coordinates: int, programs: int, tiles: tuple[int, int], by: int) -> int:
    """How many programs share the coordinates of each tile, so that there are so many of them."""
    wanted = max(1, triton.cdiv(programs, max(1, math.prod(tiles))))
    return max(p for p in range(1, wanted + 1) if coordinates % (p * by) == 0)


def _multiplied(layout: Layout, precision: str) -> Tensor:
    front, there, wide = layout.front, layout.there, layout.rows.shape[1]
    queries, negatives, warps = PRODUCT
    tiles = (front // layout.slots * triton.cdiv(layout.slots, queries), triton.cdiv(there, negatives))
    count = _divided(wide, PRODUCTS, tiles, STEP)
    parts = layout.rows.new_empty(count, front, there)
    meta = {"WIDTH": wide, "PART": wide // count, "STEP": STEP, "PRECISION": precision}
    tile = {"QUERIES": queries, "NEGATIVES": negatives, "num_warps": warps}
    launch(_products, (*tiles, count), parts, layout.rows, front, layout.slots, there, **meta, **tile)
    return parts


def compared(
    kind: Similarity,
    layout: Layout,
    precision: str | None = None,
    tile: tuple[int, int, int] | None = None,
) -> Tensor:
    """What similarities of queries and negatives are made of [parts, front, there]: sums of coordinates."""
    precise = precision or products()
    if multiplied(kind, layout.rows) and precise != "ieee":
        return _multiplied(layout, precise)
    front, there, places = layout.front, layout.there, len(layout.rows)
    queries, negatives, warps = tile or TILES[kind]
    tiles = (front // queries, triton.cdiv(there, negatives))
    count = _divided(layout.span, PROGRAMS, tiles, 4)
    parts = layout.rows.new_empty(count, front, there)
    meta = {"KIND": int(kind), "SPAN": layout.span, "PART": layout.span // count}
    sizes = {"ROWS": queries, "NEGATIVES": negatives, "num_warps": warps}
    launch(
        _distances, (*tiles, count), parts, layout.laid, places, front, layout.slots, there, **meta, **sizes
    )
    return parts
