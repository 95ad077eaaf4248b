"""Poisson samples of several steps on the GPU, in a stream of their own: training is not waited for."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.graphs.graph import Ids
from fedkge.kernels.gpu.cipher import keystream
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.poisson import limits

TILE = 4096  #: flags that a program looks at together
SPARE = 6.0  #: standard deviations above the mean that there is room for; a larger sample is drawn again


@triton.jit
def _packed(out, counts, flags, n, line, room, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.load(flags).to(tl.int32) * 0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        yes = tl.load(flags + row * line + i, mask=i < n, other=0).to(tl.int32)
        place = total + tl.cumsum(yes, 0) - yes
        tl.store(out + row * room + place, i, mask=(yes != 0) & (place < room))
        total += tl.sum(yes, 0)
    tl.store(counts + row, total)


def packed(flags: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Where flags (bool [s, n]) are set, int64 [s, room], the first of each row; how many are [s]."""
    rows, n = flags.shape
    out, counts = flags.new_zeros(rows, room, dtype=torch.int64), flags.new_empty(rows, dtype=torch.int64)
    meta = {"BLOCK": TILE, "num_warps": 8}
    launch(_packed, (rows,), out, counts, flags.view(torch.uint8), n, flags.stride(0), room, **meta)
    return out, counts


def drawn(keys: Tensor, count: int, rate: float, spare: float) -> tuple[Tensor, Tensor, Tensor]:
    """Samples of keys [s, 4] as [s, room], how many each has [s], and whether room was too small for any."""
    first, second = limits(rate)
    room, least = (_room(count, chance, spare) for chance in (first / 256, rate))
    words = keystream(keys, -(-count // 4)).to(torch.int32)  # the same bits
    admitted, some = packed(words.view(torch.uint8)[:, :count] <= first - 1, room)
    there = torch.arange(room, device=keys.device) < some[:, None]
    again, counts = packed((keystream(keys, room, 1) < second) & there, least)
    return admitted.gather(1, again), counts, (some > room).any() | (counts > least).any()


def _room(count: int, chance: float, spare: float) -> int:
    return max(1, min(count, int(count * chance + spare * (count * chance) ** 0.5 + 16)))


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)


def samples(keys: Ids, count: int, rate: float, device: torch.device) -> list[Ids]:
    spare = SPARE
    while True:
        with torch.cuda.stream(_stream(device)):
            own = torch.from_numpy(np.ascontiguousarray(keys)).pin_memory().to(device, non_blocking=True)
            found = drawn(own, count, rate, spare)
            chosen, counts, short = (
                torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
                for x in found
            )
            done = torch.cuda.Event()
            done.record()
        done.synchronize()
        if not short:
            return [row[:size] for row, size in zip(chosen.numpy(), counts.tolist(), strict=True)]
        spare *= 2
