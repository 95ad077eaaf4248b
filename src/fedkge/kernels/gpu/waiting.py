"""Rows that may be late with steps of Adam, on the GPU: they catch up, and take a step they were promised."""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Adam, Contribution, Pace
from fedkge.kernels.gpu.heaping import heap
from fedkge.kernels.gpu.launch import LONGEST, launch
from fedkge.kernels.gpu.optimizers import (
    adam_step,
    all_corrections,
    constants_of,
    corrections,
    site_of,
    sites_of,
    steps_now,
)

WARPS = 4  #: that let a row catch up
NUMBERS = 128  #: of a row that a warp steps as promised


@triton.jit
def _listed(k, first_ids, second_ids, third_ids, a, b):
    """The row at place k of three lists; the second begins at place a, the third at b."""
    row = tl.load(first_ids + k, mask=k < a, other=0)
    row += tl.load(second_ids + k - a, mask=(k >= a) & (k < b), other=0)
    return row + tl.load(third_ids + k - b, mask=k >= b, other=0)


@triton.jit
def _catch_up(
    table,
    m,
    v,
    taken,  # int32 [height]
    first_ids,
    second_ids,
    third_ids,
    ends,
    steps,  # [sites], the steps that are due
    corrections,  # [2, STEPS]
    a,  # ids of the first kind
    b,  # of the first and the second
    sites,
    promised,  # steps that rows count as taken beside
    LISTED: tl.constexpr,  # else every row is asked for
    ALONE: tl.constexpr,  # one site
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    STEPS: tl.constexpr,
    SEARCH: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    if LISTED:
        row = _listed(row, first_ids, second_ids, third_ids, a, b)
    site = row * 0 if ALONE else site_of(row, ends, sites, SEARCH)
    due = tl.load(steps + tl.minimum(site, sites - 1)).to(tl.int32)
    was = tl.atomic_max(taken + row, due + promised, sem="relaxed")  # whoever comes first does it
    if was < due:
        for start in range(0, WIDTH, CHUNK):
            d = start + tl.arange(0, CHUNK)
            live = d < WIDTH
            at = row * WIDTH + d
            x = tl.load(table + at, mask=live, other=0.0)
            first = tl.load(m + at, mask=live, other=0.0)
            second = tl.load(v + at, mask=live, other=0.0)
            nothing = tl.zeros_like(x)
            for step in range(was + 1, due + 1):
                place = tl.minimum(step, STEPS - 1)
                rate, inverse = tl.load(corrections + place), tl.load(corrections + STEPS + place)
                x, first, second = adam_step(x, nothing, first, second, rate, inverse, BETA1, BETA2, EPSILON)
            tl.store(table + at, x, mask=live)
            tl.store(m + at, first, mask=live)
            tl.store(v + at, second, mask=live)


@triton.jit
def _adam_promised(
    table,
    m,
    v,
    sums,  # [height, WIDTH], cleared
    touched,  # [height], cleared
    stepped,  # int32 [height]
    first_ids,
    second_ids,
    third_ids,
    ends,
    active,
    steps,
    corrections,  # [2, sites]
    a,
    b,
    sites,
    ALONE: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    SEARCH: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
):
    row = _listed(tl.program_id(0).to(tl.int64), first_ids, second_ids, third_ids, a, b)
    d = tl.arange(0, CHUNK)
    at, live = row * WIDTH + d, d < WIDTH
    g = tl.load(sums + at, mask=live, other=0.0)  # all of it is on its way before it is known who steps
    x = tl.load(table + at, mask=live, other=0.0)
    first = tl.load(m + at, mask=live, other=0.0)
    second = tl.load(v + at, mask=live, other=0.0)
    site = row * 0 if ALONE else site_of(row, ends, sites, SEARCH)
    own = tl.minimum(site, sites - 1)
    now = tl.load(steps + own).to(tl.int32)
    rate, inverse = tl.load(corrections + own), tl.load(corrections + sites + own)
    takes = steps_now(site, active, sites)
    was = tl.atomic_max(stepped + row, now, sem="relaxed")  # whoever comes first does it
    if takes & (was < now):
        x, first, second = adam_step(x, g, first, second, rate, inverse, BETA1, BETA2, EPSILON)
        tl.store(table + at, x, mask=live)
        tl.store(m + at, first, mask=live)
        tl.store(v + at, second, mask=live)
        tl.store(sums + at, tl.zeros_like(g), mask=live)
        tl.store(touched + row, 0)


def _lists(ids: Sequence[Tensor], none: Tensor) -> tuple[list[Tensor], list[int]]:
    """Three lists, and where they end."""
    if len(ids) > 3:
        raise ValueError(f"{len(ids)} lists of rows: expected at most 3")
    lists = [one.contiguous() for one in (*ids, none, none, none)][:3]
    counts = [len(one) for one in lists]
    return lists, [sum(counts[:k]) for k in (1, 2, 3)]


def catch_up(
    table: Tensor,
    m: Tensor,
    v: Tensor,
    pace: Pace,
    adam: Adam,
    ids: Sequence[Tensor] | None = None,
    promised: bool = False,
) -> None:
    """Let rows take the steps that they have missed; `ids` are up to three lists."""
    assert pace.taken is not None
    every = pace.rates
    if every is None:
        every = all_corrections(adam, table.dtype, table.device)
    lists, (a, b, places) = _lists(ids or (), pace.ends[:0])
    programs = len(table) if ids is None else places
    sites, width = len(pace.ends), table.shape[1]
    where = (*lists, pace.ends.contiguous(), pace.steps.contiguous(), every)
    sizes = (a, b, sites, int(promised))
    flags = {"LISTED": ids is not None, "ALONE": sites == 1, "SEARCH": sites.bit_length()}
    meta = {**flags, **constants_of(adam), "STEPS": every.shape[1]}
    tile = {"WIDTH": width, "CHUNK": min(triton.next_power_of_2(width), LONGEST), "num_warps": WARPS}
    launch(_catch_up, (programs,), table, m, v, pace.taken, *where, *sizes, **meta, **tile)


def adam_promised(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    """Step the rows that were promised it, by what is added up for them; a row may be listed twice."""
    room = part.room
    assert room is not None
    assert pace.promised is not None
    assert pace.stepped is not None
    heap(part, room.sums, room.touched)
    lists, (a, b, places) = _lists(pace.promised, pace.ends[:0])
    sites, width = len(pace.ends), table.shape[1]
    owners = (*sites_of(pace), pace.steps.contiguous(), corrections(pace, adam, table.dtype), a, b, sites)
    chunk = triton.next_power_of_2(width)
    flags = {"ALONE": sites == 1, "SEARCH": sites.bit_length()}
    tile = {"WIDTH": width, "CHUNK": chunk, "num_warps": min(max(chunk // NUMBERS, 1), 8)}
    state = (table, m, v, room.sums, room.touched, pace.stepped)
    launch(_adam_promised, (places,), *state, *lists, *owners, **flags, **constants_of(adam), **tile)
