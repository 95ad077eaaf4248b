"""How a site trains: the options, and what a batch is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

from torch import Tensor

from fedkge.errors import ConfigError, suggest
from fedkge.graphs.graph import Axis
from fedkge.kernels import Candidates
from fedkge.models import Side, Tables
from fedkge.training.losses import CONTRASTS, LOSSES
from fedkge.training.optimizers import OPTIMIZERS

SIDES = ("both", "alternate", *map(str, Side))
MOST = {
    "epochs": 1_000_000,
    "batch_size": 2**31 - 1,
    "negatives": 1_000_000,
    "chunk": 2**31 - 1,
    "temperature": 1e30,  # scores times more would be infinite
}  #: the largest values; a batch and a chunk end with the site's triples anyway


@dataclass(frozen=True, slots=True)
class Batch:
    """Triples of one step: for each an anchor, a relation, and candidates of which the first is true."""

    side: Side
    anchor: Tensor  # int64 [b]
    relation: Tensor  # int64 [b]
    index: Candidates  # int64 [b, 1 + negatives], or shared by chunks of the batch
    site: Tensor  # int64 [b]
    weight: Tensor  # [b], sums to 1 over each site

    @property
    def true(self) -> Tensor:
        """The entities that are asked for, int64 [b]."""
        return self.index[:, 0] if isinstance(self.index, Tensor) else self.index.true

    @property
    def candidates(self) -> Tensor:
        """All entities that anchors are compared with, int64 [k]; they may repeat."""
        return self.index.flatten() if isinstance(self.index, Tensor) else self.index.ids()

    @property
    def entities(self) -> tuple[Tensor, ...]:
        """All entities that are read, int64 [k] each; they may repeat."""
        if isinstance(self.index, Tensor):
            return self.anchor, self.index.flatten()
        return self.anchor, self.index.true, self.index.negatives.flatten()


Objective: TypeAlias = Callable[[Tables, Batch], Tensor]  #: the losses [b] of a batch's triples


@dataclass(frozen=True, slots=True)
class BySite:
    """Adds up numbers of rows, site by site."""

    owner: Tensor  # int64 [n], the site of each row
    sizes: Tensor  # [s], how many rows each site has

    def sum(self, values: Tensor) -> Tensor:
        """[n] -> [s]"""
        return values.new_zeros(len(self.sizes)).index_add(0, self.owner, values)

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / self.sizes


@dataclass(frozen=True, slots=True)
class Moments:
    """Of each row of a table [n, width] and of the row that is kept for it."""

    gap: Tensor  # [n], |row - kept|^2
    square: Tensor  # [n], |row|^2
    product: Tensor  # [n], row . kept


@dataclass(frozen=True, slots=True)
class Penalty:
    """What every step adds to each site's loss [s], from a whole table and rows that are kept beside it."""

    kept: Tensor  # [n, width]
    of: Callable[[Moments, BySite], Tensor]


@dataclass(frozen=True)
class Trainer:
    """How a site trains. An epoch visits every triple once per side; where these alternate, once."""

    epochs: int = 3  #: passes over the local triples per round
    batch_size: int = 512  #: triples per step
    negatives: int = 256  #: negative samples per positive and side
    chunk: int = 1  #: positives of a site's batch that share their negatives; 1: each has its own
    lr: float = 1e-3  #: learning rate, constant
    loss: str = "self-adversarial"  #: or "logistic", "margin"
    temperature: float = 1.0  #: temperature of the self-adversarial weights; 0 is logistic
    ranking_margin: float = 1.0  #: margin of the margin loss
    optimizer: str = "adam"  #: or "row-adam", "adagrad", "sgd"
    sides: Literal["both", "alternate", "head", "tail"] = (
        "both"  #: which end is corrupted; alternate: by batch
    )
    filtered: bool = True  #: negatives are never known training triples
    l3: float = 0.0  #: weight of the cubes of a triple's rows in its loss, which keeps rows small; 0: none
    subsampling: bool = False  #: weighs triples by 1 / sqrt(frequency of their two questions)
    deterministic: bool = False  #: on a GPU: sums in a fixed order, slower; the CPU always does so

    def __post_init__(self) -> None:
        least = dict.fromkeys(MOST, 1) | {"temperature": 0, "ranking_margin": 0, "l3": 0}
        for name, low in least.items():
            if not low <= getattr(self, name) < inf:  # NaN is neither
                raise ConfigError(f"{name}: expected at least {low}, got {getattr(self, name)}")
        for name, high in MOST.items():
            if getattr(self, name) > high:
                raise ConfigError(f"{name}: expected at most {high:,}, got {getattr(self, name):,}")
        if not 0 < self.lr < inf:
            raise ConfigError(f"lr: expected a number above 0, got {self.lr}")
        for name, known in (("loss", LOSSES), ("optimizer", OPTIMIZERS), ("sides", SIDES)):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(
                    f"{name}: expected one of {', '.join(known)}, got {value!r}{suggest(value, known)}"
                )

    @property
    def side_order(self) -> tuple[Side, ...]:
        """The sides that batches take in turn."""
        return (Side.HEAD, Side.TAIL) if self.sides in ("both", "alternate") else (Side(self.sides),)

    @property
    def visits(self) -> int:
        """How often an epoch visits a triple."""
        return 1 if self.sides == "alternate" else len(self.side_order)

    def sides_of(self, batch: int, epoch: int) -> tuple[Side, ...]:
        """The sides whose turn it is on an epoch's batch of that number."""
        order = self.side_order
        return (order[(batch + epoch) % len(order)],) if self.sides == "alternate" else order

    def objective(self, tables: Tables, batch: Batch) -> Tensor:
        where = batch.anchor, batch.relation, batch.index, batch.side
        if self.loss not in CONTRASTS:
            return self.losses(tables.scores(*where))
        return tables.contrast(*where, self.temperature if self.loss == "self-adversarial" else 0.0)

    def regularised(self, objective: Objective) -> Objective:
        """Losses with `l3 (|h|^3 + |r|^3 + |t|^3)`, each summed over the row, of second tables too."""

        def losses(tables: Tables, batch: Batch) -> Tensor:
            found = objective(tables, batch)
            for one in (tables, tables.second):
                found = found if one is None else found + self.l3 * _cubes(one, batch)
            return found

        return losses if self.l3 else objective

    def losses(self, scores: Tensor) -> Tensor:
        """The loss [b] of triples and their negatives, from scores [b, 1 + n] with the true one first."""
        option = self.ranking_margin if self.loss == "margin" else self.temperature
        return LOSSES[self.loss](scores, option)


def _cubes(tables: Tables, batch: Batch) -> Tensor:
    """[b]: of the rows of each triple, the numbers that are trained, cubed and summed."""
    ends = (tables.cubes(Axis.ENTITY, ids) for ids in (batch.anchor, batch.true))
    return sum(ends, tables.cubes(Axis.RELATION, batch.relation))
