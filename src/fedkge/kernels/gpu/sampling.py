"""Philox4x32-10, uniform rows and negatives on the GPU; equal to `fedkge.randomness` bit by bit.

`tl.philox` is that generator, with the key's low and high half as its two words. Negatives that must stay
secret are drawn by ChaCha20.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Draw
from fedkge.kernels.gpu.cipher import chacha20
from fedkge.kernels.gpu.launch import launch

LONGEST = 256  #: counters that one program draws at
WARPS = 2


@triton.jit
def _four(key, block, c1, c2, c3):
    """The numbers [4 * BLOCK] at counters (block[i], c1, c2, c3), four from each, in order."""
    zero = block * 0
    c1, c2, c3 = zero + c1.to(tl.uint32), zero + c2.to(tl.uint32), zero + c3.to(tl.uint32)
    b0, b1, b2, b3 = tl.philox(key, block, c1, c2, c3)
    return tl.interleave(tl.interleave(b0, b2), tl.interleave(b1, b3))


@triton.jit
def _sixteen(key, block, c1, c2, c3):
    """The same by ChaCha20, [16 * BLOCK]: 16 from each."""
    zero = block * 0
    c1, c2, c3 = zero + c1.to(tl.uint32), zero + c2.to(tl.uint32), zero + c3.to(tl.uint32)
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = chacha20(key, block, c1, c2, c3)
    even = tl.interleave(
        tl.interleave(tl.interleave(x0, x8), tl.interleave(x4, x12)),
        tl.interleave(tl.interleave(x2, x10), tl.interleave(x6, x14)),
    )
    odd = tl.interleave(
        tl.interleave(tl.interleave(x1, x9), tl.interleave(x5, x13)),
        tl.interleave(tl.interleave(x3, x11), tl.interleave(x7, x15)),
    )
    return tl.interleave(even, odd)


@triton.jit
def _uniform(out, keys, key: tl.int64, width, blocks, BLOCK: tl.constexpr):
    i = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * BLOCK
    row = tl.load(keys + i)
    bits = _four(key, (first + tl.arange(0, BLOCK)).to(tl.uint32), row * 0, row, row >> 32)
    j = first * 4 + tl.arange(0, 4 * BLOCK)
    value = (bits >> 8).to(out.dtype.element_ty) * 5.9604644775390625e-08  # 2^-24
    tl.store(out + i * width + j, value, mask=j < width)


def uniform(key: int, keys: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    out = keys.new_empty((len(keys), width), dtype=dtype)
    block, blocks = _blocks(width)
    signed = key - (1 << 64) if key >> 63 else key
    grid = (len(keys) * blocks,)
    launch(_uniform, grid, out, keys.contiguous(), signed, width, blocks, BLOCK=block, num_warps=WARPS)
    return out


def _blocks(numbers: int, each: int = 4) -> tuple[int, int]:
    """How many counters of `each` words a program takes, and how many programs draw one row of `numbers`."""
    counters = triton.cdiv(numbers, each)
    block = min(triton.next_power_of_2(max(counters, 1)), 4 * LONGEST // each)
    return block, triton.cdiv(counters, block)


@triton.jit
def _order_keys(out, keys, site, local, epoch, visit: tl.int64, count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(site + i, mask=i < count, other=0)
    c0 = tl.load(local + i, mask=i < count, other=0).to(tl.uint32)
    zero = c0 * 0
    c2, c3 = zero + visit.to(tl.uint32), zero + tl.load(epoch).to(tl.uint32)
    b0, b1, _, _ = tl.philox(tl.load(keys + s, mask=i < count, other=0), c0, zero, c2, c3)
    random = ((b1 & 0xFFFF).to(tl.int64) << 32) | b0.to(tl.int64)
    tl.store(out + i, (s << 48) | random, mask=i < count)


def order_keys(keys: Tensor, site: Tensor, local: Tensor, visit: int, epoch: Tensor) -> Tensor:
    out = torch.empty_like(local, memory_format=torch.contiguous_format)
    inputs = (keys.contiguous(), site.contiguous(), local.contiguous(), epoch)
    launch(_order_keys, (triton.cdiv(len(local), 512),), out, *inputs, visit, len(local), BLOCK=512)
    return out


@triton.jit
def _negatives(
    index,  # [b, 1 + n]
    row_stride,
    column_stride,
    clock,
    keys,
    first,
    size,
    known,
    site,
    position,
    lo,
    hi,
    n,
    blocks,
    EACH: tl.constexpr,  # words of a counter: 4 by Philox, 16 by ChaCha20
    BLOCK: tl.constexpr,
):
    i = (tl.program_id(0) // blocks).to(tl.int64)
    start = tl.program_id(0) % blocks * BLOCK
    s = tl.load(site + i)
    counter = (start + tl.arange(0, BLOCK)).to(tl.uint32)
    where = (tl.load(position + i), tl.load(clock), tl.load(clock + 1))
    if EACH == 4:
        bits = _four(tl.load(keys + s), counter, where[0], where[1], where[2])
    else:
        bits = _sixteen(keys + 4 * s, counter, where[0], where[1], where[2])
    entities, begin = tl.load(size + s), tl.load(lo + i)
    answers = tl.load(hi + i) - begin
    answers = tl.where(answers < entities, answers, 0)  # nothing but answers: filtering is impossible
    u = ((bits.to(tl.uint64) * (entities - answers).to(tl.uint64)) >> 32).to(tl.int64)
    low = tl.zeros_like(u)  # grows to the number of entries at most u: bisection of known[begin:]
    high = low + answers
    rest = answers
    while rest > 0:
        middle = (low + high) >> 1
        searching = low < high
        past = searching & (tl.load(known + begin + middle, mask=searching, other=0) <= u)
        low = tl.where(past, middle + 1, low)
        high = tl.where(past, high, middle)
        rest = rest >> 1
    j = start * EACH + tl.arange(0, EACH * BLOCK)
    place = index + i * row_stride + (1 + j) * column_stride
    tl.store(place, tl.load(first + s) + u + low, mask=j < n)


def negatives_(index: Tensor, draw: Draw, clock: Tensor) -> None:
    b, n = index.shape[0], index.shape[1] - 1
    each = 16 if draw.keys.ndim == 2 else 4
    block, blocks = _blocks(n, each)
    parts = (draw.keys, draw.first, draw.size, draw.known, draw.site, draw.position, draw.lo, draw.hi)
    launch(
        _negatives,
        (b * blocks,),
        index,
        *index.stride(),
        clock.contiguous(),
        *(tensor.contiguous() for tensor in parts),
        n,
        blocks,
        EACH=each,
        BLOCK=block,
        num_warps=WARPS if each == 4 else 1,
    )
