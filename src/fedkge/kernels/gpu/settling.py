"""Gradients of a batch's rows on the GPU, taken apart and added up where there is room, in one launch.

What queries got is dealt out to anchors and relations on the way. Rows are added by atomics (`heaping`).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Composed, Composition, Room, Shared
from fedkge.kernels.gpu.composing import MULTIPLY, ROTATE, apart, apart_complex, sources_of, turned
from fedkge.kernels.gpu.launch import launch


@triton.jit
def _settle(
    sums,  # [entities, WIDTH], added to
    touched,
    relation_sums,  # [relations, FACTORS], added to
    relation_touched,
    entities,
    true,
    negatives,
    d_query,  # [b, WIDTH]
    values,  # [b or b + c n, WIDTH]: of the true rows, then of the negatives
    anchor,
    factors,
    relation,
    sign: tl.float64,
    scale: tl.float64,
    b,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    FACTORS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    k = tl.program_id(0).to(tl.int64)
    if k < b:
        dtype: tl.constexpr = entities.dtype.element_ty
        s = tl.cast(sign, dtype)
        row, other = tl.load(anchor + k), tl.load(relation + k)
        stride: tl.constexpr = WIDTH if KIND == ROTATE else FACTORS
        a, f, g = entities + row * WIDTH, factors + other * stride, d_query + k * WIDTH
        out, r = sums + row * WIDTH, relation_sums + other * FACTORS
        d = tl.arange(0, BLOCK)
        if KIND < MULTIPLY:
            live = d < WIDTH
            to_a, to_f = apart(a, f, tl.load(g + d, mask=live, other=0.0), d, live, s, KIND)
            tl.atomic_add(out + d, to_a, mask=live, sem="relaxed")
            tl.atomic_add(r + d, to_f, mask=live, sem="relaxed")
        else:
            half: tl.constexpr = WIDTH // 2
            live = d < half
            c, t = turned(f, d, live, half)
            dx, dy = tl.load(g + d, mask=live, other=0.0), tl.load(g + half + d, mask=live, other=0.0)
            to_x, to_y, real, imaginary = apart_complex(a, dx, dy, d, live, c, t, s, half)
            tl.atomic_add(out + d, to_x, mask=live, sem="relaxed")
            tl.atomic_add(out + half + d, to_y, mask=live, sem="relaxed")
            if KIND == ROTATE:
                to_phase = tl.cast(scale, dtype) * (c * imaginary - t * real)
                tl.atomic_add(r + d, to_phase, mask=live, sem="relaxed")
            else:
                tl.atomic_add(r + d, real, mask=live, sem="relaxed")
                tl.atomic_add(r + half + d, imaginary, mask=live, sem="relaxed")
        tl.store(touched + row, 1)
        tl.store(relation_touched + other, 1)
    else:
        asked = k < 2 * b
        row = tl.load(true + k - b, mask=asked, other=0)
        row += tl.load(negatives + k - 2 * b, mask=k >= 2 * b, other=0)
        every = tl.arange(0, WIDE)
        value = tl.load(values + (k - b) * WIDTH + every, mask=every < WIDTH, other=0.0)
        tl.atomic_add(sums + row * WIDTH + every, value, mask=every < WIDTH, sem="relaxed")
        tl.store(touched + row, 1)


def settle(
    rooms: tuple[Room, Room],
    entities: Tensor,
    made: Composed,
    shared: Shared,
    d_query: Tensor,
    values: Tensor,
) -> None:
    """Add to the gradients of entities and relations what queries and the first of `shared.ids()` got."""
    (b, width), rows = d_query.shape, len(d_query) + len(values)
    halves = 1 if made.kind in (Composition.TRANSLATE, Composition.SCALE) else 2
    shape = {"KIND": int(made.kind), "WIDTH": width, "FACTORS": made.factors.shape[1]}
    blocks = {"WIDE": triton.next_power_of_2(width), "BLOCK": triton.next_power_of_2(width // halves)}
    out = tuple(tensor for room in rooms for tensor in (room.sums, room.touched))
    ids = (entities, shared.true, shared.negatives, d_query, values)
    launch(_settle, (rows,), *out, *ids, *sources_of(made), made.scale, b, **shape, **blocks, num_warps=2)
