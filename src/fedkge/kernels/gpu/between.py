"""Gradients of both ends of a pair at once, on the GPU: what one gets by a distance, the other gets negated.

A tile of queries is in registers; negatives are led past it, each warp's own ones. What a negative gets from
a tile is added to the gradient of its row by atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Composition, Room, Shared, Similarity
from fedkge.kernels.gpu.finishing import finish, where
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout
from fedkge.kernels.gpu.pulling import terms
from fedkge.kernels.gpu.similarity import MODULUS
from fedkge.kernels.gpu.sloping import Slopes, both, to_true, true

#: rows and coordinates in a tile, warps, and registers of a thread at most, if there is a limit
TILES: dict[Similarity, tuple[int, int, int, int | None]] = {
    Similarity.L1: (16, 64, 4, None),
    Similarity.L2: (16, 64, 4, None),
    Similarity.MODULUS: (8, 64, 2, None),
}


def finishes(kind: Similarity, made: Composed) -> bool:
    """Whether a program has what it needs to take apart what queries got: both parts of complex numbers."""
    return kind in TILES and (kind is Similarity.MODULUS) == (made.kind >= Composition.MULTIPLY)


@triton.jit
def _fetched(
    weights, others, ids, first, k, stride, n, KIND: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr
):
    """The weights of another row, its real and its imaginary part, and which row it is."""
    row = tl.load(ids + first + k, mask=first + k < n, other=0)
    weight, at = tl.load(weights + k * stride), others + k * WIDTH
    x = tl.load(at)
    if KIND == MODULUS:
        return weight, x, tl.load(at + SPAN), row
    else:
        return weight, x, x, row


@triton.jit
def _met(
    sum_x,
    sum_y,
    x,
    y,
    weight,
    times,
    other_x,
    other_y,
    sums,
    row,
    d,
    drawn,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """The queries' sums with one more row; what it gets from them is added to its own."""
    to_x, to_y = terms(x, y, weight * times[:, None, None], other_x, other_y, KIND)
    out, mask = sums + row[:, None] * WIDTH + d, drawn[:, None] & (d < SPAN)
    tl.atomic_add(out, -tl.sum(to_x, 0), mask=mask, sem="relaxed")
    if KIND == MODULUS:
        tl.atomic_add(out + SPAN, -tl.sum(to_y, 0), mask=mask, sem="relaxed")
        sum_y += to_y
    return sum_x + to_x, sum_y


@triton.jit
def _between(
    d_query,  # [b, WIDTH], written unless FUSED
    d_true,  # [b, WIDTH], written unless FUSED
    sums,  # [entities, WIDTH], added to
    touched,
    relation_sums,
    relation_touched,
    table,
    anchor,
    factors,
    relation,
    sign: tl.float64,
    scale: tl.float64,
    rows,  # [places, LONG]
    truth,
    starts,
    negatives,  # [c, n]
    by_negative,  # [there, front]
    own,  # [b]
    each,  # [b]
    front,
    slots,
    there,
    n,
    FUSED: tl.constexpr,
    MADE: tl.constexpr,  # a composition
    FACTORS: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    PADDED: tl.constexpr,
    LONG: tl.constexpr,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tile = tl.program_id(0) * ROWS
    place, chunk = tile.to(tl.int64), (tile // slots).to(tl.int64)
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    wide, d = d[None, None, :], d[None, :]
    k = tl.arange(0, ROWS)
    row, slot = (place + k)[:, None, None], k[:, None]
    x, y = both(rows, row * LONG + wide, row >= 0, KIND, PADDED)
    i = tl.load(starts + chunk) + tile % slots + k
    mine = i < tl.load(starts + chunk + 1)
    times = tl.load(each + i, mask=mine, other=0.0)
    part = there // SPLIT
    split = tl.arange(0, SPLIT)
    others = rows + (front + chunk * there + split * part)[None, :, None] * LONG + wide
    weights = by_negative + (split.to(tl.int64) * part * front)[None, :, None] + row
    ids = negatives + chunk * n
    sum_x = tl.zeros((ROWS, SPLIT, COLUMNS), rows.dtype.element_ty)
    sum_y = tl.zeros((ROWS, SPLIT, COLUMNS), rows.dtype.element_ty)
    first = split * part
    w_a, a_x, a_y, i_a = _fetched(weights, others, ids, first, 0, front, n, KIND, LONG, PADDED)
    w_b, b_x, b_y, i_b = _fetched(weights, others, ids, first, 1, front, n, KIND, LONG, PADDED)
    for ahead in range(2, part + 2, 2):  # an even number; each is fetched long before it is used
        at, last = tl.minimum(ahead, part - 2), first + ahead - 2
        sum_x, sum_y = _met(
            sum_x, sum_y, x, y, w_a, times, a_x, a_y, sums, i_a, d, last < n, KIND, WIDTH, SPAN
        )
        w_a, a_x, a_y, i_a = _fetched(weights, others, ids, first, at, front, n, KIND, LONG, PADDED)
        sum_x, sum_y = _met(
            sum_x, sum_y, x, y, w_b, times, b_x, b_y, sums, i_b, d, last + 1 < n, KIND, WIDTH, SPAN
        )
        w_b, b_x, b_y, i_b = _fetched(weights, others, ids, first, at + 1, front, n, KIND, LONG, PADDED)
    j = tl.arange(0, BLOCK)
    tl.store(touched + tl.load(ids + j, mask=j < n, other=0), 1, mask=(j < n) & (tl.program_id(1) == 0))
    i, mine, times = i[:, None], mine[:, None], times[:, None]
    own_x, own_y = both(rows, (place + slot) * LONG + d, mine & (d < SPAN), KIND, PADDED)
    if FUSED:
        reached = mine & (d < SPAN)
        step_x, step_y, true_x, true_y = to_true(
            i, mine, d, reached, times, own_x, own_y, table, truth, own, KIND, WIDTH, SPAN
        )
        row = tl.load(truth + i, mask=mine, other=0)
        out = sums + row * WIDTH + d
        tl.atomic_add(out, true_x, mask=reached, sem="relaxed")
        if KIND == MODULUS:
            tl.atomic_add(out + SPAN, true_y, mask=reached, sem="relaxed")
        tl.store(touched + row, 1, mask=mine & (tl.program_id(1) == 0))
        finish(
            i, mine, d, d < SPAN, tl.sum(sum_x, 1) + step_x, tl.sum(sum_y, 1) + step_y, sums, touched,
            relation_sums, relation_touched, table, anchor, factors, relation, sign, scale, MADE, WIDTH,
            FACTORS,
        )  # fmt: skip
    else:
        true(
            i, mine, d, d < SPAN, times, d_query, d_true, tl.sum(sum_x, 1), tl.sum(sum_y, 1), own_x, own_y,
            table, truth, own, KIND, WIDTH, SPAN,
        )  # fmt: skip


def heap(
    kind: Similarity,
    table: Tensor,
    made: Composed,
    shared: Shared,
    layout: Layout,
    slopes: Slopes,
    each: Tensor,
    rooms: tuple[Room, Room],
    fused: bool,
) -> tuple[Tensor, Tensor]:
    """Add up what negatives get; the gradients of the queries and of the true candidates [b, w]."""
    b, n, width = len(shared.true), shared.negatives.shape[1], table.shape[1]
    d_query, d_true = (table.new_empty(0 if fused else b, width) for _ in range(2))
    height, columns, warps, registers = TILES[kind]
    columns = min(columns, layout.columns)
    span = width // 2 if kind is Similarity.MODULUS else width
    meta = {"KIND": int(kind), "WIDTH": width, "SPAN": span, "PADDED": layout.span}
    tile = {"ROWS": height, "SPLIT": warps, "COLUMNS": columns, "BLOCK": triton.next_power_of_2(n)}
    meta |= {"FUSED": fused, "MADE": int(made.kind), "FACTORS": made.factors.shape[1]}
    ids = (layout.rows, shared.true, shared.starts, shared.negatives)
    sizes = (layout.front, layout.slots, layout.there, n)
    grid = (layout.front // height, layout.span // columns)
    launch(
        _between,
        grid,
        *(d_query, d_true, *where(rooms, table, made)),
        *ids,
        *(slopes.by_negative, slopes.own, each),
        *sizes,
        LONG=layout.rows.shape[1],
        num_warps=warps,
        maxnreg=registers,
        **meta,
        **tile,
    )
    return d_query, d_true
