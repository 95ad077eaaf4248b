"""Negatives that a chunk of queries shares, on the GPU: scores with their contrast."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Shared, Similarity
from fedkge.kernels.gpu.contrasting import row_similarity, rows_of
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout, lay
from fedkge.kernels.gpu.losses import soften
from fedkge.kernels.gpu.meeting import compared, met
from fedkge.kernels.gpu.similarity import DOT, L2
from fedkge.kernels.gpu.sloping import Slopes, slope_of

#: queries that a program contrasts, and the parts that their coordinates are dealt out in
TILES = dict.fromkeys(Similarity, (4, 4)) | {Similarity.DOT: (8, 4)}
MOST = 256  #: negatives that a program compares queries with itself; more are compared before
APART = (Similarity.DOT,)  #: and these always are
SCORES, CONTRAST, LAID = (tl.constexpr(what) for what in range(3))  #: what is asked for


@triton.jit
def _contrast(
    losses,  # [b] if there is a loss
    slopes,  # [b, 1 + n] of CONTRAST, [b] of the true ones if LAID
    scores,  # [b, 1 + n], written unless LAID
    by_query,  # [front, there], written if LAID: slopes of the negatives
    by_negative,  # [there, front], the same
    parts,  # [PARTS, front, there]; with none, what is laid out by coordinate [.., places]
    rows,  # [places, LONG]
    table,
    true,
    left_out,
    starts,
    places,
    front,
    slots,
    there,
    n,
    margin: tl.float64,
    temperature: tl.float64,
    OUT: tl.constexpr,
    PARTS: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    PADDED: tl.constexpr,
    LONG: tl.constexpr,
    CHUNK: tl.constexpr,
    QUERIES: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All candidates of the queries in some slots, and the contrast of the true one with the others."""
    dtype: tl.constexpr = parts.dtype.element_ty
    first = tl.program_id(0) * QUERIES
    slot = (first + tl.arange(0, QUERIES)).to(tl.int64)
    chunk = first // slots
    i = tl.load(starts + chunk) + first % slots + tl.arange(0, QUERIES)
    mine = i < tl.load(starts + chunk + 1)
    j = tl.arange(0, BLOCK)[None, :]
    asked = mine[:, None] & (j < n)
    if PARTS == 0:
        wide = tl.program_id(0).to(tl.int64) * 0 + places
        begin = parts + (tl.arange(0, SPLIT) * (PADDED // SPLIT))[None, :, None] * wide
        drawn = front + chunk.to(tl.int64) * there + j[:, None, :]
        mine_too = begin + slot[:, None, None]
        s = met(
            mine_too, begin + drawn, j[:, None, :] < there, wide, KIND, PADDED, PADDED // SPLIT,
            QUERIES, SPLIT, BLOCK,
        )  # fmt: skip
    else:
        s = tl.zeros((QUERIES, BLOCK), dtype)
        for part in tl.static_range(PARTS):
            s += tl.load(parts + (part * front + slot[:, None]) * there + j, mask=asked, other=0.0)
    if KIND == L2:
        s = tl.sqrt(s)
    if KIND != DOT:
        s = -s
    d = tl.arange(0, CHUNK)[None, :]
    live = mine[:, None] & (d < SPAN)
    q, q_y = rows_of(rows, slot[:, None] * LONG + d, live, KIND, PADDED)
    e, e_y = rows_of(table, tl.load(true + i, mask=mine, other=0)[:, None] * WIDTH + d, live, KIND, SPAN)
    similarity = row_similarity(q, q_y, e, e_y, KIND)
    own = i * (n + 1)
    if OUT != LAID:
        tl.store(scores + own[:, None] + 1 + j, s, mask=asked)
        tl.store(scores + own, similarity, mask=mine)
    if OUT != SCORES:
        shift, scale = tl.cast(margin, dtype), tl.cast(temperature, dtype)
        drawn = asked & (tl.load(left_out + i[:, None] * n + j, mask=asked, other=1) == 0)
        highest = tl.max(tl.where(drawn, s, float("-inf")), 1)[:, None]
        weight = tl.where(drawn, tl.exp(scale * (s - highest)), 0.0)
        whole = tl.sum(weight, 1)
        share = tl.where(whole == 0, 0.0, 0.5 / tl.where(whole == 0, 1.0, whole))
        value, slope = soften(s + shift)
        loss = tl.sum(tl.where(drawn, weight * value, 0.0), 1)
        step = tl.where(drawn, share[:, None] * weight * slope, 0.0)
        value, slope = soften(-(similarity + shift))
        tl.store(losses + i, 0.5 * value + share * loss, mask=mine)
        if OUT == LAID:
            step, inside = slope_of(s, step, KIND), j < there
            tl.store(by_query + slot[:, None] * there + j, step, mask=inside)
            tl.store(by_negative + j.to(tl.int64) * front + slot[:, None], step, mask=inside)
            tl.store(slopes + i, slope_of(similarity, -0.5 * slope, KIND), mask=mine)
        else:
            tl.store(slopes + own[:, None] + 1 + j, step, mask=asked)
            tl.store(slopes + own, -0.5 * slope, mask=mine)


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
    layout = lay(kind, query, table, shared)
    found = table.new_empty(b, 1 + n)
    loss, slopes = (table.new_empty(size if contrast else [0]) for size in ([b], [b, 1 + n]))
    out = (loss, slopes, found, found, found)
    _contrasted(
        kind, SCORES if contrast is None else CONTRAST, out, table, shared, layout, contrast, precision
    )
    return loss, found, slopes, layout


def contrasted(
    kind: Similarity, made: Composed, table: Tensor, shared: Shared, contrast: tuple[float, float]
) -> tuple[Tensor, Slopes, Layout]:
    """Losses [b] of queries that are made on the way, and the losses' slopes."""
    layout = lay(kind, made, table, shared)
    loss, slopes = table.new_empty(len(shared.true)), Slopes.empty(layout, len(shared.true))
    out = (loss, slopes.own, loss, slopes.by_query, slopes.by_negative)
    _contrasted(kind, LAID, out, table, shared, layout, contrast)
    return loss, slopes, layout


def _contrasted(
    kind: Similarity,
    what: tl.constexpr,
    out: tuple[Tensor, ...],
    table: Tensor,
    shared: Shared,
    layout: Layout,
    contrast: tuple[float, float] | None,
    precision: str | None = None,
) -> None:
    n, width = shared.negatives.shape[1], table.shape[1]
    span = width // 2 if kind is Similarity.MODULUS else width
    block = triton.next_power_of_2(layout.there)
    longest = max(block, triton.next_power_of_2(span))
    most, split = TILES[kind]
    queries = max(1, min(most, 4096 // longest))
    if apart := block > MOST or kind in APART:
        parts, warps = compared(kind, layout, precision), min(max(2, queries * longest // 256), 16)
    else:
        parts, warps = layout.laid, split * max(1, block // 128)
    shape = {"KIND": int(kind), "WIDTH": width, "SPAN": span, "CHUNK": triton.next_power_of_2(span)}
    padded = {"PADDED": layout.span, "LONG": layout.rows.shape[1], "QUERIES": queries, "SPLIT": split}
    meta = {"OUT": what.value, "PARTS": len(parts) if apart else 0, "BLOCK": block, **shape, **padded}
    rows = (parts, layout.rows, table, shared.true, shared.left_out, shared.starts)
    sizes = (len(layout.rows), layout.front, layout.slots, layout.there, n, *(contrast or (0.0, 0.0)))
    launch(_contrast, (layout.front // queries,), *out, *rows, *sizes, **meta, num_warps=warps)
