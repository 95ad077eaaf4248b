"""Every row against every query: a program keeps a tile of scores in registers and walks over the width.

It takes a few coordinates at a time: a tile of queries by rows by coordinates has to fit into registers.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Similarity
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.similarity import L1, L2


@dataclass(frozen=True, slots=True)
class Square:
    """A program's tile: scores of `queries` by `rows`, `depth` coordinates at a time."""

    queries: int = 64
    rows: int = 64
    depth: int = 4
    warps: int = 4


SQUARE = Square()


@triton.jit
def _all_scores(
    scores,  # [b, e]
    query,  # [b, WIDTH]
    table,  # [e, WIDTH]
    b: tl.int64,
    e: tl.int64,
    blocks,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) // blocks * QUERIES + tl.arange(0, QUERIES)
    j = tl.program_id(0).to(tl.int64) % blocks * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)[None, None, :]
    queries = query + (tl.minimum(i, b - 1) * WIDTH)[:, None, None] + k
    rows = table + (tl.minimum(j, e - 1) * WIDTH)[None, :, None] + k
    total = tl.zeros((QUERIES, ROWS), scores.dtype.element_ty)
    for start in range(0, SPAN, DEPTH):
        live = start + k < SPAN
        x = tl.load(queries + start, mask=live, other=0.0) - tl.load(rows + start, mask=live, other=0.0)
        if KIND == L1:
            total += tl.sum(tl.abs(x), 2)
        elif KIND == L2:
            total += tl.sum(x * x, 2)
        else:
            y = tl.load(queries + (SPAN + start), mask=live, other=0.0)
            y = y - tl.load(rows + (SPAN + start), mask=live, other=0.0)
            total += tl.sum(tl.sqrt(x * x + y * y), 2)
    if KIND == L2:
        total = tl.sqrt(total)
    mask = (i < b)[:, None] & (j < e)[None, :]
    tl.store(scores + i[:, None] * e + j[None, :], -total, mask=mask)


def all_scores(
    scores: Tensor, kind: Similarity, query: Tensor, table: Tensor, square: Square = SQUARE
) -> None:
    """The similarities other than DOT, which is a matrix product."""
    (b, e), width = scores.shape, table.shape[1]
    blocks = triton.cdiv(e, square.rows)
    shape = {"WIDTH": width, "SPAN": width // 2 if kind is Similarity.MODULUS else width}
    tile = {"QUERIES": square.queries, "ROWS": square.rows, "DEPTH": square.depth}
    grid = (triton.cdiv(b, square.queries) * blocks,)
    meta = {"KIND": int(kind), **shape, **tile, "num_warps": square.warps}
    launch(_all_scores, grid, scores, query, table, b, e, blocks, **meta)
