"""Queries made of rows on the CPU, and gradients taken apart again: one pass, row by row."""

from __future__ import annotations

import numba

from fedkge.kernels.cpu.compile import elementwise, inline
from fedkge.kernels.cpu.prefetch import AHEAD, ask

TRANSLATE, SCALE, MULTIPLY, ROTATE = 0, 1, 2, 3


@inline()
def _product(row, f, sign, out):
    half = out.shape[0] // 2
    for d in range(half):
        x, y, c, s = row[d], row[half + d], f[d], sign * f[half + d]
        out[d] = x * c - y * s
        out[half + d] = x * s + y * c


@elementwise()
def compose(kind, entities, anchor, factors, relation, sign, query):
    w, last = entities.shape[1], anchor.shape[0] - 1
    for i in numba.prange(anchor.shape[0]):
        ask(entities, anchor[min(i + AHEAD, last)])
        a, f, q = entities[anchor[i]], factors[relation[i]], query[i]
        if kind == TRANSLATE:
            for d in range(w):
                q[d] = a[d] + sign * f[d]
        elif kind == SCALE:
            for d in range(w):
                q[d] = a[d] * f[d]
        else:
            _product(a, f, sign, q)


@elementwise()
def decompose(kind, entities, anchor, factors, relation, sign, scale, d_query, d_anchor, d_relation):
    w, last = entities.shape[1], anchor.shape[0] - 1
    half = w // 2
    for i in numba.prange(anchor.shape[0]):
        ask(entities, anchor[min(i + AHEAD, last)])
        a, f, g, r = entities[anchor[i]], factors[relation[i]], d_query[i], d_relation[i]
        used = w
        if kind == TRANSLATE:
            for d in range(w):
                d_anchor[i, d] = g[d]
                r[d] = sign * g[d]
        elif kind == SCALE:
            for d in range(w):
                d_anchor[i, d] = g[d] * f[d]
                r[d] = g[d] * a[d]
        else:
            _product(g, f, -sign, d_anchor[i])
            used = w if kind == MULTIPLY else half
            if kind == MULTIPLY:
                for d in range(half):
                    x, y, dx, dy = a[d], a[half + d], g[d], g[half + d]
                    r[d] = x * dx + y * dy
                    r[half + d] = sign * (x * dy - y * dx)
            else:
                for d in range(half):
                    x, y, dx, dy = a[d], a[half + d], g[d], g[half + d]
                    real, imaginary = x * dx + y * dy, sign * (x * dy - y * dx)
                    r[d] = scale * (f[d] * imaginary - f[half + d] * real)
        for d in range(used, r.shape[0]):
            r[d] = 0
