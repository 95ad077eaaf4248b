"""Indexed similarity on the CPU: forward, and backward by the owner of each row.

One pass per query keeps the query in L1 and streams candidate rows, four at a time; nothing of size
[b, n, width] exists.
The table's gradient is computed row by row: positions are grouped by the row they name (see `grouping`),
one thread owns a row and adds its contributions in a fixed order, so that sums do not depend on threads.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import inline, parallel, serial
from fedkge.kernels.cpu.losses import contrast_one
from fedkge.kernels.cpu.prefetch import AHEAD, ask

L1, L2, MODULUS, DOT = 0, 1, 2, 3
TINY = np.float32(1.1754944e-38)  #: the least normal float32: quick roots of less are not finite
CACHE = 1 << 20  #: bytes of candidates that are taken to be there still when they are read again
BLOCK = 16  #: rows that all_scores keeps in the cache while the queries pass by


@inline()
def four(kind, q, a, b, c, d):
    """The similarities of one row with four: a number of `q` is loaded once for all of them."""
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
    elif kind == DOT:
        for k in range(width):
            x = q[k]
            s += x * a[k]
            t += x * b[k]
            u += x * c[k]
            v += x * d[k]
    else:
        for k in range(width):
            x = q[k]
            s += (x - a[k]) * (x - a[k])
            t += (x - b[k]) * (x - b[k])
            u += (x - c[k]) * (x - c[k])
            v += (x - d[k]) * (x - d[k])
        s, t, u, v = -np.sqrt(s), -np.sqrt(t), -np.sqrt(u), -np.sqrt(v)
    return s, t, u, v


@inline()
def _sign(x, e, g):
    """g * d -|x - e| / d x; zero at zero distance."""
    zero = type(g)(0)
    return (-g if x > e else zero) + (g if x < e else zero)


@inline()
def _turn(x, y, e, f, g):
    """What g * d -|(x + iy) - (e + if)| multiplies the differences with; it is finite where these are 0."""
    return -g / np.sqrt(TINY + (x - e) * (x - e) + (y - f) * (y - f))


@inline()
def pull(kind, q, a, b, c, d, g, out):
    """Add the sum of g[i] * d similarity(q, row i) / d q over four rows to `out`."""
    width = q.shape[0]
    g0, g1, g2, g3 = g[0], g[1], g[2], g[3]
    if kind == L1:
        for k in range(width):
            x = q[k]
            out[k] += (_sign(x, a[k], g0) + _sign(x, b[k], g1)) + (_sign(x, c[k], g2) + _sign(x, d[k], g3))
    elif kind == L2:  # g is divided by the similarity already
        for k in range(width):
            x = q[k]
            out[k] += g0 * (x - a[k]) + g1 * (x - b[k]) + g2 * (x - c[k]) + g3 * (x - d[k])
    elif kind == MODULUS:
        half = width // 2
        for k in range(half):
            m = half + k
            x, y = q[k], q[m]
            s, t = _turn(x, y, a[k], a[m], g0), _turn(x, y, b[k], b[m], g1)
            u, v = _turn(x, y, c[k], c[m], g2), _turn(x, y, d[k], d[m], g3)
            out[k] += s * (x - a[k]) + t * (x - b[k]) + u * (x - c[k]) + v * (x - d[k])
            out[m] += s * (y - a[m]) + t * (y - b[m]) + u * (y - c[m]) + v * (y - d[m])
    else:
        for k in range(width):
            out[k] += g0 * a[k] + g1 * b[k] + g2 * c[k] + g3 * d[k]


@inline()
def _factor(kind, score, g):
    """What `pull` multiplies with: L2's gradient is the difference over the distance, which is -score."""
    if kind == L2:
        return g / score if score < 0 else type(g)(0)
    return g


@inline()
def query_scores(kind, q, table, index, scores):  # [w], [e, w], [n], [n]
    """The similarities of one query with its candidates."""
    last = index.shape[0] - 1
    for j in range(0, last + 1, 4):
        for soon in range(j + AHEAD, j + AHEAD + 4):
            ask(table, index[min(soon, last)])
        k, m, n = min(j + 1, last), min(j + 2, last), min(j + 3, last)
        a, b, c, d = table[index[j]], table[index[k]], table[index[m]], table[index[n]]
        scores[j], scores[k], scores[m], scores[n] = four(kind, q, a, b, c, d)


@inline()
def query_gradient(kind, q, table, index, scores, d_scores, far, out):
    """`out` = the gradient of one query; `far`: its candidates have to be asked for."""
    n = index.shape[0]
    g, rows = np.zeros(4, q.dtype), np.zeros(4, np.int64)
    out[:] = 0
    for start in range(0, n, 4):
        if far:
            for soon in range(start + AHEAD, start + AHEAD + 4):
                ask(table, index[min(soon, n - 1)])
        for k in range(4):
            j = min(start + k, n - 1)
            rows[k] = index[j]
            g[k] = _factor(kind, scores[j], d_scores[j]) if start + k < n else 0
        pull(kind, q, table[rows[0]], table[rows[1]], table[rows[2]], table[rows[3]], g, out)


@parallel()
def forward(kind, query, table, index, scores):  # [b, w], [e, w], [b, n], [b, n]
    for i in numba.prange(index.shape[0]):
        query_scores(kind, query[i], table, index[i], scores[i])


@parallel()
def backward_query(kind, query, table, index, scores, d_scores, d_query):
    for i in numba.prange(index.shape[0]):
        query_gradient(kind, query[i], table, index[i], scores[i], d_scores[i], True, d_query[i])


@parallel()
def contrast_rows(kind, query, table, index, margin, temperature, losses, scores, d_scores, d_query):
    """Scores, loss and the query's gradient, query by query: its candidates stay in the cache."""
    far = index.shape[1] * table.strides[0] > CACHE
    for i in numba.prange(index.shape[0]):
        query_scores(kind, query[i], table, index[i], scores[i])
        d_scores[i] = scores[i] + margin
        losses[i] = contrast_one(d_scores[i], temperature)
        query_gradient(kind, query[i], table, index[i], scores[i], d_scores[i], far, d_query[i])


@inline()
def _row_gradient(kind, query, table_row, n, scores, d_scores, ahead, values, positions, g, rows, out):
    """Add to `out` the gradient of one table row from all positions (ascending) that name it.

    A position below b * n is a candidate, one above a row of `ahead` or `values`, added as it is.
    Similarities are symmetric: to the row, its queries are candidates. `g` and `rows` have place for four.
    """
    pairs = query.shape[0] * n
    total = positions.shape[0]
    while total > 0 and positions[total - 1] >= pairs:
        total -= 1
    for start in range(0, total, 4):
        for k in range(4):
            position = positions[min(start + k, total - 1)]
            i, j = position // n, position % n
            rows[k] = i
            g[k] = _factor(kind, scores[i, j], d_scores[i, j]) if start + k < total else 0
        pull(kind, table_row, query[rows[0]], query[rows[1]], query[rows[2]], query[rows[3]], g, out)
    for position in positions[total:]:
        place = position - pairs
        extra = ahead[place] if place < ahead.shape[0] else values[place - ahead.shape[0]]
        for d in range(out.shape[0]):
            out[d] += extra[d]


@serial()
def row_gradient(kind, query, table_row, n, scores, d_scores, ahead, values, positions, g, rows, out):
    """`out` = `_row_gradient`, for callers that are compiled otherwise."""
    out[:] = 0
    _row_gradient(kind, query, table_row, n, scores, d_scores, ahead, values, positions, g, rows, out)


@inline()
def row_sum(ahead, values, positions, out):
    """`out` = `_row_gradient` of rows alone, without candidates: in the same order, rounded as written."""
    if positions.shape[0] == 0:
        out[:] = 0
    for number, place in enumerate(positions):
        extra = ahead[place] if place < ahead.shape[0] else values[place - ahead.shape[0]]
        if number == 0:
            for d in range(out.shape[0]):
                out[d] = extra[d]
        else:
            for d in range(out.shape[0]):
                out[d] += extra[d]


@inline()
def ask_row(ahead, values, place):
    """Start to fetch a row that `row_sum` will read soon."""
    if place < ahead.shape[0]:
        ask(ahead, place)
    else:
        ask(values, place - ahead.shape[0])


@parallel()
def backward_table(kind, query, table, n, scores, d_scores, ahead, values, rows, starts, order, out, dense):
    """Gradient rows: added to `out[row]` when dense, else written to `out[k]` for the k-th distinct row.

    When dense, `values` are added one after another to what is there, so that it does not matter to their sum
    in how many calls they come: stacked sites cut their batches elsewhere than one alone.
    """
    groups = rows.shape[0]
    chunks = min(groups, 256)
    total = order.shape[0]
    for chunk in numba.prange(chunks):
        first = np.searchsorted(starts[:groups], chunk * total // chunks)
        last = np.searchsorted(starts[:groups], (chunk + 1) * total // chunks)
        g, four_rows = np.empty(4, table.dtype), np.empty(4, np.int64)
        for k in range(first, last):
            row, positions = table[rows[k]], order[starts[k] : starts[k + 1]]
            target = out[rows[k] if dense else k]
            if not dense:
                target[:] = 0
            _row_gradient(
                kind, query, row, n, scores, d_scores, ahead, values, positions, g, four_rows, target
            )


@parallel()
def moments(table, kept, out):  # [e, w] twice, [e, 3]
    for i in numba.prange(table.shape[0]):
        x, k = table[i], kept[i]
        gap = square = product = x.dtype.type(0)
        for d in range(x.shape[0]):
            gap += (x[d] - k[d]) * (x[d] - k[d])
            square += x[d] * x[d]
            product += x[d] * k[d]
        out[i, 0], out[i, 1], out[i, 2] = gap, square, product


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
