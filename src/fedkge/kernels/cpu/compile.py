"""How numba compiles the kernels: sums may be reordered, NaN and infinity keep their meaning."""

from __future__ import annotations

from functools import partial

import numba

FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}
inline = partial(numba.njit, fastmath=FAST, inline="always")
serial = partial(numba.njit, fastmath=FAST, cache=True, nogil=True)
parallel = partial(numba.njit, fastmath=FAST, cache=True, nogil=True, parallel=True)
