"""Norms of single triples' gradients on the CPU, without forming a gradient.

All candidates of a triple meet one query, so that a row's part is the sum of its `d_scores` times one
direction whose length is known. A small hash table per triple merges repeated rows. All in float64: where
terms cancel, the root of a square's error is a norm's.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import inline, parallel, serial
from fedkge.kernels.cpu.similarity import DOT, L1, L2

EMPTY = -1
MIX = np.uint64(0x9E3779B97F4A7C15)


@inline()
def _merged(index, scores, d_scores, nothing, shift, keys, sums):
    """The sum over distinct rows of (the sum of a row's d_scores) squared, and of their sizes.

    Where a similarity is at its top (`nothing`: that of zero distance), it has no direction and counts 0.
    `keys` and `sums` are the hash table.
    """
    mask = keys.shape[0] - 1
    keys[:] = EMPTY
    total, sizes = 0.0, 0.0
    for j in range(index.shape[0]):
        row = index[j]
        place = np.int64((np.uint64(row) * MIX) >> shift)
        while keys[place] != EMPTY and keys[place] != row:
            place = (place + 1) & mask
        if keys[place] == EMPTY:
            keys[place] = row
            sums[place] = 0.0
        if scores[j] != nothing:
            before = sums[place]
            sums[place] = before + d_scores[j]
            total += (sums[place] - before) * (sums[place] + before)
            sizes += abs(d_scores[j])
    return total, sizes


@inline()
def _found(row, shift, keys, sums):
    """What `_merged` has summed up for one row; 0 if it is no candidate."""
    mask = keys.shape[0] - 1
    place = np.int64((np.uint64(row) * MIX) >> shift)
    while keys[place] != EMPTY and keys[place] != row:
        place = (place + 1) & mask
    return sums[place] if keys[place] == row else 0.0


@serial()
def _along(kind, q, e, values):
    """d similarity(q, e) / d e times `values`: what a row that is anchor and candidate adds crosswise."""
    total, square = 0.0, 0.0
    width = q.shape[0]
    if kind == DOT:
        for k in range(width):
            total += np.float64(q[k]) * values[k]
    elif kind == L1:
        for k in range(width):
            total += values[k] if q[k] > e[k] else (-values[k] if q[k] < e[k] else 0.0)
    elif kind == L2:
        for k in range(width):
            gap = np.float64(q[k]) - e[k]
            total += gap * values[k]
            square += gap * gap
        total = total / np.sqrt(square) if square > 0 else 0.0
    else:
        half = width // 2
        for k in range(half):
            x, y = np.float64(q[k]) - e[k], np.float64(q[half + k]) - e[half + k]
            size = x * x + y * y
            if size > 0:
                total += (x * values[k] + y * values[half + k]) / np.sqrt(size)
    return total


@parallel()
def squares(kind, query, table, index, scores, d_scores, ids, values, error, out):
    """`kernels.reference.squares`; `ids` [b] and `values` [b, w], or none of both; `error` of a term."""
    b, n = index.shape
    width = query.shape[1]
    bits = 1
    while (1 << bits) < 2 * n:
        bits += 1
    shift = np.uint64(64 - bits)
    nothing = np.inf if kind == DOT else 0.0
    chunks = min(b, 64)
    for chunk in numba.prange(chunks):
        keys, sums = np.empty(1 << bits, np.int64), np.empty(1 << bits, np.float64)
        for i in range(chunk * b // chunks, (chunk + 1) * b // chunks):
            q = query[i]
            length = 1.0
            if kind == DOT:
                length = 0.0
                for k in range(width):
                    length += np.float64(q[k]) * q[k]
            elif kind == L1:
                length = width
            elif kind != L2:
                length = width // 2
            merged, sizes = _merged(index[i], scores[i], d_scores[i], nothing, shift, keys, sums)
            total, terms = length * merged, np.sqrt(length) * sizes
            if ids.shape[0]:
                own = 0.0
                for k in range(width):
                    own += np.float64(values[i, k]) * values[i, k]
                total, terms = total + own, terms + np.sqrt(own)
                both = _found(ids[i], shift, keys, sums)
                if both != 0:
                    total += 2 * both * _along(kind, q, table[ids[i]], values[i])
            longest = np.sqrt(max(total, 0.0)) + error * terms
            out[i] = longest * longest
