"""Slopes of pairs of queries and shared negatives: what the gradients of rows are multiplied with."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Shared, Similarity
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.laying import Layout
from fedkge.kernels.gpu.similarity import DOT, L2, MODULUS, pull, pull_complex


@dataclass(frozen=True, slots=True)
class Slopes:
    """What gradients of a batch's pairs are multiplied with, laid out as the pairs are; 0 where none is."""

    by_query: Tensor  # [front, there]
    by_negative: Tensor  # [there, front]
    own: Tensor  # [b], of each query's true candidate

    @classmethod
    def empty(cls, layout: Layout, queries: int) -> Slopes:
        shape = layout.front, layout.there
        return cls(*(layout.rows.new_empty(size) for size in (shape, shape[::-1], (queries,))))


@triton.jit
def slope_of(score, g, KIND: tl.constexpr):
    """What gradients are multiplied with: nothing where rows are equal; L2 divides by minus the distance."""
    if KIND == L2:
        return tl.where(score < 0, g / tl.where(score < 0, score, -1.0), 0.0)
    elif KIND == DOT:
        return g
    else:
        return tl.where(score != 0, g, 0.0)


@triton.jit
def _slopes(
    by_query,  # [front, there], written
    by_negative,  # [there, front], written
    own,  # [b], written
    scores,
    d_scores,
    each,
    starts,
    front,
    slots,
    there,
    n,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slopes times each [b], the negatives' in both orders; 0 where there is no query or no negative."""
    r = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    j = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    asks = r < front
    chunk = tl.where(asks, r // slots, 0)
    i = tl.load(starts + chunk) + r % slots
    mine = asks & (i < tl.load(starts + chunk + 1))
    at, drawn = i * (n + 1) + 1 + j, mine & (j < n)
    times = tl.load(each + i, mask=mine, other=0.0)
    g = tl.load(d_scores + at, mask=drawn, other=0.0) * times
    g = slope_of(tl.load(scores + at, mask=drawn, other=0.0), g, KIND)
    inside = asks & (j < there)
    tl.store(by_query + r.to(tl.int64) * there + j, g, mask=inside)
    tl.store(by_negative + j.to(tl.int64) * front + r, g, mask=inside)
    if tl.program_id(1) == 0:
        score = tl.load(scores + i * (n + 1), mask=mine, other=0.0)
        slope = tl.load(d_scores + i * (n + 1), mask=mine, other=0.0) * times
        tl.store(own + i, slope_of(score, slope, KIND), mask=mine)


def slopes_of(
    kind: Similarity, shared: Shared, layout: Layout, scores: Tensor, d_scores: Tensor, each: Tensor
) -> Slopes:
    """Slopes of similarities [b, 1 + n] that have the gradients d_scores [b, 1 + n] times each [b]."""
    found = Slopes.empty(layout, len(each))
    grid = (triton.cdiv(layout.front, 32), triton.cdiv(layout.there, 32))
    sizes = (layout.front, layout.slots, layout.there, shared.negatives.shape[1])
    factors = (scores, d_scores, each, shared.starts)
    out = (found.by_query, found.by_negative, found.own)
    launch(_slopes, grid, *out, *factors, *sizes, KIND=int(kind), BLOCK=32)
    return found


@triton.jit
def both(base, at, mask, KIND: tl.constexpr, SPAN: tl.constexpr):
    """Real and imaginary part."""
    x = tl.load(base + at, mask=mask, other=0.0)
    if KIND == MODULUS:
        return x, tl.load(base + at + SPAN, mask=mask, other=0.0)
    else:
        return x, x


@triton.jit
def true(
    i,
    mine,
    d,
    live,
    times,  # [ROWS, 1], of what true candidates give
    d_query,
    d_true,
    sum_x,
    sum_y,
    x,
    y,
    table,
    true,
    own,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Add what true candidates give to the gradients of queries; write these and those of the candidates."""
    there = live & mine
    at = i * WIDTH + d
    step_x, step_y, true_x, true_y = to_true(
        i, mine, d, there, times, x, y, table, true, own, KIND, WIDTH, SPAN
    )
    tl.store(d_query + at, sum_x + step_x, mask=there)
    tl.store(d_true + at, true_x, mask=there)
    if KIND == MODULUS:
        tl.store(d_query + at + SPAN, sum_y + step_y, mask=there)
        tl.store(d_true + at + SPAN, true_y, mask=there)


@triton.jit
def to_true(
    i, mine, d, there, times, x, y, table, true, own, KIND: tl.constexpr, WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip
    """What true candidates give to queries x + iy, and get from them: real and imaginary part of either."""
    e_x, e_y = both(table, tl.load(true + i, mask=mine, other=0) * WIDTH + d, there, KIND, SPAN)
    weight = times * tl.load(own + i, mask=mine, other=0.0)
    if KIND == MODULUS:
        step_x, step_y = pull_complex(x, y, e_x, e_y, weight)
        return step_x, step_y, -step_x, -step_y
    elif KIND == DOT:
        step_x, true_x = weight * e_x, weight * x
        return step_x, step_x, true_x, true_x
    else:
        step_x = pull(x, e_x, weight, KIND)
        return step_x, step_x, -step_x, -step_x
