"""Random numbers that are computed, not carried: a key and a counter give the number, nothing is remembered.

The key is made of (seed, site, purpose), the counter of (round, step, index). Resuming, stacking sites
and changing the number of threads then need no generator state. The generator is Philox4x32-10
(Salmon et al., SC 2011), which is no cipher. What must stay secret comes from ChaCha20 (RFC 8439) instead,
under a key of 256 bits. These are the slow and obvious versions that the kernels are tested against.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
SIGMA = tuple(np.frombuffer(b"expand 32-byte k", "<u4").tolist())  #: the first words of ChaCha20's state
DOUBLE_ROUNDS = 10
#: the words that quarter rounds mix: columns, then diagonals
QUARTERS = tuple(
    (i, 4 + (i + d) % 4, 8 + (i + 2 * d) % 4, 12 + (i + 3 * d) % 4) for d in (0, 1) for i in range(4)
)
TURNS = (16, 12, 8, 7)  #: bits that a quarter round's words are rotated by


def key(seed: int, *purpose: str | int) -> int:
    """A 64-bit key for one purpose: `key(0, "hospital", "negatives")`."""
    text = "\x1f".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def name_keys(names: Iterable[str]) -> NDArray[np.uint64]:
    """A stable 64-bit number per name, so that equal names start from equal rows at every site."""
    return byte_keys(name.encode() for name in names)


def byte_keys(ids: Iterable[bytes]) -> NDArray[np.uint64]:
    """The same for ids that are bytes; a name has the key of its UTF-8."""
    joined = b"".join(hashlib.blake2b(one, digest_size=8).digest() for one in ids)
    return np.frombuffer(joined, "<u8").copy()


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A numpy generator for work done once, such as dealing out a graph; the same in every process."""
    return np.random.Generator(np.random.Philox(key=key(seed, *purpose)))


def philox(key: int, counter: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Philox4x32-10 of counters `[..., 4]`: four random 32-bit numbers each."""
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    k = [key & 0xFFFFFFFF, key >> 32]
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(ROUNDS):
        a, b = c[0] * np.uint64(MULTIPLIERS[0]), c[2] * np.uint64(MULTIPLIERS[1])
        c = [
            (b >> shift) ^ c[1] ^ np.uint64(k[0]),
            b & low,
            (a >> shift) ^ c[3] ^ np.uint64(k[1]),
            a & low,
        ]
        k = [(k[0] + WEYL[0]) & 0xFFFFFFFF, (k[1] + WEYL[1]) & 0xFFFFFFFF]
    return np.stack(c, -1).astype(np.uint32)


def chacha20(key: bytes, counter: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """ChaCha20 blocks at counters `[..., 4]`, the block's number and then the nonce: 16 words each."""
    words = np.frombuffer(key, "<u4")  # [8]
    shape = counter.shape[:-1]
    fixed = [np.full(shape, word, np.uint32) for word in (*SIGMA, *words.tolist())]
    first = [*fixed, *(counter[..., i].astype(np.uint32) for i in range(4))]
    x = list(first)
    for _ in range(DOUBLE_ROUNDS):
        for a, b, c, d in QUARTERS:
            for (to, by, mixed), turn in zip(((a, b, d), (c, d, b)) * 2, TURNS, strict=True):
                x[to] = x[to] + x[by]
                x[mixed] = x[mixed] ^ x[to]
                x[mixed] = x[mixed] << np.uint32(turn) | x[mixed] >> np.uint32(32 - turn)
    return np.stack([a + b for a, b in zip(x, first, strict=True)], -1)
