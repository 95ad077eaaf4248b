"""Each triple's gradient cut to a norm, jointly over every table that it moves.

A batch is differentiated once, and what that adds to the tables is caught as factors: row i of every factor
is triple i's, and its whole gradient is linear in it. So norms are computed from the factors, and a
triple is cut by scaling its row of them before they are added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from fedkge.kernels import Contribution, Laid, Shared, Similarity, backend, rounding
from fedkge.models import Gradient, Side, Tables
from fedkge.models.gradient import pairs
from fedkge.models.tables import CHUNK
from fedkge.training.trainer import Batch, Objective


class Caught(Gradient):
    """What a backward pass adds to a table, kept for each triple of a batch: `shape` (b, candidates)."""

    def __init__(self, real: Gradient, shape: tuple[int, int]) -> None:
        super().__init__(real.table, factors=True)
        self.real, self.size, self.candidates = real, *shape

    @property
    def empty(self) -> bool:
        return not self._parts

    def add_shared(
        self,
        kind: Similarity,
        query: Tensor,
        shared: Shared,
        laid: Laid,
        scores: Tensor,
        d_scores: Tensor,
        each: Tensor,
    ) -> Tensor:
        """As `Gradient`, but triple by triple: a row's gradient would add up what its chunk gives it."""
        return self.add_pairs(pairs(kind, query, shared.index(), scores, d_scores * each[:, None]))

    def squares(self) -> Tensor:
        """The squared norm [b] of each triple's gradient of this table."""
        compared, rows = self._pairs, self._rows
        own = [self._per_triple(part) for part in rows]
        if len(compared) == 1 and own in ([], [1]):
            ids, values = (rows[0].ids, rows[0].values) if rows else (compared[0].ids, compared[0].values)
            whole = replace(compared[0], ids=ids, values=values)
            return backend(self.table.device).squares(self.table, whole)
        if not compared and own == [1]:
            return ((1 + rounding.relative(self.table, 1)) * rows[0].values.norm(dim=-1)).square()
        return self._formed()

    def touched(self) -> Tensor:
        """The distinct rows that any triple moves."""
        return torch.cat(
            [part.index.flatten() for part in self._pairs] + [p.ids for p in self._rows]
        ).unique()

    def release_(self, factors: Tensor) -> None:
        """Add every triple's gradient times its factor [b] to the real one; nothing where that is 0."""
        none = (factors == 0)[:, None]
        whole = not none.is_cuda and not none.any()  # a GPU is not waited for
        for part in self._pairs:
            scaled = replace(part, d_scores=part.d_scores * factors[:, None])
            if not whole:
                query = part.query.masked_fill(none, 0.0)
                scaled = replace(scaled, query=query, d_scores=scaled.d_scores.masked_fill_(none, 0.0))
            self.real.add(scaled)
        for part in self._rows:
            k = self._per_triple(part)
            each, gone = (x if k == 1 else x.repeat_interleave(k, 0) for x in (factors[:, None], none))
            values = part.values * each
            self.real.add(replace(part, values=values if whole else values.masked_fill_(gone, 0.0)))

    @property
    def _pairs(self) -> list[Contribution]:
        found = [part for part in self._parts if part.index.numel()]
        if any(len(part.query) != self.size for part in found):
            raise ValueError("scores of other triples than the batch has: they cannot be clipped one by one")
        return found

    @property
    def _rows(self) -> list[Contribution]:
        return [part for part in self._parts if len(part.ids)]

    def _per_triple(self, part: Contribution) -> int:
        """How many rows each triple has in a part: none, its anchor alone, or all candidates."""
        each, rest = divmod(len(part.ids), self.size)
        if rest or each not in (0, 1, self.candidates):
            raise ValueError(
                f"{len(part.ids)} rows of {self.size} triples with {self.candidates} candidates: expected "
                "one or all of each"
            )
        return each

    def _formed(self) -> Tensor:
        """The slower way: gradients formed, some triples at a time.

        For models that project candidates, and where a triple moves a row in several ways, as with L3.
        """
        width = self.table.shape[1]
        rows = sum(part.index.shape[1] for part in self._pairs)
        rows += sum(self._per_triple(part) for part in self._rows)
        some = max(1, CHUNK // max(1, rows * width))
        pieces = torch.arange(self.size, device=self.table.device).split(some)
        squares = torch.cat([self._formed_some(int(piece[0]), len(piece)) for piece in pieces])
        terms = sum(rounding.lengths(part) for part in self._pairs)
        terms = terms + sum(part.values.norm(dim=-1).view(self.size, -1).sum(-1) for part in self._rows)
        return (squares.sqrt() + 2 * rounding.relative(self.table, rows) * terms).square()

    def _formed_some(self, first: int, count: int) -> Tensor:
        """Rows of a triple are told from those of another by its number: `triple * rows + row`."""
        table, total = self.table, len(self.table)
        triple = torch.arange(count, device=table.device)[:, None] * total
        parts, names = [], []
        for part in self._parts:
            k = self._per_triple(part)
            own, each = slice(first, first + count), slice(first * k, (first + count) * k)
            some = part.index.numel() > 0
            index = part.index[own] + triple if some else part.index
            ids = (part.ids[each].view(count, -1) + triple).flatten()
            factors = [x[own] if some else x for x in (part.query, part.scores, part.d_scores)]
            parts.append((part.kind, factors, index.shape, part.values[each]))
            names += [index.flatten(), ids]
        known, places = torch.cat(names).unique(return_inverse=True)
        rows, formed = table[known % total], table.new_zeros(len(known), table.shape[1])
        split = iter(places.split([len(name) for name in names]))
        for (kind, (query, scores, d_scores), shape, values), index, ids in zip(
            parts, split, split, strict=True
        ):
            part = Contribution(kind, query, index.view(shape), scores, d_scores, ids, values)
            backend(table.device).accumulate_(formed, rows, part)
        return table.new_zeros(count).index_add_(0, known // total, formed.square().sum(-1))


class PerTriple:
    """A differentiated batch: every table's gradient, triple by triple."""

    def __init__(self, caught: Mapping[int, Caught], losses: Tensor) -> None:
        self.caught, self.losses = caught, losses  # losses [b]

    def squares(self) -> Tensor:
        """The squared norm of each triple's gradient of each table, [tables, b]."""
        return torch.stack([one.squares() for one in self.caught.values()])

    def norms(self) -> Tensor:
        """The norm [b] of each triple's gradient, over all tables together."""
        return self.squares().sum(0).sqrt()

    def touched(self, gradient: Gradient) -> Tensor:
        """The rows of one table that the batch moves, if any."""
        found = self.caught.get(id(gradient))
        return (
            torch.empty(0, dtype=torch.int64, device=gradient.table.device)
            if found is None
            else found.touched()
        )

    def release_(self, factors: Tensor) -> None:
        """Add the gradients, each times its factor [b], to the tables'."""
        for one in self.caught.values():
            one.release_(factors)


def differentiated(tables: Tables, objective: Objective, batch: Batch) -> PerTriple:
    """The gradients of a batch's losses, by the tables and the second ones."""
    with _catching(tables, (len(batch.anchor), batch.index.shape[1])) as caught, torch.enable_grad():
        losses = objective(tables, batch)
        losses.sum().backward()
    return PerTriple({number: one for number, one in caught.items() if not one.empty}, losses.detach())


def at_once(tables: Tables, candidates: int) -> int:
    """How many triples can be differentiated in one go.

    A model that projects candidates takes some queries at a time (`Tables.scores`), and no more than these
    can be told apart.
    """
    model = tables.model
    if not model.projects:
        return 1 << 62
    query = model.query(tables.entities[:1], tables.relations[:1], Side.TAIL)
    return max(1, CHUNK // (candidates * max(tables.entities.shape[1], query.shape[1])))


@contextmanager
def _catching(tables: Tables, shape: tuple[int, int]) -> Iterator[dict[int, Caught]]:
    """Have the tables' gradients caught; a gradient that two models share is caught once."""
    every = [tables] if tables.second is None else [tables, tables.second]
    real = [dict(one.gradients) for one in every]
    caught: dict[int, Caught] = {}
    for one, own in zip(every, real, strict=True):
        one.gradients = {axis: caught.setdefault(id(g), Caught(g, shape)) for axis, g in own.items()}
    try:
        yield caught
    finally:
        for one, own in zip(every, real, strict=True):
            one.gradients = own
