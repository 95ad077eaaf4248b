"""What every backend computes on: the four similarities, and a table's gradient before it is summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeAlias

import torch
from torch import Tensor


class Similarity(IntEnum):
    """How a query compares with a candidate row; higher is more alike, and every one is symmetric."""

    L1 = 0  #: -sum |q - e|
    L2 = 1  #: -sqrt(sum (q - e)^2)
    MODULUS = 2  #: -sum |q - e| over complex numbers; rows are [real half | imaginary half]
    DOT = 3  #: sum q e


class Composition(IntEnum):
    """How a query is made of an anchor's row a and a relation's factors f; s is 1 for tails, -1 for heads."""

    TRANSLATE = 0  #: a + s f
    SCALE = 1  #: a f
    MULTIPLY = 2  #: a (Re f + i s Im f); rows are [real half | imaginary half]
    ROTATE = 3  #: the same with f = e^(i phase): the relation's row is the phase, over some scale


@dataclass(frozen=True, slots=True)
class Composed:
    """Queries by the rows that they are made of."""

    kind: Composition
    anchor: Tensor  # int64 [b], rows of the entity table
    factors: Tensor  # [k, w] or more columns, which are not read
    relation: Tensor  # int64 [b], rows of the factors
    sign: float  #: 1 or -1
    scale: float = 1.0  #: of a rotation: phases by what relations' rows hold
    turned: Tensor | None = None  # [k, w], the factors that phases stand for, where they are known


@dataclass(frozen=True, slots=True)
class Tie:
    """What a penalty adds to the gradient of every row of a table beside which another one is kept.

    Row x gets factors[x, 0] * (x - kept) + factors[x, 1] * x + factors[x, 2] * kept: all that a function of
    |x - kept|^2, |x|^2 and x . kept can.
    """

    kept: Tensor  # [e, w]
    factors: Tensor  # [e, 3]


@dataclass(frozen=True, slots=True)
class Room:
    """Where a backend may add up a table's gradient: zeros when it is asked, and again when it is done."""

    sums: Tensor  # [e, w]
    touched: Tensor  # uint8 [e]: which rows of `sums` may be other than 0


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one backward pass adds to a table's gradient, as factors: nothing of size [b, n, width].

    The gradient of row x is the sum of d similarity(query[i], x) * d_scores[i, j] over all (i, j) with
    index[i, j] = x, plus the sum of values[k] over all k with ids[k] = x, plus what ties it. The
    last ids have no values but `cubed`: row x gets the gradient of its cubes, times the sum of these numbers.
    """

    kind: Similarity
    query: Tensor  # [b, w]
    index: Tensor  # int64 [b, n]
    scores: Tensor  # [b, n], the similarities
    d_scores: Tensor  # [b, n]
    ids: Tensor  # int64 [m]
    values: Tensor  # [m, w]
    tie: Tie | None = None
    ahead: Tensor | None = (
        None  #: [k, w] values of the first k ids, which `values` then lacks: no copy is made
    )
    room: Room | None = None  #: of the table's size
    cubed: Tensor | None = None  #: [k], of the last k ids: where rows are cubed, one number is all they need

    def reaching(self, ids: Sequence[Tensor]) -> Contribution:
        """The same with a gradient of 0 for further rows, so that these are touched too."""
        more = torch.cat(list(ids))
        if self.cubed is not None:
            cubed = torch.cat((self.cubed, self.cubed.new_zeros(len(more))))
            return replace(self, ids=torch.cat((self.ids, more)), cubed=cubed)
        joined = self.joined()
        nothing = joined.values.new_zeros(len(more), joined.values.shape[1])
        return replace(joined, ids=torch.cat((joined.ids, more)), values=torch.cat((joined.values, nothing)))

    def joined(self) -> Contribution:
        """The same with nothing `ahead`."""
        if self.ahead is None:
            return self
        return replace(self, values=torch.cat((self.ahead, self.values)), ahead=None)


@dataclass(frozen=True, slots=True)
class Shared:
    """Candidates of queries that share their negatives by chunks; query i has true[i] for itself.

    Chunk k are the queries from starts[k] to starts[k + 1] - 1; a chunk may be empty. What `left_out` marks
    is no negative of that query: its score is -inf, which losses take for a weight of 0.
    """

    true: Tensor  # int64 [b]
    negatives: Tensor  # int64 [c, n]
    starts: Tensor  # int64 [c + 1], from 0 to b
    left_out: Tensor  # bool [b, n]
    longest: int  #: no chunk has more queries

    @property
    def shape(self) -> tuple[int, int]:
        """Queries, and candidates of each: the shape of their scores, the true one's first."""
        return self.true.shape[0], 1 + self.negatives.shape[1]

    def ids(self) -> Tensor:
        """The rows that are read [b + c n]: the true ones, then the negatives of each chunk."""
        return torch.cat((self.true, self.negatives.flatten()))

    def chunks(self) -> Tensor:
        """The chunk of each query [b]."""
        queries = torch.arange(len(self.true), device=self.true.device)
        return torch.searchsorted(self.starts, queries, right=True) - 1

    def index(self) -> Tensor:
        """Every query's candidates [b, 1 + n], those that are left out too."""
        return torch.cat((self.true[:, None], self.negatives[self.chunks()]), 1)

    def some(self, own: slice) -> Shared:
        """The candidates of some of the queries."""
        true = self.true[own]
        first = own.indices(len(self.true))[0]
        starts = (self.starts - first).clamp(0, len(true))
        return Shared(true, self.negatives, starts, self.left_out[own], self.longest)

    def masked(self, scores: Tensor) -> Tensor:
        """Scores [b, 1 + n], -inf where a negative is left out."""
        none = torch.zeros_like(self.left_out[:, :1])
        return scores.masked_fill(torch.cat((none, self.left_out), 1), -torch.inf)


Laid: TypeAlias = tuple[Any, ...]  #: how a backend laid rows out for scores, for it to use again
Candidates: TypeAlias = Tensor | Shared  #: int64 [b, 1 + n] where each query has its own, the true one first


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam's constants (Kingma & Ba, 2015)."""

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


ADAGRAD_EPSILON = 1e-10  #: as torch.optim.Adagrad


@dataclass(frozen=True, slots=True)
class Until:
    """How far the rows that a step reads may go: to the step before the next one that reads them.

    Up to there they have no gradient.
    """

    ids: Tensor  # int64 [p], they may repeat
    steps: Tensor  # int32 [p]
    distinct: int  #: rows among the ids
    by_row: Tensor  # int32 [e], room


@dataclass(frozen=True, slots=True)
class Pace:
    """Which of the stacked sites take a step now; site s owns the rows from ends[s - 1] to ends[s] - 1."""

    ends: Tensor  # int64 [s]
    steps: Tensor  # int64 [s], how many steps each site has taken, with this one
    active: Tensor  # bool [s]
    rates: Tensor | None = None  #: what a backend made of the steps before (`rates`, `all_rates`)
    taken: Tensor | None = None  #: int32 [e], how many steps each row has taken, where rows may be late
    promised: tuple[Tensor, ...] | None = None  #: ids of the rows that count this step as taken already
    stepped: Tensor | None = None  #: int32 [e], the last step that was promised to each row and is taken
    until: Until | None = None  #: how far rows go that are stepped, where the next steps are known


@dataclass(frozen=True, slots=True)
class Draw:
    """Where a batch's negatives come from: per site `s` entities first[s] .. first[s] + size[s] - 1.

    Row i of a batch belongs to `site[i]` and stands at `position[i]` of that site's own batch, so that
    what it draws does not depend on which sites train beside it. known[lo[i]:hi[i]] holds the answers
    to leave out: for the j-th smallest answer, its id minus first[s] minus j. lo = hi leaves out none.
    """

    keys: Tensor  # of Philox: uint64 as int64 [s]; of ChaCha20, for one site: [1, 4]
    first: Tensor  # int64 [s]
    size: Tensor  # int64 [s]
    known: Tensor  # int64
    site: Tensor  # int64 [b]
    position: Tensor  # int64 [b]
    lo: Tensor  # int64 [b]
    hi: Tensor  # int64 [b]


@dataclass(frozen=True, slots=True)
class Deck:
    """Where triples stand in an epoch: in slots, batch by batch, and in chunks that share negatives."""

    starts: Tensor  # int64 [batches], first slots
    site: Tensor  # int64 [slots]
    position: Tensor  # int64 [slots], in the site's own batch
    share: Tensor  # [slots], one over the site's triples in the batch
    heads: Tensor  # int64, the slots that chunks begin with
    first_heads: Tensor  # int64 [batches], of them each batch's first


@dataclass(frozen=True, slots=True)
class Dealt:
    """One batch of a deck."""

    triple: Tensor  # int64 [b], their numbers
    head: Tensor  # int64 [b]
    relation: Tensor  # int64 [b]
    tail: Tensor  # int64 [b]
    lo: Tensor  # int64 [b], where known answers begin
    hi: Tensor  # int64 [b]
    site: Tensor  # int64 [b]
    position: Tensor  # int64 [b]
    share: Tensor  # [b]
    starts: Tensor  # int64 [c + 1], where chunks begin in the batch
    chunk_site: Tensor  # int64 [c]
    chunk_position: Tensor  # int64 [c]
