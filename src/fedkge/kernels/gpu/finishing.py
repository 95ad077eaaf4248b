"""The end of a gradient pass on the GPU: what queries got is taken apart where it was computed."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Room
from fedkge.kernels.gpu.composing import MULTIPLY, ROTATE, apart, apart_complex, sources_of, turned


@triton.jit
def finish(
    i,  # [ROWS, 1]: queries
    mine,  # [ROWS, 1]: which of them are there
    d,  # [1, COLUMNS]: coordinates, of complex numbers those of the real half
    live,  # [1, COLUMNS]
    dx,  # [ROWS, COLUMNS]: what the queries got
    dy,  # the same of the imaginary half
    sums,  # [entities, WIDTH], added to
    touched,
    relation_sums,  # [relations, FACTORS], added to
    relation_touched,
    entities,
    anchor,
    factors,  # of a rotation those that its phases stand for [relations, WIDTH]
    relation,
    sign: tl.float64,
    scale: tl.float64,
    MADE: tl.constexpr,  # a composition
    WIDTH: tl.constexpr,
    FACTORS: tl.constexpr,
):
    """Add the gradients of queries to those of their anchors and relations, and mark these."""
    dtype: tl.constexpr = entities.dtype.element_ty
    s, there = tl.cast(sign, dtype), mine & live
    row, other = tl.load(anchor + i, mask=mine, other=0), tl.load(relation + i, mask=mine, other=0)
    a, f = entities + row * WIDTH, factors + other * (WIDTH if MADE == ROTATE else FACTORS)
    out, r = sums + row * WIDTH, relation_sums + other * FACTORS
    if MADE < MULTIPLY:
        to_a, to_f = apart(a, f, dx, d, there, s, MADE)
        tl.atomic_add(out + d, to_a, mask=there, sem="relaxed")
        tl.atomic_add(r + d, to_f, mask=there, sem="relaxed")
    else:
        half: tl.constexpr = WIDTH // 2
        c, t = turned(f, d, there, half)
        to_x, to_y, real, imaginary = apart_complex(a, dx, dy, d, there, c, t, s, half)
        tl.atomic_add(out + d, to_x, mask=there, sem="relaxed")
        tl.atomic_add(out + half + d, to_y, mask=there, sem="relaxed")
        if MADE == ROTATE:
            to_phase = tl.cast(scale, dtype) * (c * imaginary - t * real)
            tl.atomic_add(r + d, to_phase, mask=there, sem="relaxed")
        else:
            tl.atomic_add(r + d, real, mask=there, sem="relaxed")
            tl.atomic_add(r + half + d, imaginary, mask=there, sem="relaxed")
    first = mine & (tl.program_id(1) == 0)
    tl.store(touched + row, 1, mask=first)
    tl.store(relation_touched + other, 1, mask=first)


def where(rooms: tuple[Room, Room], entities: Tensor, made: Composed) -> tuple[Tensor | float, ...]:
    """Where `finish` adds gradients, and what queries are made of, as it takes them."""
    out = tuple(tensor for room in rooms for tensor in (room.sums, room.touched))
    return (*out, entities, *sources_of(made), made.scale)
