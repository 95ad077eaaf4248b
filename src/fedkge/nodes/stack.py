"""Sites trained in one go: their tables laid one after another, one launch for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedkge.evaluation import Known, Ranks, rank
from fedkge.exchange.announce import Id
from fedkge.graphs.graph import Axis, Ids, Split
from fedkge.methods import Member, Method, Shared, Site
from fedkge.models import Tables
from fedkge.nodes.terms import Terms
from fedkge.randomness import byte_keys
from fedkge.training import Changes, Corpus, Penalty, Training
from fedkge.training.confidential import opened
from fedkge.training.interference import avoiding
from fedkge.training.private import PrivateTraining, Protection

CACHE = 8 << 20  #: bytes of entity tables that a CPU trains together

Identities: TypeAlias = Mapping[Axis, Sequence[Id]]  #: the ids of a member's rows, in the order of its tables


class Stack:
    """Some members of a federation: tables, optimizers, and each one's state as its method sees it.

    A member trains exactly as it would alone; on the CPU bit by bit, but with TransR and
    RESCAL only up to rounding (torch's products of matrices). One with a `protection` is alone.
    """

    def __init__(
        self,
        terms: Terms,
        members: Mapping[str, Member],
        ids: Mapping[str, Identities],
        device: torch.device,
        captured: bool = True,
        protection: Protection | None = None,
    ) -> None:
        self.terms, self.members, self.names = terms, members, list(members)
        self.numbers = {name: number for number, name in enumerate(members)}
        method, graphs = terms.method, {name: member.graph for name, member in members.items()}
        corpus = Corpus.of(graphs, terms.seed, device)
        observed = corpus.triples if protection is None else protection.observed(corpus.triples)
        self.second = method.second(terms.embedding)
        self.tables = self._first(observed, [ids[name] for name in self.names])
        self.best = self.tables.to(device)
        if self.best.second is not None and any(view.watched for view in method.views()):
            self.best.second.relations = self.best.second.relations.clone()  # kept at a round of its own
        self.kept = self._kept()
        dials = method.dials()
        self.dials = {
            name: torch.zeros(len(members), device=device) for name in (dials.names if dials else ())
        }
        ends = {Axis.ENTITY: corpus.entity_ends.tolist(), Axis.RELATION: corpus.relation_ends.tolist()}
        self.parts = {
            name: {axis: slice(([0, *ends[axis]])[number], ends[axis][number]) for axis in Axis}
            for number, name in enumerate(self.names)
        }
        self.captured, self.protection, self.corpus = captured, protection, corpus
        self.sites = {name: self._site(name) for name in self.names}
        self.bests = {n: self.best.part(p[Axis.ENTITY], p[Axis.RELATION]) for n, p in self.parts.items()}
        parts = {site: part.graph for m in members.values() for site, part in m.parts.items()}
        self.known = {site: Known.from_graph(graph) for site, graph in parts.items()}
        self.opened = {site: opened(graph, terms.privacy) for site, graph in parts.items()}
        self.known_openly = self.known
        if terms.privacy.closed:
            self.known_openly = {site: Known.from_graph(graph) for site, graph in self.opened.items()}
        self._factored = {name: self._no_rows() for name in self.names} if self._factoring else {}
        self._stale = False  # the rows that are trained as factors have changed
        self.before: dict[str, Callable[[int], None]] = {}  # member -> what precedes its training of a round
        self.training = self._training()

    def _first(self, observed: Tensor, ids: Sequence[Identities]) -> Tables:
        """First rows of everyone's tables, and of their second ones; models may look at the triples."""
        entities, relations = (
            torch.from_numpy(np.concatenate([byte_keys(own[axis]).view(np.int64) for own in ids]))
            for axis in (Axis.ENTITY, Axis.RELATION)
        )
        first = (entities, relations, self.terms.seed, observed.device)
        tables = Tables.create(self.terms.embedding, *first)
        self.terms.embedding.observe(tables.relations, observed)
        if self.second is not None:
            tables.second = Tables.create(self.second.model, *first)
            if not self.second.relations:
                tables.second.relations = tables.relations
            self.second.model.observe(tables.second.relations, observed)
        return tables

    def _kept(self) -> dict[Axis, dict[str, Tensor]]:
        kept = self.terms.method.kept()
        names = () if kept is None else (kept.name,)
        return {
            axis: {name: torch.zeros_like(self.tables.table(axis)) for name in names}
            for axis in self.terms.method.shares
        }

    def _site(self, name: str) -> Site:
        """One member's tables, as its method sees them; which rows it shares is not known yet."""
        parts, none = self.parts[name], torch.empty(0, dtype=torch.int64, device=self.tables.device)
        return Site(
            name,
            self.tables.part(parts[Axis.ENTITY], parts[Axis.RELATION]),
            {axis: Shared(none, none) for axis in Axis},
            {axis: {k: t[parts[axis]] for k, t in kept.items()} for axis, kept in self.kept.items()},
            dials={k: t[self.numbers[name], None] for k, t in self.dials.items()},
        )

    def _training(self) -> Training:
        terms, kept = self.terms, self.terms.method.kept()
        penalties = {}
        if kept is not None and kept.penalty is not None:
            penalties = {a: Penalty(of[kept.name], kept.penalty) for a, of in self.kept.items()}
        objective = None  # the trainer's own
        if type(terms.method).objective is not Method.objective:
            objective = partial(terms.method.objective, terms.trainer, dials=self.dials)
        rest = (objective, penalties, self._changes(), self.captured)
        if self.protection is None:
            return Training(terms.trainer, self.tables, self.corpus, *rest)
        ((name, member),) = self.members.items()
        own = (self.tables, (name, member.graph), terms.seed, self.protection)
        return PrivateTraining(terms.trainer, *own, *rest)

    # Rows that are shared

    def share(self, name: str, rows: Mapping[Axis, Ids]) -> None:
        """Which rows of a member others have too, in the order in which they travel."""
        device = self.tables.device
        local = {axis: torch.from_numpy(ids).to(device) for axis, ids in rows.items()}
        self.sites[name].shared = {
            axis: Shared(own, torch.arange(len(own), device=device)) for axis, own in local.items()
        }
        if self._factored:
            self._factored[name] = {axis: np.sort(ids) for axis, ids in rows.items()}
            self._stale = True

    @property
    def _factoring(self) -> bool:
        kept = self.terms.method.kept()
        return kept is not None and kept.factoring is not None

    def _no_rows(self) -> dict[Axis, Ids]:
        return {axis: np.empty(0, np.int64) for axis in self.kept}

    def _changes(self) -> dict[Axis, Changes]:
        """The rows that the method trains as factors, where it does: those that members share."""
        how = self.terms.method.kept()
        if how is None or how.factoring is None:
            return {}
        changes = {}
        for axis, kept in self.kept.items():
            rows = [self._factored[name][axis] + self.parts[name][axis].start for name in self.names]
            stacked = torch.from_numpy(np.concatenate(rows)).to(self.tables.device)
            changes[axis] = Changes(how.factoring, kept[how.name], stacked)
        return changes

    # Rounds

    def fit(self, names: Sequence[str], round: int) -> dict[str, float]:
        """Train some members for a round, counted from 1; each one's mean loss."""
        if self._stale:
            self._renew()
            self._stale = False
        epochs = self.terms.trainer.epochs
        chosen = [self.numbers[name] for name in names]
        self.training.choose(chosen)
        for restarts, prefix in ((self.terms.method.restart, ""), (self._renews, "second.")):
            if restarts and prefix in self.training.steppers:
                self.training.steppers[prefix].restart()
        if isinstance(self.training, PrivateTraining):
            self.training.check_rows()
        for name in names:
            if name in self.before:
                self.before[name](round)
        losses = self.training.run((round - 1) * epochs).tolist()
        return {self.names[i]: losses[i] for i in chosen}

    def _renew(self) -> None:
        """Train by another schedule, with the same moments."""
        moments = self.training.state()
        self.training = self._training()
        self.training.load_state(moments)

    def avoid(self, beyond: Mapping[str, Ids]) -> None:
        """Draw none of these triples, by member, as a negative from now on."""
        self.corpus = avoiding(self.corpus, beyond)
        self._renew()

    def visits(self, names: Sequence[str]) -> int:
        """How many triples a round of these members trains on, counted once per epoch and side."""
        trainer = self.terms.trainer
        return sum(len(self.members[n].graph.train) for n in names) * trainer.epochs * trainer.visits

    def ranks(self, name: str, tables: Tables, split: Split, openly: bool = False) -> dict[str, Ranks]:
        """By whose triples they are; `openly`: as messages may tell (`confidential.opened`)."""
        known = self.known_openly if openly else self.known
        found = {}
        for site, part in self.members[name].parts.items():
            asked = self.opened[site] if openly else part.graph
            found[site] = rank(part.of(tables), asked.split(split), known[site], site=site)
        return found

    # What lasts

    def state(self, name: str) -> dict[str, Tensor]:
        """Views of what one member has: the same whoever it is stacked with, and on whatever device."""
        number, parts = self.numbers[name], self.parts[name]
        whole = {
            f"{prefix}.{key}": found
            for prefix, tables in (("tables", self.tables), ("best", self.best))
            for key, found in tables.named().items()
        }
        whole |= {f"kept.{axis}.{k}": (axis, t) for axis, of in self.kept.items() for k, t in of.items()}
        state = {key: table[parts[axis]] for key, (axis, table) in whole.items()}
        for prefix, restarts in (("", self.terms.method.restart), ("second.", self._renews)):
            if restarts or prefix not in self.training.steppers:
                continue
            for key, moment in self.training.steppers[prefix].state().items():
                axis, _, _ = key.partition(".")
                here = slice(number, number + 1) if key.endswith("steps") else parts[Axis(axis)]
                state[f"training.{prefix}{key}"] = moment[here]
        return state

    @property
    def _renews(self) -> bool:
        return self.second is not None and self.second.restart

    def load_state(self, name: str, state: Mapping[str, Tensor]) -> None:
        for key, tensor in self.state(name).items():
            tensor.copy_(state[key])


def stacks(
    terms: Terms,
    members: Mapping[str, Member],
    ids: Mapping[str, Identities],
    device: torch.device,
    stacked: bool,
    captured: bool,
    protections: Mapping[str, Protection] = MappingProxyType({}),
) -> list[Stack]:
    """All members in as few stacks as is fast: one on a GPU, on a CPU those that its cache holds together.

    Where some train in private, everyone is alone: samples are of random sizes.
    """
    width = terms.embedding.width(Axis.ENTITY)
    rows = np.array([member.graph.n_entities for member in members.values()])
    together = stacked and not protections
    limit = (1 << 62 if device.type == "cuda" else CACHE // (4 * width)) if together else 0
    names = list(members)
    found = []
    for start, end in _groups(rows.tolist(), limit):
        own = {name: members[name] for name in names[start:end]}
        found.append(Stack(terms, own, ids, device, captured, protections.get(names[start])))
    return found


def _groups(rows: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Neighbours whose rows are at most `limit` together; one with more is a group of its own."""
    starts, total = [], limit + 1
    for number, count in enumerate(rows):
        if total + count > limit:
            starts.append(number)
            total = 0
        total += count
    return pairwise([*starts, len(rows)])
