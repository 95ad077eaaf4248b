"""Gaussian noise on the GPU: ChaCha20's words by Box and Muller (1958), rounded to a grid and added to sums.

The polynomials of `kernels.cpu.noise`, in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.cipher import FINER, GRID, RARE
from fedkge.kernels.gpu.cipher import BLOCKS, chacha20, check, programs
from fedkge.kernels.gpu.launch import launch

STEPS, FEW, MORE = tl.constexpr(float(GRID)), tl.constexpr(RARE), tl.constexpr(FINER)


@triton.jit
def _log(less, exponent):
    """log((1 + less) 2^exponent) for less in [-1/3, 1/3]."""
    s = less / (less + 2.0)
    z = s * s
    total = z * 0.1111111111111111 + 0.14285714285714285
    total = total * z + 0.2
    total = total * z + 0.3333333333333333
    total = total * z + 1.0
    return 2.0 * s * total + 0.6931471805599453 * exponent


@triton.jit
def _sine(turns):
    """sin(2 pi turns) for turns in [-1/4, 1/4]."""
    x = 6.283185307179586 * turns
    z = x * x
    total = z * -2.505210838544172e-08 + 2.7557319223985893e-06
    total = total * z - 0.0001984126984126984
    total = total * z + 0.008333333333333333
    total = total * z - 0.16666666666666666
    total = total * z + 1.0
    return x * total


@triton.jit
def _steps(size, turn, more, RARELY: tl.constexpr):
    """Two normal numbers of each lane in steps of the grid; RARELY: some words have 16 leading zeros."""
    u = size.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10  # 2^-32, 2^-33
    if RARELY:
        fine = size.to(tl.float32) * 2.3283064365386963e-10
        fine += more.to(tl.float32) * 5.421010862427522e-20 + 2.710505431213761e-20  # 2^-64, 2^-65
        u = tl.where(size < FEW, fine, u)
    bits = u.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F2AAAAB) >> 23
    mantissa = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    missing = (0xFFFFFFFF - size).to(tl.float32) * -2.3283064365386963e-10 - 1.1641532182693481e-10
    near = (exponent == 0) & (size > 0x80000000)
    square = -2.0 * _log(tl.where(near, missing, mantissa - 1.0), exponent.to(tl.float32))
    radius = tl.sqrt(tl.maximum(square, 0.0)) * STEPS
    turns = turn.to(tl.int32, bitcast=True).to(tl.float32) * 2.3283064365386963e-10
    across = tl.where(turns > 0.25, 0.5 - turns, tl.where(turns < -0.25, -0.5 - turns, turns))
    return _rounded(radius * _sine(0.25 - tl.abs(turns))), _rounded(radius * _sine(across))


@triton.jit
def _rounded(x):
    """The nearest whole number, of halves the even one; a large number is whole already."""
    down = tl.floor(x)
    over = x - down
    odd = down - 2.0 * tl.floor(down * 0.5)
    up = tl.where(over == 0.5, odd, tl.where(over > 0.5, 1.0, 0.0))
    return down + up


@triton.jit
def _over(x, step, inverse):
    """x / step: a division of float32 would be off by two units in the last place, this by one at most."""
    q = x * inverse
    return tl.fma(tl.fma(-q, step, x), inverse, q)


@triton.jit
def _add(sums, at, n, step, inverse, noise):
    mask = at < n
    own = _rounded(_over(tl.load(sums + at, mask=mask, other=0.0), step, inverse))
    tl.store(sums + at, (own + noise) * step, mask=mask)


@triton.jit
def _add_noise(sums, key, scale, n, BLOCK: tl.constexpr):
    size = tl.load(scale)
    if size > 0:
        step = (size / STEPS).to(sums.dtype.element_ty)
        inverse = (1.0 / step).to(sums.dtype.element_ty)
        block = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        zero = (block * 0).to(tl.uint32)
        words = chacha20(key, block.to(tl.uint32), zero, zero, zero)
        least = words[0]
        for j in tl.static_range(1, 8):
            least = tl.minimum(least, words[j])
        at = block // 16 * 256 + block % 16
        if tl.sum((least < FEW).to(tl.int32), 0) > 0:
            finer = chacha20(key, block.to(tl.uint32), zero, zero, zero + MORE)
            for j in tl.static_range(8):
                first, second = _steps(words[j], words[j + 8], finer[j], True)
                _add(sums, at + 16 * j, n, step, inverse, first)
                _add(sums, at + 16 * j + 128, n, step, inverse, second)
        else:
            for j in tl.static_range(8):
                first, second = _steps(words[j], words[j + 8], words[j], False)
                _add(sums, at + 16 * j, n, step, inverse, first)
                _add(sums, at + 16 * j + 128, n, step, inverse, second)


def add_noise_(sums: Tensor, key: Tensor, scale: Tensor) -> None:
    check(sums.numel())
    grid = (programs(sums.numel()),)
    launch(_add_noise, grid, sums, key.contiguous(), scale, sums.numel(), BLOCK=BLOCKS, num_warps=4)
