"""Indexed similarity on the CPU: forward, and backward by the owner of each row.

One pass per query keeps the query in L1 and streams candidate rows; nothing of size [b, n, width] exists.
The table's gradient is computed row by row: positions are grouped by the row they name (see `grouping`),
one thread owns a row and adds its contributions in a fixed order, so that sums do not depend on threads.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import parallel, serial

L1, L2, MODULUS, DOT = 0, 1, 2, 3
BLOCK = 16  #: rows that all_scores keeps in the cache while the queries pass by


@serial()
def pair(kind, q, e):
    """The similarity of two rows."""
    width = q.shape[0]
    total = q.dtype.type(0)
    if kind == L1:
        for d in range(width):
            total -= abs(q[d] - e[d])
    elif kind == L2:
        for d in range(width):
            total += (q[d] - e[d]) * (q[d] - e[d])
        total = -np.sqrt(total)
    elif kind == MODULUS:
        half = width // 2
        for d in range(half):
            x, y = q[d] - e[d], q[half + d] - e[half + d]
            total -= np.sqrt(x * x + y * y)
    else:
        for d in range(width):
            total += q[d] * e[d]
    return total


@serial()
def pull(kind, q, e, score, g, out):
    """Add g * d similarity / d q to `out`; at zero distance the gradient is zero."""
    width = q.shape[0]
    zero, one = q.dtype.type(0), q.dtype.type(1)
    if kind == L1:
        for d in range(width):
            out[d] += (-g if q[d] > e[d] else zero) + (g if q[d] < e[d] else zero)
    elif kind == L2:
        step = g / score if score < zero else zero
        for d in range(width):
            out[d] += step * (q[d] - e[d])
    elif kind == MODULUS:
        half = width // 2
        for d in range(half):
            x, y = q[d] - e[d], q[half + d] - e[half + d]
            square = x * x + y * y
            step = -g * (one / np.sqrt(square)) if square > zero else zero
            out[d] += step * x
            out[half + d] += step * y
    else:
        for d in range(width):
            out[d] += g * e[d]


@parallel()
def forward(kind, query, table, index, scores):  # [b, w], [e, w], [b, n], [b, n]
    for i in numba.prange(index.shape[0]):
        q = query[i]
        for j in range(index.shape[1]):
            scores[i, j] = pair(kind, q, table[index[i, j]])


@parallel()
def backward_query(kind, query, table, index, scores, d_scores, d_query):
    for i in numba.prange(index.shape[0]):
        q, out = query[i], d_query[i]
        out[:] = 0
        for j in range(index.shape[1]):
            pull(kind, q, table[index[i, j]], scores[i, j], d_scores[i, j], out)


@serial()
def row_gradient(kind, query, table_row, n, scores, d_scores, values, positions, out):
    """`out` = the gradient of one table row from all positions that name it.

    A position below b * n is a candidate, one above is a row of `values` added as it is.
    """
    out[:] = 0
    pairs = query.shape[0] * n
    for position in positions:
        if position < pairs:
            i, j = position // n, position % n
            pull(kind, table_row, query[i], scores[i, j], d_scores[i, j], out)  # similarities are symmetric
        else:
            extra = values[position - pairs]
            for d in range(out.shape[0]):
                out[d] += extra[d]


@parallel()
def backward_table(kind, query, table, n, scores, d_scores, values, rows, starts, order, out, dense):
    """Gradient rows: added to `out[row]` when dense, else written to `out[k]` for the k-th distinct row."""
    groups = rows.shape[0]
    chunks = min(groups, 256)
    total = order.shape[0]
    for chunk in numba.prange(chunks):
        first = np.searchsorted(starts[:groups], chunk * total // chunks)
        last = np.searchsorted(starts[:groups], (chunk + 1) * total // chunks)
        gradient = np.empty(table.shape[1], table.dtype)
        for k in range(first, last):
            positions = order[starts[k] : starts[k + 1]]
            if dense:
                row_gradient(kind, query, table[rows[k]], n, scores, d_scores, values, positions, gradient)
                target = out[rows[k]]
                for d in range(target.shape[0]):
                    target[d] += gradient[d]
            else:
                row_gradient(kind, query, table[rows[k]], n, scores, d_scores, values, positions, out[k])


@serial()
def four(kind, q, a, b, c, d):
    """One row against four, for L1, L2 and MODULUS: a number of `q` is loaded once for all of them."""
    width = q.shape[0]
    s = t = u = v = q.dtype.type(0)
    if kind == MODULUS:
        half = width // 2
        for k in range(half):
            x, y = q[k], q[half + k]
            s -= np.sqrt((x - a[k]) * (x - a[k]) + (y - a[half + k]) * (y - a[half + k]))
            t -= np.sqrt((x - b[k]) * (x - b[k]) + (y - b[half + k]) * (y - b[half + k]))
            u -= np.sqrt((x - c[k]) * (x - c[k]) + (y - c[half + k]) * (y - c[half + k]))
            v -= np.sqrt((x - d[k]) * (x - d[k]) + (y - d[half + k]) * (y - d[half + k]))
    elif kind == L1:
        for k in range(width):
            x = q[k]
            s -= abs(x - a[k])
            t -= abs(x - b[k])
            u -= abs(x - c[k])
            v -= abs(x - d[k])
    else:
        for k in range(width):
            x = q[k]
            s += (x - a[k]) * (x - a[k])
            t += (x - b[k]) * (x - b[k])
            u += (x - c[k]) * (x - c[k])
            v += (x - d[k]) * (x - d[k])
        s, t, u, v = -np.sqrt(s), -np.sqrt(t), -np.sqrt(u), -np.sqrt(v)
    return s, t, u, v


@parallel()
def all_scores(kind, query, table, scores):
    """Every row against every query, in blocks of rows that stay in the cache.

    Rows past the end repeat the last one: each is summed in the same order, so that equal rows tie exactly.
    """
    b, e = query.shape[0], table.shape[0]
    last = e - 1
    for block in numba.prange((e + BLOCK - 1) // BLOCK):
        for i in range(b):
            for start in range(block * BLOCK, min(e, (block + 1) * BLOCK), 4):
                j, k, m = min(start + 1, last), min(start + 2, last), min(start + 3, last)
                s, t, u, v = four(kind, query[i], table[start], table[j], table[k], table[m])
                scores[i, start] = s
                scores[i, j] = t
                scores[i, k] = u
                scores[i, m] = v
