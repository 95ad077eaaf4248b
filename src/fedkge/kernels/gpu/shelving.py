"""The gradient of every row of a table, without atomics: positions shelved by row, a program for each row.

Shelving counts: each position takes the next free place of its row, in whatever order they come, so that sums
differ in their last bits from run to run. Under deterministic algorithms a stable sort does it instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Contribution
from fedkge.kernels.gpu.grouping import Sources, terms
from fedkge.kernels.gpu.launch import Tiles, launch
from fedkge.kernels.gpu.similarity import MODULUS

SHELF = Tiles(512, warps=1, rows=16)
CROWDED = Tiles(8192, warps=8, rows=64)  #: where a row has many values, as a relation's
COUNTED = 1024  #: positions that a program shelves


def shelf_tiles(part: Contribution, height: int) -> Tiles:
    """How wide programs read a row's shelf: one that is long, and read few by few, holds up the step."""
    return CROWDED if not part.index.numel() and len(part.ids) > 4 * height else SHELF


@dataclass(frozen=True, slots=True)
class Shelves:
    """A contribution's positions by row: row x has order[starts[x]:starts[x + 1]]."""

    starts: Tensor  # int64 [height + 1]
    order: Tensor  # int [p]: first the positions of `index`, then those of `ids`
    sources: Sources
    scores: Tensor  # [b, n]
    d_scores: Tensor  # [b, n]

    @classmethod
    def of(cls, part: Contribution, height: int) -> Shelves:
        """Shelve `part` by the rows of a table of `height` rows."""
        total = part.index.numel() + len(part.ids)
        if total >= 1 << 31:
            raise ValueError(f"{total} positions in a batch, expected fewer than 2^31: use smaller batches")
        sort = _sorted if torch.are_deterministic_algorithms_enabled() else _counted
        starts, order = sort(part, height, total)
        return cls(starts, order, Sources.of(part), part.scores.contiguous(), part.d_scores.contiguous())

    def arguments(self, part: Contribution) -> tuple[Tensor | int, ...]:
        tensors = (self.starts, self.order, *self.sources.tensors(), self.scores, self.d_scores)
        return *tensors, part.index.numel(), len(self.sources.ahead), max(part.index.shape[1], 1)


def _sorted(part: Contribution, height: int, total: int) -> tuple[Tensor, Tensor]:
    rows, order = torch.sort(torch.cat((part.index.flatten(), part.ids)), stable=True)
    return torch.searchsorted(rows, torch.arange(height + 1, device=rows.device)), order


def _counted(part: Contribution, height: int, total: int) -> tuple[Tensor, Tensor]:
    device = part.ids.device
    counts = torch.zeros(height + 1, dtype=torch.int32, device=device)
    place = torch.empty(total, dtype=torch.int32, device=device)
    order = torch.empty_like(place)
    pairs = part.index.numel()
    pieces = ((part.index.flatten(), 0), (part.ids, pairs))
    for rows, first in pieces:
        launch(_count, _grid(rows), place, counts, rows.contiguous(), len(rows), first, BLOCK=COUNTED)
    starts = counts.cumsum(0)
    starts -= counts
    for rows, first in pieces:
        launch(_shelve, _grid(rows), order, place, starts, rows.contiguous(), len(rows), first, BLOCK=COUNTED)
    return starts, order


def _grid(rows: Tensor) -> tuple[int]:
    return (triton.cdiv(len(rows), COUNTED),)


@triton.jit
def _count(place, counts, rows, total, first, BLOCK: tl.constexpr):
    """Each position's place among those of its row."""
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < total
    row = tl.load(rows + k, mask=mask, other=0)
    tl.store(place + first + k, tl.atomic_add(counts + row, 1, mask=mask, sem="relaxed"), mask=mask)


@triton.jit
def _shelve(order, place, starts, rows, total, first, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < total
    start = tl.load(starts + tl.load(rows + k, mask=mask, other=0), mask=mask, other=0)
    tl.store(order + start + tl.load(place + first + k, mask=mask, other=0), first + k, mask=mask)


@triton.jit
def shelf_gradient(
    row,
    x,  # the row's coordinates [1, CHUNK]: real parts
    y,  # and imaginary parts
    d,
    starts,
    order,
    query,
    ahead,
    values,
    scores,
    d_scores,
    pairs,
    front,  # rows that are `ahead`
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The gradient of one row, as real and imaginary part [1, CHUNK]."""
    g_x = tl.zeros((BLOCK, CHUNK), values.dtype.element_ty)
    g_y = tl.zeros((BLOCK, CHUNK), values.dtype.element_ty)
    end = tl.load(starts + row + 1).to(tl.int32)
    for begin in range(tl.load(starts + row).to(tl.int32), end, BLOCK):
        k = begin + tl.arange(0, BLOCK)
        step_x, step_y = terms(
            k,
            k < end,
            x,
            y,
            d,
            order,
            query,
            ahead,
            values,
            scores,
            d_scores,
            pairs,
            front,
            n,
            KIND,
            WIDTH,
            SPAN,
        )
        g_x += step_x
        if KIND == MODULUS:
            g_y += step_y
    return tl.sum(g_x, 0)[None, :], tl.sum(g_y, 0)[None, :]


@triton.jit
def _add(
    out,  # [height, WIDTH], added to
    table,
    starts,
    order,
    query,
    ahead,
    values,
    scores,
    d_scores,
    pairs,
    front,  # rows that are `ahead`
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)[None, :]
    live = d < SPAN
    at = row * WIDTH + d
    x = tl.load(table + at, mask=live, other=0.0)
    y = x
    if KIND == MODULUS:
        y = tl.load(table + at + SPAN, mask=live, other=0.0)
    g_x, g_y = shelf_gradient(
        row,
        x,
        y,
        d,
        starts,
        order,
        query,
        ahead,
        values,
        scores,
        d_scores,
        pairs,
        front,
        n,
        KIND,
        WIDTH,
        SPAN,
        BLOCK,
        CHUNK,
    )
    tl.store(out + at, tl.load(out + at, mask=live, other=0.0) + g_x, mask=live)
    if KIND == MODULUS:
        tl.store(out + at + SPAN, tl.load(out + at + SPAN, mask=live, other=0.0) + g_y, mask=live)


def add(out: Tensor, table: Tensor, part: Contribution, tiles: Tiles = SHELF) -> None:
    """Add the gradient of every row to `out`."""
    shape = tiles.fit(part.kind, table.shape[1], 1 << 20)
    grid = (len(table), triton.cdiv(shape["SPAN"], shape["CHUNK"]))
    shelves = Shelves.of(part, len(table))
    launch(_add, grid, out, table, *shelves.arguments(part), **shape)
