"""Queries made of rows, and gradients taken apart again, in plain torch: part of `kernels.reference`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedkge.kernels.base import Composed, Composition


def compose(entities: Tensor, made: Composed) -> Tensor:
    """The queries [b, w]."""
    a, f = entities[made.anchor], made.factors[made.relation][:, : entities.shape[1]]
    if made.kind is Composition.TRANSLATE:
        return a + made.sign * f
    return a * f if made.kind is Composition.SCALE else _product(a, f, made.sign)


def turned(made: Composed) -> Composed:
    """The same by the factors that phases stand for, if it is a rotation by these."""
    if made.kind is not Composition.ROTATE:
        return made
    return replace(made, factors=turn(made.factors, made.scale))


def turn(phases: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """The factors e^(i scale phase) [k, 2 w] of phases [k, w]: [real half | imaginary half]."""
    phase = phases * scale
    return torch.cat((phase.cos(), phase.sin()), -1, out=out)


def decompose(entities: Tensor, made: Composed, d_query: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The gradients of anchors' rows [b, w], and of relations' rows [b, width], by those of the queries."""
    a, f = entities[made.anchor], made.factors[made.relation][:, : entities.shape[1]]
    if made.kind is Composition.TRANSLATE:
        d_anchor, d_relation = d_query, made.sign * d_query
    elif made.kind is Composition.SCALE:
        d_anchor, d_relation = d_query * f, d_query * a
    else:
        d_anchor = _product(d_query, f, -made.sign)
        (x, y), (dx, dy) = a.chunk(2, -1), d_query.chunk(2, -1)
        real, imaginary = x * dx + y * dy, made.sign * (x * dy - y * dx)
        if made.kind is Composition.MULTIPLY:
            d_relation = torch.cat((real, imaginary), -1)
        else:
            c, s = f.chunk(2, -1)
            d_relation = made.scale * (c * imaginary - s * real)
    return d_anchor, torch.nn.functional.pad(d_relation, (0, width - d_relation.shape[1]))


def _product(row: Tensor, f: Tensor, sign: float) -> Tensor:
    (x, y), (c, d) = row.chunk(2, -1), f.chunk(2, -1)
    return torch.cat((x * c - y * (sign * d), x * (sign * d) + y * c), -1)
