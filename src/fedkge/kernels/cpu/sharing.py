"""Similarities with shared negatives on the CPU, and their contrast: a row is loaded once for a chunk.

A thread takes a block of queries and leads them past some negatives at a time.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise, inline, unfused, written
from fedkge.kernels.cpu.laying import address
from fedkge.kernels.cpu.losses import LANES, across, contrast_left
from fedkge.kernels.cpu.prefetch import ask
from fedkge.kernels.cpu.similarity import DOT, L1, L2, MODULUS
from fedkge.kernels.cpu.tiles import (
    SIDE,
    forward_dot,
    forward_l1,
    forward_l2,
    forward_modulus,
    row_sum,
)
from fedkge.kernels.cpu.vectors import BYTES

BLOCK = 32  #: queries that a thread scores at a time
CLOSE = 16384  #: bytes of negatives that stay in the first cache while a block's queries pass by


@inline()
def _tile(kind, one, arguments):
    if kind == L1:
        forward_l1(one, arguments)
    elif kind == L2:
        forward_l2(one, arguments)
    elif kind == MODULUS:
        forward_modulus(one, arguments)
    else:
        forward_dot(one, arguments)


@inline()
def _term(kind, q, e, d):
    """What coordinate d adds to a similarity, without its sign."""
    if kind == MODULUS:
        half = q.shape[0] // 2
        x, y = q[d] - e[d], q[half + d] - e[half + d]
        return np.sqrt(x * x + y * y)
    if kind == DOT:
        return q[d] * e[d]
    if kind == L1:
        return abs(q[d] - e[d])
    return (q[d] - e[d]) * (q[d] - e[d])


@written()
def _true(kind, q, e, sums):
    """The similarity of two rows, in as many sums [LANES] at once: their order is written out.

    Left to the compiler, it is one order when compiled and another when cached.
    """
    span = q.shape[0] // 2 if kind == MODULUS else q.shape[0]
    whole = span // LANES * LANES
    for lane in range(LANES):
        sums[lane] = 0
    if kind == MODULUS:
        _add(MODULUS, q, e, whole, sums)
    elif kind == DOT:
        _add(DOT, q, e, whole, sums)
    elif kind == L1:
        _add(L1, q, e, whole, sums)
    else:
        _add(L2, q, e, whole, sums)
    for d in range(whole, span):
        sums[d - whole] += _term(kind, q, e, d)
    total = across(sums)
    return total if kind == DOT else (-np.sqrt(total) if kind == L2 else -total)


@inline()
def _add(kind, q, e, whole, sums):
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            sums[lane] += _term(kind, q, e, start + lane)


@unfused()
def _scores(kind, found, mine, theirs, out):  # [n + padding], scalar, [n + padding], [n]
    """Similarities from what a tile adds up, and by L1 from the sums of the query and of the negatives."""
    two = found.dtype.type(2)
    if kind == L1:
        for j in range(out.shape[0]):
            out[j] = mine + theirs[j] - two * found[j]
    else:
        for j in range(out.shape[0]):
            out[j] = found[j] if kind == DOT else (-np.sqrt(found[j]) if kind == L2 else -found[j])


@elementwise()
def scores(
    kind, query, table, true, starts, places, queries, packed, ones, gone, options, scores, losses, slopes
):
    """Similarities [b, 1 + n]; unless `losses` is empty, contrast: its losses [b] and slopes [b, 1 + n]."""
    n = scores.shape[1] - 1
    lanes = BYTES // table.itemsize
    blocks, rows = packed.shape[1], packed.shape[2]
    wide, item = blocks * lanes, table.itemsize
    real = blocks // 2 if kind == MODULUS else blocks
    close = max(1, CLOSE // (SIDE * wide * item)) * SIDE
    for task in numba.prange((queries.shape[0] + BLOCK - 1) // BLOCK):
        found, weight = np.empty((BLOCK, rows), table.dtype), np.empty(n, table.dtype)
        sums, mine, theirs = (
            np.empty(LANES, table.dtype),
            np.empty(BLOCK, table.dtype),
            np.empty(rows, table.dtype),
        )
        first, stop = task * BLOCK, min((task + 1) * BLOCK, queries.shape[0])
        while first < stop:
            k = np.searchsorted(places, first, side="right") - 1
            last = min(stop, places[k + 1])
            for i in range(starts[k] + first - places[k], min(starts[k] + last - places[k], starts[k + 1])):
                ask(table, true[i])  # they lie anywhere
            for p in range(first, last if kind == L1 else first):
                at = address(queries) + p * wide * item
                row_sum(ones[0], (at, np.int64(BYTES), np.int64(blocks), address(mine) + (p - first) * item))
            for j in range(n if kind == L1 else 0):
                at = address(packed) + (k * blocks * rows + j) * BYTES
                row_sum(ones[0], (at, np.int64(rows * BYTES), np.int64(blocks), address(theirs) + j * item))
            for near in range(0, n, close):
                for p in range(first, last, SIDE):
                    for j in range(near, min(near + close, n), SIDE):
                        _tile(
                            kind,
                            ones[0],
                            (
                                address(queries) + p * wide * item,
                                np.int64(wide * item),
                                address(packed) + (k * blocks * rows + j) * BYTES,
                                np.int64(rows * BYTES),
                                np.int64(real),
                                np.int64(wide // 2 * item),
                                np.int64(real * rows * BYTES),
                                address(found) + ((p - first) * rows + j) * item,
                                np.int64(rows * item),
                                address(ones),
                            ),
                        )
            for p in range(first, last):
                i = starts[k] + p - places[k]
                if i < starts[k + 1]:
                    scores[i, 0] = _true(kind, query[i], table[true[i]], sums)
                    _scores(kind, found[p - first], mine[p - first], theirs, scores[i, 1:])
                    if losses.shape[0]:
                        losses[i] = contrast_left(
                            scores[i], gone[i], options[0], options[1], weight, sums, slopes[i]
                        )
            first = last
