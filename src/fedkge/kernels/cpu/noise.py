"""Gaussian noise on the CPU: ChaCha20's words by Box and Muller (1958), rounded to a grid and added to sums.

Polynomials stand for `log`, `cos` and `sin`, because they are vectorised. In float32, also for tables of
float64.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cipher import FINER, GRID, GROUP, MAIN, RARE
from fedkge.kernels.cpu.cipher import blocks
from fedkge.kernels.cpu.compile import elementwise, inline, written

f32 = np.float32
HALF = GROUP // 2
STEPS = f32(GRID)


@inline()
def _log(less, exponent):
    """log((1 + less) 2^exponent) for less in [-1/3, 1/3], to the last bits of float32."""
    s = less / (less + f32(2))
    z = s * s
    total = f32(1 / 9)
    for k in (7, 5, 3, 1):
        total = total * z + f32(1 / k)
    return f32(2) * s * total + f32(0.6931471805599453) * exponent


@inline()
def _sine(turns):
    """sin(2 pi turns) for turns in [-1/4, 1/4], to the last bits of float32."""
    x = f32(6.283185307179586) * turns
    z = x * x
    total = f32(-1 / 39916800)
    for c in (1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0):
        total = total * z + f32(c)
    return x * total


@inline()
def _directions(word):
    """The cosine and the sine of a word's angle."""
    turns = f32(np.int32(word)) * f32(2.0**-32)
    quarter, half = f32(0.25), f32(0.5)
    across = half - turns if turns > quarter else (-half - turns if turns < -quarter else turns)
    return _sine(quarter - abs(turns)), _sine(across)


@written()
def _steps(radii, turns, sizes, places, exponents, out):
    """`out` [256] = normal numbers in steps of the grid, from words for 128 radii and for 128 angles.

    `places` is the memory of `sizes`. One loop for each kind of work, so that all of them are vectorised.
    """
    for k in range(HALF):
        sizes[k] = f32(radii[k]) * f32(2.0**-32) + f32(2.0**-33)
    for k in range(HALF):
        exponents[k] = (places[k] - 0x3F2AAAAB) >> 23
        places[k] -= exponents[k] << 23  # leaves the mantissa there, from 2/3 to 4/3
    for k in range(HALF):
        # just below 1 a float32 has too few digits: what is missing to 1 has them all
        missing = f32(np.uint32(0xFFFFFFFF) - radii[k]) * f32(-(2.0**-32)) - f32(2.0**-33)
        near = (exponents[k] == 0) & (radii[k] > np.uint32(0x80000000))
        less = missing if near else sizes[k] - f32(1)
        square = f32(-2) * _log(less, f32(exponents[k]))
        sizes[k] = np.sqrt(square if square > 0 else f32(0)) * STEPS
    for k in range(HALF):
        cosine, sine = _directions(turns[k])
        out[k], out[HALF + k] = np.rint(sizes[k] * cosine), np.rint(sizes[k] * sine)


@written()
def _refine(key, counters, radii, turns, out):
    """Draw radii again that have 16 leading zeros, from 32 bits more."""
    more = np.empty((16, 16), np.uint32)
    counters[3, :] = FINER
    blocks(key, counters, more)
    counters[3, :] = MAIN
    for k in range(HALF):
        if radii[k] < RARE:
            u = (np.float64(radii[k]) * 2.0**32 + np.float64(more[k >> 4, k & 15]) + 0.5) * 2.0**-64
            size = f32(np.sqrt(-2 * np.log(u))) * STEPS
            cosine, sine = _directions(turns[k])
            out[k], out[HALF + k] = np.rint(size * cosine), np.rint(size * sine)


@elementwise()
def add_noise(sums, key, step):  # [n], [8], 1
    """`kernels.cipher.add_noise_`; `step` is the grid's, above 0."""
    n = sums.shape[0]
    groups = (n + GROUP - 1) // GROUP
    chunks = min(groups, 256)
    for chunk in numba.prange(chunks):
        counters, words = np.zeros((4, 16), np.uint32), np.empty(GROUP, np.uint32)
        sizes, exponents = np.empty(HALF, np.float32), np.empty(HALF, np.int32)
        noise, places = np.empty(GROUP, np.float32), sizes.view(np.int32)
        radii, turns = words[:HALF], words[HALF:]
        for group in range(chunk * groups // chunks, (chunk + 1) * groups // chunks):
            for k in range(16):
                counters[0, k] = 16 * group + k
            blocks(key, counters, words)
            _steps(radii, turns, sizes, places, exponents, noise)
            rare = 0
            for k in range(HALF):
                rare += radii[k] < RARE
            if rare > 0:
                _refine(key, counters, radii, turns, noise)
            own = sums[group * GROUP : min(n, (group + 1) * GROUP)]
            for k in range(own.shape[0]):
                own[k] = (np.rint(own[k] / step) + noise[k]) * step
