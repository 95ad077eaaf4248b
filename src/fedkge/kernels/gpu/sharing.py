"""Negatives that a chunk of queries shares, on the GPU: who is left out, and scores with their contrast.

A program holds a tile of queries and negatives, and walks along the coordinates: each number is loaded once
for a side of the tile. For that rows are laid out by coordinate; products go through `tl.dot`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Draw, Shared, Similarity
from fedkge.kernels.gpu.contrasting import row_similarity, rows_of
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.losses import soften
from fedkge.kernels.gpu.optimizers import site_of
from fedkge.kernels.gpu.similarity import DOT, L1, L2

#: queries and negatives in a tile of distances, and warps
SIDES = dict.fromkeys(Similarity, (16, 64, 8)) | {Similarity.MODULUS: (16, 32, 4)}
PRODUCT = (64, 32, 4)  #: the same for products
PRECISIONS = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}  #: of products, by torch's word for it
STEP = 32  #: coordinates of a product at a time
LONGEST = 1024  #: negatives whose weights a program holds at once


def products() -> str:
    """How exactly products are computed: in float32, or as `torch.set_float32_matmul_precision` says."""
    return PRECISIONS[torch.get_float32_matmul_precision()]


@triton.jit
def _left_out(
    out,  # bool [b, n]
    negatives,  # [c, n]
    starts,  # [c + 1]
    site,
    first,
    size,
    known,
    lo,
    hi,
    n,
    chunks,
    SEARCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    chunk = site_of(i, starts + 1, chunks, SEARCH)
    s, begin = tl.load(site + i), tl.load(lo + i)
    answers = tl.load(hi + i) - begin
    answers = tl.where(
        answers < tl.load(size + s), answers, 0
    )  # nothing but answers: filtering is impossible
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    u = tl.load(negatives + chunk * n + j, mask=j < n, other=-1) - tl.load(first + s)
    low = tl.zeros_like(u)  # grows to the first answer that is not below u
    high = low + answers
    rest = answers
    while rest > 0:
        middle = (low + high) >> 1
        searching = low < high
        below = searching & (tl.load(known + begin + middle, mask=searching, other=0) + middle < u)
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
        rest = rest >> 1
    found = (low < answers) & (tl.load(known + begin + low, mask=low < answers, other=-1) + low == u)
    tl.store(out + i * n + j, found, mask=j < n)


def left_out(negatives: Tensor, starts: Tensor, draw: Draw) -> Tensor:
    b, (c, n) = len(draw.site), negatives.shape
    out = torch.empty(b, n, dtype=torch.bool, device=negatives.device)
    where = (draw.site, draw.first, draw.size, draw.known, draw.lo, draw.hi)
    parts = (tensor.contiguous() for tensor in (negatives, starts, *where))
    block = min(triton.next_power_of_2(n), 256)
    meta = {"SEARCH": max(c, 1).bit_length(), "BLOCK": block, "num_warps": 2}
    launch(_left_out, (b, triton.cdiv(n, block)), out, *parts, n, c, **meta)
    return out


@triton.jit
def _lay(out, query, table, negatives, b, total, WIDTH: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr):
    """out[k, r] = coordinate k of row r: first the queries, then the negatives."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    mine, there = r < b, r < total
    row = tl.load(negatives + r - b, mask=there & (r >= b), other=0)
    from_query = tl.load(
        query + r[:, None].to(tl.int64) * WIDTH + k[None, :],
        mask=mine[:, None] & (k < WIDTH)[None, :],
        other=0.0,
    )
    from_table = tl.load(
        table + row[:, None] * WIDTH + k[None, :],
        mask=(there & (r >= b))[:, None] & (k < WIDTH)[None, :],
        other=0.0,
    )
    value = tl.where(mine[:, None], from_query, from_table)
    at = out + k[None, :].to(tl.int64) * total + r[:, None]
    tl.store(at, value, mask=there[:, None] & (k < WIDTH)[None, :])


@triton.jit
def tile_of(tile, starts, tiles, SIZE: tl.constexpr):
    """The chunk of a tile, its first query and the chunk's end: there are `tiles` for each chunk."""
    chunk = (tile // tiles).to(tl.int64)
    first = tl.load(starts + chunk) + tile % tiles * SIZE
    return chunk, first, tl.load(starts + chunk + 1)


@triton.jit
def _distances(
    scores,  # [b, 1 + n], written but for the first of each row
    laid,  # [WIDTH, total]
    starts,
    tiles,
    b,
    n,
    total,
    KIND: tl.constexpr,
    SPAN: tl.constexpr,
    QUERIES: tl.constexpr,
    NEGATIVES: tl.constexpr,
    UNROLL: tl.constexpr,
):
    chunk, first, end = tile_of(tl.program_id(0), starts, tiles, QUERIES)
    if first < end:
        i = (first + tl.arange(0, QUERIES))[:, None]
        j = (tl.program_id(1) * NEGATIVES + tl.arange(0, NEGATIVES))[None, :]
        q_at, e_at = laid + tl.minimum(i, end - 1), laid + b + chunk * n + tl.minimum(j, n - 1)
        sums = tl.zeros((QUERIES, NEGATIVES), laid.dtype.element_ty)
        wide = chunk * 0 + total  # in 64 bits
        for start in range(0, SPAN, UNROLL):
            for u in tl.static_range(UNROLL):
                at = (start + u) * wide
                q, e = tl.load(q_at + at), tl.load(e_at + at)
                if KIND == DOT:
                    sums += q * e
                elif KIND == L1:
                    sums += tl.abs(q - e)
                elif KIND == L2:
                    sums += (q - e) * (q - e)
                else:
                    y = tl.load(q_at + at + SPAN * wide) - tl.load(e_at + at + SPAN * wide)
                    sums += tl.sqrt((q - e) * (q - e) + y * y)
        if KIND == L2:
            sums = tl.sqrt(sums)
        if KIND != DOT:
            sums = -sums
        tl.store(scores + i * (n + 1) + 1 + j, sums, mask=(i < end) & (j < n))


@triton.jit
def _products(
    scores,
    query,
    table,
    negatives,
    starts,
    tiles,
    n,
    WIDTH: tl.constexpr,
    QUERIES: tl.constexpr,
    NEGATIVES: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    chunk, first, end = tile_of(tl.program_id(0), starts, tiles, QUERIES)
    if first < end:
        i = first + tl.arange(0, QUERIES)
        j = tl.program_id(1) * NEGATIVES + tl.arange(0, NEGATIVES)
        row = tl.load(negatives + chunk * n + j, mask=j < n, other=0)
        sums = tl.zeros((QUERIES, NEGATIVES), tl.float32)
        for start in range(0, WIDTH, STEP):
            d = start + tl.arange(0, STEP)
            live = (d < WIDTH)[None, :]
            q = tl.load(query + i[:, None] * WIDTH + d[None, :], mask=(i < end)[:, None] & live, other=0.0)
            e = tl.load(table + row[:, None] * WIDTH + d[None, :], mask=(j < n)[:, None] & live, other=0.0)
            sums = tl.dot(q, tl.trans(e), sums, input_precision=PRECISION)
        at = scores + i[:, None] * (n + 1) + 1 + j[None, :]
        tl.store(at, sums, mask=(i < end)[:, None] & (j < n)[None, :])


@triton.jit
def _contrast(
    losses,  # [b] if LOSS
    slopes,  # [b, 1 + n] if LOSS
    scores,  # [b, 1 + n], the first of each row written
    query,
    table,
    true,
    left_out,
    n,
    margin: tl.float64,
    temperature: tl.float64,
    LOSS: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The true candidate of one query; with LOSS the contrast with its negatives too."""
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, CHUNK)[None, :]
    q, q_y = rows_of(query, i * WIDTH + d, d < SPAN, KIND, SPAN)
    e, e_y = rows_of(table, tl.load(true + i) * WIDTH + d, d < SPAN, KIND, SPAN)
    similarity = row_similarity(q, q_y, e, e_y, KIND)
    own = scores + i * (n + 1)
    tl.store(own + tl.arange(0, 1), similarity)
    if LOSS:
        dtype: tl.constexpr = scores.dtype.element_ty
        shift, scale = tl.cast(margin, dtype), tl.cast(temperature, dtype)
        top = tl.full((BLOCK,), float("-inf"), dtype)
        for start in range(0, n, BLOCK):
            j = start + tl.arange(0, BLOCK)
            there = (j < n) & (tl.load(left_out + i * n + j, mask=j < n, other=1) == 0)
            top = tl.maximum(top, tl.load(own + 1 + j, mask=there, other=float("-inf")))
        highest = tl.max(top, 0)
        total = tl.zeros((BLOCK,), dtype)
        loss = tl.zeros((BLOCK,), dtype)
        for start in range(0, n, BLOCK):
            j = start + tl.arange(0, BLOCK)
            there = (j < n) & (tl.load(left_out + i * n + j, mask=j < n, other=1) == 0)
            s = tl.load(own + 1 + j, mask=there, other=0.0)
            weight = tl.where(there, tl.exp(scale * (s - highest)), 0.0)
            total += weight
            value, _ = soften(s + shift)
            loss += tl.where(there, weight * value, 0.0)
        whole = tl.sum(total, 0)
        share = tl.where(whole == 0, 0.0, 0.5 / tl.where(whole == 0, 1.0, whole))
        for start in range(0, n, BLOCK):
            j = start + tl.arange(0, BLOCK)
            there = (j < n) & (tl.load(left_out + i * n + j, mask=j < n, other=1) == 0)
            s = tl.load(own + 1 + j, mask=there, other=0.0)
            _, slope = soften(s + shift)
            step = tl.where(there, share * tl.exp(scale * (s - highest)) * slope, 0.0)
            tl.store(slopes + i * (n + 1) + 1 + j, step, mask=j < n)
        value, slope = soften(-(similarity + shift))
        tl.store(losses + i + tl.arange(0, 1), 0.5 * value + share * tl.sum(loss, 0))
        tl.store(slopes + i * (n + 1) + tl.arange(0, 1), -0.5 * slope)


def scores(
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    shared: Shared,
    contrast: tuple[float, float] | None,
    precision: str | None = None,
    sides: tuple[int, int, int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [b], similarities [b, 1 + n], the losses' slopes [b, 1 + n]; without contrast the second."""
    b, n = len(query), shared.negatives.shape[1]
    width = table.shape[1]
    span = width // 2 if kind is Similarity.MODULUS else width
    found = table.new_empty(b, 1 + n)
    _tiles(found, kind, query, table, shared, precision, sides)
    loss, slopes = (table.new_empty(size if contrast else [0]) for size in ([b], [b, 1 + n]))
    shape = {"KIND": int(kind), "WIDTH": width, "SPAN": span, "CHUNK": triton.next_power_of_2(span)}
    block = min(triton.next_power_of_2(n), LONGEST)
    rows = (found, query, table, shared.true, shared.left_out, n, *(contrast or (0.0, 0.0)))
    launch(_contrast, (b,), loss, slopes, *rows, LOSS=contrast is not None, **shape, BLOCK=block, num_warps=2)
    return loss, found, slopes


def _tiles(
    found: Tensor,
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    shared: Shared,
    precision: str | None,
    sides: tuple[int, int, int] | None,
) -> None:
    """The similarities of negatives."""
    b, (c, n), width = len(query), shared.negatives.shape, table.shape[1]
    span = width // 2 if kind is Similarity.MODULUS else width
    multiplies = kind is Similarity.DOT and table.dtype is torch.float32
    queries, negatives, warps = sides or (PRODUCT if multiplies else SIDES[kind])
    tiles = triton.cdiv(shared.longest, queries)
    grid = (c * tiles, triton.cdiv(n, negatives))
    sizes = {"QUERIES": queries, "NEGATIVES": negatives, "num_warps": warps}
    if multiplies:
        meta = {"WIDTH": width, "STEP": STEP, "PRECISION": precision or products()}
        rows = (query, table, shared.negatives, shared.starts)
        launch(_products, grid, found, *rows, tiles, n, **meta, **sizes)
        return
    total = b + c * n
    laid = table.new_empty(width, total)
    by_tile = (triton.cdiv(total, 32), triton.cdiv(width, 32))
    lay = {"WIDTH": width, "ROWS": 32, "SPAN": 32}
    launch(_lay, by_tile, laid, query, table, shared.negatives, b, total, **lay)
    meta = {"KIND": int(kind), "SPAN": span, "UNROLL": next(u for u in (8, 4, 2, 1) if span % u == 0)}
    launch(_distances, grid, found, laid, shared.starts, tiles, b, n, total, **meta, **sizes)
