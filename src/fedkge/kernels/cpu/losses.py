"""Losses of scores with their gradients, one triple at a time: contrast with negatives, distillation."""

from __future__ import annotations

import numba
import numpy as np

from fedkge.kernels.cpu.compile import elementwise, inline, parallel, unfused, written
from fedkge.kernels.cpu.exponential import decay

LANES = 16  #: sums that numbers are added up in, side by side


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


@inline()
def across(sums):
    total = sums[0]
    for lane in range(1, LANES):
        total += sums[lane]
    return total


@written()
def added(values, sums):
    """The sum of some values, in as many sums [LANES] at once, added across at the end."""
    n = values.shape[0]
    whole = n // LANES * LANES
    for lane in range(LANES):
        sums[lane] = 0
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            sums[lane] += values[start + lane]
    for j in range(whole, n):
        sums[j - whole] += values[j]
    return across(sums)


@written()
def contrast_left(s, gone, margin, temperature, weight, sums, out):
    """`contrast_one` of one query's similarities s [1 + n], without negatives that are gone [n].

    Leaves their gradient in `out` [1 + n]; `weight` [n] and `sums` [LANES] are room.
    """
    zero, one, half = s.dtype.type(0), s.dtype.type(1), s.dtype.type(0.5)
    n, least = gone.shape[0], s.dtype.type(-np.inf)
    top = least
    for j in range(n):
        x = least if gone[j] else s[1 + j]
        top = max(top, x)
    for j in range(n):
        w = decay(temperature * (s[1 + j] - top))
        weight[j] = zero if gone[j] else w
    total = added(weight, sums)
    rest = one / total if total != zero else zero
    true = s[0] + margin
    e = decay(-abs(true))
    loss = max(-true, zero) + log1p(e)
    out[0] = -half * (e if true > zero else one) / (one + e)
    for j in range(n):
        x = s[1 + j] + margin
        e = decay(-abs(x))
        share = zero if gone[j] else weight[j] * rest  # also where a score is no number
        weight[j] = share * (max(x, zero) + log1p(e)) if share > zero else share
        out[1 + j] = half * share * (one if x > zero else e) / (one + e)
    return half * (loss + added(weight, sums))


@parallel()
def contrast(scores, temperature, losses, gradient):  # [b, 1 + n], scalar, [b], [b, 1 + n]
    n, nothing = scores.shape[1] - 1, scores.dtype.type(0)
    for i in numba.prange(scores.shape[0]):
        left_out = False
        for j in range(n):
            left_out |= scores[i, 1 + j] == -np.inf
        if left_out:
            gone, weight, sums = (
                np.empty(n, np.bool_),
                np.empty(n, scores.dtype),
                np.empty(LANES, scores.dtype),
            )
            for j in range(n):
                gone[j] = scores[i, 1 + j] == -np.inf
            losses[i] = contrast_left(scores[i], gone, nothing, temperature, weight, sums, gradient[i])
        else:
            gradient[i] = scores[i]
            losses[i] = contrast_one(gradient[i], temperature)


@elementwise()  # models that agree to the bit teach each other nothing: fused, p - q would not be 0
def distil(first, second, temperature, to_first, to_second, gradient):  # [b, n] twice, 1, [b] twice, [b, n]
    zero, one, least = first.dtype.type(0), first.dtype.type(1), first.dtype.type(-np.inf)
    n, rate = first.shape[1], first.dtype.type(1) / temperature
    for i in numba.prange(first.shape[0]):
        a, b, g = first[i], second[i], gradient[i]
        p, q, sums = np.empty(n, first.dtype), np.empty(n, first.dtype), np.empty(LANES, first.dtype)
        top_a, top_b = a[0], b[0]
        for j in range(1, n):
            top_a, top_b = max(top_a, a[j]), max(top_b, b[j])
        for j in range(n):
            p[j] = decay((a[j] - top_a) * rate)
            q[j] = decay((b[j] - top_b) * rate)
        total_p, total_q = added(p, sums), added(q, sums)
        shift = np.log(total_p) - np.log(total_q)
        each_p, each_q = one / total_p, one / total_q
        for j in range(n):
            mine, theirs = p[j] * each_p, q[j] * each_q
            gap = ((b[j] - top_b) - (a[j] - top_a)) * rate + shift  # log q - log p
            gone = a[j] == least  # left out
            g[j] = zero if gone else (mine - theirs) * rate
            p[j] = zero if gone else -mine * gap
            q[j] = zero if gone else theirs * gap
        to_first[i], to_second[i] = added(q, sums), added(p, sums)
