"""How queries and shared negatives are laid out on the CPU: in whole vectors, ready for `tiles`."""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import inline, steady, unfused
from fedkge.kernels.cpu.similarity import MODULUS
from fedkge.kernels.cpu.tiles import GROUP, SIDE
from fedkge.kernels.cpu.vectors import BYTES


@inline()
def address(array):
    return np.int64(array.ctypes.data)


@inline()
def _spread(kind, width, lanes):
    """The width of a row in whole vectors: real numbers, or each half of complex ones."""
    parts = 2 if kind == MODULUS else 1
    span = width // parts
    return span, (span + lanes - 1) // lanes * lanes * parts


@unfused()
def _copy(kind, row, span, wide, out):
    """One row [w] to whole vectors [wide], zeros after it (after each half of complex numbers)."""
    zero = row.dtype.type(0)
    if kind == MODULUS:
        half = wide // 2
        for d in range(span):
            out[d] = row[d]
            out[half + d] = row[span + d]
        for d in range(span, half):
            out[d] = zero
            out[half + d] = zero
    else:
        for d in range(span):
            out[d] = row[d]
        for d in range(span, wide):
            out[d] = zero


def room(kind, table, negatives, starts):
    """Where each chunk's queries go [c + 1], and room for all queries and packed negatives, not written."""
    lengths = -(-np.diff(starts) // GROUP) * GROUP
    placed = np.concatenate((np.zeros(1, np.int64), lengths.cumsum()))
    (c, n), lanes = negatives.shape, BYTES // table.itemsize
    parts = 2 if kind == MODULUS else 1
    wide = -(-(table.shape[1] // parts) // lanes) * lanes * parts
    rows = -(-n // SIDE) * SIDE + SIDE
    queries = np.empty((placed[-1], wide), table.dtype)
    return placed, queries, np.empty((c, wide // lanes, rows, lanes), table.dtype)


@steady()
def pack(kind, query, table, negatives, starts, places, queries, packed):
    """Copy queries to [places[c], wide] and negatives to [c, blocks, n + 4, lanes]."""
    c, n = negatives.shape
    lanes = BYTES // table.itemsize
    span, wide = _spread(kind, table.shape[1], lanes)
    rows = packed.shape[2]
    groups = (rows + SIDE - 1) // SIDE
    for task in numba.prange(c * groups):
        k, first = task // groups, task % groups * SIDE
        row = np.empty(wide, table.dtype)
        for j in range(first, min(first + SIDE, rows)):
            _copy(kind, table[negatives[k, min(j, n - 1)]], span, wide, row)
            for block in range(wide // lanes):
                for lane in range(lanes):
                    packed[k, block, j, lane] = row[block * lanes + lane]
    for task in numba.prange(queries.shape[0] // GROUP):
        first = task * GROUP
        k = np.searchsorted(places, first, side="right") - 1
        for p in range(first, first + GROUP):
            i = starts[k] + p - places[k]
            if i < starts[k + 1]:
                _copy(kind, query[i], span, wide, queries[p])
            else:
                queries[p] = 0
