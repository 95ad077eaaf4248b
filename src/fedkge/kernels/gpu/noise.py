"""Gaussian noise on rows on the GPU: Philox's bits by Box and Muller (1958), in float32."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.gpu.launch import launch

LONGEST = 128  #: counters that one program draws at


@triton.jit
def _add_noise(out, stride, key, rows, scale, width, blocks, BLOCK: tl.constexpr):
    i = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * BLOCK
    block = (first + tl.arange(0, BLOCK)).to(tl.uint32)
    row, zero = tl.load(rows + i), block * 0
    low, high = zero + row.to(tl.uint32), zero + (row >> 32).to(tl.uint32)
    b0, b1, b2, b3 = tl.philox(tl.load(key), block, zero, low, high)
    size = tl.load(scale + i)
    z0, z1 = _normal(b0, b1)
    z2, z3 = _normal(b2, b3)
    j = first * 4 + tl.arange(0, 4 * BLOCK)
    normal = tl.interleave(tl.interleave(z0, z2), tl.interleave(z1, z3))
    at = out + i * stride + j
    tl.store(at, tl.load(at, mask=j < width, other=0.0) + size * normal, mask=j < width)


@triton.jit
def _normal(size, turn):
    """Two standard normal numbers from twice 32 bits (Box and Muller, 1958)."""
    u = size.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10  # 2^-32, 2^-33
    radius = tl.sqrt(tl.maximum(-2.0 * tl.log(u), 0.0))
    angle = turn.to(tl.int32).to(tl.float32) * 1.4629180792671596e-09  # 2 pi 2^-32
    return radius * tl.cos(angle), radius * tl.sin(angle)


def add_noise_(out: Tensor, key: Tensor, rows: Tensor, scale: Tensor) -> None:
    counters = triton.cdiv(out.shape[1], 4)
    block = min(triton.next_power_of_2(max(counters, 1)), LONGEST)
    blocks = triton.cdiv(counters, block)
    inputs = (key.contiguous(), rows.contiguous(), scale.contiguous())
    grid = (len(out) * blocks,)
    launch(_add_noise, grid, out, out.stride(0), *inputs, out.shape[1], blocks, BLOCK=block, num_warps=2)
