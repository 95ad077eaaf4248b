"""Gradients of shared negatives and their queries on the CPU, by chunk and block of coordinates.

One thread owns every sum, and adds it up in the same order however many there are.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise, inline, unfused
from fedkge.kernels.cpu.laying import address, aligned_zeros
from fedkge.kernels.cpu.prefetch import AHEAD, ask
from fedkge.kernels.cpu.similarity import DOT, L1, L2, MODULUS, TINY
from fedkge.kernels.cpu.tiles import GROUP, backward_dot, backward_l1, backward_l2, backward_modulus
from fedkge.kernels.cpu.vectors import BYTES

NEAR = 128  #: negatives whose gradients stay in the first cache while queries pass by


@inline()
def _slope(kind, score, g):
    """What a gradient tile multiplies with: nothing where query and candidate are equal."""
    if kind == DOT:
        return g
    if score == 0:
        return type(g)(0)
    return -g / score if kind == L2 else g


@unfused()
def _slopes(kind, scores, d_scores, weight, out):  # [n], [n], scalar, [n]
    if kind == MODULUS:
        weight *= type(weight)(0.5)
    if kind == DOT:
        for j in range(out.shape[0]):
            out[j] = d_scores[j] * weight
    elif kind == L2:
        for j in range(out.shape[0]):
            out[j] = _slope(L2, scores[j], d_scores[j] * weight)
    else:
        for j in range(out.shape[0]):
            out[j] = _slope(L1, scores[j], d_scores[j] * weight)


@unfused()
def _unpack(block, rows, first, left):  # [n, lanes], [n, w]
    """Write a block of coordinates to rows, from column `first` on; at most `left` coordinates."""
    if left >= block.shape[1]:
        for j in range(block.shape[0]):
            for lane in range(BYTES // block.itemsize):
                rows[j, first + lane] = block[j, lane]
    else:
        for j in range(block.shape[0]):
            for lane in range(left):
                rows[j, first + lane] = block[j, lane]


@unfused()
def _true_gradient(kind, q, e, score, g, d_query, d_true):
    """Write the gradient of a true candidate, and add that of its query."""
    w = q.shape[0]
    g = _slope(kind, score, g)
    if kind == MODULUS:
        half = w // 2
        for d in range(half):
            x, y = q[d] - e[d], q[half + d] - e[half + d]
            step = g / np.sqrt(TINY + x * x + y * y)
            d_true[d], d_true[half + d] = step * x, step * y
    elif kind == DOT:
        for d in range(w):
            d_true[d] = g * q[d]
            d_query[d] += g * e[d]
    elif kind == L1:
        zero = type(g)(0)
        for d in range(w):
            d_true[d] = (g if q[d] > e[d] else zero) - (g if q[d] < e[d] else zero)
    else:
        for d in range(w):
            d_true[d] = g * (q[d] - e[d])
    if kind != DOT:
        for d in range(w):
            d_query[d] -= d_true[d]


@inline()
def _tile_gradient(kind, one, arguments):
    if kind == L1:
        backward_l1(one, arguments)
    elif kind == L2:
        backward_l2(one, arguments)
    elif kind == MODULUS:
        backward_modulus(one, arguments)
    else:
        backward_dot(one, arguments)


@elementwise()
def gradients(
    kind, query, table, true, starts, places, queries, packed, ones, scores, d_scores, each, d_query, values
):
    """The gradients of queries [b, w] and of rows [b + c n, w]: the true ones, then the negatives."""
    b, n, w = query.shape[0], scores.shape[1] - 1, table.shape[1]
    lanes, item = BYTES // table.itemsize, table.itemsize
    blocks, rows = packed.shape[1], packed.shape[2]
    wide = blocks * lanes
    parts = 2 if kind == MODULUS else 1
    real, span = blocks // parts, w // parts
    slopes = np.empty((queries.shape[0], n), table.dtype)
    there = address(queries) == address(query)  # nothing is copied
    moved = d_query if there else np.empty((queries.shape[0], wide), table.dtype)
    for task in numba.prange(queries.shape[0] // GROUP):
        first = task * GROUP
        k = np.searchsorted(places, first, side="right") - 1
        for p in range(first, first + GROUP):
            i = starts[k] + p - places[k]
            moved[p] = 0
            if i < starts[k + 1]:
                _slopes(kind, scores[i, 1:], d_scores[i, 1:], each[i], slopes[p])
            else:
                slopes[p] = 0
    for task in numba.prange((starts.shape[0] - 1) * real):
        k, block = task // real, task % real
        pulled = aligned_zeros(parts * n, lanes, table)
        for near in range(0, n, NEAR):
            for p in range(places[k], places[k + 1], GROUP):
                _tile_gradient(
                    kind,
                    ones[0],
                    (
                        address(queries) + (p * wide + block * lanes) * item,
                        address(slopes) + (p * n + near) * item,
                        address(moved) + (p * wide + block * lanes) * item,
                        np.int64(wide * item),
                        address(packed) + ((k * blocks + block) * rows + near) * BYTES,
                        address(pulled) + near * BYTES,
                        np.int64(n * item),
                        np.int64(min(NEAR, n - near)),
                        np.int64(wide // 2 * item),
                        np.int64(real * rows * BYTES),
                        np.int64(n * BYTES),
                        address(ones),
                    ),
                )
        for part in range(parts):
            first = part * span + block * lanes
            _unpack(
                pulled[part * n : (part + 1) * n],
                values[b + k * n : b + (k + 1) * n],
                first,
                span - block * lanes,
            )
    for task in numba.prange(queries.shape[0] // GROUP):
        first = task * GROUP
        k = np.searchsorted(places, first, side="right") - 1
        for p in range(first, first + GROUP):
            i = starts[k] + p - places[k]
            if i < starts[k + 1]:
                for part in range(0 if there else parts):
                    d_query[i, part * span : (part + 1) * span] = moved[p, part * (wide // 2) :][:span]
                ask(table, true[min(i + AHEAD, b - 1)])
                row = table[true[i]]
                g = d_scores[i, 0] * each[i]
                _true_gradient(kind, query[i], row, scores[i, 0], g, d_query[i], values[i])
