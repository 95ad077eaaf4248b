"""Tiles of queries and negatives in registers: their similarities, and the gradients of both.

Negatives lie packed by blocks of as many coordinates as a vector has: `[blocks, negatives + 4, lanes]`, and
of complex numbers the imaginary blocks after the real ones. The four unused rows keep blocks from falling
into the same sets of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedkge.kernels.cpu.similarity import DOT, L1, L2, MODULUS
from fedkge.kernels.cpu.vectors import BYTES, I64, Vectors, vectorised

SIDE = 4  #: queries and negatives in a tile of similarities
GROUP = 8  #: queries in a tile of gradients


def _forward(kind: int) -> Callable[..., None]:
    """SIDE x SIDE sums over the coordinates: distances without their sign, squares for L2, products.

    Of L1 it is the larger coordinate of both: |x - e| = 2 max(x, e) - x - e, and sums of rows are known.

    `ones` is where a 1 lies: an addition that is written as x * 1 + y uses units of the processor that
    additions leave idle.
    """

    def write(
        v: Vectors,
        query: Any,
        query_step: Any,  # bytes from one query to the next
        packed: Any,
        packed_step: Any,  # bytes from one block to the next
        blocks: Any,  # of complex numbers: blocks of real parts
        half: Any,  # bytes from a real to an imaginary part: in a query
        packed_half: Any,
        out: Any,
        out_step: Any,
        ones: Any,
    ) -> None:
        b, one = v.b, v.repeated(ones)
        queries = [query]
        for _ in range(SIDE - 1):
            queries.append(b.add(queries[-1], query_step))

        def body(i: Any, sums: list[Any]) -> list[Any]:
            at, block = b.mul(i, I64(BYTES)), b.add(packed, b.mul(i, packed_step))
            xs = [v.load(q, at) for q in queries]
            if kind == MODULUS:
                ys, imaginary = [v.load(q, b.add(at, half)) for q in queries], b.add(block, packed_half)
            for n in range(SIDE):
                e = v.load(block, n * BYTES)
                if kind == MODULUS:
                    f = v.load(imaginary, n * BYTES)
                for m in range(SIDE):
                    k = m * SIDE + n
                    if kind == DOT:
                        sums[k] = v.fma(xs[m], e, sums[k])
                        continue
                    if kind == L1:
                        sums[k] = v.fma(v.larger(xs[m], e), one, sums[k])
                        continue
                    gap = b.fsub(xs[m], e)
                    if kind == L2:
                        sums[k] = v.fma(gap, gap, sums[k])
                    else:
                        other = b.fsub(ys[m], f)
                        sums[k] = v.add_root(v.square(gap, other), sums[k])
            return sums

        totals = v.sums(v.loop(blocks, [v.constant(0.0)] * SIDE**2, body))
        if kind == MODULUS:
            totals = [b.fmul(total, v.constant(0.5)) for total in totals]
        for m in range(SIDE):
            v.store_some(totals, m * SIDE, SIDE, out)
            out = b.add(out, out_step)

    return write


def _row_sum(v: Vectors, row: Any, step: Any, blocks: Any, out: Any) -> None:
    """The sum of a row's coordinates in the order of a tile of L1: equal rows are 0 apart."""

    def body(i: Any, sums: list[Any]) -> list[Any]:
        return [v.b.fadd(sums[0], v.load(row, v.b.mul(i, step)))]

    (total,) = v.loop(blocks, [v.constant(0.0)], body)
    v.store_some([v.sum(total)], 0, 1, out)


def _backward(kind: int) -> Callable[..., None]:
    """One block of coordinates, GROUP queries, `count` negatives: what a slope g moves either by.

    `d_query` and `d_packed` are added to. Of L2, slopes are divided by the distance already, of the modulus
    they are halved.
    """
    group = GROUP // 2 if kind == MODULUS else GROUP  # as many sums as registers hold

    def some(v: Vectors, query: Any, slopes: Any, d_query: Any, common: tuple[Any, ...]) -> None:
        query_step, packed, d_packed, slope_step, count, half, packed_half, d_half, ones = common
        b, one = v.b, v.repeated(ones)
        xs, ys, rows, places, sums = [], [], [], [], []
        for _ in range(group):
            xs.append(v.load(query))
            rows.append(slopes)
            places.append(d_query)
            sums.append(v.load(d_query))
            if kind == MODULUS:
                ys.append(v.load(query, half))
                sums.append(v.load(d_query, half))
            query, d_query = b.add(query, query_step), b.add(d_query, query_step)
            slopes = b.add(slopes, slope_step)

        def body(j: Any, sums: list[Any]) -> list[Any]:
            at, column = b.mul(j, I64(BYTES)), b.mul(j, I64(v.item))
            e = v.load(packed, at)
            if kind == MODULUS:
                f = v.load(packed, b.add(at, packed_half))
                d = [v.load(d_packed, at), v.load(d_packed, b.add(at, d_half))]
            else:
                d = [v.load(d_packed, at), v.constant(0.0)]
            for m in range(group):
                g = v.repeated(b.add(rows[m], column))
                if kind == DOT:
                    sums[m] = v.fma(g, e, sums[m])
                    d[m % 2] = v.fma(g, xs[m], d[m % 2])
                    continue
                gap = v.fma(xs[m], one, b.fneg(e)) if kind == L1 else b.fsub(xs[m], e)
                if kind == MODULUS:
                    other = b.fsub(ys[m], f)
                    turn = b.fmul(g, v.inverse(v.square(gap, other)))
                    for part, length in enumerate((gap, other)):
                        step = b.fmul(turn, length)
                        sums[2 * m + part] = b.fsub(sums[2 * m + part], step)
                        d[part] = b.fadd(d[part], step)
                else:
                    step = v.signed(gap, g) if kind == L1 else b.fmul(g, gap)
                    sums[m] = b.fsub(sums[m], step)
                    d[m % 2] = v.fma(step, one, d[m % 2]) if m % 2 else b.fadd(d[m % 2], step)
            if kind == MODULUS:
                v.store(d[0], d_packed, at)
                v.store(d[1], d_packed, b.add(at, d_half))
            else:
                v.store(b.fadd(*d), d_packed, at)
            return sums

        sums = v.loop(count, sums, body)
        for m, place in enumerate(places):
            v.store(sums[2 * m] if kind == MODULUS else sums[m], place)
            if kind == MODULUS:
                v.store(sums[2 * m + 1], place, half)

    def write(v: Vectors, query: Any, slopes: Any, d_query: Any, *common: Any) -> None:
        for first in range(0, GROUP, group):
            step, slope_step = (v.b.mul(common[i], I64(first)) for i in (0, 3))
            some(v, v.b.add(query, step), v.b.add(slopes, slope_step), v.b.add(d_query, step), common)

    return write


forward_l1, forward_l2, forward_modulus, forward_dot = (
    vectorised(10, _forward(kind)) for kind in (L1, L2, MODULUS, DOT)
)
row_sum = vectorised(4, _row_sum)
backward_l1, backward_l2, backward_modulus, backward_dot = (
    vectorised(12, _backward(kind)) for kind in (L1, L2, MODULUS, DOT)
)
