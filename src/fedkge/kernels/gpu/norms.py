"""Norms of single triples' gradients on the GPU, one program each, and how much of each is added.

A row's part of a triple's gradient is the sum of its `d_scores` times one direction, whose length is
known. The sum over rows of squared sums is the sum of d_i d_j over all pairs of candidates that are one row:
every two blocks of candidates are compared once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels import rounding
from fedkge.kernels.base import Contribution
from fedkge.kernels.gpu.launch import Tiles, launch
from fedkge.kernels.gpu.similarity import DOT, L1, L2, MODULUS

WIDTHS = Tiles(512)
PAIRED = 64  #: candidates that are compared with as many others at once
CUT = 1024  #: triples that are cut at once


@triton.jit
def _candidates(index, scores, d_scores, first, j, n, KIND: tl.constexpr):
    """The rows and slopes of some candidates; at zero distance there is no direction, and the slope is 0."""
    row = tl.load(index + first + j, mask=j < n, other=-1).to(tl.int32)  # still tells rows below 2^32 apart
    slope = tl.load(d_scores + first + j, mask=j < n, other=0.0)
    if KIND != DOT:
        slope = tl.where(tl.load(scores + first + j, mask=j < n, other=0.0) == 0, 0.0, slope)
    return row, slope


@triton.jit
def _wide(pointer, mask):
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float64)


@triton.jit
def _along(query, table, values, d, mask, KIND: tl.constexpr, SPAN: tl.constexpr):
    """Terms of d similarity(query, row) / d row times values, and of the squared distance.

    L2 divides the sum of the ones by the root of the sum of the others.
    """
    q, e, v = _wide(query + d, mask), _wide(table + d, mask), _wide(values + d, mask)
    gap = q - e
    square = gap * gap
    if KIND == DOT:
        term = q * v
    elif KIND == L1:
        term = tl.where(gap > 0, v, tl.where(gap < 0, -v, 0.0))
    elif KIND == L2:
        term = gap * v
    else:
        y = _wide(query + SPAN + d, mask) - _wide(table + SPAN + d, mask)
        square += y * y
        term = gap * v + y * _wide(values + SPAN + d, mask)
        term = tl.where(square > 0, term / tl.sqrt(tl.where(square > 0, square, 1.0)), 0.0)
    return term, square


@triton.jit
def _squares(
    out,  # [b], written
    query,  # [b, WIDTH]
    table,
    index,  # [b, n]
    scores,  # [b, n]
    d_scores,  # [b, n]
    ids,  # [b] if ANCHORED
    values,  # [b, WIDTH] if ANCHORED
    n,
    error: tl.float64,
    ANCHORED: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    anchor = i * 0
    if ANCHORED:
        anchor = tl.load(ids + i)
    merged = tl.zeros((BLOCK,), tl.float64)
    both = tl.zeros((BLOCK,), tl.float64)  # of the candidates that are the anchor
    sizes = tl.zeros((BLOCK,), table.dtype.element_ty)
    for start in range(0, n, BLOCK):
        row, slope = _candidates(index, scores, d_scores, i * n, start + lane, n, KIND)
        same = tl.zeros((BLOCK, BLOCK), tl.float64)  # terms cancel: a float32's error would not be small
        for other in range(start, n, BLOCK):
            twin, pull = _candidates(index, scores, d_scores, i * n, other + lane, n, KIND)
            pull = tl.where(other > start, 2 * pull, pull).to(tl.float64)  # blocks meet once for both orders
            same += tl.where(row[:, None] == twin[None, :], pull[None, :], 0.0)
        merged += slope.to(tl.float64) * tl.sum(same, 1)
        sizes += tl.abs(slope)
        both += tl.where(row == anchor.to(tl.int32), slope, 0.0).to(tl.float64)
    crossed = 2 * tl.sum(both, 0)
    reach = tl.where(crossed == 0, 0, SPAN)  # an anchor that is no candidate need not be read
    length = tl.zeros((CHUNK,), tl.float64)
    own = tl.zeros((CHUNK,), tl.float64)
    along = tl.zeros((CHUNK,), tl.float64)
    gaps = tl.zeros((CHUNK,), tl.float64)
    for start in tl.static_range(0, SPAN, CHUNK):
        d = start + tl.arange(0, CHUNK)
        live = d < SPAN
        if KIND == DOT:
            q = _wide(query + i * WIDTH + d, live)
            length += q * q
        if ANCHORED:
            v = _wide(values + i * WIDTH + d, live)
            own += v * v
            if KIND == MODULUS:
                v = _wide(values + i * WIDTH + SPAN + d, live)
                own += v * v
            term, gap = _along(
                query + i * WIDTH, table + anchor * WIDTH, values + i * WIDTH, d, d < reach, KIND, SPAN
            )
            along += term
            gaps += gap
    size = tl.sum(length, 0)
    if KIND == L1:
        size += WIDTH
    elif KIND == L2:
        size += 1
    elif KIND == MODULUS:
        size += SPAN
    anchors = tl.sum(own, 0)
    total = size * tl.sum(merged, 0) + anchors
    terms = tl.sqrt(size) * tl.sum(sizes, 0).to(tl.float64) + tl.sqrt(anchors)
    if ANCHORED:
        towards = tl.sum(along, 0)
        if KIND == L2:
            gap = tl.sum(gaps, 0)
            towards = tl.where(gap > 0, towards / tl.sqrt(tl.where(gap > 0, gap, 1.0)), 0.0)
        total += crossed * towards
    longest = tl.sqrt(tl.where(total < 0, 0.0, total)) + error * terms
    tl.store(out + i, (longest * longest).to(out.dtype.element_ty))


def squares(table: Tensor, part: Contribution, paired: int = PAIRED) -> Tensor:
    b, n = part.index.shape
    out = table.new_empty(b)
    shape = WIDTHS.fit(part.kind, table.shape[1], 1)
    block = min(triton.next_power_of_2(max(n, 1)), paired)
    shape |= {"BLOCK": block, "num_warps": max(1, block * block // 1024)}
    factors = (part.query, table, part.index, part.scores, part.d_scores, part.ids, part.values)
    arrays = (tensor.detach().contiguous() for tensor in factors)
    error = rounding.relative(table, n)
    launch(_squares, (b,), out, *arrays, n, error, ANCHORED=len(part.ids) > 0, **shape)
    return out


@triton.jit
def _shares(
    factors,  # [b], written
    loss,  # [1], written
    squares,  # [tables, b]
    losses,  # [b]
    clip,  # [1]
    there,  # [1]
    expected: tl.float64,
    tables,
    b,
    TINY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    dtype: tl.constexpr = squares.dtype.element_ty
    count, most = tl.load(there), tl.load(clip)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, b, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < b
        square = tl.zeros((BLOCK,), dtype)
        for table in range(tables):
            square += tl.load(squares + table * b + i, mask=mask, other=0.0)
        norm = tl.sqrt(square)
        share = most / tl.where(norm < TINY, TINY, norm)
        share = tl.where(share > 1, 1.0, share) / tl.cast(expected, dtype)
        share = tl.where(square < float("inf"), share, 0.0)  # also of NaN
        tl.store(factors + i, tl.where(i < count, share, 0.0), mask=mask)
        lost = tl.load(losses + i, mask=mask, other=0.0)
        total += tl.where((i < count) & (tl.abs(lost) < float("inf")), lost, 0.0).to(tl.float64)
    tl.store(loss, tl.sum(total, 0) / tl.maximum(count, 1).to(tl.float64))


def clip_factors(
    squares: Tensor, losses: Tensor, clip: Tensor, there: Tensor, expected: float
) -> tuple[Tensor, Tensor]:
    tables, b = squares.shape
    factors, loss = squares.new_empty(b), squares.new_empty(1, dtype=torch.float64)
    inputs = (squares.contiguous(), losses.contiguous(), clip, there)
    tiny = torch.finfo(squares.dtype).tiny
    launch(_shares, (1,), factors, loss, *inputs, expected, tables, b, TINY=tiny, BLOCK=CUT, num_warps=8)
    return factors, loss
