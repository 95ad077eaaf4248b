"""Deal out a batch on the CPU in one call: its triples lie anywhere, so that all are asked for at first."""

from __future__ import annotations

from fedkge.kernels.cpu.compile import written
from fedkge.kernels.cpu.prefetch import ask, ask_number


@written()
def deal(number, order, triples, lo, hi, starts, site, position, heads, first_heads, out, chunks):
    """Write batch `number` of a deck into `out` [8, b] and `chunks` [3, c + 1]; returns its first slot.

    Rows of `out`: triple, head, relation, tail, where known answers begin and end, site, position. Rows of
    `chunks`: where each chunk begins (and the last one ends), its site, its position.
    """
    slot, head = starts[number], first_heads[number]
    b, c = out.shape[1], chunks.shape[1] - 1
    chosen = order[slot : slot + b]
    for i in chosen:
        ask(triples, i)
        ask_number(lo, i)
        ask_number(hi, i)
    for place, i in enumerate(chosen):
        out[0, place] = i
        out[1, place], out[2, place], out[3, place] = triples[i, 0], triples[i, 1], triples[i, 2]
        out[4, place], out[5, place] = lo[i], hi[i]
        out[6, place], out[7, place] = site[slot + place], position[slot + place]
    for k in range(c):
        first = heads[head + k]
        chunks[0, k], chunks[1, k], chunks[2, k] = first - slot, site[first], position[first]
    chunks[0, c] = b
    return slot
