"""What the two halves of a method work on: a site's tables, and what the hub knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedkge.aggregation import Aggregation, Mean
from fedkge.exchange.rows import Memory, Rows, Update
from fedkge.graphs.graph import Axis
from fedkge.models import Tables


@dataclass(frozen=True, slots=True)
class Shared:
    """The rows of one of a site's tables that other sites have too."""

    local: Tensor  # int64 [n], the site's own ids; they never leave it
    ids: Tensor  # int64 [n], strictly increasing


@dataclass(slots=True)
class Site:
    """A site's state as its half of a method sees it. Tables and kept rows may be views into a stack."""

    id: str
    tables: Tables
    shared: Mapping[Axis, Shared]
    kept: Mapping[Axis, Memory]  # axis -> name -> [rows, width]: see `Method.kept`
    memory: Memory = field(default_factory=dict)  #: anything else that lasts from round to round
    dials: Memory = field(default_factory=dict)  # name -> [1]: see `Method.dials`
    beyond: dict[Axis, Tensor] = field(
        default_factory=dict
    )  # axis -> [rows, width]: added to rows that leave, while a site unlearns

    @property
    def travelling(self) -> Tables:
        """The tables whose rows travel: the second ones where there are any."""
        return self.tables.second or self.tables

    def read(self, axis: Axis) -> Rows:
        """The rows that the site shares."""
        shared = self.shared[axis]
        values = self.travelling.table(axis).index_select(0, shared.local)
        if axis in self.beyond:
            values = values + self.beyond[axis].index_select(0, shared.local)
        return Rows(shared.ids, values)

    def write(self, update: Update) -> None:
        """Replace rows that the site shares."""
        self._lay(self.travelling, update)

    def overlay(self, update: Update) -> Tables:
        """A copy of the tables with some rows replaced."""
        tables = self.tables.to(self.tables.device)
        self._lay(tables.second or tables, update)
        return tables

    def merged(self, update: Update) -> Update:
        """Rows with a support averaged with the site's own: `(P mean + E) / (1 + P)` (FedS, Eq. 4)."""
        whole = {}
        for axis, rows in update.items():
            values = rows.values
            if rows.support is not None:
                own = self.travelling.table(axis).index_select(0, self._local(axis, rows.ids))
                others = rows.support.to(own.dtype)[:, None]
                values = own.addcmul_(others, values).div_(1 + others)  # of `own` it is a copy
            whole[axis] = Rows(rows.ids, values)
        return whole

    def _lay(self, tables: Tables, update: Update) -> None:
        for axis, rows in update.items():
            tables.table(axis).index_copy_(0, self._local(axis, rows.ids), rows.values)

    def _local(self, axis: Axis, ids: Tensor) -> Tensor:
        shared = self.shared[axis]
        return shared.local if ids is shared.ids else shared.local[torch.searchsorted(shared.ids, ids)]


@dataclass(slots=True)
class Hub:
    """What the hub knows: who shares which rows, and named tensors, ordered by how they are numbered.

    When sites announce more rows, the party that plays the hub renumbers `by_id` and `by_row`, and forgets
    `fresh`. A method must be able to answer without `fresh`.
    """

    ids: dict[str, Mapping[Axis, Tensor]] = field(default_factory=dict)  # site -> int64, strictly increasing
    sizes: dict[Axis, int] = field(default_factory=dict)  # ids are below these numbers
    totals: dict[str, Mapping[Axis, int]] = field(default_factory=dict)  # site -> rows, shared or not
    aggregation: Aggregation = field(default_factory=Mean)  #: how rows are combined
    sparse: bool = False  #: only some rows travelled in the round that is aggregated
    by_id: dict[Axis, Memory] = field(default_factory=dict)  # [size, ...], lasts from round to round
    by_row: dict[str, dict[Axis, Memory]] = field(
        default_factory=dict
    )  # site -> [rows it shares, ...], lasts
    memory: Memory = field(default_factory=dict)  #: anything else that lasts
    fresh: Memory = field(default_factory=dict)  #: of the round just closed; empty when `aggregate` is called

    def take_in(self, site: str, axis: Axis, rows: Rows) -> Tensor:
        """Remember rows until the site sends newer ones; which [n] of those that it shares they are."""
        ids, memory = self.ids[site][axis], self.by_row.setdefault(site, {}).setdefault(axis, {})
        at = torch.searchsorted(ids, rows.ids)
        now = torch.zeros_like(ids, dtype=torch.bool).index_fill_(0, at, True)
        values = rows.values
        if len(rows) < len(ids):
            before = memory.get("values", values.new_zeros(len(ids), values.shape[1]))
            values = before.index_copy(0, at, values)
        memory["values"], memory["known"] = values, now | memory.get("known", now)
        return now

    def last(self, axis: Axis) -> dict[str, tuple[Tensor, Tensor]]:
        """By site, what `take_in` remembers: rows [n, width], and which [n] of them are known."""
        found = {site: self.by_row.get(site, {}).get(axis, {}) for site in self.ids}
        return {site: (of["values"], of["known"]) for site, of in found.items() if "values" in of}


@dataclass(frozen=True, slots=True)
class Pair:
    """Rows that exactly two sites have, one of which is told about them."""

    axis: Axis
    site: str  #: that is told
    other: str
    own: Tensor  # int64 [n], the round in which the hub last took the told site's row in; 0: it has none
    others: Tensor  # int64 [n], the same of the other's
