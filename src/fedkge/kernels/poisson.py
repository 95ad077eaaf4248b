"""Poisson samples by ChaCha20, of several steps at once.

Each of `count` is in a sample with probability `rate`, independently. A random byte admits to a second draw,
of 32 bits. The probability is the rate rounded down to a multiple of 2^-40 at least: never more than is
accounted. Numbers are the same on every device.
"""

from __future__ import annotations

import numpy as np
import torch

from fedkge.graphs.graph import Ids
from fedkge.kernels.dispatch import backend

CPU = torch.device("cpu")
MOST = 1 << 24  #: bytes that a GPU draws at once
STEPS = 64  #: of which it samples at once, at most


def limits(rate: float) -> tuple[int, int]:
    """Bytes and second words below these are admitted."""
    first = min(256, int(rate * 256) + 1)
    return first, int(rate * 256 / first * 2**32)


def at_once(count: int, device: torch.device) -> int:
    """How many steps are best sampled in one call: a CPU takes one after another, and needs none ahead."""
    return max(1, min(STEPS, MOST // max(count, 1))) if device.type == "cuda" else 1


def samples(keys: Ids, count: int, rate: float, device: torch.device) -> list[Ids]:
    """A sample for each key (int64 [s, 4]), ascending; on a GPU beside what it is working on."""
    if device.type == "cuda":
        from fedkge.kernels.gpu import poisson

        return poisson.samples(keys, count, rate, device)
    return [_sample(key, count, rate) for key in keys]


def _sample(words: Ids, count: int, rate: float) -> Ids:
    kernels, key, (first, second) = backend(CPU), torch.from_numpy(words), limits(rate)
    drawn = kernels.keystream(key, -(-count // 4)).numpy().astype(np.uint32).view(np.uint8)[:count]
    admitted = np.flatnonzero(drawn <= first - 1)
    return admitted[kernels.keystream(key, len(admitted), 1).numpy() < second]
