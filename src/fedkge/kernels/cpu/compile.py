"""How numba compiles the kernels: NaN and infinity keep their meaning, and only sums may be reordered.

What is not a sum is rounded as it is written (`elementwise`). numba optimises a function once to run it and
once more to cache it; free to fuse a multiplication with either neighbour, it chooses differently the second
time, and a resumed run would not repeat the first.
"""

from __future__ import annotations

from functools import partial

import numba

SUMS = {"reassoc", "contract", "arcp", "nsz", "afn"}
inline = partial(numba.njit, inline="always", error_model="numpy")  # rounds as the function it stands in
serial = partial(numba.njit, fastmath=SUMS, cache=True, nogil=True, error_model="numpy")
parallel = partial(numba.njit, fastmath=SUMS, cache=True, nogil=True, parallel=True, error_model="numpy")
elementwise = partial(numba.njit, cache=True, nogil=True, parallel=True, error_model="numpy")
