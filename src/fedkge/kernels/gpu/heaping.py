"""Adam on the GPU from gradients of rows: added up where there is room for the table's, by atomics.

A row's sum depends on the order in which its parts come, so that its last bits differ from run to run. Under
deterministic algorithms parts are shelved instead (`shelving`).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Adam, Contribution, Pace
from fedkge.kernels.gpu.grouping import Sources
from fedkge.kernels.gpu.launch import LONGEST, launch
from fedkge.kernels.gpu.optimizers import (
    adam_step,
    constants_of,
    corrections,
    site_of,
    sites_of,
    steps_now,
)

ROWS, WARPS = 4, 4  #: rows in a tile of a table, and warps
KEEP = "evict_first"  #: moments make way in the cache for what other kernels have there
HOLD = "evict_first"  #: and so do rows


def fits(part: Contribution) -> bool:
    """Whether a gradient can be added up by atomics: it is made of rows, and need not repeat bit by bit."""
    return part.room is not None and of_rows(part)


def of_rows(part: Contribution) -> bool:
    """Whether a gradient is made of rows alone, and may depend on their order."""
    return not part.index.numel() and not torch.are_deterministic_algorithms_enabled()


@triton.jit
def _heap(
    sums, touched, ids, ahead, values, front, MARKED: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr
):
    """Add a row to the one that it is a part of."""
    k = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    row = tl.load(ids + k)
    first = (k < front) & (d < WIDTH)
    value = tl.load(ahead + k * WIDTH + d, mask=first, other=0.0)
    value += tl.load(values + (k - front) * WIDTH + d, mask=(k >= front) & (d < WIDTH), other=0.0)
    tl.atomic_add(sums + row * WIDTH + d, value, mask=d < WIDTH, sem="relaxed")
    if MARKED:
        tl.store(touched + row, 1)


def heap(part: Contribution, sums: Tensor, touched: Tensor | None = None) -> None:
    """Add the rows of a part to sums, and mark those that it touches."""
    sources, width = Sources.of(part), part.values.shape[1]
    _, ahead, values = sources.tensors()
    chunk = min(triton.next_power_of_2(width), LONGEST)
    grid = (len(part.ids), triton.cdiv(width, chunk))
    rows = (part.ids.contiguous(), ahead, values, len(sources.ahead))
    meta = {"MARKED": touched is not None, "WIDTH": width, "CHUNK": chunk, "num_warps": 2}
    launch(_heap, grid, sums, sums if touched is None else touched, *rows, **meta)


@triton.jit
def _state(table, m, v, at, mask, KEEP: tl.constexpr, HOLD: tl.constexpr):
    x = tl.load(table + at, mask=mask, other=0.0, eviction_policy=HOLD)
    first = tl.load(m + at, mask=mask, other=0.0, eviction_policy=KEEP)
    return x, first, tl.load(v + at, mask=mask, other=0.0, eviction_policy=KEEP)


@triton.jit
def _adam_heaped(
    table,
    m,
    v,
    sums,  # [height, WIDTH], cleared
    touched,  # [height], cleared
    ends,
    active,
    corrections,  # [2, sites]
    sites,
    kept,  # [height, WIDTH] if TIED
    ties,  # [height, 3] if TIED
    steps,
    height,
    taken,  # [height] if LATE
    TIED: tl.constexpr,
    LATE: tl.constexpr,  # only rows that are touched take the step
    ALONE: tl.constexpr,  # one site: rows are loaded before it is known whether it steps
    KEEP: tl.constexpr,
    HOLD: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    SEARCH: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    tile = tl.program_id(0)
    if tl.load(steps) % 2 == 1:  # there and back: what a step ends with is still in the cache
        tile = tl.num_programs(0) - 1 - tile
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)[None, :]
    inside = (row < height)[:, None] & (d < WIDTH)
    at = row[:, None] * WIDTH + d
    if ALONE and not LATE:
        x, first, second = _state(table, m, v, at, inside, KEEP, HOLD)
    heaped = inside & (tl.load(touched + row, mask=row < height, other=0) != 0)[:, None]
    g = tl.load(sums + at, mask=heaped, other=0.0)
    if ALONE:
        site = row * 0
        now = inside & ((row < tl.load(ends)) & (tl.load(active) != 0))[:, None]
    else:
        site = site_of(row, ends, sites, SEARCH)
        now = inside & steps_now(site, active, sites)[:, None]
    if LATE:
        now &= heaped
        count = tl.load(steps + site, mask=site < sites, other=0)
        tl.store(taken + row, count.to(tl.int32), mask=tl.max(now.to(tl.int32), 1) != 0)
    if LATE or not ALONE:
        x, first, second = _state(table, m, v, at, now, KEEP, HOLD)
    tl.store(sums + at, tl.zeros_like(g), mask=heaped)
    if TIED:
        k = tl.load(kept + at, mask=now, other=0.0)
        factors = ties + row[:, None] * 3
        there = (row < height)[:, None]
        g += tl.load(factors, mask=there, other=0.0) * (x - k)
        g += tl.load(factors + 1, mask=there, other=0.0) * x
        g += tl.load(factors + 2, mask=there, other=0.0) * k
    rate = tl.load(corrections + site, mask=site < sites, other=0.0)[:, None]
    inverse = tl.load(corrections + sites + site, mask=site < sites, other=1.0)[:, None]
    x, first, second = adam_step(x, g, first, second, rate, inverse, BETA1, BETA2, EPSILON)
    tl.store(table + at, x, mask=now, eviction_policy=HOLD)
    tl.store(m + at, first, mask=now, eviction_policy=KEEP)
    tl.store(v + at, second, mask=now, eviction_policy=KEEP)
    if CHUNK >= WIDTH:  # elsewhere other programs read it
        tl.debug_barrier()  # every warp has read it: a row may be spread over several
        tl.store(touched + row, tl.zeros_like(row).to(tl.uint8), mask=row < height)


def adam_heaped(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    """Step a whole table; rows that no part touched have a gradient of 0, which is not read.

    Where rows may be late, those take no step now.
    """
    assert part.room is not None
    room, (height, width), sites = part.room, table.shape, len(pace.ends)
    heap(part, room.sums, room.touched)
    chunk = min(triton.next_power_of_2(width), LONGEST)
    grid = (triton.cdiv(height, ROWS), triton.cdiv(width, chunk))
    tie = (table, table) if part.tie is None else (part.tie.kept, part.tie.factors.contiguous())
    late = pace.taken is not None  # what was read for this step is still in the cache
    owners = (*sites_of(pace), corrections(pace, adam, table.dtype), sites, *tie, pace.steps, height)
    taken = table if pace.taken is None else pace.taken
    flags = {"TIED": part.tie is not None, "LATE": late, "ALONE": sites == 1}
    hints = {"KEEP": "" if late else KEEP, "HOLD": "" if late else HOLD}
    meta = {"SEARCH": sites.bit_length(), **flags, **hints, **constants_of(adam)}
    tile = {"WIDTH": width, "ROWS": ROWS, "CHUNK": chunk, "num_warps": WARPS}
    launch(_adam_heaped, grid, table, m, v, room.sums, room.touched, *owners, taken, **meta, **tile)
    if chunk < width:
        room.touched.zero_()
