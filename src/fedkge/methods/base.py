"""What a federated method is: one frozen dataclass with both halves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from fedkge.aggregation import Aggregation
from fedkge.exchange.codec import Codec
from fedkge.exchange.rows import Memory, Update
from fedkge.exchange.select import Selection
from fedkge.graphs.graph import Axis, Federation, Graph, Ids
from fedkge.methods.state import Hub, Pair, Site
from fedkge.models import Model, Tables
from fedkge.registry import Registry
from fedkge.training import Batch, BySite, Factoring, Moments, Trainer

METHODS: Registry[Method] = Registry("method", "fedkge.methods")

Kind: TypeAlias = Literal["alone", "pooled", "hub", "peers"]


class Method:
    """What sites send, what the hub answers, and what both add to local training.

    Fields are hyper-parameters. A method holds no state: `Site` and `Hub` do, as named tensors, so that any
    runtime can stop, ship and resume it. Override what the paper changes; by default nothing is shared. Most
    methods need `shares` to `answer` only; what follows is for methods that do more, in groups.
    """

    restart: bool = False  #: starts every round with a new optimizer
    together: ClassVar[bool] = True  #: all sites stop at one round; else each by its own validation
    hubless: ClassVar[bool] = False  #: sites are peers that talk to each other; there is no hub
    averages: ClassVar[bool] = False  #: the hub tells means: of two owners, each learns the other's row

    @property
    def shares(self) -> tuple[Axis, ...]:
        """Whose rows travel."""
        return ()

    @property
    def kind(self) -> Kind:
        """How sites work together, in a word that journals keep: reports know no method by its name."""
        return "peers" if self.hubless else "hub" if self.shares else "alone"

    # At a site

    def adopt(self, site: Site, answer: Update) -> None:
        """Take over what the hub says; in the first round, and where nobody has sent rows yet, nothing."""
        site.write(site.merged(answer))

    def objective(self, trainer: Trainer, tables: Tables, batch: Batch, dials: Memory) -> Tensor:
        """The losses [b] of a batch, possibly of several sites, whose tables are laid one after another.

        `dials` have a number per site, [s]; `batch.site` says whose is whose.
        """
        return trainer.objective(tables, batch)

    def publish(self, site: Site) -> Update:
        """What leaves the site after training."""
        return {axis: site.read(axis) for axis in self.shares}

    # At the hub

    def aggregate(self, hub: Hub, uploads: Mapping[str, Update]) -> None:
        """Take in what the sites that answered have sent, into the hub's named tensors."""

    def answer(self, hub: Hub, site: str) -> Update:
        """What one site is told: personal, and computed when it is asked next."""
        return {}

    # What is measured

    @property
    def measures_answer(self) -> bool:
        """Whether `measured` or a view needs the hub's answer of the same round."""
        return False

    def measured(self, site: Site, answer: Update) -> Tables:
        """The tables that are validated and kept: by default the site's own, as they are after training."""
        return site.tables

    def views(self) -> tuple[View, ...]:
        """Tables that are measured on test and saved too."""
        return ()

    # What a method insists on: it refuses what it cannot be combined with

    def embedding(self, model: Model) -> Model:
        """The model that sites train; a method may make it smaller."""
        return model

    def selection(self, given: Selection) -> Selection:
        """Which rows travel."""
        return given

    def coding(self, given: Codec) -> Codec:
        """How rows are written."""
        return given

    def combining(self, given: Aggregation) -> Aggregation:
        """How the hub combines rows."""
        return given

    def members(self, federation: Federation) -> Mapping[str, Member]:
        """Who trains on what: every site on its own graph."""
        return {site: Member(graph, {site: Part(graph)}) for site, graph in federation.items()}

    # What a method adds to training

    def second(self, model: Model) -> Second | None:
        """A second model that each site trains together with its own."""
        return None

    def kept(self) -> Kept | None:
        """Rows that `adopt` writes, and that training compares with."""
        return None

    def dials(self) -> Dials | None:
        """Numbers that the hub tells a site before it trains, and that `objective` reads."""
        return None

    # What readers and audits ask

    def needs(self, aggregation: Aggregation, sparse: bool) -> Literal["nothing", "sums", "rows"]:
        """What the hub must see: single rows, or sums over sites; `sparse`: only some rows travel."""
        return "rows" if self.shares else "nothing"

    def own_part(self, hub: Hub, pair: Pair) -> Tensor:
        """Where the hub averages, how much [n] of the answer about each row is the told site's own.

        `answer = part own + (1 - part) other`, in which both rows are as the hub last took them in.
        """
        raise NotImplementedError(f"{type(self).__name__} averages: it has to say what a site is told of two")

    def notes(self, hub: Hub) -> Mapping[str, Tensor]:
        """What a reader should see of the round just closed: numbers [s, s] between sites, in their order."""
        return {}


@dataclass(frozen=True, slots=True)
class Second:
    """A second model of a site's things; it is the one whose rows travel."""

    model: Model
    relations: bool = True  #: has a relation table of its own; else the two models share one
    restart: bool = True  #: begins every round with a new optimizer
    taught: float = (
        1.0  #: part of a change of its rows that the site's own rows would follow, while sites unlearn
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """A table of the shape of each shared one that lasts from round to round, in `Site.kept[axis][name]`."""

    name: str
    penalty: Callable[[Moments, BySite], Tensor] | None = None  #: added to each site's loss [s] at every step
    factoring: Factoring | None = None  #: the last epoch trains changes against this table as factors


class Dials(ABC):
    """Numbers that the hub sets: they begin as `told` says before anything was validated."""

    names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def told(self, hub: Hub, site: str) -> Mapping[str, float]:
        """What a site's dials are set to, by name."""

    @abstractmethod
    def validated(self, hub: Hub, round: int, mrr: float, views: Mapping[str, float]) -> None:
        """Hear what was validated, over all sites: of the tables that are measured, and of watched views."""


@dataclass(frozen=True, slots=True)
class View:
    """Tables that are measured too: of a site as it is, or with the tables that were kept."""

    name: str
    of: Callable[[Site, Update], Tables]
    watched: bool = False  #: validated too; one that improves counts
    answer: bool = False  #: made of the hub's answer of the round whose tables are kept
    second: bool = False  #: the second table itself: with it a site's state can be put together again


@dataclass(frozen=True, slots=True)
class Part:
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
    parts: Mapping[str, Part]  # by site
