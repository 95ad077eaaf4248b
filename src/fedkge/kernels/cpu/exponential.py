"""The exponential of numbers that are not positive, as a loop over many of them can be vectorised."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

f32 = np.float32
LEAST = f32(-87.0)  #: below it float32 has no normal numbers


@intrinsic
def _power(typing_context, n):
    """2^n as a float32, for a whole n from -126 to 127."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.shl(builder.add(arguments[0], ir.IntType(32)(127)), ir.IntType(32)(23))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.int32), generate


def decay(x: Any) -> Any:
    """exp(x) for x <= 0; 0 below LEAST in float32. NaN stays NaN."""
    raise NotImplementedError("compiled only")


@overload(decay)
def _decay(x):
    if x == types.float64:
        return lambda x: np.exp(x)

    def of_float32(x):
        """Cephes: x = n log 2 + f, and a polynomial in f."""
        n = np.floor(max(x, LEAST) * f32(1.44269504) + f32(0.5))
        f = (x - n * f32(0.693359375)) + n * f32(2.12194440e-4)
        p = (f32(1.9875691500e-4) * f + f32(1.3981999507e-3)) * f + f32(8.3334519073e-3)
        p = ((p * f + f32(4.1665795894e-2)) * f + f32(1.6666665459e-1)) * f + f32(0.5)
        return f32(0) if x < LEAST else (p * f * f + f + f32(1)) * _power(np.int32(n))

    return of_float32
