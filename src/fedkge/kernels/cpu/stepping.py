"""Steps of Adam (Kingma & Ba, 2015) on one row, as torch.optim.Adam takes them, written as vectors.

A row's numbers stay in registers for as many steps as it takes at once. Every kernel that steps rows does it
here, so that a row that takes its steps later, or several of them at once, ends with the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkge.kernels.cpu.compile import inline
from fedkge.kernels.cpu.laying import address
from fedkge.kernels.cpu.vectors import BYTES, I64, Vectors, vectorised


def _steps(
    v: Vectors,
    row: Any,
    first: Any,  # moments
    second: Any,
    pull: Any,  # the gradient of the first step; the others have none
    blocks: Any,
    numbers: Any,  # beta1, beta2, 1 - beta1, 1 - beta2, epsilon
    rates: Any,  # of each step: the rate over its first correction, half of one over the second's root
    more: Any,  # steps after the first
    known: Any,  # steps after the first that `rates` has: later ones have the last
) -> None:
    b = v.b
    beta1, beta2, rest1, rest2, epsilon = (v.repeated(b.add(numbers, I64(k * v.item))) for k in range(5))
    least, most = v.constant(v.least), v.constant(v.most)

    def moved(x: Any, m: Any, s: Any, at: Any) -> Any:
        """The row after a step that has the moments m and s."""
        rate, half = v.repeated(at), v.repeated(b.add(at, I64(v.item)))
        root = v.double_root(v.larger(least, s))
        way = v.quotient(b.fmul(rate, m), v.fma(root, half, epsilon))
        overflowed = b.fcmp_ordered(">", s, most)  # by infinity, an estimate divides to no number
        return b.fsub(x, b.select(overflowed, v.constant(0.0), way))

    def block(i: Any, _: list[Any]) -> list[Any]:
        at = b.mul(i, I64(BYTES))
        g, m, s = v.load(pull, at), v.load(first, at), v.load(second, at)
        m, s = v.fma(rest1, g, b.fmul(beta1, m)), v.fma(b.fmul(rest2, g), g, b.fmul(beta2, s))
        x = moved(v.load(row, at), m, s, rates)

        def step(k: Any, carried: list[Any]) -> list[Any]:
            x, m, s = carried
            m, s = b.fmul(beta1, m), b.fmul(beta2, s)
            after = b.add(k, I64(1))
            after = b.select(b.icmp_signed("<", after, known), after, known)
            place = b.add(rates, b.mul(after, I64(2 * v.item)))
            return [moved(x, m, s, place), m, s]

        x, m, s = v.loop_if_any(more, [x, m, s], step)
        for value, where in ((x, row), (m, first), (s, second)):
            v.store(value, where, at)
        return []

    v.loop(blocks, [], block)


_steps_of_vectors = vectorised(9, _steps)


@inline()
def spare(like):
    """Room for what `adam_row` has left of a row that does not fill whole vectors."""
    return np.zeros((4, BYTES // like.itemsize), like.dtype)


@inline()
def adam_row(row, m, v, g, numbers, rates, step, more, room):
    """Step number `step` with the gradient g, and `more` after it without one.

    `rates` [steps, 2] are those of every step; the last are those of all later ones, too. `room` comes from
    `spare`.
    """
    lanes = room.shape[1]
    whole, left = row.shape[0] // lanes, row.shape[0] % lanes
    at, known = min(step, rates.shape[0] - 1), max(0, rates.shape[0] - 1 - step)
    these = (address(numbers), address(rates) + 2 * at * rates.itemsize, np.int64(more), np.int64(known))
    if whole > 0:
        arrays = (address(row), address(m), address(v), address(g), np.int64(whole))
        _steps_of_vectors(rates[0, 0], arrays + these)
    if left > 0:
        start = whole * lanes
        for d in range(left):
            room[0, d], room[1, d] = row[start + d], m[start + d]
            room[2, d], room[3, d] = v[start + d], g[start + d]
        begin = address(room)
        width = np.int64(BYTES)
        arrays = (begin, begin + width, begin + 2 * width, begin + 3 * width, np.int64(1))
        _steps_of_vectors(rates[0, 0], arrays + these)
        for d in range(left):
            row[start + d], m[start + d], v[start + d] = room[0, d], room[1, d], room[2, d]
