"""The table's gradient without atomics: positions sorted by row, one program for each stretch of them.

A program owns the groups that begin in its SLICE of the sorted positions and sums each in a fixed order, so
that results repeat bit by bit. A group of any length is summed by one program.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Contribution
from fedkge.kernels.gpu.launch import Tiles, launch
from fedkge.kernels.gpu.similarity import MODULUS, pull, pull_complex, weights

GROUPS = Tiles(2048, rows=16)
SLICE = 16


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the rows lie that gradients come from, each kind by itself: nothing is copied together."""

    query: Tensor  # [b, w]
    ahead: Tensor  # [k, w], the first values
    values: Tensor  # [m, w], the others

    @classmethod
    def of(cls, part: Contribution) -> Sources:
        ahead = part.values[:0] if part.ahead is None else part.ahead
        return cls(*(x.contiguous() for x in (part.query, ahead, part.values)))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three; one that is empty lies where another does, as no kernel takes nothing."""
        some = next((x for x in (self.values, self.ahead, self.query) if x.numel()), self.values)
        query, ahead, values = (x if x.numel() else some for x in (self.query, self.ahead, self.values))
        return query, ahead, values


@dataclass(frozen=True, slots=True)
class Groups:
    """A contribution with its positions in the order of their rows: first those of `index`, then of `ids`."""

    rows: Tensor  # int [p], ascending; as narrow as the table allows, to sort fast
    order: Tensor  # int64 [p], the positions
    sources: Sources
    scores: Tensor  # [b, n]
    d_scores: Tensor  # [b, n]

    @classmethod
    def of(cls, part: Contribution, height: int) -> Groups:
        """Group `part` by the rows of a table of `height` rows."""
        places = torch.cat((part.index.flatten(), part.ids))
        if len(places) >= 1 << 31:
            raise ValueError(
                f"{len(places)} positions in a batch, expected fewer than 2^31: use smaller batches"
            )
        narrow = next(t for t in (torch.int16, torch.int32, torch.int64) if height - 1 <= torch.iinfo(t).max)
        rows, order = torch.sort(places.to(narrow), stable=True)
        return cls(rows, order, Sources.of(part), part.scores.contiguous(), part.d_scores.contiguous())

    def arguments(self, part: Contribution) -> tuple[Tensor | int, ...]:
        tensors = (self.rows, self.order, *self.sources.tensors(), self.scores, self.d_scores)
        return (
            *tensors,
            len(self.rows),
            part.index.numel(),
            len(self.sources.ahead),
            max(part.index.shape[1], 1),
        )


@triton.jit
def first_head(rows, total, SLICE: tl.constexpr):
    """The first position of this program's slice that begins a group, or `total`; and the slice's end."""
    start = tl.program_id(0).to(tl.int64) * SLICE
    k = start + tl.arange(0, SLICE)
    row = tl.load(rows + k, mask=k < total, other=-1)
    before = tl.load(rows + k - 1, mask=(k > 0) & (k < total), other=-1)
    head = tl.min(tl.where((row != before) & (k < total), k, total), 0)
    return head.to(tl.int64), tl.minimum(start + SLICE, total)


@triton.jit
def terms(
    k,  # [BLOCK] places in `order`
    mine,  # [BLOCK] which of them count
    x,  # the row's coordinates [1, CHUNK]: real parts
    y,  # and imaginary parts
    d,
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
):
    """What each position adds to the gradient of its row, as real and imaginary part [BLOCK, CHUNK]."""
    position = tl.load(order + k, mask=mine, other=0).to(tl.int32)
    candidate = position < pairs
    extra = position - pairs
    at = (position // n).to(tl.int64)[:, None] * WIDTH + d
    before = extra.to(tl.int64)[:, None] * WIDTH + d
    live = d < SPAN
    is_pair = (mine & candidate)[:, None] & live
    is_ahead = (mine & (extra >= 0) & (extra < front))[:, None] & live
    is_value = (mine & (extra >= front))[:, None] & live
    later = before - front * WIDTH
    g = weights(d_scores, scores, position, mine & candidate, KIND)[:, None]
    s_x = tl.load(query + at, mask=is_pair, other=0.0)
    s_x += tl.load(ahead + before, mask=is_ahead, other=0.0)
    s_x += tl.load(values + later, mask=is_value, other=0.0)
    if KIND == MODULUS:
        s_y = tl.load(query + at + SPAN, mask=is_pair, other=0.0)
        s_y += tl.load(ahead + before + SPAN, mask=is_ahead, other=0.0)
        s_y += tl.load(values + later + SPAN, mask=is_value, other=0.0)
        step_x, step_y = pull_complex(x, y, s_x, s_y, g)
        step_y = tl.where(candidate[:, None], step_y, s_y)
    else:
        step_x = pull(x, s_x, g, KIND)
        step_y = step_x
    return tl.where(candidate[:, None], step_x, s_x), step_y


@triton.jit
def group_gradient(
    head,  # where the group begins
    row,  # the row it names
    x,
    y,
    d,
    rows,
    order,
    query,
    ahead,
    values,
    scores,
    d_scores,
    total,
    pairs,
    front,  # rows that are `ahead`
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The gradient of one row, as real and imaginary part [1, CHUNK], and where its group ends."""
    g_x = tl.zeros((BLOCK, CHUNK), values.dtype.element_ty)
    g_y = tl.zeros((BLOCK, CHUNK), values.dtype.element_ty)
    end = head
    found = head * 0 + BLOCK
    while found == BLOCK:
        k = end + tl.arange(0, BLOCK)
        mine = tl.load(rows + k, mask=k < total, other=-1).to(tl.int64) == row
        step_x, step_y = terms(
            k,
            mine,
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
        found = tl.sum(mine.to(tl.int64), 0)
        end += found
    return tl.sum(g_x, 0)[None, :], tl.sum(g_y, 0)[None, :], end


@triton.jit
def _add(
    out,  # [.., WIDTH], added to
    target,  # [total], the row of `out` that each sorted position adds to
    table,
    rows,
    order,
    query,
    ahead,
    values,
    scores,
    d_scores,
    total,
    pairs,
    front,  # rows that are `ahead`
    n,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    SLICE: tl.constexpr,
):
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)[None, :]
    live = d < SPAN
    head, stop = first_head(rows, total, SLICE)
    while head < stop:
        row = tl.load(rows + head).to(tl.int64)
        place = out + tl.load(target + head).to(tl.int64) * WIDTH + d
        x = tl.load(table + row * WIDTH + d, mask=live, other=0.0)
        y = x
        if KIND == MODULUS:
            y = tl.load(table + row * WIDTH + SPAN + d, mask=live, other=0.0)
        g_x, g_y, end = group_gradient(
            head, row, x, y, d, rows, order, query, ahead, values, scores, d_scores, total, pairs, front, n,
            KIND, WIDTH, SPAN, BLOCK, CHUNK,
        )  # fmt: skip
        tl.store(place, tl.load(place, mask=live, other=0.0) + g_x, mask=live)
        if KIND == MODULUS:
            tl.store(place + SPAN, tl.load(place + SPAN, mask=live, other=0.0) + g_y, mask=live)
        head = end


def add(
    out: Tensor,
    table: Tensor,
    part: Contribution,
    groups: Groups,
    target: Tensor,
    tiles: Tiles = GROUPS,
    slice_: int = SLICE,
) -> None:
    """Add the gradient of each row to row target[k] of `out`, k any of its positions in groups.rows."""
    shape = tiles.fit(part.kind, table.shape[1], len(groups.rows))
    grid = (triton.cdiv(len(groups.rows), slice_), triton.cdiv(shape["SPAN"], shape["CHUNK"]))
    launch(_add, grid, out, target, table, *groups.arguments(part), SLICE=slice_, **shape)
