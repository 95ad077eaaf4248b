"""Norms and cubes of rows, and bounds of the norms of what units add to a table, on the CPU.

No gradient is formed: a small hash table per unit merges terms that meet in a row.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise, parallel
from fedkge.kernels.cpu.losses import LANES, added
from fedkge.kernels.cpu.prefetch import AHEAD, ask

EMPTY = -1
MIX = np.uint64(0x9E3779B97F4A7C15)


@elementwise()
def lengths(rows, out):
    """`kernels.reference.lengths`: [n, w], [n]. Clipping goes by these: sums are added as written."""
    n, width = rows.shape
    chunks = min(n, 64)
    for chunk in numba.prange(chunks):
        for i in range(chunk * n // chunks, (chunk + 1) * n // chunks):
            total = 0.0
            for d in range(width):
                x = np.float64(rows[i, d])
                total += x * x
            out[i] = np.sqrt(total)


@elementwise()
def cubes(table, ids, out):
    """`kernels.reference.cubes`: [e, w], [b], [b]."""
    n = ids.shape[0]
    chunks = min(n, 64)
    for chunk in numba.prange(chunks):
        terms, sums = np.empty(table.shape[1], table.dtype), np.empty(LANES, table.dtype)
        for i in range(chunk * n // chunks, (chunk + 1) * n // chunks):
            ask(table, ids[min(i + AHEAD, n - 1)])
            row = table[ids[i]]
            for d in range(row.shape[0]):
                terms[d] = abs(row[d]) * row[d] * row[d]
            out[i] = added(terms, sums)


@parallel()
def squares(rows, lengths, order, starts, out):
    """`kernels.reference.squares`: [b, k] twice, [b], [units + 1], [units]."""
    units, k = out.shape[0], rows.shape[1]
    most = 0
    for u in range(units):
        most = max(most, starts[u + 1] - starts[u])
    bits = 1
    while (1 << bits) < 2 * most * k:
        bits += 1
    shift, mask = np.uint64(64 - bits), (1 << bits) - 1
    chunks = min(units, 64)
    for chunk in numba.prange(chunks):
        keys, sums = np.full(1 << bits, EMPTY, np.int64), np.zeros(1 << bits, np.float64)
        places = np.empty(most * k, np.int64)
        for u in range(chunk * units // chunks, (chunk + 1) * units // chunks):
            total, used = 0.0, 0
            for at in range(starts[u], starts[u + 1]):
                i = order[at]
                for j in range(k):
                    row, length = rows[i, j], np.float64(lengths[i, j])
                    place = np.int64((np.uint64(row) * MIX) >> shift)
                    while keys[place] != EMPTY and keys[place] != row:
                        place = (place + 1) & mask
                    if keys[place] == EMPTY:
                        keys[place] = row
                        places[used] = place
                        used += 1
                    before = sums[place]
                    sums[place] = before + length
                    total += length * (2 * before + length)
            for at in range(used):  # left as it was found
                keys[places[at]], sums[places[at]] = EMPTY, 0.0
            out[u] = total
