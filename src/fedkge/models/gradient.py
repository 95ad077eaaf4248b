"""Where the gradients of tables go: scores differentiated by hand, their gradients kept as factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedkge.kernels import Composed, Contribution, Laid, Room, Shared, Similarity, Tie, backend
from fedkge.kernels.reference import tied


class Gradient:
    """The gradient of one table: a dense buffer, or what touched rows got, still as `factors`."""

    def __init__(self, table: Tensor, factors: bool, whole: bool = False) -> None:
        """`whole`: factors are for an optimizer that steps every row."""
        self.table, self.whole = table, whole
        self.dense = None if factors else torch.zeros_like(table)
        self._parts: list[Contribution] = []
        none, index = table.new_empty(0, 0), torch.empty(0, 0, dtype=torch.int64, device=table.device)
        self._no_pairs = table.new_empty(0, table.shape[1]), index, none, none  # of rows alone
        self._tie: Tie | None = None
        self._room: Room | None = None  # where factors may be added up: made when it is of use
        self._heaped = False  # whether something was added there since the last step
        self._taken: Contribution | None = None  # kept until the next: it may be read beside other work

    def add(self, part: Contribution) -> None:
        if self.dense is None:
            self._parts.append(part)
        else:
            backend(self.table.device).accumulate_(self.dense, self.table, part)

    def add_pairs(self, part: Contribution) -> Tensor:
        """`add`, and the gradient of the part's queries."""
        factors = (part.query, self.table, part.index, part.scores, part.d_scores)
        d_query = backend(self.table.device).backward_query(part.kind, *factors)
        self.add(part)  # after it: on a CPU the table is still in the cache, sums would push it out
        return d_query

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
        """Add what candidates get by slopes d_scores [b, 1 + n] times each [b]; the queries' gradient."""
        factors = (query, self.table, shared, laid, scores, d_scores, each)
        d_query, values = backend(self.table.device).shared_gradients(kind, *factors)
        self.add_rows(shared.ids(), values)
        return d_query

    def add_rows(self, ids: Tensor, values: Tensor) -> None:
        self.add(self._rows(ids, values))

    def add_cubes(self, ids: Tensor, slopes: Tensor) -> None:
        """Add the gradients of `kernels.reference.cubes`, times slopes [b]."""
        if self.keeps_cubes:
            self.add(replace(self._rows(ids, self.table[:0]), cubed=slopes))
        else:
            self.add_rows(ids, backend(self.table.device).cube_gradients(self.table, ids, slopes))

    @property
    def keeps_cubes(self) -> bool:
        """Whether rows are cubed when they are stepped, so that nothing of their width is written before."""
        return self.dense is None and not self.table.is_cuda

    def _rows(self, ids: Tensor, values: Tensor) -> Contribution:
        """What rows add, and no pairs."""
        return Contribution(Similarity.DOT, *self._no_pairs, ids, values)

    def room(self) -> Room | None:
        """Where rows may be added up at once, unless sums are to repeat bit by bit."""
        room = None if torch.are_deterministic_algorithms_enabled() else self._zeros()
        self._heaped |= room is not None
        return room

    def add_tie(self, tie: Tie) -> None:
        """What a penalty adds; of those in `factors`, there is one for each step."""
        if self.dense is None:
            self._tie = tie
        else:
            self.dense += tied(self.table, tie)

    def take(self) -> Contribution:
        """Everything added since the last call, as one contribution."""
        parts, self._parts = self._parts or [self._rows(self._no_pairs[1].flatten(), self.table[:0])], []
        compared = [part for part in parts if part.index.numel()] or parts[:1]
        first = compared[0]
        if any(p.kind is not first.kind or p.index.shape[1] != first.index.shape[1] for p in compared):
            raise ValueError("touched rows of scores with unlike similarities or numbers of candidates")
        names = ("query", "index", "scores", "d_scores")
        joined = {name: _cat([getattr(part, name) for part in compared]) for name in names}
        if self._heaped and first.index.numel():
            raise ValueError("some rows are added up already: scores of own candidates came too late")
        tie, self._tie, self._heaped = self._tie, None, False
        cubed = [part for part in parts if part.cubed is not None]
        parts = [part for part in parts if part.cubed is None] + cubed  # those have the last ids
        rows = [part for part in parts if len(part.values)] or parts[:1]
        ahead = rows.pop(0).values if len(rows) > 1 else None
        found = Contribution(
            kind=first.kind,
            ids=_cat([part.ids for part in parts]),
            values=_cat([part.values for part in rows]),
            tie=tie,
            ahead=ahead,
            cubed=_cat([part.cubed for part in cubed if part.cubed is not None]) if cubed else None,
            room=None if first.index.numel() else self._zeros(),
            **joined,
        )
        self._taken = found if self.table.is_cuda else None
        return found

    def _zeros(self) -> Room | None:
        """Room for the whole gradient: on a GPU, where rows are faster added up than sorted."""
        if self._room is None and self.whole and self.table.is_cuda:
            self._room = Room(
                torch.zeros_like(self.table), self.table.new_zeros(len(self.table), dtype=torch.uint8)
            )
        return self._room


def _cat(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


def pairs(kind: Similarity, query: Tensor, index: Tensor, scores: Tensor, d_scores: Tensor) -> Contribution:
    """What similarities add, and no rows."""
    none = index.new_empty(0), query.new_empty(0, query.shape[1])
    return Contribution(kind, query, index, scores, d_scores, *none)


class Take(torch.autograd.Function):
    """Gather rows; going back, hand their gradients to a `Gradient`."""

    @staticmethod
    def forward(ctx: Any, trigger: Tensor, table: Tensor, ids: Tensor, gradient: Gradient) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.gradient = gradient
        return table[ids]

    @staticmethod
    def backward(ctx: Any, d_rows: Tensor) -> tuple[None, ...]:
        (ids,) = ctx.saved_tensors
        ctx.gradient.add_rows(ids.flatten(), d_rows.reshape(-1, d_rows.shape[-1]))
        return None, None, None, None


class Cubes(torch.autograd.Function):
    """`kernels.reference.cubes`; going back, hand the rows' gradients to a `Gradient`."""

    @staticmethod
    def forward(ctx: Any, trigger: Tensor, table: Tensor, ids: Tensor, gradient: Gradient) -> Tensor:
        ctx.ids, ctx.gradient = ids, gradient
        return backend(table.device).cubes(table, ids)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[None, ...]:
        ctx.gradient.add_cubes(ctx.ids, slopes.contiguous())
        return None, None, None, None


class Compose(torch.autograd.Function):
    """Queries from rows; going back, hand the rows' gradients to `Gradient`s."""

    @staticmethod
    def forward(
        ctx: Any,
        trigger: Tensor,
        table: Tensor,
        made: Composed,
        relation: Tensor,
        gradients: tuple[Gradient, Gradient | None],
    ) -> Tensor:
        ctx.table, ctx.made, ctx.relation, ctx.gradients = table, made, relation, gradients
        return backend(table.device).compose(table, made)

    @staticmethod
    def backward(ctx: Any, d_query: Tensor) -> tuple[None, ...]:
        entities, relations = ctx.gradients
        width = ctx.made.factors.shape[1] if relations is None else relations.table.shape[1]
        kernels = backend(ctx.table.device)
        d_anchor, d_relation = kernels.decompose(ctx.table, ctx.made, d_query.contiguous(), width)
        entities.add_rows(ctx.made.anchor, d_anchor)
        if relations is not None:
            relations.add_rows(ctx.relation, d_relation)
        return None, None, None, None, None


class Compare(torch.autograd.Function):
    """Indexed similarity; going back, hand the table's gradient to a `Gradient`."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, table: Tensor, index: Tensor, kind: Similarity, gradient: Gradient
    ) -> Tensor:
        scores = backend(table.device).forward(kind, query, table, index)
        ctx.save_for_backward(query, index, scores)
        ctx.kind, ctx.gradient = kind, gradient
        return scores

    @staticmethod
    def backward(ctx: Any, d_scores: Tensor) -> tuple[Tensor | None, ...]:
        query, index, scores = ctx.saved_tensors
        # Detached: `scores` refers to this node, the node to the gradient, and that may keep the part.
        part = pairs(ctx.kind, query.detach(), index, scores.detach(), d_scores.contiguous())
        return ctx.gradient.add_pairs(part), None, None, None, None


class ContrastRows(torch.autograd.Function):
    """Contrast of indexed similarities; each loss depends on one query, so its gradient is there already."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        table: Tensor,
        index: Tensor,
        kind: Similarity,
        margin: float,
        temperature: float,
        gradient: Gradient,
    ) -> Tensor:
        losses, *factors = backend(table.device).contrast_rows(kind, query, table, index, margin, temperature)
        ctx.save_for_backward(query, index, *factors)
        ctx.kind, ctx.gradient = kind, gradient
        return losses

    @staticmethod
    def backward(ctx: Any, d_losses: Tensor) -> tuple[Tensor | None, ...]:
        query, index, scores, d_scores, d_query = ctx.saved_tensors
        each = d_losses[:, None]
        ctx.gradient.add(pairs(ctx.kind, query.detach(), index, scores, d_scores * each))
        return d_query * each, None, None, None, None, None, None


class CompareShared(torch.autograd.Function):
    """Similarity with shared candidates; going back, hand the table's gradient to a `Gradient`."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, table: Tensor, shared: Shared, kind: Similarity, gradient: Gradient
    ) -> Tensor:
        scores, laid = backend(table.device).shared_scores(kind, query, table, shared)
        ctx.save_for_backward(query, scores)
        ctx.kind, ctx.shared, ctx.laid, ctx.gradient = kind, shared, laid, gradient
        return scores

    @staticmethod
    def backward(ctx: Any, d_scores: Tensor) -> tuple[Tensor | None, ...]:
        query, scores = ctx.saved_tensors
        one = scores.new_ones(len(scores))
        rows = (query.detach(), ctx.shared, ctx.laid)
        d_query = ctx.gradient.add_shared(ctx.kind, *rows, scores.detach(), d_scores, one)
        return d_query, None, None, None, None


class ContrastShared(torch.autograd.Function):
    """Contrast with shared candidates. Weights of the losses are known before any gradient of rows is."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        table: Tensor,
        shared: Shared,
        kind: Similarity,
        margin: float,
        temperature: float,
        gradient: Gradient,
    ) -> Tensor:
        kernels = backend(table.device)
        rows = (query, table, shared)
        losses, *factors, laid = kernels.contrast_shared(kind, *rows, margin, temperature)
        ctx.save_for_backward(query, *factors)
        ctx.kind, ctx.shared, ctx.laid, ctx.gradient = kind, shared, laid, gradient
        return losses

    @staticmethod
    def backward(ctx: Any, d_losses: Tensor) -> tuple[Tensor | None, ...]:
        query, scores, d_scores = ctx.saved_tensors
        factors = (query.detach(), ctx.shared, ctx.laid, scores, d_scores, d_losses.contiguous())
        d_query = ctx.gradient.add_shared(ctx.kind, *factors)
        return d_query, None, None, None, None, None, None


class ContrastComposed(torch.autograd.Function):
    """Contrast of queries made of rows with shared candidates: what rows get is added up at once."""

    @staticmethod
    def forward(
        ctx: Any,
        trigger: Tensor,
        table: Tensor,
        made: Composed,
        shared: Shared,
        kind: Similarity,
        margin: float,
        temperature: float,
        rooms: tuple[Room, Room],
    ) -> Tensor:
        kernels = backend(table.device)
        losses, laid = kernels.contrast_composed(kind, table, made, shared, margin, temperature)
        ctx.rows, ctx.laid, ctx.rooms = (kind, table, made, shared), laid, rooms
        return losses

    @staticmethod
    def backward(ctx: Any, d_losses: Tensor) -> tuple[None, ...]:
        kind, table, made, shared = ctx.rows
        each = d_losses.contiguous()
        backend(table.device).heap_composed_(kind, table, made, shared, ctx.laid, each, ctx.rooms)
        return (None,) * 8
