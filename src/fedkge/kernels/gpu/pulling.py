"""Gradients of shared negatives and their queries on the GPU, without atomics: a program owns what it sums.

Similarities are symmetric, so that one kernel serves both: a tile of rows in registers, past which all rows
that they were compared with are led, one by one. Each warp leads some of them, and sums are put together in
the end. Products are computed as such (`multiplying`).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Shared, Similarity
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout
from fedkge.kernels.gpu.meeting import multiplied, products
from fedkge.kernels.gpu.multiplying import multiply
from fedkge.kernels.gpu.similarity import DOT, L1, L2, MODULUS, TINY
from fedkge.kernels.gpu.sloping import Slopes, both, true

#: rows and coordinates in a tile: a thread has all rows, and up to four coordinates
TILES = dict.fromkeys(Similarity, (8, 128)) | {Similarity.MODULUS: (4, 128)}
SPLIT = 4  #: warps that rows are dealt out to
REGISTERS = 168  #: of a thread, at most: so that three tiles fit into a multiprocessor


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
    x,  # [ROWS, 1, COLUMNS] in registers
    y,
    others,  # [1, SPLIT, COLUMNS]: the first of the rows that each warp leads past
    weights,  # [ROWS, SPLIT, 1] of these
    each,  # what weights are multiplied with, if TIMES
    first,  # [1, SPLIT, 1], the others' places in it
    last,  # of its places
    count,  # of others
    stride,  # of weights
    KIND: tl.constexpr,
    TIMES: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The sum of weight * d similarity / d row over others [ROWS, COLUMNS], real and imaginary."""
    sum_x = tl.zeros((ROWS, SPLIT, COLUMNS), others.dtype.element_ty)
    sum_y = tl.zeros((ROWS, SPLIT, COLUMNS), others.dtype.element_ty)
    w_a, a_x, a_y = _fetched(weights, each, first, last, others, 0, stride, KIND, TIMES, WIDTH, SPAN)
    w_b, b_x, b_y = _fetched(weights, each, first, last, others, 1, stride, KIND, TIMES, WIDTH, SPAN)
    w_c, c_x, c_y = _fetched(weights, each, first, last, others, 2, stride, KIND, TIMES, WIDTH, SPAN)
    w_d, d_x, d_y = _fetched(weights, each, first, last, others, 3, stride, KIND, TIMES, WIDTH, SPAN)
    for k in range(4, count + 4, 4):  # a multiple of four; each is fetched long before it is used
        at = tl.minimum(k, count - 4)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_a, a_x, a_y, KIND)
        w_a, a_x, a_y = _fetched(weights, each, first, last, others, at, stride, KIND, TIMES, WIDTH, SPAN)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_b, b_x, b_y, KIND)
        w_b, b_x, b_y = _fetched(weights, each, first, last, others, at + 1, stride, KIND, TIMES, WIDTH, SPAN)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_c, c_x, c_y, KIND)
        w_c, c_x, c_y = _fetched(weights, each, first, last, others, at + 2, stride, KIND, TIMES, WIDTH, SPAN)
        sum_x, sum_y = _pulled(sum_x, sum_y, x, y, w_d, d_x, d_y, KIND)
        w_d, d_x, d_y = _fetched(weights, each, first, last, others, at + 3, stride, KIND, TIMES, WIDTH, SPAN)
    return tl.sum(sum_x, 1), tl.sum(sum_y, 1)


@triton.jit
def _fetched(
    weights,
    each,
    first,
    last,
    others,
    k,
    stride,
    KIND: tl.constexpr,
    TIMES: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """The weights of another row, its real and its imaginary part."""
    weight = tl.load(weights + k * stride)
    if TIMES:
        weight *= tl.load(each + tl.minimum(first + k, last))
    at = others + k * WIDTH
    x = tl.load(at)
    if KIND == MODULUS:
        return weight, x, tl.load(at + SPAN)
    else:
        return weight, x, x


@triton.jit
def _pulled(sum_x, sum_y, x, y, weight, other_x, other_y, KIND: tl.constexpr):
    """The sums with one more row."""
    to_x, to_y = terms(x, y, weight, other_x, other_y, KIND)
    if KIND == MODULUS:
        sum_y += to_y
    return sum_x + to_x, sum_y


@triton.jit
def terms(x, y, weight, other_x, other_y, KIND: tl.constexpr):
    """weight * d similarity / d row of pairs, real and imaginary."""
    if KIND == DOT:
        to_x = weight * other_x
        return to_x, to_x
    elif KIND == L1:
        to_x = _turned(weight, other_x - x)
        return to_x, to_x
    elif KIND == L2:
        to_x = weight * (x - other_x)
        return to_x, to_x
    else:
        dx, dy = other_x - x, other_y - y
        step = weight * tl.rsqrt(dx * dx + (dy * dy + TINY))
        return step * dx, step * dy


@triton.jit
def _pull(
    d_query,  # [b, WIDTH], written
    d_true,  # [b, WIDTH], written
    values,  # [c n, WIDTH], written
    rows,  # [places, LONG]
    table,
    truth,
    starts,
    by_query,  # [front, there]
    by_negative,  # [there, front]
    own,  # [b]
    each,  # [b] if TIMES
    last,  # of each
    front,
    slots,
    there,
    n,
    KIND: tl.constexpr,
    TIMES: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    PADDED: tl.constexpr,  # coordinates
    LONG: tl.constexpr,  # numbers in a padded row
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """First all queries' tiles, then all negatives': at once, as either leaves the device half idle."""
    tile = tl.program_id(0) * ROWS
    place = tile.to(tl.int64)
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    wide, d = d[None, None, :], d[None, :]
    k = tl.arange(0, ROWS)
    row, k = (place + k)[:, None, None], k[:, None]
    split = tl.arange(0, SPLIT)[None, :, None]
    x, y = both(rows, row * LONG + wide, row >= 0, KIND, PADDED)
    if place < front:
        chunk = (tile // slots).to(tl.int64)
        part = there // SPLIT
        others = rows + (front + chunk * there + split * part) * LONG + wide
        weights = by_negative + split.to(tl.int64) * part * front + row
        sum_x, sum_y = _led_past(
            x, y, others, weights, each, split, last, part, front, KIND, False, LONG, PADDED,
            ROWS, SPLIT, COLUMNS,
        )  # fmt: skip
        i = tl.load(starts + chunk) + tile % slots + k
        mine = i < tl.load(starts + chunk + 1)
        times = tl.load(each + i, mask=mine, other=0.0) if TIMES else 1.0
        own_x, own_y = both(rows, (place + k) * LONG + d, mine & (d < SPAN), KIND, PADDED)
        true(
            i, mine, d, d < SPAN, times, d_query, d_true, times * sum_x, times * sum_y, own_x, own_y, table,
            truth, own, KIND, WIDTH, SPAN,
        )  # fmt: skip
    else:
        chunk = ((tile - front) // there).to(tl.int64)
        part = slots // SPLIT
        j = place - front - chunk * there
        others = rows + (chunk * slots + split * part) * LONG + wide
        weights = by_query + (chunk * slots + split * part) * there + (row - place) + j
        first = tl.load(starts + chunk).to(tl.int32) + split * part
        sum_x, sum_y = _led_past(
            x, y, others, weights, each, first, last, part, there, KIND, TIMES, LONG, PADDED,
            ROWS, SPLIT, COLUMNS,
        )  # fmt: skip
        at, mask = values + (chunk * n + j + k) * WIDTH + d, (j + k < n) & (d < SPAN)
        tl.store(at, sum_x, mask=mask)
        if KIND == MODULUS:
            tl.store(at + SPAN, sum_y, mask=mask)


def gradients(
    kind: Similarity,
    table: Tensor,
    shared: Shared,
    layout: Layout,
    slopes: Slopes,
    each: Tensor | None = None,
    precision: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Of the queries [b, w] and of `shared.ids()` [b + c n, w], by slopes, which `each` [b] multiplies."""
    b, (c, n), width = len(shared.true), shared.negatives.shape, table.shape[1]
    d_query, values = table.new_empty(b, width), table.new_empty(b + c * n, width)
    out = (d_query, values[:b], values[b:])
    ids = (layout.rows, table, shared.true, shared.starts)
    factors = (slopes.by_query, slopes.by_negative, slopes.own, slopes.own if each is None else each)
    sizes = (b - 1, layout.front, layout.slots, layout.there, n)
    if multiplied(kind, table):
        multiply(out, ids, factors, sizes, each is not None, width, precision or products())
        return d_query, values
    span = width // 2 if kind is Similarity.MODULUS else width
    height, columns = TILES[kind]
    columns = min(columns, layout.columns)
    shape = {"WIDTH": width, "SPAN": span, "PADDED": layout.span, "LONG": layout.rows.shape[1]}
    meta = {"KIND": int(kind), "TIMES": each is not None, **shape}
    tile = {"ROWS": height, "SPLIT": SPLIT, "COLUMNS": columns, "num_warps": SPLIT, "maxnreg": REGISTERS}
    grid = (len(layout.rows) // height, layout.span // columns)
    launch(_pull, grid, *out, *ids, *factors, *sizes, **meta, **tile)
    return d_query, values
