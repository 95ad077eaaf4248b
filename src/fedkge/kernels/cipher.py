"""ChaCha20 (RFC 8439) and what is drawn from it, in plain torch: part of `kernels.reference`.

A key is 256 bits as four int64. A flat stream of words takes blocks 16 at a time, word by word: word j of
block 16 g + b is number 256 g + 16 j + b, so that vectors of blocks are written as they are computed. The
third word of the nonce tells streams of one key apart.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from fedkge.randomness import DOUBLE_ROUNDS, QUARTERS, SIGMA, TURNS

LOW = 0xFFFFFFFF
GROUP = 256  #: words of 16 blocks
MOST = 1 << 36  #: words that one stream has: the number of a block has 32 bits
RARE = 1 << 16  #: a radius drawn from fewer than 16 leading bits that are not 0 gets 32 bits more
GRID = 2**18  #: sums and noise are whole multiples of the noise's standard deviation divided by this
MAIN, FINER = 0, 1  #: streams of one key


def chacha20(key: Tensor, counter: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The 16 words of blocks at counters (number, nonce), in int64 arithmetic; everything broadcasts."""
    words = [half & LOW for word in key.unbind(-1) for half in (word, word >> 32)]
    like = torch.broadcast_tensors(*counter, words[0])[0]
    fixed = [torch.full_like(like, word) for word in SIGMA]
    first = [*fixed, *(word.expand_as(like) for word in words), *(c.expand_as(like) for c in counter)]
    x = list(first)
    for _ in range(DOUBLE_ROUNDS):
        for a, b, c, d in QUARTERS:
            for (to, by, mixed), turn in zip(((a, b, d), (c, d, b)) * 2, TURNS, strict=True):
                x[to] = (x[to] + x[by]) & LOW
                x[mixed] = _turned(x[mixed] ^ x[to], turn)
    return tuple((a + b) & LOW for a, b in zip(x, first, strict=True))


def _turned(x: Tensor, by: int) -> Tensor:
    return ((x << by) & LOW) | (x >> (32 - by))


def keystream(key: Tensor, count: int, stream: int = MAIN) -> Tensor:
    """The first words [count] of a key's flat stream, as int64."""
    if count > MOST:
        raise ValueError(f"{count:,} words of one stream, expected at most {MOST:,}")
    groups = -(-count // GROUP)
    number = torch.arange(16 * groups, device=key.device).view(groups, 1, 16)
    zero = torch.zeros_like(number)
    words = chacha20(key, (number, zero, zero, zero + stream))
    return torch.cat(words, 1).flatten()[:count]


def normals(key: Tensor, count: int) -> Tensor:
    """Standard normal numbers [count] in float64, by Box and Muller (1958) from two words a pair.

    Of a group of 256 words, the first 128 are radii and the last 128 angles. A radius is drawn from 32 bits;
    where the first 16 of them are 0, 32 more are appended. So no step between two radii is longer than
    2^-17, and the tail ends at 9.49.
    """
    groups = -(-count // GROUP)
    words, finer = (keystream(key, groups * GROUP, stream).view(groups, 2, 128) for stream in (MAIN, FINER))
    size, turn, more = words[:, 0].double(), words[:, 1].double(), finer[:, 0].double()
    u = torch.where(size < RARE, (size * 2.0**32 + more + 0.5) * 2.0**-64, (size + 0.5) * 2.0**-32)
    radius, angle = u.log().mul(-2).sqrt(), turn * (2.0**-31 * pi)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), 1).flatten()[:count]


def add_noise_(sums: Tensor, key: Tensor, scale: Tensor) -> None:
    """Add `scale` [1] times standard normal numbers to a contiguous table of sums; nothing where scale is 0.

    Sums and noise are rounded to multiples of the step `scale / GRID` before they are added, so that the
    result is a function of a whole number: sum / step + noise / step. What was touched and what was not
    are rounded alike.
    """
    if not float(scale):
        return
    step = (scale / GRID).to(sums.dtype)
    noise = normals(key, sums.numel()).mul(GRID).round().to(sums.dtype)
    sums.copy_(((sums / step).round() + noise.view_as(sums)) * step)
