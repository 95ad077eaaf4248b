"""Rows as whole numbers, several to a byte, and back; `reference.quantise` says what a byte holds."""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise


@elementwise()
def quantise(values, scale, most, per_byte, packed):
    """A row's digits are found first, all alike, and then packed: the one is done in vectors."""
    n, width = values.shape
    base, top = np.int32(2 * most + 1), np.float32(most)
    for i in numba.prange(n):
        digits = np.zeros(packed.shape[1] * per_byte, np.uint8)
        row, s = values[i], scale[i]
        for d in range(width):
            q = np.rint(row[d] / s)
            q = q if q < top else top  # NaN too
            q = q if q > -top else -top
            digits[d] = np.uint8(q + top)
        for b in range(packed.shape[1]):
            byte = np.int32(0)
            for place in range(per_byte - 1, -1, -1):
                byte = byte * base + digits[b * per_byte + place]
            packed[i, b] = byte


@elementwise()
def restored(packed, scale, most, per_byte, values):
    n, width = values.shape
    base = 2 * most + 1
    digits = np.empty((256, per_byte), np.float32)
    for byte in range(256):
        rest = byte
        for place in range(per_byte):
            digits[byte, place] = rest % base - most if byte < base**per_byte else np.nan
            rest //= base
    whole = width // per_byte
    for i in numba.prange(n):
        row, s = values[i], scale[i]
        for b in range(whole):
            for place in range(per_byte):
                row[b * per_byte + place] = digits[packed[i, b], place] * s
        for d in range(whole * per_byte, width):
            row[d] = digits[packed[i, whole], d - whole * per_byte] * s
