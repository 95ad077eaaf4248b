"""How numba compiles the kernels: NaN and infinity keep their meaning, and only sums may be reordered.

What is not a sum is rounded as it is written (`elementwise`), and so are the terms of some sums (`unfused`).
numba optimises a function once to run it and once more to cache it; free to fuse a multiplication with either
neighbour, it chooses differently the second time, and a resumed run would not repeat the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba

from fedkge import randomness
from fedkge.kernels import cipher

SUMS = {"reassoc", "contract", "arcp", "nsz", "afn"}


@cache
def sources() -> str:
    """A digest of everything that kernels are compiled from."""
    files = [
        *sorted(Path(__file__).parent.glob("*.py")),
        *(Path(str(other.__file__)) for other in (randomness, cipher)),
    ]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _cached(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit`, cached on disk for as long as no kernel's source changes.

    numba by itself looks at the file of the function alone, and would go on with old code of the functions
    it calls from other files, and with old options of this one.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
        if file is not None:  # None with NUMBA_DISABLE_JIT
            file._source_stamp = sources()
        return dispatcher

    return compiled


inline = partial(numba.njit, inline="always", error_model="numpy")  # rounds as the function it stands in
serial = partial(_cached, fastmath=SUMS)
parallel = partial(_cached, fastmath=SUMS, parallel=True)
unfused = partial(_cached, fastmath=SUMS - {"contract"})  # keeps to it wherever it is called
elementwise = partial(_cached, parallel=True)
written = _cached  # rounds and adds as written
