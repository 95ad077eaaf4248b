"""How queries and shared negatives are laid out on the CPU: in whole vectors, ready for `tiles`."""

from __future__ import annotations

import math

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise, inline, unfused, written
from fedkge.kernels.cpu.prefetch import AHEAD, ask
from fedkge.kernels.cpu.similarity import MODULUS
from fedkge.kernels.cpu.tiles import GROUP, SIDE
from fedkge.kernels.cpu.vectors import BYTES


@inline()
def address(array):
    return np.int64(array.ctypes.data)


def aligned(shape, dtype):
    """A new array that begins at a whole vector, not written.

    A vector that lies across two cache lines takes longer to load.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + BYTES, np.uint8)
    skip = -raw.__array_interface__["data"][0] % BYTES
    return raw[skip : skip + size].view(dtype).reshape(shape)


@inline()
def aligned_zeros(rows, lanes, like):
    """Zeros [rows, lanes] that begin at a whole vector; inside of kernels."""
    raw = np.zeros((rows + 1) * lanes, like.dtype)
    skip = -address(raw) % BYTES // like.itemsize
    return raw[skip : skip + rows * lanes].reshape((rows, lanes))


@unfused()
def _copy(row, span, parts, out):
    """One row [parts span] to whole vectors, each part filled up with zeros."""
    wide = out.shape[0] // parts
    for part in range(parts):
        source, target = row[part * span : (part + 1) * span], out[part * wide : (part + 1) * wide]
        for d in range(span):
            target[d] = source[d]
        for d in range(span, wide):
            target[d] = 0


@written()
def places_of(starts):
    """Where each chunk's queries go, in whole groups [c + 1]."""
    placed = np.zeros_like(starts)
    for k in range(starts.shape[0] - 1):
        placed[k + 1] = placed[k] + (starts[k + 1] - starts[k] + GROUP - 1) // GROUP * GROUP
    return placed


@written()
def sizes_of(kind, width, n, lanes):
    """How wide queries are in whole vectors, and how many rows packed negatives have."""
    parts = 2 if kind == MODULUS else 1
    return -(-(width // parts) // lanes) * lanes * parts, -(-n // SIDE) * SIDE + SIDE


def room(kind, query, table, negatives, starts):
    """Where each chunk's queries go [c + 1], and room for all queries and packed negatives, not written.

    Queries that fill whole vectors and groups stay where they are.
    """
    placed = places_of(starts)
    (c, n), lanes = negatives.shape, BYTES // table.itemsize
    wide, rows = sizes_of(kind, table.shape[1], n, lanes)
    there = query.shape == (placed[-1], wide)  # chunks are whole groups, or there would be more places
    queries = query if there else aligned((placed[-1], wide), table.dtype)
    return placed, queries, aligned((c, wide // lanes, rows, lanes), table.dtype)


@unfused()
def _deal(row, packed, k, j):  # [wide], [c, blocks, rows, lanes]
    """Negative j of chunk k, block by block."""
    for block in range(packed.shape[1]):
        for lane in range(BYTES // row.itemsize):
            packed[k, block, j, lane] = row[block * (BYTES // row.itemsize) + lane]


@elementwise()
def pack(kind, query, table, negatives, starts, places, queries, packed):
    """Copy queries to [places[c], wide] and negatives to [c, blocks, n + 4, lanes]."""
    c, n = negatives.shape
    wide, rows = queries.shape[1], packed.shape[2]
    parts = 2 if kind == MODULUS else 1
    span = table.shape[1] // parts
    groups = (rows + SIDE - 1) // SIDE
    for task in numba.prange(c * groups):
        k, first = task // groups, task % groups * SIDE
        row = np.empty(wide, table.dtype)
        for j in range(first, min(first + SIDE, rows)):
            ask(table, negatives[k, min(j + AHEAD, n - 1)])
            e = negatives[k, min(j, n - 1)]
            if wide == table.shape[1]:
                _deal(table[e], packed, k, j)
            else:
                _copy(table[e], span, parts, row)
                _deal(row, packed, k, j)
    moved = 0 if address(queries) == address(query) else queries.shape[0] // GROUP
    for task in numba.prange(moved):
        first = task * GROUP
        k = np.searchsorted(places, first, side="right") - 1
        for p in range(first, first + GROUP):
            i = starts[k] + p - places[k]
            if i < starts[k + 1]:
                _copy(query[i], span, parts, queries[p])
            else:
                queries[p] = 0
