"""Negatives that a chunk of queries shares, on the GPU: scores with their contrast.

A program holds a tile of queries and negatives in registers and walks along the coordinates. Products may go
through tensor cores instead, in less than float32.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Shared, Similarity
from fedkge.kernels.gpu.contrasting import row_similarity, rows_of
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout, lay
from fedkge.kernels.gpu.losses import soften
from fedkge.kernels.gpu.similarity import DOT, L1, L2, MODULUS

#: queries and negatives in a tile, and warps: a thread has all queries, and four negatives
TILES = dict.fromkeys(Similarity, (8, 128, 1)) | {Similarity.MODULUS: (4, 128, 1)}
PROGRAMS = 2048  #: what keeps a GPU busy: with fewer tiles, several programs share the coordinates of each
PRODUCT = (64, 32, 4)  #: queries and negatives in a tile of products, and warps
PRECISIONS = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}  #: of products, by torch's word for it
STEP = 32  #: coordinates of a product at a time


def products() -> str:
    """How exactly products are computed: in float32, or as `torch.set_float32_matmul_precision` says."""
    return PRECISIONS[torch.get_float32_matmul_precision()]


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
    parts,  # [1, front, there], written
    rows,  # [places, WIDTH]
    front,
    slots,
    there,
    WIDTH: tl.constexpr,
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
    for start in range(0, WIDTH, STEP):
        d = (start + tl.arange(0, STEP))[None, :]
        q, e = tl.load(q_at + d, mask=mine, other=0.0), tl.load(e_at + d, mask=drawn, other=0.0)
        sums = tl.dot(q, tl.trans(e), sums, input_precision=PRECISION)
    at = parts + (chunk * slots + i)[:, None] * there + j[None, :]
    tl.store(at, sums, mask=mine & (j < there)[None, :])


@triton.jit
def _contrast(
    losses,  # [b] if LOSS
    slopes,  # [b, 1 + n] if LOSS
    scores,  # [b, 1 + n], written
    parts,  # [PARTS, front, there]
    query,
    table,
    true,
    left_out,
    starts,
    front,
    slots,
    there,
    n,
    margin: tl.float64,
    temperature: tl.float64,
    LOSS: tl.constexpr,
    PARTS: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All candidates of the query in a slot; with LOSS the contrast of the true one with the others too."""
    slot = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = scores.dtype.element_ty
    chunk = tl.program_id(0) // slots
    i = tl.load(starts + chunk) + tl.program_id(0) % slots
    if i < tl.load(starts + chunk + 1):
        j = tl.arange(0, BLOCK)
        s = tl.zeros((BLOCK,), dtype)
        for part in tl.static_range(PARTS):
            s += tl.load(parts + (part * front + slot) * there + j, mask=j < n, other=0.0)
        if KIND == L2:
            s = tl.sqrt(s)
        if KIND != DOT:
            s = -s
        own = i * (n + 1)
        tl.store(scores + own + 1 + j, s, mask=j < n)
        d = tl.arange(0, CHUNK)[None, :]
        q, q_y = rows_of(query, i * WIDTH + d, d < SPAN, KIND, SPAN)
        e, e_y = rows_of(table, tl.load(true + i) * WIDTH + d, d < SPAN, KIND, SPAN)
        similarity = row_similarity(q, q_y, e, e_y, KIND)
        tl.store(scores + own + tl.arange(0, 1), similarity)
        if LOSS:
            shift, scale = tl.cast(margin, dtype), tl.cast(temperature, dtype)
            drawn = (j < n) & (tl.load(left_out + i * n + j, mask=j < n, other=1) == 0)
            highest = tl.max(tl.where(drawn, s, float("-inf")), 0)
            weight = tl.where(drawn, tl.exp(scale * (s - highest)), 0.0)
            whole = tl.sum(weight, 0)
            share = tl.where(whole == 0, 0.0, 0.5 / tl.where(whole == 0, 1.0, whole))
            value, slope = soften(s + shift)
            loss = tl.sum(tl.where(drawn, weight * value, 0.0), 0)
            step = tl.where(drawn, share * weight * slope, 0.0)
            tl.store(slopes + own + 1 + j, step, mask=j < n)
            value, slope = soften(-(similarity + shift))
            tl.store(losses + i + tl.arange(0, 1), 0.5 * value + share * loss)
            tl.store(slopes + own + tl.arange(0, 1), -0.5 * slope)


def scores(
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    shared: Shared,
    contrast: tuple[float, float] | None,
    precision: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Layout]:
    """Losses [b], similarities [b, 1 + n], the losses' slopes [b, 1 + n]; without contrast the second."""
    b, n = len(query), shared.negatives.shape[1]
    width = table.shape[1]
    span = width // 2 if kind is Similarity.MODULUS else width
    layout = lay(kind, query, table, shared)
    parts = compared(kind, layout, precision)
    found = table.new_empty(b, 1 + n)
    loss, slopes = (table.new_empty(size if contrast else [0]) for size in ([b], [b, 1 + n]))
    shape = {"KIND": int(kind), "WIDTH": width, "SPAN": span, "CHUNK": triton.next_power_of_2(span)}
    block = triton.next_power_of_2(n)
    meta = {"LOSS": contrast is not None, "PARTS": len(parts), "BLOCK": block, **shape}
    rows = (query, table, shared.true, shared.left_out, shared.starts)
    sizes = (layout.front, layout.slots, layout.there, n, *(contrast or (0.0, 0.0)))
    warps = min(max(2, block // 512), 16)
    launch(_contrast, (layout.front,), loss, slopes, found, parts, *rows, *sizes, **meta, num_warps=warps)
    return loss, found, slopes, layout


def compared(
    kind: Similarity,
    layout: Layout,
    precision: str | None = None,
    tile: tuple[int, int, int] | None = None,
) -> Tensor:
    """What similarities of queries and negatives are made of [parts, front, there]: sums of coordinates."""
    front, there = layout.front, layout.there
    places, wide = layout.rows.shape
    chunks = front // layout.slots
    precise = precision or products()
    if kind is Similarity.DOT and layout.rows.dtype is torch.float32 and precise != "ieee":
        parts = layout.rows.new_empty(1, front, there)
        queries, negatives, warps = PRODUCT
        grid = (chunks * triton.cdiv(layout.slots, queries), triton.cdiv(there, negatives))
        meta = {"WIDTH": wide, "QUERIES": queries, "NEGATIVES": negatives, "STEP": STEP, "PRECISION": precise}
        launch(_products, grid, parts, layout.rows, front, layout.slots, there, **meta, num_warps=warps)
        return parts
    queries, negatives, warps = tile or TILES[kind]
    tiles = (front // queries, triton.cdiv(there, negatives))
    wanted = max(1, triton.cdiv(PROGRAMS, max(1, math.prod(tiles))))
    count = max(p for p in range(1, wanted + 1) if layout.span % (p * 4) == 0)
    parts = layout.rows.new_empty(count, front, there)
    meta = {"KIND": int(kind), "SPAN": layout.span, "PART": layout.span // count}
    sizes = {"ROWS": queries, "NEGATIVES": negatives, "num_warps": warps}
    launch(
        _distances, (*tiles, count), parts, layout.laid, places, front, layout.slots, there, **meta, **sizes
    )
    return parts
