"""The logistic loss of a positive and its negatives, with its gradient, one statement at a time."""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import inline, parallel


@inline()
def log1p(e):
    """log(1 + e) for 0 <= e <= 1 to the last bits of float32: 2 artanh(e / (2 + e)), in ten terms."""
    s = e / (e + type(e)(2))
    z = s * s
    total = type(e)(1 / 19)
    for k in (17, 15, 13, 11, 9, 7, 5, 3, 1):
        total = total * z + type(e)(1 / k)
    return type(e)(2) * s * total


@parallel()
def contrast(scores, temperature, losses, gradient):  # [b, 1 + n], scalar, [b], [b, 1 + n]
    half, one, zero = scores.dtype.type(0.5), scores.dtype.type(1), scores.dtype.type(0)
    n = scores.shape[1] - 1
    for i in numba.prange(scores.shape[0]):
        s, g = scores[i], gradient[i]
        e = np.empty(n + 1, scores.dtype)
        top = s[1]
        for j in range(2, n + 1):
            top = max(top, s[j])
        for j in range(n + 1):
            e[j] = np.exp(-abs(s[j]))
            g[j] = np.exp(temperature * (s[j] - top))
        total = zero
        for j in range(1, n + 1):
            total += g[j]
        loss = max(-s[0], zero) + log1p(e[0])
        g[0] = -half * (e[0] if s[0] > zero else one) / (one + e[0])
        for j in range(1, n + 1):
            weight = g[j] / total
            loss += weight * (max(s[j], zero) + log1p(e[j]))
            g[j] = half * weight * (one if s[j] > zero else e[j]) / (one + e[j])
        losses[i] = half * loss
