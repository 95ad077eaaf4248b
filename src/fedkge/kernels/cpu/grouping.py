"""Group the positions of an index by the row they name: a radix sort whose cost grows with the work."""

from __future__ import annotations

import numpy as np

from fedkge.kernels.cpu.compile import serial

DIGIT = 14  #: bits sorted in one pass: tables of up to 16,384 rows take one


@serial()
def group(index, ids, rows_in_table):
    """Positions of `index` [b, n], then of `ids` [m], ordered by row.

    Returns the distinct rows ascending, where each one's positions start (and where the last ones end),
    and the positions, in order of appearance within a row. Rows and positions must be fewer than 2^31.
    """
    n = index.shape[1]
    pairs = index.shape[0] * n
    total = pairs + ids.shape[0]
    keys, order = np.empty(total, np.int32), np.empty(total, np.int32)
    for i in range(index.shape[0]):
        for j in range(n):
            keys[i * n + j] = index[i, j]
    for i in range(ids.shape[0]):
        keys[pairs + i] = ids[i]
    for p in range(total):
        order[p] = p
    shift = 0
    while shift == 0 or (rows_in_table - 1) >> shift > 0:
        order = _pass(keys, order, shift)
        shift += DIGIT
    return _groups(keys, order)


@serial()
def _pass(keys, order, shift):
    mask = (1 << DIGIT) - 1
    count = np.zeros((1 << DIGIT) + 1, np.int32)
    for p in range(order.shape[0]):
        count[((keys[order[p]] >> shift) & mask) + 1] += 1
    for digit in range(1 << DIGIT):
        count[digit + 1] += count[digit]
    placed = np.empty_like(order)
    for p in range(order.shape[0]):
        digit = (keys[order[p]] >> shift) & mask
        placed[count[digit]] = order[p]
        count[digit] += 1
    return placed


@serial()
def _groups(keys, order):
    total = order.shape[0]
    rows, starts = np.empty(total, np.int64), np.empty(total + 1, np.int64)
    found = 0
    for p in range(total):
        key = keys[order[p]]
        if found == 0 or key != rows[found - 1]:
            rows[found], starts[found] = key, p
            found += 1
    starts[found] = total
    return rows[:found], starts[: found + 1], order
