"""A site's secret: what the noise and the samples of private training are drawn from, and nobody else knows.

Every step has keys of its own, derived from the secret and the step's number in the ledger, which is given
out once. A hub that knew the seed of an experiment could subtract noise drawn from it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import pi, prod
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.graphs.graph import Ids
from fedkge.kernels import backend

BYTES = 32
CPU = torch.device("cpu")
Numbers: TypeAlias = NDArray[np.float64]


class CipherNoise:
    """Noise in float64 from the streams of one key of ChaCha20, a new stream for each draw.

    A number is drawn from 53 bits, so that Gaussian noise ends at 8.6 standard deviations.
    """

    def __init__(self, key: Ids) -> None:
        self._key, self._stream = torch.from_numpy(key), 0

    def _uniform(self, count: int) -> Numbers:
        """In (0, 1]."""
        words = backend(CPU).keystream(self._key, 2 * count, self._stream).numpy()
        self._stream += 1
        return ((words[:count] << 21) + (words[count:] >> 11) + 1) * 2.0**-53

    def normal(self, mean: float, deviation: float, shape: tuple[int, ...]) -> Numbers:
        """By Box and Muller (1958)."""
        radius, turn = self._uniform(2 * prod(shape)).reshape(2, *shape)
        return mean + deviation * np.sqrt(-2 * np.log(radius)) * np.cos(2 * pi * turn)

    def laplace(self, mean: float, scale: float, shape: tuple[int, ...]) -> Numbers:
        """The difference of two exponential numbers."""
        one, other = np.log(self._uniform(2 * prod(shape)).reshape(2, *shape))
        return mean + scale * (one - other)


@dataclass(frozen=True)
class Secret:
    """32 random bytes; printing it does not show them."""

    content: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Secret:
        """Made by the operating system."""
        return cls(os.urandom(BYTES))

    def key(self, number: int, *purpose: str) -> int:
        """A 64-bit key for one purpose of one step; for Philox, which is no cipher."""
        return int.from_bytes(self._derived(8, number, purpose), "little")

    def cipher_key(self, number: int, *purpose: str) -> Ids:
        """A 256-bit key of ChaCha20 for one purpose of one step, as int64 [4]."""
        return np.frombuffer(self._derived(32, number, purpose), "<i8").astype(np.int64)

    def cipher_keys(self, numbers: Iterable[int], purposes: Sequence[tuple[str, ...]]) -> Ids:
        """The keys of several steps and purposes, as int64 [steps, purposes, 4]."""
        every = b"".join(self._derived(32, number, purpose) for number in numbers for purpose in purposes)
        return np.frombuffer(every, "<i8").astype(np.int64).reshape(-1, len(purposes), 4)

    def noise(self, number: int, *purpose: str) -> CipherNoise:
        """Noise for one purpose of one step, by ChaCha20."""
        return CipherNoise(self.cipher_key(number, *purpose))

    def generator(self, number: int, *purpose: str) -> np.random.Generator:
        """A numpy generator for one purpose of one step, by Philox under a 128-bit key: for no noise."""
        key = int.from_bytes(self._derived(16, number, purpose), "little")
        return np.random.Generator(np.random.Philox(key=key))

    def _derived(self, size: int, number: int, purpose: tuple[str, ...]) -> bytes:
        text = "\x1f".join((str(number), *purpose)).encode()
        return hashlib.blake2b(text, key=self.content, digest_size=size).digest()
