"""Queries made of rows on the GPU, and gradients taken apart again: one pass, a program for each query."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Composition
from fedkge.kernels.gpu.launch import launch

TRANSLATE, SCALE, MULTIPLY, ROTATE = (tl.constexpr(int(kind)) for kind in Composition)


@triton.jit
def _compose(
    query,
    entities,
    anchor,
    factors,
    relation,
    sign: tl.float64,
    WIDTH: tl.constexpr,
    FACTORS: tl.constexpr,  # width of their rows
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = entities.dtype.element_ty
    s = tl.cast(sign, dtype)
    a, f = entities + tl.load(anchor + i) * WIDTH, factors + tl.load(relation + i) * FACTORS
    out = query + i * WIDTH
    d = tl.arange(0, BLOCK)
    if KIND < MULTIPLY:
        live = d < WIDTH
        x, c = tl.load(a + d, mask=live, other=0.0), tl.load(f + d, mask=live, other=0.0)
        tl.store(out + d, x + s * c if KIND == TRANSLATE else x * c, mask=live)
    else:
        half: tl.constexpr = WIDTH // 2
        live = d < half
        x, y = tl.load(a + d, mask=live, other=0.0), tl.load(a + half + d, mask=live, other=0.0)
        c, t = tl.load(f + d, mask=live, other=0.0), s * tl.load(f + half + d, mask=live, other=0.0)
        tl.store(out + d, x * c - y * t, mask=live)
        tl.store(out + half + d, x * t + y * c, mask=live)


@triton.jit
def _decompose(
    d_anchor,
    d_relation,
    entities,
    anchor,
    factors,
    relation,
    sign: tl.float64,
    d_query,
    scale: tl.float64,
    WIDTH: tl.constexpr,
    FACTORS: tl.constexpr,
    RELATION: tl.constexpr,  # width of its rows
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = entities.dtype.element_ty
    s = tl.cast(sign, dtype)
    a, f = entities + tl.load(anchor + i) * WIDTH, factors + tl.load(relation + i) * FACTORS
    out, r, g = d_anchor + i * WIDTH, d_relation + i * RELATION, d_query + i * WIDTH
    d = tl.arange(0, BLOCK)
    if KIND < MULTIPLY:
        live = d < WIDTH
        dx = tl.load(g + d, mask=live, other=0.0)
        if KIND == TRANSLATE:
            tl.store(out + d, dx, mask=live)
            tl.store(r + d, s * dx, mask=d < RELATION)
        else:
            x, c = tl.load(a + d, mask=live, other=0.0), tl.load(f + d, mask=live, other=0.0)
            tl.store(out + d, dx * c, mask=live)
            tl.store(r + d, dx * x, mask=d < RELATION)
    else:
        half: tl.constexpr = WIDTH // 2
        live = d < half
        x, y = tl.load(a + d, mask=live, other=0.0), tl.load(a + half + d, mask=live, other=0.0)
        c, t = tl.load(f + d, mask=live, other=0.0), tl.load(f + half + d, mask=live, other=0.0)
        dx, dy = tl.load(g + d, mask=live, other=0.0), tl.load(g + half + d, mask=live, other=0.0)
        tl.store(out + d, dx * c + dy * s * t, mask=live)
        tl.store(out + half + d, dy * c - dx * s * t, mask=live)
        real, imaginary = x * dx + y * dy, s * (x * dy - y * dx)
        if KIND == MULTIPLY:
            tl.store(r + d, real, mask=live)
            tl.store(r + half + d, imaginary, mask=live)
        else:
            tl.store(r + d, tl.cast(scale, dtype) * (c * imaginary - t * real), mask=live)


def compose(query: Tensor, entities: Tensor, made: Composed) -> None:
    launch(_compose, (len(query),), query, entities, *_made(made), **_shape(entities, made, 0))


def decompose(
    d_anchor: Tensor, d_relation: Tensor, entities: Tensor, made: Composed, d_query: Tensor
) -> None:
    shape = {"RELATION": d_relation.shape[1], **_shape(entities, made, d_relation.shape[1])}
    out = (d_anchor, d_relation)
    launch(_decompose, (len(d_query),), *out, entities, *_made(made), d_query, made.scale, **shape)


def _made(made: Composed) -> tuple[Tensor | float, ...]:
    return made.anchor.contiguous(), made.factors.contiguous(), made.relation.contiguous(), made.sign


def _shape(entities: Tensor, made: Composed, least: int) -> dict[str, int]:
    width = entities.shape[1]
    halves = 1 if made.kind in (Composition.TRANSLATE, Composition.SCALE) else 2
    block = triton.next_power_of_2(max(width // halves, least if halves == 1 else 0))
    shape = {"WIDTH": width, "FACTORS": made.factors.shape[1], "KIND": int(made.kind)}
    return {**shape, "BLOCK": block, "num_warps": 2}
