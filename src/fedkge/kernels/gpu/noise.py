"""Gaussian noise on rows on the GPU: Philox's bits by Box and Muller (1958), in float32.

It is added to rows as they are, or to rows that are owed it; `stepping` draws it where Adam steps a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Debt
from fedkge.kernels.gpu.launch import launch

LONGEST = 128  #: counters that one program draws at


@triton.jit
def _pair(size, turn):
    """Two standard normal numbers from twice 32 bits (Box and Muller, 1958)."""
    u = size.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10  # 2^-32, 2^-33
    radius = tl.sqrt(tl.maximum(-2.0 * tl.log(u), 0.0))
    angle = turn.to(tl.int32).to(tl.float32) * 1.4629180792671596e-09  # 2 pi 2^-32
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def _drawn(key, row, block):
    """The four numbers of each row [ROWS, 1] at each counter [1, BLOCK], as four of that shape."""
    block = (block + row * 0).to(tl.uint32)
    zero = block * 0
    b0, b1, b2, b3 = tl.philox(key, block, zero, zero + row.to(tl.uint32), zero + (row >> 32).to(tl.uint32))
    z0, z1 = _pair(b0, b1)
    z2, z3 = _pair(b2, b3)
    return z0, z1, z2, z3


@triton.jit
def _normals(key, row, block):
    """The numbers of each row [ROWS, 1] at the counters [1, BLOCK], in order: [ROWS, 4 BLOCK]."""
    z0, z1, z2, z3 = _drawn(key, row, block)
    return tl.interleave(tl.interleave(z0, z2), tl.interleave(z1, z3))


@triton.jit
def normals_from(key, row, FIRST: tl.constexpr, start, CHUNK: tl.constexpr):
    """The numbers [1, CHUNK] of a row from column FIRST + start on; `start` is a multiple of CHUNK."""
    if FIRST % 4 == 0 and CHUNK >= 4:
        block = (FIRST + start) // 4 + tl.arange(0, CHUNK // 4)[None, :]
        return _normals(key, row, block)
    else:  # columns within a counter: each draws all four and keeps its own
        j = FIRST + start + tl.arange(0, CHUNK)[None, :]
        z0, z1, z2, z3 = _drawn(key, row, j >> 2)
        return tl.where(j & 2 == 0, tl.where(j & 1 == 0, z0, z1), tl.where(j & 1 == 0, z2, z3))


@triton.jit
def _add_noise(
    out,  # [n, width], added to
    stride,
    key,
    rows,  # [n]
    scale,  # [n], or one number for all: step 0
    step,
    n,
    width,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * BLOCK
    row = tl.load(rows + i, mask=i < n, other=0)[:, None]
    normal = _normals(tl.load(key), row, first + tl.arange(0, BLOCK)[None, :])
    size = tl.load(scale + i * step, mask=i < n, other=0.0)[:, None]
    j = first * 4 + tl.arange(0, 4 * BLOCK)[None, :]
    mask = (i < n)[:, None] & (j < width)
    at = out + i[:, None] * stride + j
    tl.store(at, tl.load(at, mask=mask, other=0.0) + size * normal, mask=mask)


def add_noise_(out: Tensor, key: Tensor, rows: Tensor, scale: Tensor) -> None:
    n, width = out.shape
    block, blocks = _counters(width)
    some = max(1, LONGEST // block)
    inputs = (key.contiguous(), rows.contiguous(), scale, scale.stride(0))
    grid = (triton.cdiv(n, some), blocks)
    launch(_add_noise, grid, out, out.stride(0), *inputs, n, width, ROWS=some, BLOCK=block, num_warps=2)


def _counters(width: int) -> tuple[int, int]:
    """How many counters a program takes of a row of `width` numbers, and how many programs a row has."""
    counters = triton.cdiv(width, 4)
    block = min(triton.next_power_of_2(max(counters, 1)), LONGEST)
    return block, triton.cdiv(counters, block)


@triton.jit
def _settle(
    table,  # [height, width], added to
    given,  # [height]
    rows,
    taken,
    key,
    scale,
    moves,  # [width]
    rate: tl.float64,
    width,
    BLOCK: tl.constexpr,
):
    """Of the programs that have the same row, one finds that something is owed."""
    row = tl.load(rows + tl.program_id(0))
    steps = tl.load(taken)
    owed = steps - tl.atomic_xchg(given + row, steps, sem="relaxed")
    if owed > 0:
        size = tl.sqrt(owed.to(tl.float64)) * tl.load(scale).to(tl.float64) * -rate
        size = size.to(table.dtype.element_ty)
        for start in range(0, width, 4 * BLOCK):
            block = start // 4 + tl.arange(0, BLOCK)[None, :]
            normal = _normals(tl.load(key), row + tl.zeros((1, 1), tl.int64), block)
            j = start + tl.arange(0, 4 * BLOCK)[None, :]
            mask = (j < width) & (tl.load(moves + j, mask=j < width, other=0) != 0)
            at = table + row * width + j
            tl.store(at, tl.load(at, mask=mask, other=0.0) + size * normal, mask=mask)


def settle_(table: Tensor, debt: Debt, rows: Tensor | None = None) -> None:
    if rows is None:
        rows = torch.arange(len(table), device=table.device)
    block, _ = _counters(table.shape[1])
    owed = (debt.given, rows.contiguous(), debt.taken, debt.key, debt.scale, debt.moves.view(torch.uint8))
    grid = (len(rows),)
    launch(_settle, grid, table, *owed, debt.rate, table.shape[1], BLOCK=block, num_warps=1)
