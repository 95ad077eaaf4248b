"""A batch's triples and chunks on the GPU, gathered in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Dealt, Deck
from fedkge.kernels.gpu.launch import launch

BLOCK = 128


@triton.jit
def _deal(
    share,  # [count], written
    rows,  # [8, count], written: all of a triple's but its share
    chunk_starts,  # [chunks + 1], written
    chunk_rows,  # [2, chunks], written
    starts,
    site,
    position,
    shares,
    heads,
    first_heads,
    order,
    triples,
    lo,
    hi,
    clock,
    visits,
    count,
    chunks,
    BLOCK: tl.constexpr,
):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(clock) // visits
    begin = tl.load(starts + number)
    mine = k < count
    slot = begin + k
    triple = tl.load(order + slot, mask=mine, other=0)
    tl.store(rows + k, triple, mask=mine)
    for part in tl.static_range(3):
        tl.store(rows + (1 + part) * count + k, tl.load(triples + triple * 3 + part, mask=mine), mask=mine)
    tl.store(rows + 4 * count + k, tl.load(lo + triple, mask=mine), mask=mine)
    tl.store(rows + 5 * count + k, tl.load(hi + triple, mask=mine), mask=mine)
    tl.store(rows + 6 * count + k, tl.load(site + slot, mask=mine), mask=mine)
    tl.store(rows + 7 * count + k, tl.load(position + slot, mask=mine), mask=mine)
    tl.store(share + k, tl.load(shares + slot, mask=mine), mask=mine)
    there = k < chunks
    head = tl.load(heads + tl.load(first_heads + number) + k, mask=there, other=0)
    tl.store(chunk_starts + k, tl.where(there, head - begin, count), mask=k <= chunks)
    tl.store(chunk_rows + k, tl.load(site + head, mask=there), mask=there)
    tl.store(chunk_rows + chunks + k, tl.load(position + head, mask=there), mask=there)


def deal(
    deck: Deck,
    order: Tensor,
    triples: Tensor,
    answers: tuple[Tensor, Tensor],
    clock: Tensor,
    visits: int,
    size: tuple[int, int],
) -> Dealt:
    count, chunks = size
    share, rows = deck.share.new_empty(count), order.new_empty(8, count)
    starts, chunk_rows = order.new_empty(chunks + 1), order.new_empty(2, chunks)
    slots = (deck.starts, deck.site, deck.position, deck.share, deck.heads, deck.first_heads)
    numbers = (clock, visits, count, chunks)
    grid = (triton.cdiv(max(count, chunks + 1), BLOCK),)
    launch(
        _deal, grid, share, rows, starts, chunk_rows, *slots, order, triples, *answers, *numbers, BLOCK=BLOCK
    )
    triple, h, r, t, lo, hi, site, position = rows.unbind(0)
    return Dealt(triple, h, r, t, lo, hi, site, position, share, starts, chunk_rows[0], chunk_rows[1])
