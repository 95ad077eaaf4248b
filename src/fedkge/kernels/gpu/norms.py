"""Bounds of the norms of what units add to a table, on the GPU, and how much of each unit is added.

One program has a unit. The sum over rows of squared sums is the sum of l_i l_j over all pairs of terms that
meet in a row: every two blocks of terms are compared once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.gpu.launch import launch

PAIRED = 64  #: terms that are compared with as many others at once
CUT = 1024  #: units that are cut at once


@triton.jit
def _terms(rows, lengths, order, first, t, count, k):
    """The rows and lengths of some terms of a unit."""
    live = t < count
    at = tl.load(order + first + t // k, mask=live, other=0) * k + t % k
    row = tl.load(rows + at, mask=live, other=-1).to(tl.int32)  # still tells rows below 2^32 apart
    return row, tl.load(lengths + at, mask=live, other=0.0)


@triton.jit
def _squares(out, rows, lengths, order, starts, k, BLOCK: tl.constexpr):
    u = tl.program_id(0).to(tl.int64)
    first = tl.load(starts + u)
    count = (tl.load(starts + u + 1) - first) * k
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float64)
    start = count * 0
    while start < count:
        row, length = _terms(rows, lengths, order, first, start + lane, count, k)
        same = tl.zeros((BLOCK, BLOCK), lengths.dtype.element_ty)
        other = start
        while other < count:
            twin, more = _terms(rows, lengths, order, first, other + lane, count, k)
            more = tl.where(other > start, 2 * more, more)  # blocks meet once for both orders
            same += tl.where(row[:, None] == twin[None, :], more[None, :], 0.0)
            other += BLOCK
        start += BLOCK
        total += length.to(tl.float64) * tl.sum(same, 1).to(tl.float64)
    tl.store(out + u, tl.sum(total, 0).to(out.dtype.element_ty))


def squares(rows: Tensor, lengths: Tensor, order: Tensor, starts: Tensor, paired: int = PAIRED) -> Tensor:
    units, k = len(starts) - 1, rows.shape[1]
    out = lengths.new_empty(units)
    block = min(triton.next_power_of_2(max(k, 1)), paired)
    arrays = (tensor.contiguous() for tensor in (rows, lengths, order, starts))
    launch(_squares, (units,), out, *arrays, k, BLOCK=block, num_warps=max(1, block * block // 1024))
    return out


@triton.jit
def _shares(
    factors,  # [units], written
    loss,  # [1], written
    squares,  # [tables, units]
    losses,  # [b]
    clip,  # [1]
    there,  # [2]: triples, units
    expected: tl.float64,
    tables,
    units,
    b,
    TINY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    dtype: tl.constexpr = squares.dtype.element_ty
    triples, some, most = tl.load(there), tl.load(there + 1), tl.load(clip)
    for start in range(0, units, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < units
        square = tl.zeros((BLOCK,), dtype)
        for table in range(tables):
            square += tl.load(squares + table * units + i, mask=mask, other=0.0)
        norm = tl.sqrt(square)
        share = most / tl.where(norm < TINY, TINY, norm)
        share = tl.where(share > 1, 1.0, share) / tl.cast(expected, dtype)
        share = tl.where(square < float("inf"), share, 0.0)  # also of NaN
        tl.store(factors + i, tl.where(i < some, share, 0.0), mask=mask)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, b, BLOCK):
        i = start + tl.arange(0, BLOCK)
        lost = tl.load(losses + i, mask=i < b, other=0.0)
        total += tl.where((i < triples) & (tl.abs(lost) < float("inf")), lost, 0.0).to(tl.float64)
    tl.store(loss, tl.sum(total, 0) / tl.maximum(triples, 1).to(tl.float64))


def clip_factors(
    squares: Tensor, losses: Tensor, clip: Tensor, there: Tensor, expected: float
) -> tuple[Tensor, Tensor]:
    tables, units = squares.shape
    factors, loss = squares.new_empty(units), squares.new_empty(1, dtype=torch.float64)
    inputs = (squares.contiguous(), losses.contiguous(), clip, there.contiguous(), expected)
    sizes, tiny = (tables, units, len(losses)), torch.finfo(squares.dtype).tiny
    launch(_shares, (1,), factors, loss, *inputs, *sizes, TINY=tiny, BLOCK=CUT, num_warps=8)
    return factors, loss
