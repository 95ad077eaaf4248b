"""Adam on the GPU from gradients that are still factors: each row's is computed where the row is stepped."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Adam, Contribution, Pace
from fedkge.kernels.gpu.grouping import GROUPS, SLICE, Groups, first_head, group_gradient
from fedkge.kernels.gpu.launch import Tiles, launch
from fedkge.kernels.gpu.optimizers import (
    adam_step,
    constants_of,
    corrections,
    site_of,
    sites_of,
    steps_now,
)
from fedkge.kernels.gpu.shelving import Shelves, shelf_gradient, shelf_tiles
from fedkge.kernels.gpu.similarity import MODULUS


@triton.jit
def _adam_touched(
    table,
    m,
    v,
    ends,
    active,
    corrections,  # [2, sites]
    sites,
    rows,
    order,
    query,
    ahead,
    values,
    scores,
    d_scores,
    total,
    pairs,
    front,  # rows that are `ahead`
    n,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    SEARCH: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    SLICE: tl.constexpr,
):
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)[None, :]
    live = d < SPAN
    head, stop = first_head(rows, total, SLICE)
    while head < stop:
        row = tl.load(rows + head).to(tl.int64)
        at = row * WIDTH + d
        x = tl.load(table + at, mask=live, other=0.0)
        y = x
        if KIND == MODULUS:
            y = tl.load(table + at + SPAN, mask=live, other=0.0)
        g_x, g_y, end = group_gradient(
            head, row, x, y, d, rows, order, query, ahead, values, scores, d_scores, total, pairs, front, n,
            KIND, WIDTH, SPAN, BLOCK, CHUNK,
        )  # fmt: skip
        site = site_of(row, ends, sites, SEARCH)
        if steps_now(site, active, sites):
            rate = tl.load(corrections + site)
            inverse = tl.load(corrections + sites + site)
            _step_row(table, m, v, at, live, x, g_x, rate, inverse, BETA1, BETA2, EPSILON)
            if KIND == MODULUS:
                _step_row(table, m, v, at + SPAN, live, y, g_y, rate, inverse, BETA1, BETA2, EPSILON)
        head = end


@triton.jit
def _step_row(table, m, v, at, mask, value, g, rate, inverse, BETA1, BETA2, EPSILON):
    first = tl.load(m + at, mask=mask, other=0.0)
    second = tl.load(v + at, mask=mask, other=0.0)
    value, first, second = adam_step(value, g, first, second, rate, inverse, BETA1, BETA2, EPSILON)
    tl.store(table + at, value, mask=mask)
    tl.store(m + at, first, mask=mask)
    tl.store(v + at, second, mask=mask)


def adam_touched(
    table: Tensor,
    part: Contribution,
    groups: Groups,
    m: Tensor,
    v: Tensor,
    pace: Pace,
    adam: Adam,
    tiles: Tiles = GROUPS,
    slice_: int = SLICE,
) -> None:
    """Compute the gradient of each touched row and step it at once."""
    sites = len(pace.ends)
    shape = tiles.fit(part.kind, table.shape[1], len(groups.rows))
    grid = (triton.cdiv(len(groups.rows), slice_), triton.cdiv(shape["SPAN"], shape["CHUNK"]))
    owners = (*sites_of(pace), corrections(pace, adam, table.dtype), sites)
    meta = {"SEARCH": sites.bit_length(), "SLICE": slice_, **constants_of(adam), **shape}
    launch(_adam_touched, grid, table, m, v, *owners, *groups.arguments(part), **meta)


@triton.jit
def tied(x, kept, at, mask, factors):
    """What a tie adds to the gradient of a row."""
    k = tl.load(kept + at, mask=mask, other=0.0)
    return tl.load(factors) * (x - k) + tl.load(factors + 1) * x + tl.load(factors + 2) * k


@triton.jit
def _adam_whole(
    table,
    m,
    v,
    ends,
    active,
    corrections,  # [2, sites]
    sites,
    kept,  # [height, WIDTH] if TIED
    ties,  # [height, 3] if TIED
    starts,
    order,
    query,
    ahead,
    values,
    scores,
    d_scores,
    pairs,
    front,  # rows that are `ahead`
    n,
    TIED: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    SEARCH: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    site = site_of(row, ends, sites, SEARCH)
    if steps_now(site, active, sites):
        d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)[None, :]
        live = d < SPAN
        at = row * WIDTH + d
        x = tl.load(table + at, mask=live, other=0.0)
        y = x
        if KIND == MODULUS:
            y = tl.load(table + at + SPAN, mask=live, other=0.0)
        g_x, g_y = shelf_gradient(
            row, x, y, d, starts, order, query, ahead, values, scores, d_scores, pairs, front, n,
            KIND, WIDTH, SPAN, BLOCK, CHUNK,
        )  # fmt: skip
        if TIED:
            g_x += tied(x, kept, at, live, ties + row * 3)
            if KIND == MODULUS:
                g_y += tied(y, kept, at + SPAN, live, ties + row * 3)
        rate = tl.load(corrections + site)
        inverse = tl.load(corrections + sites + site)
        _step_row(table, m, v, at, live, x, g_x, rate, inverse, BETA1, BETA2, EPSILON)
        if KIND == MODULUS:
            _step_row(table, m, v, at + SPAN, live, y, g_y, rate, inverse, BETA1, BETA2, EPSILON)


def adam_whole(
    table: Tensor,
    part: Contribution,
    m: Tensor,
    v: Tensor,
    pace: Pace,
    adam: Adam,
    tiles: Tiles | None = None,
) -> None:
    """Compute the gradient of each row and step it at once: no gradient of the table's size exists."""
    sites = len(pace.ends)
    shape = (tiles or shelf_tiles(part, len(table))).fit(part.kind, table.shape[1], 1 << 20)
    grid = (len(table), triton.cdiv(shape["SPAN"], shape["CHUNK"]))
    shelves = Shelves.of(part, len(table))
    owners = (*sites_of(pace), corrections(pace, adam, table.dtype), sites)
    tie = (table, table) if part.tie is None else (part.tie.kept, part.tie.factors.contiguous())
    flags = {"TIED": part.tie is not None, "SEARCH": sites.bit_length()}
    arguments = (*owners, *tie, *shelves.arguments(part))
    launch(_adam_whole, grid, table, m, v, *arguments, **flags, **constants_of(adam), **shape)
