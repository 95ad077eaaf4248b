"""Losses of scores with their gradients, one triple at a time: contrast with negatives, distillation."""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise, inline, parallel, unfused


@inline()
def log1p(e):
    """log(1 + e) for 0 <= e <= 1 to the last bits of float32: 2 artanh(e / (2 + e)), in ten terms."""
    s = e / (e + type(e)(2))
    z = s * s
    total = type(e)(1 / 19)
    for k in (17, 15, 13, 11, 9, 7, 5, 3, 1):
        total = total * z + type(e)(1 / k)
    return type(e)(2) * s * total


@unfused()
def contrast_one(s, temperature):  # [1 + n], scalar
    """The loss of one triple's scores; in their place it leaves their gradient."""
    half, one, zero = s.dtype.type(0.5), s.dtype.type(1), s.dtype.type(0)
    n = s.shape[0] - 1
    weight, e = np.empty(n + 1, s.dtype), np.empty(n + 1, s.dtype)
    top = s[min(1, n)]
    for j in range(2, n + 1):
        top = max(top, s[j])
    for j in range(n + 1):
        e[j] = np.exp(-abs(s[j]))
        weight[j] = np.exp(temperature * (s[j] - top))
    total = zero
    for j in range(1, n + 1):
        total += weight[j]
    loss = max(-s[0], zero) + log1p(e[0])
    s[0] = -half * (e[0] if s[0] > zero else one) / (one + e[0])
    for j in range(1, n + 1):
        share = weight[j] / total
        loss += share * (max(s[j], zero) + log1p(e[j]))
        s[j] = half * share * (one if s[j] > zero else e[j]) / (one + e[j])
    return half * loss


@unfused()
def contrast_some(s, temperature):  # [1 + n], scalar
    """`contrast_one` of the negatives whose scores are not -inf; the gradient of the others is 0."""
    some = np.append(s[:1], s[1:][s[1:] != -np.inf])
    loss = contrast_one(some, temperature)
    place = 0
    for j in range(s.shape[0]):
        if j == 0 or s[j] != -np.inf:
            s[j] = some[place]
            place += 1
        else:
            s[j] = 0
    return loss


@parallel()
def contrast(scores, temperature, losses, gradient):  # [b, 1 + n], scalar, [b], [b, 1 + n]
    for i in numba.prange(scores.shape[0]):
        gradient[i] = scores[i]
        left_out = False
        for j in range(1, scores.shape[1]):
            left_out |= scores[i, j] == -np.inf
        if left_out:
            losses[i] = contrast_some(gradient[i], temperature)
        else:
            losses[i] = contrast_one(gradient[i], temperature)


@elementwise()  # models that agree to the bit teach each other nothing: fused, p - q would not be 0
def distil(first, second, temperature, to_first, to_second, gradient):  # [b, n] twice, 1, [b] twice, [b, n]
    zero, one = first.dtype.type(0), first.dtype.type(1)
    n, rate = first.shape[1], first.dtype.type(1) / temperature
    for i in numba.prange(first.shape[0]):
        a, b, g = first[i], second[i], gradient[i]
        p, q = np.empty(n, first.dtype), np.empty(n, first.dtype)
        top_a, top_b = a[0], b[0]
        for j in range(1, n):
            top_a, top_b = max(top_a, a[j]), max(top_b, b[j])
        for j in range(n):
            p[j] = np.exp((a[j] - top_a) * rate)
            q[j] = np.exp((b[j] - top_b) * rate)
        total_p, total_q = zero, zero
        for j in range(n):
            total_p += p[j]
            total_q += q[j]
        shift = np.log(total_p) - np.log(total_q)
        each_p, each_q = one / total_p, one / total_q
        taught_a, taught_b = zero, zero
        for j in range(n):
            if a[j] == -np.inf:  # left out
                g[j] = zero
                continue
            p[j] *= each_p
            q[j] *= each_q
            gap = ((b[j] - top_b) - (a[j] - top_a)) * rate + shift  # log q - log p
            taught_a += q[j] * gap
            taught_b -= p[j] * gap
            g[j] = (p[j] - q[j]) * rate
        to_first[i], to_second[i] = taught_a, taught_b
