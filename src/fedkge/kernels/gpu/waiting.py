"""Rows that are late with steps of Adam catch up on the GPU: those that a step is about to read, or all."""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Adam, Pace
from fedkge.kernels.gpu.launch import LONGEST, launch
from fedkge.kernels.gpu.optimizers import adam_step, all_corrections, constants_of, site_of


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
    LISTED: tl.constexpr,  # else every row is asked for
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    STEPS: tl.constexpr,
    SEARCH: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
):
    k = tl.program_id(0).to(tl.int64)
    row = k
    if LISTED:
        row = tl.load(first_ids + k, mask=k < a, other=0)
        row += tl.load(second_ids + k - a, mask=(k >= a) & (k < b), other=0)
        row += tl.load(third_ids + k - b, mask=k >= b, other=0)
    site = site_of(row, ends, sites, SEARCH)
    due = tl.load(steps + tl.minimum(site, sites - 1)).to(tl.int32)
    was = tl.atomic_max(taken + row, due, sem="relaxed")  # whoever comes first does it
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


def catch_up(
    table: Tensor, m: Tensor, v: Tensor, pace: Pace, adam: Adam, ids: Sequence[Tensor] | None = None
) -> None:
    """Let rows take the steps that they have missed; `ids` are up to three lists."""
    assert pace.taken is not None
    every = pace.rates
    if every is None:
        every = all_corrections(adam, table.dtype, table.device)
    none = pace.ends[:0]
    lists = [one.contiguous() for one in (*(ids or ()), none, none, none)][:3]
    counts = [len(one) for one in lists]
    programs = len(table) if ids is None else sum(counts)
    sites, width = len(pace.ends), table.shape[1]
    where = (*lists, pace.ends.contiguous(), pace.steps.contiguous(), every)
    sizes = (counts[0], sum(counts[:2]), sites)
    meta = {
        "LISTED": ids is not None,
        **constants_of(adam),
        "STEPS": every.shape[1],
        "SEARCH": sites.bit_length(),
    }
    tile = {"WIDTH": width, "CHUNK": min(triton.next_power_of_2(width), LONGEST), "num_warps": 4}
    launch(_catch_up, (programs,), table, m, v, pace.taken, *where, *sizes, **meta, **tile)
