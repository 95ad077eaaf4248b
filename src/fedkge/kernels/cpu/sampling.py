"""Philox4x32-10, uniform rows and negatives on the CPU; equal to `fedkge.randomness` bit by bit.

Negatives that must stay secret are drawn by ChaCha20.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.cipher import blocks as cipher_blocks
from fedkge.kernels.cpu.compile import inline, parallel
from fedkge.randomness import MULTIPLIERS, ROUNDS, WEYL

M0, M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
W0, W1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@inline()
def philox(key, c0, c1, c2, c3):
    """Four random 32-bit numbers, each in a uint64."""
    k0, k1 = key & LOW, key >> HALF
    for _ in range(ROUNDS):
        a, b = c0 * M0, c2 * M1
        c0, c1, c2, c3 = (b >> HALF) ^ c1 ^ k0, b & LOW, (a >> HALF) ^ c3 ^ k1, a & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return c0, c1, c2, c3


@parallel()
def uniform(key, keys, out):
    """out[i, j] = a number in [0, 1) made of 24 bits, at counter (j // 4, 0, keys[i])."""
    width = out.shape[1]
    scale = out.dtype.type(2.0**-24)
    for i in numba.prange(out.shape[0]):
        low, high = keys[i] & LOW, keys[i] >> HALF
        for block in range((width + 3) // 4):
            bits = philox(key, np.uint64(block), np.uint64(0), low, high)
            for lane in range(min(4, width - 4 * block)):
                out[i, 4 * block + lane] = out.dtype.type(bits[lane] >> np.uint64(8)) * scale


@parallel()
def order_keys(keys, site, local, a, b, out):
    """out[i] = site[i] in the high bits, 48 random bits at counter (local[i], 0, a, b) in the low ones."""
    for i in numba.prange(out.shape[0]):
        bits = philox(keys[site[i]], np.uint64(local[i]), np.uint64(0), np.uint64(a), np.uint64(b))
        random = ((bits[1] & np.uint64(0xFFFF)) << HALF) | bits[0]
        out[i] = (np.int64(site[i]) << 48) | np.int64(random)


@inline()
def _pick(bits, first, size, known, lo, hi):
    """The entity that 32 random bits choose among `size` from `first` on, without known[lo:hi].

    `known` holds, for the i-th smallest answer of a query, its local id minus i; so the u-th
    non-answer is u plus the number of entries at most u.
    """
    answers = hi - lo
    if answers >= size:  # nothing but answers: filtering is impossible
        return first + np.int64((bits * np.uint64(size)) >> HALF)
    u = np.int64((bits * np.uint64(size - answers)) >> HALF)
    at, length = lo, answers  # a search without branches: which half is random
    while length > 1:
        half = length >> 1
        at += half * (known[at + half - 1] <= u)
        length -= half
    at += length * (known[min(at, hi - 1)] <= u) if answers else 0
    return first + u + (at - lo)


@parallel()
def negatives(keys, a, b, site, position, first, size, known, lo, hi, out):
    """out[i, 1 + j] = the j-th negative of batch row i, drawn at counter (j // 4, position[i], a, b)."""
    n = out.shape[1] - 1
    blocks = (n + 3) // 4
    for i in numba.prange(out.shape[0]):
        s, bits = site[i], np.empty((4, blocks), np.uint64)
        key, row, step, epoch = keys[s], np.uint64(position[i]), np.uint64(a), np.uint64(b)
        for block in range(blocks):  # apart from the choice, so that it is vectorised
            bits[0, block], bits[1, block], bits[2, block], bits[3, block] = philox(
                key, np.uint64(block), row, step, epoch
            )
        for j in range(n):
            out[i, 1 + j] = _pick(bits[j & 3, j >> 2], first[s], size[s], known, lo[i], hi[i])


@parallel()
def secret_negatives(keys, a, b, site, position, first, size, known, lo, hi, out):
    """The same by ChaCha20, at counter (j // 16, position[i], a, b); keys [1, 8] are 32-bit words."""
    rows, n = out.shape[0], out.shape[1] - 1
    blocks = (n + 15) // 16
    some = max(1, 64 // max(1, blocks))  # rows that are drawn in one go
    lanes = (some * blocks + 15) // 16 * 16
    for chunk in numba.prange((rows + some - 1) // some):
        counters, words = np.zeros((4, lanes), np.uint32), np.empty((16, lanes), np.uint32)
        begin, end = chunk * some, min(rows, (chunk + 1) * some)
        for i in range(begin, end):
            for block in range(blocks):
                lane = (i - begin) * blocks + block
                counters[0, lane], counters[1, lane] = block, position[i]
                counters[2, lane], counters[3, lane] = a, b
        cipher_blocks(keys[0], counters, words)
        for i in range(begin, end):
            s = site[i]
            for j in range(n):
                bits = np.uint64(words[j & 15, (i - begin) * blocks + (j >> 4)])
                out[i, 1 + j] = _pick(bits, first[s], size[s], known, lo[i], hi[i])
