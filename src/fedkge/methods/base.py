"""What a federated method is: one frozen dataclass with both halves, and the state that they work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedkge.exchange.codec import Codec
from fedkge.exchange.rows import Memory, Rows, Update
from fedkge.exchange.select import Selection
from fedkge.graphs.graph import Axis, Federation, Graph, Ids
from fedkge.models import Model, Tables
from fedkge.registry import Registry
from fedkge.training import Batch, BySite, Factoring, Moments, Trainer

METHODS: Registry[Method] = Registry("method", "fedkge.methods")


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
    kept: Mapping[Axis, Memory]  # axis -> name -> [rows, width]: see `Method.keeps`
    memory: Memory = field(default_factory=dict)  #: anything else that lasts from round to round
    dials: Memory = field(default_factory=dict)  # name -> [1]: see `Method.dials`

    def read(self, axis: Axis) -> Rows:
        """The rows that the site shares."""
        shared = self.shared[axis]
        return Rows(shared.ids, self.traded.table(axis).index_select(0, shared.local))

    def write(self, update: Update) -> None:
        """Replace rows that the site shares."""
        for axis, rows in update.items():
            self.traded.table(axis).index_copy_(0, self._local(axis, rows.ids), rows.values)

    @property
    def traded(self) -> Tables:
        """The tables whose rows travel: the companion's where there is one."""
        return self.tables.companion or self.tables

    def merged(self, update: Update) -> Update:
        """Rows with a support averaged with the site's own: `(P mean + E) / (1 + P)` (FedS, Eq. 4)."""
        whole = {}
        for axis, rows in update.items():
            values = rows.values
            if rows.support is not None:
                own = self.traded.table(axis).index_select(0, self._local(axis, rows.ids))
                others = rows.support.to(own.dtype)[:, None]
                values = own.addcmul_(others, values).div_(1 + others)  # of `own` it is a copy
            whole[axis] = Rows(rows.ids, values)
        return whole

    def overlay(self, update: Update) -> Tables:
        """A copy of the tables with some rows replaced."""
        tables = self.tables.to(self.tables.device)
        traded = tables.companion or tables
        for axis, rows in update.items():
            traded.table(axis).index_copy_(0, self._local(axis, rows.ids), rows.values)
        return tables

    def _local(self, axis: Axis, ids: Tensor) -> Tensor:
        shared = self.shared[axis]
        return shared.local if ids is shared.ids else shared.local[torch.searchsorted(shared.ids, ids)]


@dataclass(slots=True)
class Hub:
    """The hub's state: what each site announced, and named tensors."""

    ids: dict[str, Mapping[Axis, Tensor]] = field(default_factory=dict)  # site -> int64, strictly increasing
    sizes: dict[Axis, int] = field(default_factory=dict)  # ids are below these numbers
    memory: Memory = field(default_factory=dict)
    totals: dict[str, Mapping[Axis, int]] = field(default_factory=dict)  # site -> see `Method.counts`
    sparse: bool = False  #: only some rows travelled in the round that is combined

    def number(self, axes: Iterable[Axis]) -> None:
        """Number what was announced from 0 on: rows travel without ids, so only their order counts."""
        for axis in axes:
            every = torch.cat([ids[axis] for ids in self.ids.values()]).unique()
            self.sizes[axis] = len(every)
            for site, ids in self.ids.items():
                self.ids[site] = {**ids, axis: torch.searchsorted(every, ids[axis])}


@dataclass(frozen=True, slots=True)
class Pair:
    """Rows that exactly two sites have, one of which is told about them."""

    axis: Axis
    site: str  #: that is told
    other: str
    own: Tensor  # int64 [n], the round in which the hub last took the told site's row in; 0: it has none
    others: Tensor  # int64 [n], the same of the other's


@dataclass(frozen=True, slots=True)
class View:
    """Whose triples measure a member's tables, and where that site's rows are in them."""

    graph: Graph
    entities: Ids | None = None  #: unset: all rows, in their order
    relations: Ids | None = None

    def of(self, tables: Tables) -> Tables:
        if self.entities is None or self.relations is None:
            return tables
        e, r = (torch.from_numpy(ids).to(tables.device) for ids in (self.entities, self.relations))
        return Tables(tables.model, tables.entities[e], tables.relations[r])


@dataclass(frozen=True, slots=True)
class Member:
    """A party that trains: a graph, and the sites that are measured by its tables."""

    graph: Graph
    views: Mapping[str, View]  # by site


@dataclass(frozen=True, slots=True)
class Companion:
    """A second model of a site's things; it is the one whose rows travel."""

    model: Model
    relations: bool = True  #: has a relation table of its own; else the two models share one
    restart: bool = True  #: begins every round with a new optimizer


class Method:
    """What sites send, what the hub answers, and what both add to local training.

    Fields are hyper-parameters. A method holds no state: `Site` and `Hub` do, as named tensors, so that any
    runtime can stop, ship and resume it. Override what the paper changes; by default nothing is shared.
    """

    keeps: ClassVar[tuple[str, ...]] = ()  #: names of tables of the shape of each shared one, in `Site.kept`
    averages: ClassVar[bool] = False  #: the hub tells means: of two owners, each learns the other's row
    together: ClassVar[bool] = True  #: all sites stop at one round; else each by its own validation
    watches: ClassVar[tuple[str, ...]] = ()  #: views that are validated too; one that improves counts
    restart: bool = False  #: begin every round with a new optimizer

    @property
    def shares(self) -> tuple[Axis, ...]:
        """Whose rows travel."""
        return ()

    @property
    def penalises(self) -> str:
        """The name of the kept rows that `penalty` compares with; none: no penalty."""
        return ""

    @property
    def counts(self) -> bool:
        """Whether sites tell the hub how many rows, shared or not, their shared tables have."""
        return False

    def embedding(self, model: Model) -> Model:
        """The model that sites train; a method may make it smaller."""
        return model

    def members(self, federation: Federation) -> Mapping[str, Member]:
        """Who trains on what: every site on its own graph."""
        return {site: Member(graph, {site: View(graph)}) for site, graph in federation.items()}

    # At a site: adopt, train, publish.

    def prepare(self, site: Site) -> None:
        """Before the first round."""

    def adopt(self, site: Site, answer: Update) -> None:
        """Take over what the hub says; in the first round, and where nobody has sent rows yet, nothing."""
        site.write(site.merged(answer))

    def companion(self, model: Model) -> Companion | None:
        """A second model that each site trains beside its own."""
        return None

    @property
    def dials(self) -> tuple[str, ...]:
        """Names of numbers that the hub tells a site before it trains, and that `objective` reads."""
        return ()

    def objective(self, trainer: Trainer, tables: Tables, batch: Batch, dials: Memory) -> Tensor:
        """The losses [b] of a batch, possibly of several sites, whose tables are laid one after another.

        `dials` have a number per site, [s]; `batch.site` says whose is whose.
        """
        return trainer.objective(tables, batch)

    def penalty(self, moments: Moments, by_site: BySite) -> Tensor:
        """What every step adds to each site's loss [s], from all rows of a shared table and the kept ones.

        The tables of several sites may be laid one after another.
        """
        return moments.gap.new_zeros(len(by_site.sizes))

    def factoring(self) -> Factoring | None:
        """How the last epoch of a round trains shared rows as factors of their change, if it does.

        Changes are counted from the kept table "received", which the method then keeps.
        """
        return None

    def publish(self, site: Site) -> Update:
        """What leaves the site after training."""
        return {axis: site.read(axis) for axis in self.shares}

    def selection(self, given: Selection) -> Selection:
        """Which rows travel; a method may insist on a selection of its own."""
        return given

    def coding(self, given: Codec) -> Codec:
        """How rows are written; a method may insist on a codec of its own."""
        return given

    # At the hub.

    def combine(self, hub: Hub, uploads: Mapping[str, Update]) -> None:
        """Take in what the sites that answered have sent, into the hub's memory."""

    def answer(self, hub: Hub, site: str) -> Update:
        """What one site is told: personal, and computed when it is asked next."""
        return {}

    def own_part(self, hub: Hub, pair: Pair) -> Tensor:
        """Where the hub averages, how much [n] of the answer about each row is the told site's own.

        `answer = part own + (1 - part) other`, in which both rows are as the hub last took them in.
        """
        raise NotImplementedError(f"{type(self).__name__} averages: it has to say what a site is told of two")

    def dialled(self, hub: Hub, site: str) -> Mapping[str, float]:
        """What a site's `dials` are set to."""
        return {}

    def validated(self, hub: Hub, round: int, mrr: float, views: Mapping[str, float]) -> None:
        """Hear what was validated, over all sites: of the tables that are measured, and of `watches`."""

    def notes(self, hub: Hub) -> Mapping[str, Tensor]:
        """What a reader should see of the round just closed: numbers [s, s] between sites, in their order."""
        return {}

    # What is measured.

    @property
    def measures_answer(self) -> bool:
        """Whether `measured` or a view needs the hub's answer of the same round."""
        return False

    @property
    def keeps_answer(self) -> bool:
        """Whether a view needs the answer of the round whose tables were kept."""
        return False

    def measured(self, site: Site, answer: Update) -> Tables:
        """The tables that are validated and kept: by default the site's own, as they are after training."""
        return site.tables

    @property
    def views(self) -> tuple[str, ...]:
        """Names of tables that are measured on test and saved too."""
        return ()

    def view(self, name: str, site: Site, answer: Update) -> Tables:
        """One of `views`, of a site as it is or with the tables that were kept: by default what travels."""
        return site.traded
