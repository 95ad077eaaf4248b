"""Optimizer steps on the CPU: over whole tables, or over the rows a batch touched.

`pieces` [k, 3] are the rows that take a step (a stacked site that has run out of batches takes none): from,
to, and the number of the site, which has its own number of the step. One loop over the pieces of all sites: a
thousand small sites are one parallel loop, not a thousand. Gradients are cleared on the way. `numbers` and
`rates` are Adam's, as `stepping.adam_row` has them.
"""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise, inline, serial
from fedkge.kernels.cpu.prefetch import ask
from fedkge.kernels.cpu.similarity import ask_row, row_gradient, row_sum
from fedkge.kernels.cpu.stepping import adam_row, spare


@serial()
def pieces(ends, active, most):
    """About `most` pieces [k, 3] of the active sites' rows, of like sizes; at least one for each site."""
    total = np.int64(0)
    for s in range(ends.shape[0]):
        total += (ends[s] - (ends[s - 1] if s else 0)) if active[s] else 0
    parts = np.zeros(ends.shape[0], np.int64)
    for s in range(ends.shape[0]):
        if active[s]:
            rows = ends[s] - (ends[s - 1] if s else 0)
            parts[s] = max(1, -(-rows * most // max(1, total)))
    out, k = np.empty((parts.sum(), 3), np.int64), 0
    for s in range(ends.shape[0]):
        low = ends[s - 1] if s else 0
        for number in range(parts[s]):
            out[k, 0] = low + (ends[s] - low) * number // parts[s]
            out[k, 1] = low + (ends[s] - low) * (number + 1) // parts[s]
            out[k, 2] = s
            k += 1
    return out


@elementwise()
def adam(table, gradient, m, v, pieces, steps, numbers, rates):
    zero = table.dtype.type(0)
    for piece in numba.prange(pieces.shape[0]):
        first, last, s = pieces[piece]
        room = spare(table)
        for i in range(first, last):
            adam_row(table[i], m[i], v[i], gradient[i], numbers, rates, steps[s], 0, room)
            gradient[i, :] = zero


@elementwise()
def adagrad(table, gradient, squares, pieces, rate, epsilon):
    zero = table.dtype.type(0)
    for piece in numba.prange(pieces.shape[0]):
        for i in range(pieces[piece, 0], pieces[piece, 1]):
            row, s, g = table[i], squares[i], gradient[i]
            for d in range(row.shape[0]):
                s[d] += g[d] * g[d]
                row[d] -= rate * g[d] / (np.sqrt(s[d]) + epsilon)
                g[d] = zero


@elementwise()
def sgd(table, gradient, pieces, rate):
    zero = table.dtype.type(0)
    for piece in numba.prange(pieces.shape[0]):
        for i in range(pieces[piece, 0], pieces[piece, 1]):
            row, g = table[i], gradient[i]
            for d in range(row.shape[0]):
                row[d] -= rate * g[d]
                g[d] = zero


@inline()
def _gradient(kind, query, row, n, scores, d_scores, ahead, values, cubed, starts, order, k, g, four, out):
    """`out` = the gradient of the k-th touched row."""
    positions = order[starts[k] : starts[k + 1]]
    first, slope = query.shape[0] * n + ahead.shape[0] + values.shape[0], row.dtype.type(0)
    if cubed.shape[0]:
        added = np.searchsorted(positions, first)
        for position in positions[added:]:
            slope += cubed[position - first]
        positions = positions[:added]
    if query.shape[0] * n:
        row_gradient(kind, query, row, n, scores, d_scores, ahead, values, positions, g, four, out)
    else:
        for position in order[starts[k + 1] : starts[min(k + 2, starts.shape[0] - 1)]]:
            if position < first:
                ask_row(ahead, values, position)  # of the next touched row
        row_sum(ahead, values, positions, out)
    if cubed.shape[0]:
        slope *= type(slope)(3)
        for d in range(out.shape[0]):
            out[d] += slope * abs(row[d]) * row[d]


@elementwise()
def adam_touched(
    kind,
    query,
    table,
    n,
    scores,
    d_scores,
    ahead,
    values,
    cubed,
    rows,
    starts,
    order,
    m,
    v,
    site,
    active,
    steps,
    ids,
    last_steps,
    until,
    numbers,
    rates,
):
    """Compute the gradient of each touched row and step it at once; `site[k]` owns the k-th row.

    Rows `ids` go on without a gradient, up to `last_steps`: `until` [e] is room. Without ids none does.
    """
    groups, total = rows.shape[0], order.shape[0]
    for p in range(ids.shape[0]):
        until[ids[p]] = last_steps[p]
    chunks = min(groups, 256)
    for chunk in numba.prange(chunks):
        first = np.searchsorted(starts[:groups], chunk * total // chunks)
        last = np.searchsorted(starts[:groups], (chunk + 1) * total // chunks)
        gradient, room = np.empty(table.shape[1], table.dtype), spare(table)
        g, four = np.empty(4, table.dtype), np.empty(4, np.int64)
        for k in range(first, last):
            i, s = rows[k], site[k]
            if not active[s]:
                continue
            soon = rows[min(k + 1, groups - 1)]
            ask(table, soon)
            ask(m, soon)
            ask(v, soon)
            _gradient(
                kind,
                query,
                table[i],
                n,
                scores,
                d_scores,
                ahead,
                values,
                cubed,
                starts,
                order,
                k,
                g,
                four,
                gradient,
            )
            more = until[i] - steps[s] if ids.shape[0] > 0 else 0
            adam_row(table[i], m[i], v[i], gradient, numbers, rates, steps[s], more, room)


@serial()
def late(ids, taken, ends, steps, out):
    """The rows among `ids` that have missed steps: their numbers, the steps taken and due, into `out` [k, 3].

    They count as caught up, so that no row is found twice. Returns how many there are.
    """
    found, alone = 0, ends.shape[0] == 1
    for i in ids:
        due = steps[0 if alone else np.searchsorted(ends, i, side="right")]
        if taken[i] < due:
            out[found, 0], out[found, 1], out[found, 2] = i, taken[i], due
            taken[i] = due
            found += 1
    return found


@elementwise()
def catch_up(table, m, v, late, numbers, rates):
    """`adam` for late rows: of a row with a gradient of 0."""
    nothing = np.zeros(table.shape[1], table.dtype)
    for place in numba.prange(late.shape[0]):
        i, taken, due = late[place]
        soon = late[min(place + 1, late.shape[0] - 1), 0]
        ask(table, soon)
        ask(m, soon)
        ask(v, soon)
        adam_row(table[i], m[i], v[i], nothing, numbers, rates, taken + 1, due - taken - 1, spare(table))


@serial()
def foresee(ids, bounds, ends, counts, taken, due, until, distinct, late):
    """For steps that read the rows ids[bounds[k]:bounds[k + 1]]: who is late, and how far each row may go.

    `counts` [steps + 1, sites] are the steps that each site has taken before each of them, and after the
    last. A row that a step reads may then take all steps up to the next one that reads it: until[p] for the
    one at place p. One that is not read again waits. `distinct` [steps] tells how many rows each step reads.
    Before the first step, rows must have taken those that come before their first reading: `late` [k, 3] gets
    who has not, and they count as caught up. `due` holds -1 for every row, before and after. Returns how many
    are late.
    """
    alone = ends.shape[0] == 1
    for k in range(bounds.shape[0] - 2, -1, -1):
        for p in range(bounds[k], bounds[k + 1]):
            i = ids[p]
            if due[i] < 0:
                until[p] = counts[k + 1, 0 if alone else np.searchsorted(ends, i, side="right")]
            else:
                until[p] = due[i]
        distinct[k] = 0
        for p in range(bounds[k], bounds[k + 1]):
            i = ids[p]
            before = counts[k, 0 if alone else np.searchsorted(ends, i, side="right")]
            distinct[k] += due[i] != before  # a later reading comes after more steps
            due[i] = before
    found = 0
    for i in ids:
        if taken[i] < due[i]:
            late[found, 0], late[found, 1], late[found, 2] = i, taken[i], due[i]
            taken[i] = due[i]
            found += 1
        due[i] = -1
    return found


@inline()
def tie_row(row, kept, factors, gradient):
    """Add what a tie says to the gradient of one row."""
    gap, square, product = factors[0], factors[1], factors[2]
    for d in range(row.shape[0]):
        gradient[d] += gap * (row[d] - kept[d]) + square * row[d] + product * kept[d]


@elementwise()
def adam_whole(
    kind,
    query,
    table,
    n,
    scores,
    d_scores,
    ahead,
    values,
    cubed,
    rows,
    starts,
    order,
    kept,
    ties,
    m,
    v,
    pieces,
    steps,
    numbers,
    rates,
):
    """`adam`, with each row's gradient computed where it is used: no table of gradients is kept.

    `kept` and `ties` are a tie's tables, or have no rows.
    """
    for piece in numba.prange(pieces.shape[0]):
        first, last, s = pieces[piece]
        gradient, nothing = np.empty(table.shape[1], table.dtype), np.zeros(table.shape[1], table.dtype)
        g, four, room = np.empty(4, table.dtype), np.empty(4, np.int64), spare(table)
        k = np.searchsorted(rows, first)
        for i in range(first, last):
            pull = nothing
            if k < rows.shape[0] and rows[k] == i:
                _gradient(
                    kind,
                    query,
                    table[i],
                    n,
                    scores,
                    d_scores,
                    ahead,
                    values,
                    cubed,
                    starts,
                    order,
                    k,
                    g,
                    four,
                    gradient,
                )
                pull = gradient
                k += 1
            elif kept.shape[0] > 0:
                gradient[:] = 0
                pull = gradient
            if kept.shape[0] > 0:
                tie_row(table[i], kept[i], ties[i], gradient)
            adam_row(table[i], m[i], v[i], pull, numbers, rates, steps[s], 0, room)
