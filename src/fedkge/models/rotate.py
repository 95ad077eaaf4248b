"""RotatE (Sun et al., ICLR 2019): a relation is a rotation in the complex plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedkge.graphs.graph import Axis
from fedkge.kernels import Composition, Similarity
from fedkge.models.base import MODELS, Distance, Side
from fedkge.models.complex import multiply


@MODELS.register("rotate")
@dataclass(frozen=True)
class RotatE(Distance):
    """`margin - sum_k |h_k e^(i phase_k) - t_k|`; the stored phase is scaled so that +-range is +-pi."""

    margin: float = 9.0

    @property
    def similarity(self) -> Similarity:
        return Similarity.MODULUS

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        return {Axis.ENTITY: {"real": self.dim, "imaginary": self.dim}, Axis.RELATION: {"phase": self.dim}}

    @property
    def composition(self) -> Composition:
        return Composition.ROTATE

    @property
    def scale(self) -> float:
        return pi / self.range

    def factors(self, relations: Tensor) -> Tensor:
        phase = relations * self.scale
        return torch.cat((phase.cos(), phase.sin()), -1)

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        phase = relation * (self.scale if side is Side.TAIL else -self.scale)
        return cast(Tensor, _Rotate.apply(anchor, phase))  # type: ignore[no-untyped-call]


class _Rotate(torch.autograd.Function):
    """A row turned by a phase. Going back turns by minus the phase, with the same sines and cosines:
    a turned row changes with its phase by itself times i.
    """

    @staticmethod
    def forward(ctx: Any, row: Tensor, phase: Tensor) -> Tensor:
        cosine, sine = phase.cos(), phase.sin()
        turned = multiply(row, cosine, sine)
        ctx.save_for_backward(turned, cosine, sine)
        ctx.shapes = row.shape, phase.shape
        return turned

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        turned, cosine, sine = ctx.saved_tensors
        (x, y), (dx, dy) = turned.chunk(2, -1), gradient.chunk(2, -1)
        d_row, d_phase = multiply(gradient, cosine, -sine), dy * x - dx * y
        return d_row.sum_to_size(ctx.shapes[0]), d_phase.sum_to_size(ctx.shapes[1])
