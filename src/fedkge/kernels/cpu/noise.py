"""Gaussian noise on rows on the CPU: Philox's bits by Box and Muller (1958).

Polynomials stand for `log`, `cos` and `sin`, because they are vectorised. In float32, also for tables of
float64.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import inline, parallel, serial
from fedkge.kernels.cpu.sampling import philox

LANES = 256  #: counters that are drawn at in one go


@inline()
def _log(mantissa, exponent):
    """log(mantissa 2^exponent) for a mantissa in [2/3, 4/3], to the last bits of float32."""
    one = np.float32(1)
    s = (mantissa - one) / (mantissa + one)
    z = s * s
    total = np.float32(1 / 9)
    for k in (7, 5, 3, 1):
        total = total * z + np.float32(1 / k)
    return np.float32(2) * s * total + np.float32(0.6931471805599453) * exponent


@inline()
def _sine(turns):
    """sin(2 pi turns) for turns in [-1/4, 1/4], to the last bits of float32."""
    x = np.float32(6.283185307179586) * turns
    z = x * x
    total = np.float32(-1 / 39916800)
    for c in (1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0):
        total = total * z + np.float32(c)
    return x * total


@serial()
def _normal(key, block, low, high, bits, sizes, places, out):
    """`out` [4, lanes] = standard normal numbers at the counters (block, 0, low, high) [lanes]."""
    lanes = block.shape[0]
    for k in range(lanes):
        bits[0, k], bits[1, k], bits[2, k], bits[3, k] = philox(key, block[k], np.uint64(0), low[k], high[k])
    for pair in range(2):
        for k in range(lanes):
            sizes[k] = np.float32(bits[2 * pair, k]) * np.float32(2.0**-32) + np.float32(2.0**-33)
        for k in range(lanes):
            exponent = (places[k] - 0x3F2AAAAB) >> 23
            places[k] -= exponent << 23  # of `sizes` the same memory: leaves the mantissa there
            out[2 * pair, k] = exponent
        for k in range(lanes):
            square = np.float32(-2) * _log(sizes[k], out[2 * pair, k])
            radius = np.sqrt(max(square, np.float32(0)))
            turns = np.float32(np.int32(bits[2 * pair + 1, k])) * np.float32(2.0**-32)
            quarter, half = np.float32(0.25), np.float32(0.5)
            across = half - turns if turns > quarter else (-half - turns if turns < -quarter else turns)
            out[2 * pair, k] = radius * _sine(quarter - abs(turns))
            out[2 * pair + 1, k] = radius * _sine(across)


@parallel()
def add_noise(out, key, rows, scale):  # [n, w], 1, [n], [n]
    n, width = out.shape
    blocks = (width + 3) // 4
    some = max(1, LANES // max(1, blocks))  # rows that are drawn in one go
    chunks = (n + some - 1) // some
    for chunk in numba.prange(chunks):
        first, last = chunk * some, min(n, (chunk + 1) * some)
        lanes = (last - first) * blocks
        block, low, high = np.empty(lanes, np.uint64), np.empty(lanes, np.uint64), np.empty(lanes, np.uint64)
        bits, normal = np.empty((4, lanes), np.uint64), np.empty((4, lanes), np.float32)
        sizes = np.empty(lanes, np.float32)
        for i in range(first, last):
            for k in range(blocks):
                lane = (i - first) * blocks + k
                block[lane], low[lane], high[lane] = k, rows[i] & 0xFFFFFFFF, rows[i] >> 32
        _normal(key, block, low, high, bits, sizes, sizes.view(np.int32), normal)
        for i in range(first, last):
            lane = (i - first) * blocks
            for j in range(width):
                out[i, j] += scale[i] * normal[j & 3, lane + (j >> 2)]
