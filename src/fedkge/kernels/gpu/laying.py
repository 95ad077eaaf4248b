"""Queries and shared negatives laid out for tiles on the GPU: by row and by coordinate, padded with zeros.

A chunk has `slots` places for queries and `there` for negatives, whole tiles of both, so that kernels load
vectors without masks. What is padded adds nothing: its coordinates are 0, and so are its weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Shared, Similarity
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
    query,
    table,
    negatives,
    starts,
    n,
    slots,
    there,
    front,
    places,
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
    value = tl.load(query + i[:, None] * WIDTH + at, mask=mine[:, None] & live, other=0.0)
    value += tl.load(table + row[:, None] * WIDTH + at, mask=drawn[:, None] & live, other=0.0)
    inside = (r < places)[:, None]
    wide = tl.num_programs(1) * BLOCK
    tl.store(rows + r[:, None].to(tl.int64) * wide + k[None, :], value, mask=inside)
    tl.store(laid + k[None, :].to(tl.int64) * places + r[:, None], value, mask=inside)


def lay(kind: Similarity, query: Tensor, table: Tensor, shared: Shared) -> Layout:
    """Copy the rows of a batch; the columns of a tile are those that need the least padding."""
    (c, n), width = shared.negatives.shape, table.shape[1]
    halves = 2 if kind is Similarity.MODULUS else 1
    half = width // halves
    columns = min(COLUMNS, key=lambda some: (padded(half, some), -some))
    span, slots, there = padded(half, columns), padded(shared.longest, ROWS), padded(n, ROWS)
    places = c * (slots + there)
    rows, laid = table.new_empty(places, halves * span), table.new_empty(halves * span, places)
    grid = (triton.cdiv(places, 32), halves * span // 32)
    meta = {"WIDTH": width, "HALF": half, "SPAN": span, "BLOCK": 32}
    ids = (shared.negatives, shared.starts, n, slots, there, c * slots, places)
    launch(_lay, grid, laid, rows, query, table, *ids, **meta)
    return Layout(rows, laid, slots, there, span, columns, c * slots)
