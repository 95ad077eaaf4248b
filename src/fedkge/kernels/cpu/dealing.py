"""Gather the triples of a batch on the CPU: they lie anywhere, so that all of them are asked for at first."""

from __future__ import annotations

from fedkge.kernels.cpu.compile import written
from fedkge.kernels.cpu.prefetch import ask, ask_number


@written()
def gather(chosen, triples, lo, hi, out):  # [b], [t, 3], [t], [t], [5, b]
    """Head, relation, tail, and where known answers begin and end."""
    for i in chosen:
        ask(triples, i)
        ask_number(lo, i)
        ask_number(hi, i)
    for place, i in enumerate(chosen):
        out[0, place], out[1, place], out[2, place] = triples[i, 0], triples[i, 1], triples[i, 2]
        out[3, place], out[4, place] = lo[i], hi[i]
