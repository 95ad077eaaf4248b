"""Bounds of the norms of what units add to a table, on the GPU, and how much of each unit is added.

The sum over rows of squared sums is the sum of l_i l_j over all pairs of terms that meet in a row. A program
holds some terms of a unit and goes through those that follow: every two are compared once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.gpu.launch import LONGEST, launch

HELD = 128  #: terms that a program holds at once
SHARED = 32  #: programs that a unit of many terms is shared by
AT_ONCE = tl.constexpr(4)  #: terms that are read together
CUT = 1024  #: units that are cut at once


@triton.jit
def _met(row, rows, lengths, begin, end, BLOCK: tl.constexpr):
    """For each of the held rows the lengths, added up, of the terms from `begin` to `end` that meet it."""
    same = tl.zeros((BLOCK,), lengths.dtype.element_ty)
    whole = begin + (end - begin) // AT_ONCE * AT_ONCE
    for start in range(begin, whole, AT_ONCE):
        for i in tl.static_range(AT_ONCE):
            twin = tl.load(rows + start + i).to(tl.int32)
            same += tl.where(row == twin, tl.load(lengths + start + i), 0.0)
    for j in range(whole, end):
        same += tl.where(row == tl.load(rows + j).to(tl.int32), tl.load(lengths + j), 0.0)
    return same


@triton.jit
def _squares(out, rows, lengths, starts, k, BLOCK: tl.constexpr):
    u = tl.program_id(0).to(tl.int64)
    first = tl.load(starts + u) * k
    count = (tl.load(starts + u + 1) * k - first).to(tl.int32)
    rows += first
    lengths += first
    total = tl.zeros((BLOCK,), tl.float64)
    begin = tl.program_id(1) * BLOCK
    while begin < count:
        t = begin + tl.arange(0, BLOCK)
        row = tl.load(rows + t, mask=t < count, other=-1).to(tl.int32)  # still tells rows below 2^32 apart
        length = tl.load(lengths + t, mask=t < count, other=0.0)
        held = tl.minimum(begin + BLOCK, count)
        same = _met(row, rows, lengths, begin, held, BLOCK)
        same += 2 * _met(row, rows, lengths, held, count, BLOCK)  # in both orders
        total += length.to(tl.float64) * same.to(tl.float64)
        begin += tl.num_programs(1) * BLOCK
    place = u * tl.num_programs(1) + tl.program_id(1)
    tl.store(out + place, tl.sum(total, 0).to(out.dtype.element_ty))


def squares(rows: Tensor, lengths: Tensor, order: Tensor, starts: Tensor, held: int = HELD) -> Tensor:
    units, k = len(starts) - 1, rows.shape[1]
    single = order.data_ptr() == starts.data_ptr()  # they are the same where each triple is a unit
    if not single:
        rows, lengths = rows[order], lengths[order]
    shared = max(1, min(triton.cdiv(k, held), SHARED)) if single or k <= held // 8 else SHARED
    out = lengths.new_empty(units, shared)
    terms = (tensor.contiguous() for tensor in (rows, lengths, starts))
    launch(_squares, (units, shared), out, *terms, k, BLOCK=held, num_warps=1)
    return out.sum(1) if shared > 1 else out[:, 0]


@triton.jit
def _merged(out, ids, vectors, order, starts, unit, m, width, error: tl.float64, CHUNK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    u = tl.load(unit + i // m)
    begin, end = tl.load(starts + u).to(tl.int32), tl.load(starts + u + 1).to(tl.int32)
    row = tl.load(ids + i)
    own, total = tl.zeros((CHUNK,), tl.float64), tl.zeros((CHUNK,), tl.float64)
    before = end * 0
    for start in range(0, width, CHUNK):
        d = start + tl.arange(0, CHUNK)
        x = tl.load(vectors + i * width + d, mask=d < width, other=0.0)
        own += x.to(tl.float64) * x.to(tl.float64)
        for t in range(begin, end):
            triple = tl.load(order + t)
            for a in range(m):
                j = triple * m + a
                meets = (tl.load(ids + j) == row) & (j != i)
                before += (meets & (j < i)).to(tl.int32)
                x += tl.load(vectors + j * width + d, mask=meets & (d < width), other=0.0)
        total += x.to(tl.float64) * x.to(tl.float64)
    length = tl.where(before == 0, tl.sqrt(tl.sum(total, 0)), 0.0)
    tl.store(out + i, (length + error * tl.sqrt(tl.sum(own, 0))).to(out.dtype.element_ty))


def merged(ids: Tensor, vectors: Tensor, order: Tensor, starts: Tensor, unit: Tensor, error: float) -> Tensor:
    """Of a unit's vectors for one row [b, m, w] the length of their sum, at the first [b, m].

    Each has besides `error` times its own length, for rounding.
    """
    m, width = vectors.shape[1:]
    out = vectors.new_empty(ids.shape)
    arrays = (tensor.contiguous() for tensor in (ids, vectors, order, starts, unit))
    chunk = min(triton.next_power_of_2(max(width, 1)), LONGEST)
    launch(_merged, (ids.numel(),), out, *arrays, m, width, error, CHUNK=chunk, num_warps=2)
    return out


@triton.jit
def _lengths(out, rows, width, CHUNK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    total = tl.zeros((CHUNK,), tl.float64)
    for start in range(0, width, CHUNK):
        d = start + tl.arange(0, CHUNK)
        x = tl.load(rows + i * width + d, mask=d < width, other=0.0).to(tl.float64)
        total += x * x
    tl.store(out + i, tl.sqrt(tl.sum(total, 0)).to(out.dtype.element_ty))


def lengths(rows: Tensor) -> Tensor:
    """The norms [...] of rows [..., w], their squares added up in float64."""
    out = rows.new_empty(rows.shape[:-1])
    chunk = min(triton.next_power_of_2(max(rows.shape[-1], 1)), LONGEST)
    launch(_lengths, (out.numel(),), out, rows.contiguous(), rows.shape[-1], CHUNK=chunk, num_warps=1)
    return out


@triton.jit
def _scaled(out, rows, factors, n, width, each, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    factor = tl.load(factors + at // width // each, mask=mask, other=0.0)
    x = tl.load(rows + at, mask=mask & (factor != 0), other=0.0)  # what is left out may be NaN
    if TIMES:
        x = x * factor
    tl.store(out + at, x, mask=mask)


def scaled(rows: Tensor, factors: Tensor, times: bool = True) -> Tensor:
    """Rows [b * each, w] times the factor [b] of their triple; 0 where that is 0, whatever they are."""
    out, n, block = rows.new_empty(rows.shape), rows.numel(), 1024
    sizes = (n, rows.shape[1], len(rows) // max(len(factors), 1))
    arguments = (rows.contiguous(), factors.contiguous(), *sizes)
    launch(_scaled, (triton.cdiv(n, block),), out, *arguments, TIMES=times, BLOCK=block, num_warps=4)
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
