"""Gradients of single triples, caught before they are summed, so that each unit's can be cut to a norm.

A batch is differentiated once, and what that adds to the tables is caught as factors: row i of every factor
is triple i's, and its whole gradient is linear in it. So the lengths of a triple's terms are computed from
the factors, and a triple is cut by scaling its row of them when they are added up. What is cut as one is a
unit: a triple, or all of a person's triples in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedkge.kernels import Contribution, Laid, Shared, Similarity, backend, rounding
from fedkge.models import Gradient, Side, Tables
from fedkge.models.gradient import pairs
from fedkge.models.tables import CHUNK
from fedkge.training.trainer import Batch, Objective


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which triples of a batch are cut as one: unit u has order[starts[u]:starts[u + 1]]."""

    order: Tensor  # int64 [b]
    starts: Tensor  # int64 [units + 1]
    unit: Tensor | None  # int64 [b], the unit of each triple; None: triple i is unit i
    most: int  #: no unit has more triples

    @classmethod
    def single(cls, size: int, device: torch.device) -> Grouping:
        """Each triple by itself."""
        every = torch.arange(size + 1, device=device)
        return cls(every[:-1], every, None, 1)

    def of_triples(self, factors: Tensor) -> Tensor:
        """Numbers of units [units] as numbers of their triples [b]."""
        return factors if self.unit is None else factors[self.unit]


class Caught(Gradient):
    """What a backward pass adds to a table, kept for each triple of a batch: `shape` (b, candidates)."""

    def __init__(self, real: Gradient, shape: tuple[int, int]) -> None:
        super().__init__(real.table, factors=True)
        self.real, self.size, self.candidates = real, *shape

    @property
    def keeps_cubes(self) -> bool:
        return False  # a triple's part is cut by its length

    @property
    def empty(self) -> bool:
        return not self._parts

    @property
    def width(self) -> int:
        """How many rows each triple adds to, at most."""
        return sum(
            part.index.shape[1] if self._compared(part) else self._per_triple(part) for part in self._parts
        )

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

    def rows(self) -> list[Tensor]:
        """The rows that triples add to."""
        return [part.index if self._compared(part) else part.ids for part in self._parts]

    def terms(self, meeting: bool) -> tuple[Tensor, ...]:
        """The rows [b, k] that each triple adds to, and the lengths [b, k] of what it adds, from above.

        `meeting`: triples of one unit meet in anchors, relations and true answers. What they add there comes
        apart, as rows [b, m] and vectors [b, m, w].
        """
        rows, lengths, ids, vectors = [], [], [], []
        for part in self._parts:
            if self._compared(part):
                first = int(meeting)
                rows.append(part.index[:, first:])
                lengths.append(rounding.directed(part)[:, first:].abs() * rounding.reach(part))
                if meeting:
                    ids.append(part.index[:, 0])
                    vectors.append(self._true(part))
            elif (k := self._per_triple(part)) == 1 and meeting:
                ids.append(part.ids)
                vectors.append(part.values)
            else:
                rows.append(part.ids.view(self.size, k))
                lengths.append(backend(self.table.device).lengths(part.values).view(self.size, k))
        some = (torch.stack(ids, 1), torch.stack(vectors, 1)) if ids else ()
        if not rows:
            return self._parts[0].ids.new_empty(self.size, 0), self.table.new_empty(self.size, 0), *some
        return _joined(rows, 1), _joined(lengths, 1), *some

    def _true(self, part: Contribution) -> Tensor:
        """What the true answers get [b, w]: similarities are symmetric, so answers can stand for queries."""
        own = torch.arange(self.size, device=part.index.device)[:, None]
        slopes, answers = rounding.directed(part)[:, :1].contiguous(), self.table[part.index[:, 0]]
        arguments = (answers, part.query.contiguous(), own, part.scores[:, :1].contiguous(), slopes)
        return backend(self.table.device).backward_query(part.kind, *arguments)

    def release_(self, factors: Tensor) -> None:
        """Add every triple's gradient times its factor [b] to the real one; nothing where that is 0."""
        rest: Contribution | None = None  # scores wait for rows, to be added with them
        for part in self._parts:
            if self._compared(part):
                if rest is not None:
                    self.real.add(rest)
                query = rounding.scaled(part.query, factors, times=False)
                rest = replace(part, query=query, d_scores=rounding.scaled(rounding.directed(part), factors))
            else:
                values = rounding.scaled(part.values, factors)
                self.real.add(replace(part if rest is None else rest, ids=part.ids, values=values))
                rest = None
        if rest is not None:
            self.real.add(rest)

    def _compared(self, part: Contribution) -> bool:
        """Whether a part has scores, or else rows: a backward pass adds them apart."""
        found = part.index.numel() > 0
        if found and len(part.query) != self.size:
            raise ValueError("scores of other triples than the batch has: they cannot be clipped one by one")
        return found

    def _per_triple(self, part: Contribution) -> int:
        """How many rows each triple has in a part: none, its anchor alone, or all candidates."""
        each, rest = divmod(len(part.ids), self.size)
        if rest or each not in (0, 1, self.candidates):
            raise ValueError(
                f"{len(part.ids)} rows of {self.size} triples with {self.candidates} candidates: expected "
                "one or all of each"
            )
        return each


class PerTriple:
    """A differentiated batch: every table's gradient, triple by triple, and the losses [b]."""

    def __init__(self, pieces: Sequence[Mapping[int, Caught]], losses: Tensor) -> None:
        self.pieces, self.losses = pieces, losses
        self._sizes = [next(iter(piece.values())).size for piece in pieces]

    def _terms(self, units: Grouping | None = None) -> dict[int, tuple[Tensor, Tensor]]:
        """By table: rows [b, k], and the lengths [b, k] of what is added to them.

        Where units have several triples, vectors that meet are summed: the sum's length stands for them.
        """
        several = units is not None and units.unit is not None
        found = {}
        for number, one in self.pieces[0].items():
            own = zip(*(piece[number].terms(several) for piece in self.pieces), strict=True)
            rows, lengths, *meeting = (_joined(tensors) for tensors in own)
            if units is not None and meeting:
                ids, vectors = meeting
                met = _merged(ids, vectors, units, len(one.table))
                rows, lengths = torch.cat((rows, ids), 1), torch.cat((lengths, met), 1)
            found[number] = rows, lengths
        return found

    def squares(self, units: Grouping) -> Tensor:
        """Upper bounds of the squared norms of each unit's gradient of each table, [tables, units]."""
        found = []
        for number, (rows, lengths) in self._terms(units).items():
            table = self.pieces[0][number].table
            error = 1 + 2 * rounding.relative(table, rows.shape[1] * units.most)
            found.append(backend(table.device).squares(rows, lengths * error, units.order, units.starts))
        return torch.stack(found)

    def numbers(self, units: Grouping) -> int:
        """How many numbers of all tables a unit can add to."""
        every = ((one.table, one.width * units.most) for one in self.pieces[0].values())
        return sum(min(rows, len(table)) * table.shape[1] for table, rows in every)

    def touched(self, gradient: Gradient) -> Tensor:
        """Which rows of one table the batch moves, bool [rows]."""
        found = torch.zeros(len(gradient.table), dtype=torch.bool, device=gradient.table.device)
        for piece in self.pieces:
            for ids in piece[id(gradient)].rows() if id(gradient) in piece else ():
                found[ids] = True
        return found

    def release_(self, factors: Tensor) -> None:
        """Add the gradients, each times its factor [b], to the tables'."""
        for piece, own in zip(self.pieces, factors.split(self._sizes), strict=True):
            for caught in piece.values():
                caught.release_(own)


def _joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), dim)


def _merged(ids: Tensor, vectors: Tensor, units: Grouping, height: int) -> Tensor:
    """Of a unit's vectors [b, m, w] for one row their sum's length, at the first; and rounding: [b, m]."""
    assert units.unit is not None, "several triples in a unit"
    error = 2 * rounding.relative(vectors[0], ids.numel())
    if vectors.is_cuda:
        from fedkge.kernels.gpu import norms

        return norms.merged(ids, vectors, units.order, units.starts, units.unit, error)
    values, unit = vectors.flatten(0, 1), units.unit.repeat_interleave(ids.shape[1])
    key, order = (unit * height + ids.flatten()).sort(stable=True)
    first = torch.cat((torch.ones_like(key[:1], dtype=torch.bool), key[1:] != key[:-1]))
    group = first.cumsum(0) - 1
    lengths = backend(values.device).lengths
    sums = lengths(torch.zeros_like(values).index_add_(0, group, values[order]))
    rest = error * lengths(values)
    return rest.index_add(0, order, torch.where(first, sums[group], 0.0)).view_as(ids)


def differentiated(tables: Tables, objective: Objective, batch: Batch) -> PerTriple:
    """The gradients of a batch's losses, by the tables and the second ones; the batch is not empty."""
    pieces, losses = [], []
    for piece in _pieces(batch, at_once(tables, batch.index.shape[1])):
        with _catching(tables, (len(piece.anchor), piece.index.shape[1])) as caught, torch.enable_grad():
            found = objective(tables, piece)
            found.sum().backward()
        pieces.append({number: one for number, one in caught.items() if not one.empty})
        losses.append(found.detach())
    return PerTriple(pieces, _joined(losses))


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


def _pieces(batch: Batch, some: int) -> Iterator[Batch]:
    """A batch in pieces of at most `some` triples."""
    for start in range(0, len(batch.anchor), some):
        own = slice(start, start + some)
        names = ("anchor", "relation", "site", "weight")
        index = batch.index[own] if isinstance(batch.index, Tensor) else batch.index.some(own)
        yield replace(batch, index=index, **{name: getattr(batch, name)[own] for name in names})


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
