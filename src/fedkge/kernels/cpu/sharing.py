"""Negatives that a chunk of queries shares, on the CPU: rows are loaded once for a chunk, in tiles.

A chunk's queries are copied to rows of whole vectors, as many as tiles need (`places`), and its negatives
are packed (`tiles`). Similarities are computed by blocks of queries; gradients by chunk and block of
coordinates, so that one thread owns every sum, and adds it up in the same order, however many there are.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import inline, steady, unfused
from fedkge.kernels.cpu.exponential import decay
from fedkge.kernels.cpu.losses import log1p
from fedkge.kernels.cpu.similarity import DOT, L1, L2, MODULUS, TINY
from fedkge.kernels.cpu.tiles import (
    GROUP,
    SIDE,
    backward_dot,
    backward_l1,
    backward_l2,
    backward_modulus,
    forward_dot,
    forward_l1,
    forward_l2,
    forward_modulus,
)
from fedkge.kernels.cpu.vectors import BYTES

BLOCK = 32  #: queries that a thread scores at a time
CLOSE = 16  #: negatives that stay in the first cache while a block's queries pass by
NEAR = 64  #: negatives whose gradients stay in the first cache while queries pass by
BITS = 14  #: of the filter that answers are looked up in


@inline()
def _address(array):
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


@unfused()
def _true(kind, q, e):
    """The similarity of two rows."""
    total = q.dtype.type(0)
    if kind == MODULUS:
        half = q.shape[0] // 2
        for d in range(half):
            x, y = q[d] - e[d], q[half + d] - e[half + d]
            total -= np.sqrt(x * x + y * y)
    elif kind == DOT:
        for d in range(q.shape[0]):
            total += q[d] * e[d]
    elif kind == L1:
        for d in range(q.shape[0]):
            total -= abs(q[d] - e[d])
    else:
        for d in range(q.shape[0]):
            total += (q[d] - e[d]) * (q[d] - e[d])
        total = -np.sqrt(total)
    return total


@unfused()
def _scores(kind, found, out):  # [n + padding], [n]
    """Similarities from what a tile adds up."""
    for j in range(out.shape[0]):
        out[j] = found[j] if kind == DOT else (-np.sqrt(found[j]) if kind == L2 else -found[j])


@unfused()
def _contrast(s, gone, margin, temperature, weight, out):
    """`losses.contrast_one` of one query's similarities s [1 + n], without negatives that are gone [n].

    Leaves their gradient in `out` [1 + n]; `weight` [n] is room.
    """
    zero, one, half = s.dtype.type(0), s.dtype.type(1), s.dtype.type(0.5)
    n, least = gone.shape[0], s.dtype.type(-np.inf)
    top = least
    for j in range(n):
        x = least if gone[j] else s[1 + j]
        top = max(top, x)
    total = zero
    for j in range(n):
        w = decay(temperature * (s[1 + j] - top))
        weight[j] = zero if gone[j] else w
        total += weight[j]
    rest = one / total if total != zero else zero
    true = s[0] + margin
    e = decay(-abs(true))
    loss = max(-true, zero) + log1p(e)
    out[0] = -half * (e if true > zero else one) / (one + e)
    lost = zero
    for j in range(n):
        x = s[1 + j] + margin
        e = decay(-abs(x))
        share = weight[j] * rest
        lost += share * (max(x, zero) + log1p(e)) if share > zero else share
        out[1 + j] = half * share * (one if x > zero else e) / (one + e)
    return half * (loss + lost)


@steady()
def scores(
    kind, query, table, true, starts, places, queries, packed, ones, gone, options, scores, losses, slopes
):
    """Similarities [b, 1 + n]; unless `losses` is empty, contrast: its losses [b] and slopes [b, 1 + n]."""
    n = scores.shape[1] - 1
    lanes = BYTES // table.itemsize
    blocks, rows = packed.shape[1], packed.shape[2]
    wide, item = blocks * lanes, table.itemsize
    real = blocks // 2 if kind == MODULUS else blocks
    for task in numba.prange((queries.shape[0] + BLOCK - 1) // BLOCK):
        found, weight = np.empty((BLOCK, rows), table.dtype), np.empty(n, table.dtype)
        first, stop = task * BLOCK, min((task + 1) * BLOCK, queries.shape[0])
        while first < stop:
            k = np.searchsorted(places, first, side="right") - 1
            last = min(stop, places[k + 1])
            for near in range(0, n, CLOSE):
                for p in range(first, last, SIDE):
                    for j in range(near, min(near + CLOSE, n), SIDE):
                        _tile(
                            kind,
                            ones[0],
                            (
                                _address(queries) + p * wide * item,
                                np.int64(wide * item),
                                _address(packed) + (k * blocks * rows + j) * BYTES,
                                np.int64(rows * BYTES),
                                np.int64(real),
                                np.int64(wide // 2 * item),
                                np.int64(real * rows * BYTES),
                                _address(found) + ((p - first) * rows + j) * item,
                                np.int64(rows * item),
                                _address(ones),
                            ),
                        )
            for p in range(first, last):
                i = starts[k] + p - places[k]
                if i < starts[k + 1]:
                    scores[i, 0] = _true(kind, query[i], table[true[i]])
                    _scores(kind, found[p - first], scores[i, 1:])
                    if losses.shape[0]:
                        losses[i] = _contrast(scores[i], gone[i], options[0], options[1], weight, slopes[i])
            first = last


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


@steady()
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
    moved = np.empty((queries.shape[0], wide), table.dtype)
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
        pulled = np.zeros((parts, n, lanes), table.dtype)
        for near in range(0, n, NEAR):
            for p in range(places[k], places[k + 1], GROUP):
                _tile_gradient(
                    kind,
                    ones[0],
                    (
                        _address(queries) + (p * wide + block * lanes) * item,
                        _address(slopes) + (p * n + near) * item,
                        _address(moved) + (p * wide + block * lanes) * item,
                        np.int64(wide * item),
                        _address(packed) + ((k * blocks + block) * rows + near) * BYTES,
                        _address(pulled) + near * BYTES,
                        np.int64(n * item),
                        np.int64(min(NEAR, n - near)),
                        np.int64(wide // 2 * item),
                        np.int64(real * rows * BYTES),
                        np.int64(n * BYTES),
                        _address(ones),
                    ),
                )
        for part in range(parts):
            first = part * span + block * lanes
            _unpack(pulled[part], values[b + k * n : b + (k + 1) * n], first, span - block * lanes)
    for task in numba.prange(queries.shape[0] // GROUP):
        first = task * GROUP
        k = np.searchsorted(places, first, side="right") - 1
        for p in range(first, first + GROUP):
            i = starts[k] + p - places[k]
            if i < starts[k + 1]:
                for part in range(parts):
                    d_query[i, part * span : (part + 1) * span] = moved[p, part * (wide // 2) :][:span]
                row = table[true[i]]
                g = d_scores[i, 0] * each[i]
                _true_gradient(kind, query[i], row, scores[i, 0], g, d_query[i], values[i])


@steady()
def left_out(negatives, starts, site, first, size, known, lo, hi, out):
    """`kernels.reference.left_out`: few answers are looked up among negatives, many answers the other way."""
    n = negatives.shape[1]
    mask, one = np.int64((1 << BITS) - 1), np.uint8(1)
    tasks = (out.shape[0] + BLOCK - 1) // BLOCK
    for task in numba.prange(tasks):
        there, held = np.zeros(1 << BITS, np.uint8), np.int64(-1)
        for i in range(task * BLOCK, min((task + 1) * BLOCK, out.shape[0])):
            k = np.searchsorted(starts, i, side="right") - 1
            if k != held:
                for j in range(n if held >= 0 else 0):
                    there[negatives[held, j] & mask] = 0
                for j in range(n):
                    there[negatives[k, j] & mask] = one
                held = k
            out[i] = False
            answers, start = hi[i] - lo[i], first[site[i]]
            if answers >= size[site[i]]:
                continue
            if answers <= 8 * n:
                for a in range(answers):
                    entity = known[lo[i] + a] + a + start
                    if there[entity & mask]:
                        for j in range(n):
                            out[i, j] |= negatives[k, j] == entity
            else:
                for j in range(n):
                    u = negatives[k, j] - start
                    low, high = np.int64(0), answers  # the first answer that is not below u
                    while low < high:
                        middle = (low + high) >> 1
                        if known[lo[i] + middle] + middle < u:
                            low = middle + 1
                        else:
                            high = middle
                    out[i, j] = low < answers and known[lo[i] + low] + low == u
