"""ChaCha20 (RFC 8439) on the GPU: one block in each lane of a tile."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.cipher import MOST
from fedkge.kernels.gpu.launch import launch

BLOCKS = 128  #: blocks that one program draws


@triton.jit
def _turned(x, BY: tl.constexpr):
    return (x << BY) | (x >> (32 - BY))


@triton.jit
def _quarter(a, b, c, d):
    a += b
    d = _turned(d ^ a, 16)
    c += d
    b = _turned(b ^ c, 12)
    a += b
    d = _turned(d ^ a, 8)
    c += d
    b = _turned(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _word(key, PLACE: tl.constexpr):
    """One of the eight words of a key [4]."""
    return (tl.load(key + PLACE // 2) >> (32 * (PLACE % 2))).to(tl.uint32)


@triton.jit
def chacha20(key, c0, c1, c2, c3):
    """The 16 words of blocks at counters of one shape, under the key at an address; all uint32."""
    zero = c0 * 0
    x0, x1, x2, x3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    k0, k1, k2, k3 = _word(key, 0), _word(key, 1), _word(key, 2), _word(key, 3)
    k4, k5, k6, k7 = _word(key, 4), _word(key, 5), _word(key, 6), _word(key, 7)
    x4, x5, x6, x7 = zero + k0, zero + k1, zero + k2, zero + k3
    x8, x9, x10, x11 = zero + k4, zero + k5, zero + k6, zero + k7
    x12, x13, x14, x15 = c0, zero + c1, zero + c2, zero + c3
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    x0, x1, x2, x3 = x0 + 0x61707865, x1 + 0x3320646E, x2 + 0x79622D32, x3 + 0x6B206574
    x4, x5, x6, x7 = x4 + k0, x5 + k1, x6 + k2, x7 + k3
    x8, x9, x10, x11 = x8 + k4, x9 + k5, x10 + k6, x11 + k7
    x12, x13, x14, x15 = x12 + c0, x13 + c1, x14 + c2, x15 + c3
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@triton.jit
def _keystream(out, key, n, STREAM: tl.constexpr, BLOCK: tl.constexpr):
    out += tl.program_id(1).to(tl.int64) * n
    key += tl.program_id(1) * 4
    block = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    zero = (block * 0).to(tl.uint32)
    words = chacha20(key, block.to(tl.uint32), zero, zero, zero + STREAM)
    at = block // 16 * 256 + block % 16
    for j in tl.static_range(16):
        tl.store(out + at + 16 * j, words[j].to(tl.int64), mask=at + 16 * j < n)


def keystream(key: Tensor, count: int, stream: int = 0) -> Tensor:
    """As the reference; also of several keys [s, 4] at once, [s, count]."""
    check(count)
    out = key.new_empty(*key.shape[:-1], count)
    meta = {"STREAM": stream, "BLOCK": BLOCKS, "num_warps": 4}
    grid = (programs(count), key.numel() // 4)
    launch(_keystream, grid, out, key.contiguous(), count, **meta)
    return out


def check(count: int) -> None:
    if count > MOST:
        raise ValueError(f"{count:,} words of one stream, expected at most {MOST:,}")


def programs(count: int) -> int:
    """How many programs of BLOCKS blocks draw so many words, whole groups of 16 blocks."""
    return triton.cdiv(triton.cdiv(count, 256) * 16, BLOCKS)
