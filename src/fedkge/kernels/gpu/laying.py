"""Queries and shared negatives laid out for tiles on the GPU: by row and by coordinate, padded with zeros.

A chunk has `slots` places for queries and `there` for negatives, whole tiles of both, so that kernels load
vectors without masks. What is padded adds nothing: its coordinates are 0, and so are its weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Shared, Similarity
from fedkge.kernels.gpu.composing import composed, sources_of, stride_of
from fedkge.kernels.gpu.launch import launch

ROWS = 16  #: rows are padded to a multiple, which every tile divides
COLUMNS = (128, 64, 32)  #: and coordinates to a multiple of one of these


@dataclass(frozen=True, slots=True)
class Layout:
    """Place r is a query below `front`, and a negative from there on."""

    rows: Tensor  # [places, halves * span]
    laid: Tensor  # [halves * span, places], the same by coordinate
    slots: int  #: places for a chunk's queries
    there: int  #: places for a chunk's negatives
    span: int  #: coordinates, padded; complex numbers have two halves of them
    columns: int  #: they are a multiple of
    front: int


def padded(numbers: int, to: int) -> int:
    return triton.cdiv(max(numbers, 1), to) * to


@triton.jit
def _lay(
    laid,
    rows,
    query,  # [b, WIDTH] if MADE is less than 0
    table,
    negatives,
    starts,
    anchor,  # what queries are made of, elsewhere
    factors,
    relation,
    sign: tl.float64,
    n,
    slots,
    there,
    front,
    places,
    MADE: tl.constexpr,  # a composition
    FACTORS: tl.constexpr,
    WIDTH: tl.constexpr,
    HALF: tl.constexpr,  # coordinates of a half
    SPAN: tl.constexpr,  # the same, padded
    BLOCK: tl.constexpr,
):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    half = k // SPAN
    at = k - half * SPAN
    live = (at < HALF)[None, :]
    at = (half * HALF + at)[None, :]
    asks = r < front
    chunk = tl.where(asks, r // slots, 0)
    i = tl.load(starts + chunk) + r % slots
    mine = asks & (i < tl.load(starts + chunk + 1))
    chunk = tl.where(asks, 0, (r - front) // there)
    j = (r - front) - chunk * there
    drawn = (r >= front) & (r < places) & (j < n)
    row = tl.load(negatives + chunk.to(tl.int64) * n + j, mask=drawn, other=0)
    value = tl.load(table + row[:, None] * WIDTH + at, mask=drawn[:, None] & live, other=0.0)
    asked = mine[:, None] & live
    if MADE < 0:
        value += tl.load(query + i[:, None] * WIDTH + at, mask=asked, other=0.0)
    else:
        a = table + tl.load(anchor + i, mask=mine, other=0)[:, None] * WIDTH
        f = factors + tl.load(relation + i, mask=mine, other=0)[:, None] * FACTORS
        value += composed(a, f, at, asked, sign, MADE, WIDTH)
    inside = (r < places)[:, None]
    wide = tl.num_programs(1) * BLOCK
    tl.store(rows + r[:, None].to(tl.int64) * wide + k[None, :], value, mask=inside)
    tl.store(laid + k[None, :].to(tl.int64) * places + r[:, None], value, mask=inside)


def lay(kind: Similarity, query: Tensor | Composed, table: Tensor, shared: Shared) -> Layout:
    """Copy the rows of a batch; the columns of a tile are those that need the least padding.

    Queries may be made on the way, of rows of the table and of factors.
    """
    (c, n), width = shared.negatives.shape, table.shape[1]
    halves = 2 if kind is Similarity.MODULUS else 1
    half = width // halves
    columns = min(COLUMNS, key=lambda some: (padded(half, some), -some))
    span, slots, there = padded(half, columns), padded(shared.longest, ROWS), padded(n, ROWS)
    places = c * (slots + there)
    rows, laid = table.new_empty(places, halves * span), table.new_empty(halves * span, places)
    grid = (triton.cdiv(places, 32), halves * span // 32)
    meta = {"WIDTH": width, "HALF": half, "SPAN": span, "BLOCK": 32}
    ids = (shared.negatives, shared.starts)
    if isinstance(query, Composed):
        asked, made = table, sources_of(query)
        meta |= {"MADE": int(query.kind), "FACTORS": stride_of(query)}
    else:
        asked, made = query, (shared.starts, table, shared.starts, 1.0)
        meta |= {"MADE": -1, "FACTORS": 0}
    launch(_lay, grid, laid, rows, asked, table, *ids, *made, n, slots, there, c * slots, places, **meta)
    return Layout(rows, laid, slots, there, span, columns, c * slots)
