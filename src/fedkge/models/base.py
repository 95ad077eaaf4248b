"""What every model is: the layout of its rows, a query, and a score. A model holds no tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis
from fedkge.kernels import Composition, Similarity
from fedkge.kernels.comparing import compare
from fedkge.registry import Registry

MODELS: Registry[Model] = Registry("model", "fedkge.models")


class Side(StrEnum):
    """Which end of a triple is asked for; the other end is the anchor."""

    HEAD = "head"
    TAIL = "tail"


@dataclass(frozen=True)
class Model(ABC):
    """A score over rows; its fields are its hyper-parameters.

    Whatever a paper attaches to an entity or a relation (a projection, a matrix, an imaginary half) is a
    named block of its row, so that what moves rows never asks which model they belong to.
    """

    untrained: ClassVar[frozenset[str]] = frozenset()  #: blocks that are read off triples, once
    dim: int = 128  #: numbers per vector; complex numbers in complex models

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"dim: expected at least 1, got {self.dim}")

    @property
    @abstractmethod
    def similarity(self) -> Similarity:
        """How a query compares with a candidate."""

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        """The named parts of an entity row and a relation row, and their widths, in order."""
        return {Axis.ENTITY: {"vector": self.dim}, Axis.RELATION: {"vector": self.dim}}

    def width(self, axis: Axis) -> int:
        return sum(self.blocks[axis].values())

    def block(self, rows: Tensor, axis: Axis, name: str) -> Tensor:
        """One named part of rows `[..., width]`."""
        start = 0
        for block, width in self.blocks[axis].items():
            if block == name:
                return rows[..., start : start + width]
            start += width
        raise KeyError(f"{axis} rows have no block {name!r}")

    def spatial(self, axis: Axis) -> int:
        """How many numbers at the start of a row are a vector, which a matrix can translate; 0: none are.

        Complex vectors count as pairs of real ones. Phases, matrices, projections and normals are no vectors.
        """
        return sum(self.blocks[axis].get(name, 0) for name in ("vector", "real", "imaginary"))

    def trained(self, rows: Tensor, axis: Axis) -> Tensor:
        """Rows without the blocks that no step moves."""
        if self.untrained.isdisjoint(self.blocks[axis]):
            return rows
        kept = [name for name in self.blocks[axis] if name not in self.untrained]
        return torch.cat([self.block(rows, axis, name) for name in kept], -1)

    @abstractmethod
    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        """`[..., w]`: what a candidate for `side` should look like."""

    @property
    def composition(self) -> Composition | None:
        """How `query` is computed, if kernels know it: from an anchor's row and `factors`."""
        return None

    def factors(self, relations: Tensor) -> Tensor:
        """What a composition makes queries with, from relation rows `[n, width]`."""
        return relations

    @property
    def scale(self) -> float:
        """Phase of a rotation by what a relation's row holds."""
        return 1.0

    def project(self, rows: Tensor, relation: Tensor) -> Tensor:
        """Entity rows as `relation` sees them; a model that overrides this sets `projects`."""
        return rows

    @property
    def projects(self) -> bool:
        """Whether candidates depend on the relation."""
        return False

    @property
    def offset(self) -> float | None:
        """What `finish` adds to every similarity; None if it does something else."""
        return 0.0

    def finish(self, similarity: Tensor, relation: Tensor) -> Tensor:
        """Scores `[..., n]` from similarities `[..., n]` and relation rows `[..., width]`."""
        return similarity

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Plausibility of (h, r, t), higher is better; rows in `[..., width]`, scores out `[...]`."""
        similarity = compare(self.similarity, self.query(h, r, Side.TAIL), self.project(t, r))
        return self.finish(similarity[..., None], r)[..., 0]

    @abstractmethod
    def initial(self, uniform: Tensor, axis: Axis) -> Tensor:
        """The first rows, from numbers in [0, 1) `[n, width]`."""

    def observe(self, relations: Tensor, triples: Tensor) -> None:  # noqa: B027 - most read nothing
        """Write what the model reads off the training triples into the relation table, in place."""

    def constrain(self, rows: Tensor, axis: Axis) -> Tensor | None:
        """The nearest rows that the model allows; None when it allows all."""
        return None


@dataclass(frozen=True)
class Ranged(Model):
    """A model whose first rows are uniform in a range."""

    margin: float = 10.0  #: sets the range of the first rows, and nothing else
    epsilon: float = 2.0  #: first rows are uniform in +-(margin + epsilon) / dim (Sun et al., 2019)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.margin < inf and 0 < self.epsilon < inf):
            raise ConfigError(f"margin, epsilon: expected >= 0 and > 0, got {self.margin}, {self.epsilon}")

    @property
    def range(self) -> float:
        return (self.margin + self.epsilon) / self.dim

    def initial(self, uniform: Tensor, axis: Axis) -> Tensor:
        return uniform.mul(2 * self.range).sub_(self.range)


@dataclass(frozen=True)
class Distance(Ranged):
    """A model whose score is a margin minus a distance."""

    margin: float = 10.0  #: gamma: the score of a perfect match; also sets the range of the first rows

    @property
    def offset(self) -> float | None:
        return self.margin

    def finish(self, similarity: Tensor, relation: Tensor) -> Tensor:
        return self.margin + similarity


@dataclass(frozen=True)
class Bilinear(Ranged):
    """A model whose score is a product."""

    @property
    def similarity(self) -> Similarity:
        return Similarity.DOT


def norm_similarity(norm: int) -> Similarity:
    """The similarity that negates a distance by `norm` 1 or 2."""
    return Similarity.L1 if norm == 1 else Similarity.L2


def bordes_uniform(uniform: Tensor, width: int) -> Tensor:
    """Uniform in +-6 / sqrt(width), as Bordes et al. (2013) draw first rows."""
    return (2 * uniform - 1) * 6 / width**0.5


def within_unit_ball(rows: Tensor) -> Tensor:
    """Rows longer than 1 shortened to 1."""
    return rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(1.0)


def on_unit_sphere(rows: Tensor) -> Tensor:
    """Rows scaled to length 1."""
    return F.normalize(rows, dim=-1)
