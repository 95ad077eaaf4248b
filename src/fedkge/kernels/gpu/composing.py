"""Queries made of rows on the GPU, and gradients taken apart again: one pass, a program for each query."""

from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Composition
from fedkge.kernels.gpu.launch import launch

TRANSLATE, SCALE, MULTIPLY, ROTATE = (tl.constexpr(int(kind)) for kind in Composition)


@triton.jit
def composed(a, f, at, mask, sign: tl.float64, KIND: tl.constexpr, WIDTH: tl.constexpr):
    """Numbers `at` some places of queries, of anchors' rows and relations' factors."""
    dtype: tl.constexpr = a.dtype.element_ty
    s = tl.cast(sign, dtype)
    if KIND < MULTIPLY:
        x, c = tl.load(a + at, mask=mask, other=0.0), tl.load(f + at, mask=mask, other=0.0)
        return x + s * c if KIND == TRANSLATE else x * c
    else:
        half: tl.constexpr = WIDTH // 2
        upper = at >= half
        low = tl.where(upper, at - half, at)
        x, y = tl.load(a + low, mask=mask, other=0.0), tl.load(a + half + low, mask=mask, other=0.0)
        c, t = turned(f, low, mask, half)
        t *= s
        return tl.where(upper, x * t + y * c, x * c - y * t)


@triton.jit
def turned(f, at, mask, HALF: tl.constexpr):
    """Complex factors in a row: real and imaginary part."""
    return tl.load(f + at, mask=mask, other=0.0), tl.load(f + HALF + at, mask=mask, other=0.0)


@triton.jit
def _turn(out, phases, scale: tl.float64, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    phase = tl.load(phases + k, mask=k < count, other=0.0) * tl.cast(scale, phases.dtype.element_ty)
    at = out + k // WIDTH * (2 * WIDTH) + k % WIDTH
    tl.store(at, tl.cos(phase), mask=k < count)
    tl.store(at + WIDTH, tl.sin(phase), mask=k < count)


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
        to_a, to_f = apart(a, f, tl.load(g + d, mask=live, other=0.0), d, live, s, KIND)
        tl.store(out + d, to_a, mask=live)
        tl.store(r + d, to_f, mask=d < RELATION)
    else:
        half: tl.constexpr = WIDTH // 2
        live = d < half
        c, t = tl.load(f + d, mask=live, other=0.0), tl.load(f + half + d, mask=live, other=0.0)
        dx, dy = tl.load(g + d, mask=live, other=0.0), tl.load(g + half + d, mask=live, other=0.0)
        to_x, to_y, real, imaginary = apart_complex(a, dx, dy, d, live, c, t, s, half)
        tl.store(out + d, to_x, mask=live)
        tl.store(out + half + d, to_y, mask=live)
        if KIND == MULTIPLY:
            tl.store(r + d, real, mask=live)
            tl.store(r + half + d, imaginary, mask=live)
        else:
            tl.store(r + d, tl.cast(scale, dtype) * (c * imaginary - t * real), mask=live)


@triton.jit
def apart(a, f, dx, d, live, s, KIND: tl.constexpr):
    """The gradients of an anchor's row and of factors, by a query's."""
    if KIND == TRANSLATE:
        return dx, s * dx
    else:
        x, c = tl.load(a + d, mask=live, other=0.0), tl.load(f + d, mask=live, other=0.0)
        return dx * c, dx * x


@triton.jit
def apart_complex(a, dx, dy, d, live, c, t, s, HALF: tl.constexpr):
    """The same of complex numbers: real and imaginary part of either."""
    x, y = tl.load(a + d, mask=live, other=0.0), tl.load(a + HALF + d, mask=live, other=0.0)
    return dx * c + dy * s * t, dy * c - dx * s * t, x * dx + y * dy, s * (x * dy - y * dx)


def compose(query: Tensor, entities: Tensor, made: Composed) -> None:
    launch(_compose, (len(query),), query, entities, *_made(made), **_shape(entities, made, 0))


def decompose(
    d_anchor: Tensor, d_relation: Tensor, entities: Tensor, made: Composed, d_query: Tensor
) -> None:
    shape = {"RELATION": d_relation.shape[1], **_shape(entities, made, d_relation.shape[1])}
    out = (d_anchor, d_relation)
    launch(_decompose, (len(d_query),), *out, entities, *_made(made), d_query, made.scale, **shape)


def turn(phases: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """Cosines and sines once for each relation: queries and gradients would compute them again and again."""
    height, width = phases.shape
    out = phases.new_empty(height, 2 * width) if out is None else out
    grid = (triton.cdiv(phases.numel(), 256),)
    launch(_turn, grid, out, phases, scale, phases.numel(), WIDTH=width, BLOCK=256, num_warps=4)
    return out


def with_factors(made: Composed) -> Composed:
    """The same, and of a rotation the factors too."""
    if made.kind is not Composition.ROTATE or made.turned is not None:
        return made
    return replace(made, turned=turn(made.factors.contiguous(), made.scale))


def sources_of(made: Composed) -> tuple[Tensor | float, ...]:
    """What queries `with_factors` are made of, as a kernel takes it."""
    anchor, factors, *others = _made(made)
    return anchor, factors if made.turned is None else made.turned, *others


def stride_of(made: Composed) -> int:
    """From the factors of a relation to the next one's."""
    return (made.factors if made.turned is None else made.turned).shape[1]


def _made(made: Composed) -> tuple[Tensor | float, ...]:
    return made.anchor.contiguous(), made.factors.contiguous(), made.relation.contiguous(), made.sign


def _shape(entities: Tensor, made: Composed, least: int) -> dict[str, int]:
    width = entities.shape[1]
    halves = 1 if made.kind in (Composition.TRANSLATE, Composition.SCALE) else 2
    block = triton.next_power_of_2(max(width // halves, least if halves == 1 else 0))
    shape = {"WIDTH": width, "FACTORS": made.factors.shape[1], "KIND": int(made.kind)}
    return {**shape, "BLOCK": block, "num_warps": 2}
