"""Which shared negatives are known answers of a query, on the CPU."""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise

BLOCK = 32  #: queries that a thread takes at a time
BITS = 14  #: of the filter that answers are looked up in
MANY = 32  #: answers for each negative from which on negatives are looked up among answers


@elementwise()
def left_out(negatives, starts, site, first, size, known, lo, hi, out):
    """`kernels.reference.left_out`: few answers are looked up among negatives, many answers the other way."""
    n = negatives.shape[1]
    mask, one = np.int64((1 << BITS) - 1), np.uint8(1)
    tasks = (out.shape[0] + BLOCK - 1) // BLOCK
    for task in numba.prange(tasks):
        there, held = np.zeros(1 << BITS, np.uint8), np.int64(-1)
        for i in range(task * BLOCK, min((task + 1) * BLOCK, out.shape[0])):
            k = np.searchsorted(starts, i, side="right") - 1
            if k != held:
                for j in range(n if held >= 0 else 0):
                    there[negatives[held, j] & mask] = 0
                for j in range(n):
                    there[negatives[k, j] & mask] = one
                held = k
            out[i] = False
            answers, start = hi[i] - lo[i], first[site[i]]
            if answers >= size[site[i]]:
                continue
            if answers <= MANY * n:
                for a in range(answers):
                    entity = known[lo[i] + a] + a + start
                    if there[entity & mask]:
                        for j in range(n):
                            out[i, j] |= negatives[k, j] == entity
            else:
                for j in range(n):
                    u = negatives[k, j] - start
                    low, high = np.int64(0), answers  # the first answer that is not below u
                    while low < high:
                        middle = (low + high) >> 1
                        if known[lo[i] + middle] + middle < u:
                            low = middle + 1
                        else:
                            high = middle
                    out[i, j] = low < answers and known[lo[i] + low] + low == u
