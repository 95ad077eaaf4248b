"""The logistic loss of a positive and its negatives, with its gradient, one statement at a time."""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import parallel


@parallel()
def contrast(scores, temperature, losses, gradient):  # [b, 1 + n], scalar, [b], [b, 1 + n]
    half, one, zero = scores.dtype.type(0.5), scores.dtype.type(1), scores.dtype.type(0)
    n = scores.shape[1] - 1
    for i in numba.prange(scores.shape[0]):
        s, g = scores[i], gradient[i]
        top = s[1]
        for j in range(2, n + 1):
            top = max(top, s[j])
        total = zero
        for j in range(1, n + 1):
            g[j] = np.exp(temperature * (s[j] - top))
            total += g[j]
        e = np.exp(-abs(s[0]))
        loss = max(-s[0], zero) + np.log1p(e)
        g[0] = -half * (e if s[0] > zero else one) / (one + e)
        for j in range(1, n + 1):
            weight = g[j] / total
            e = np.exp(-abs(s[j]))
            loss += weight * (max(s[j], zero) + np.log1p(e))
            g[j] = half * weight * (one if s[j] > zero else e) / (one + e)
        losses[i] = half * loss
