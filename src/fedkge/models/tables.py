"""The two tables of a model, and how their scores are computed and differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fedkge import randomness
from fedkge.graphs.graph import Axis
from fedkge.kernels import (
    Candidates,
    Composed,
    Composition,
    Room,
    Shared,
    backend,
    contrast,
    similarity,
)
from fedkge.kernels.comparing import compare
from fedkge.models.base import Model, Side
from fedkge.models.gradient import (
    Compare,
    CompareShared,
    Compose,
    ContrastComposed,
    ContrastRows,
    ContrastShared,
    Cubes,
    Gradient,
    Take,
)

CHUNK = 1 << 22  #: numbers that projected candidates may take at a time
LONGEST = 1e9  #: number in a row: products of three, and squares of two, are still finite


@dataclass(slots=True)
class Tables:
    """One model's rows. Several sites' tables laid one after another are a table like any other."""

    model: Model
    entities: Tensor  # [n_entities, width]
    relations: Tensor  # [n_relations, width]
    gradients: dict[Axis, Gradient] = field(default_factory=dict)  #: set by who trains the tables
    turned: Tensor | None = None  # [n_relations, ..], what phases stand for, while who trains them says so
    second: Tables | None = None  #: another model of the same things, trained together with this one

    @classmethod
    def create(
        cls,
        model: Model,
        entities: Tensor,
        relations: Tensor,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Tables:
        """First rows; row i depends on the seed and on the key (uint64 as int64) of its name alone."""
        rows = {}
        for axis, keys in ((Axis.ENTITY, entities), (Axis.RELATION, relations)):
            on_device = keys.to(device)
            uniform = backend(on_device.device).uniform(
                randomness.key(seed, "first rows", axis), on_device, model.width(axis), dtype
            )
            rows[axis] = model.initial(uniform, axis)
        return cls(model, rows[Axis.ENTITY], rows[Axis.RELATION])

    @property
    def device(self) -> torch.device:
        return self.entities.device

    def table(self, axis: Axis) -> Tensor:
        return self.entities if axis is Axis.ENTITY else self.relations

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Tables:
        copy = Tables(
            self.model,
            self.entities.to(device, dtype, copy=True),
            self.relations.to(device, dtype, copy=True),
        )
        if self.second is not None:
            copy.second = self.second.to(device, dtype)
            if self.second.relations is self.relations:
                copy.second.relations = copy.relations
        return copy

    def copy_(self, other: Tables, second: bool = True) -> None:
        """Take over another's rows, and with `second` those of its second tables."""
        for axis in Axis:
            self.table(axis).copy_(other.table(axis))
        if second and self.second is not None and other.second is not None:
            self.second.copy_(other.second)

    def named(self) -> dict[str, tuple[Axis, Tensor]]:
        """Every tensor once, the second tables' included: `entity`, `relation`, `second.entity`, ..."""
        tensors = {str(axis): (axis, self.table(axis)) for axis in Axis}
        if self.second is not None:
            for name, (axis, table) in self.second.named().items():
                if table is not self.table(axis):
                    tensors[f"second.{name}"] = axis, table
        return tensors

    def part(self, entities: slice, relations: slice) -> Tables:
        """A view of some rows: one site's share of stacked tables."""
        view = Tables(self.model, self.entities[entities], self.relations[relations])
        if self.second is not None:
            view.second = self.second.part(entities, relations)
            if self.second.relations is self.relations:
                view.second.relations = view.relations
        return view

    def rows(self, axis: Axis, ids: Tensor) -> Tensor:
        """Rows `[..., width]`, differentiable: into `gradients` if they are there, else by autograd."""
        if axis in self.gradients and torch.is_grad_enabled():
            trigger = torch.empty(0, requires_grad=True)
            return cast(Tensor, Take.apply(trigger, self.table(axis), ids, self.gradients[axis]))  # type: ignore[no-untyped-call]
        return self.table(axis)[ids]

    def cubes(self, axis: Axis, ids: Tensor) -> Tensor:
        """|x|^3 summed over the numbers of each row [b] that are trained, differentiable as `rows` are."""
        rows_are_trained = self.model.untrained.isdisjoint(self.model.blocks[axis])
        if rows_are_trained and axis in self.gradients and torch.is_grad_enabled():
            trigger = torch.empty(0, requires_grad=True)
            return cast(Tensor, Cubes.apply(trigger, self.table(axis), ids, self.gradients[axis]))  # type: ignore[no-untyped-call]
        rows = self.model.trained(self.rows(axis, ids), axis)
        return (rows.abs() * rows * rows).sum(-1)

    def scores(self, anchor: Tensor, relation: Tensor, index: Candidates, side: Side) -> Tensor:
        """Scores `[b, n]` of the candidates for `side`, given the other end and the relation.

        A candidate that is left out has a score of -inf.
        """
        query = self._composed(anchor, relation, index, side) if self.model.offset is not None else None
        r = self.relations if query is not None else self.rows(Axis.RELATION, relation)
        if query is None:
            query = self.model.query(self.rows(Axis.ENTITY, anchor), r, side)
        if not self.model.projects and Axis.ENTITY in self.gradients and torch.is_grad_enabled():
            arguments = (query, self.entities, index, self.model.similarity, self.gradients[Axis.ENTITY])
            by = Compare if isinstance(index, Tensor) else CompareShared
            similar = cast(Tensor, by.apply(*arguments))  # type: ignore[no-untyped-call]
        else:
            every = index if isinstance(index, Tensor) else index.index()
            if self.model.projects:
                similar = self._projected(query, r, every)
            else:
                similar = similarity(self.model.similarity, query, self.entities, every)
        scores = self.model.finish(similar, r)
        return scores if isinstance(index, Tensor) else index.masked(scores)

    def contrast(
        self, anchor: Tensor, relation: Tensor, index: Candidates, side: Side, temperature: float
    ) -> Tensor:
        """`kernels.contrast` of `scores`: in one pass over the candidates where the model allows it."""
        margin, trained = self.model.offset, Axis.ENTITY in self.gradients and torch.is_grad_enabled()
        if margin is None or self.model.projects or not trained:
            return contrast(self.scores(anchor, relation, index, side), temperature)
        if (rooms := self._rooms(index)) and isinstance(index, Shared):
            made = replace(self._made(self.relations, anchor, relation, side), turned=self.turned)
            trigger = torch.empty(0, requires_grad=True)
            similar = (made, index, self.model.similarity, margin, temperature)
            return cast(Tensor, ContrastComposed.apply(trigger, self.entities, *similar, rooms))  # type: ignore[no-untyped-call]
        query = self._composed(anchor, relation, index, side)
        if query is None:
            rows = self.rows(Axis.ENTITY, anchor), self.rows(Axis.RELATION, relation)
            query = self.model.query(*rows, side)
        arguments = (query, self.entities, index, self.model.similarity, margin, temperature)
        by = ContrastRows if isinstance(index, Tensor) else ContrastShared
        return cast(Tensor, by.apply(*arguments, self.gradients[Axis.ENTITY]))  # type: ignore[no-untyped-call]

    def _composed(self, anchor: Tensor, relation: Tensor, index: Candidates, side: Side) -> Tensor | None:
        """Queries `[b, w]` in one pass over rows, where negatives are shared and the model allows it.

        Elsewhere a step spends its time on negatives.
        """
        kind = self.model.composition
        trained = Axis.ENTITY in self.gradients and torch.is_grad_enabled()
        if kind is None or isinstance(index, Tensor) or not trained:
            return None
        few = len(self.relations) <= len(relation)
        factors = self.model.factors(self.relations if few else self.relations[relation])
        places = relation if few else torch.arange(len(relation), device=relation.device)
        gradients = self.gradients[Axis.ENTITY], self.gradients.get(Axis.RELATION)
        made = self._made(factors, anchor, places, side)
        trigger = torch.empty(0, requires_grad=True)
        return cast(Tensor, Compose.apply(trigger, self.entities, made, relation, gradients))  # type: ignore[no-untyped-call]

    def _made(self, factors: Tensor, anchor: Tensor, places: Tensor, side: Side) -> Composed:
        kind = cast(Composition, self.model.composition)
        return Composed(kind, anchor, factors, places, 1.0 if side is Side.TAIL else -1.0, self.model.scale)

    def turn(self) -> None:
        """Compute the factors that phases stand for, of rotations on a GPU: `turned` until rows change."""
        if self.model.composition is Composition.ROTATE and self.relations.is_cuda:
            self.turned = backend(self.device).turn(self.relations, self.model.scale, self.turned)

    def _rooms(self, index: Candidates) -> tuple[Room, Room] | None:
        """Where the gradients of both tables can be added up at once, if that is all that is asked for."""
        if self.model.composition is None or isinstance(index, Tensor) or set(self.gradients) != set(Axis):
            return None
        entities, relations = (self.gradients[axis].room() for axis in (Axis.ENTITY, Axis.RELATION))
        return None if entities is None or relations is None else (entities, relations)

    def _projected(self, query: Tensor, relation: Tensor, index: Tensor) -> Tensor:
        """Candidates as each row's relation sees them, some queries at a time, computed again going back.

        The last queries come first: going back, autograd takes the newest first, so that gradients are added
        in the order of the queries, wherever the pieces end.
        """
        per_query = max(1, index.shape[1] * max(self.entities.shape[1], query.shape[1]))
        pieces = (x.split(max(1, CHUNK // per_query))[::-1] for x in (query, relation, index))
        scores = [checkpoint(self._some, *p, use_reentrant=False) for p in zip(*pieces, strict=True)]
        return torch.cat(scores[::-1])

    def _some(self, query: Tensor, relation: Tensor, index: Tensor) -> Tensor:
        candidates = self.model.project(self.rows(Axis.ENTITY, index), relation[:, None])
        return compare(self.model.similarity, query[:, None], candidates)

    @torch.no_grad()
    def all_scores(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Scores `[b, n_entities]` of every entity for `side`."""
        r = self.relations[relation]
        query = self.model.query(self.entities[anchor], r, side)
        kernels = backend(self.device)
        if not self.model.projects:
            return self.model.finish(kernels.all_scores(self.model.similarity, query, self.entities), r)
        scores = query.new_empty(len(query), len(self.entities))
        for one in relation.unique():
            mine = (relation == one).nonzero()[:, 0]
            seen = self.model.project(self.entities, self.relations[one])
            scores[mine] = kernels.all_scores(self.model.similarity, query[mine], seen)
        return self.model.finish(scores, r)

    @torch.no_grad()
    def score(self, triples: Tensor) -> Tensor:
        """Scores of `[..., 3]` triples."""
        h, r, t = triples.unbind(-1)
        return self.model.score(self.entities[h], self.relations[r], self.entities[t])

    @torch.no_grad()
    def constrain_(self, axis: Axis, active: Tensor) -> None:
        """Move the active rows (bool [rows, 1]) to where the model allows them."""
        allowed = self.model.constrain(self.table(axis), axis)
        if allowed is not None:
            self.table(axis).copy_(torch.where(active, allowed, self.table(axis)))

    @torch.no_grad()
    def constrain_touched_(self, axis: Axis, touched: Sequence[Tensor]) -> None:
        """The same for the rows that were touched, some at a time; ids may repeat."""
        table = self.table(axis)
        if self.model.constrain(table[:1], axis) is not None:
            every = torch.cat([ids.flatten() for ids in touched])
            if not table.is_cuda:  # constrained twice, a row may be rounded twice; a GPU would have to wait
                every = every.unique()
            for ids in every.split(max(1, CHUNK // table.shape[1])):
                table[ids] = cast(Tensor, self.model.constrain(table[ids], axis))
