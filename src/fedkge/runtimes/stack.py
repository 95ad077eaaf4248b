"""Sites trained in one go: their tables laid one after another, one launch for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from fedkge.evaluation import Known, Ranks, metrics_by_side, rank
from fedkge.graphs.graph import Axis, Ids, Names, Split
from fedkge.graphs.unify import alignments
from fedkge.methods import Member, Shared, Site
from fedkge.models import Tables
from fedkge.randomness import name_keys
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.summary import SiteMetrics
from fedkge.training import Changes, Corpus, Penalty, Training
from fedkge.training.confidential import unmarked
from fedkge.training.private import PrivateTraining, Protection

CACHE = 8 << 20  #: bytes of entity tables that a CPU trains together


class Stack:
    """Some members of a federation: tables, optimizers, and each one's state as its method sees it.

    A member trains exactly as it would alone; on the CPU bit by bit. One with a `protection` is alone.
    """

    def __init__(
        self,
        experiment: Experiment,
        members: Mapping[str, Member],
        shared: Mapping[str, Mapping[Axis, tuple[Ids, Ids]]],
        device: torch.device,
        captured: bool = True,
        protection: Protection | None = None,
    ) -> None:
        self.experiment, self.members, self.names = experiment, members, list(members)
        self.numbers = {name: number for number, name in enumerate(members)}
        method, graphs = experiment.method, {name: member.graph for name, member in members.items()}
        corpus = Corpus.of(graphs, experiment.seed, device)
        observed = corpus.triples if protection is None else protection.observed(corpus.triples)
        self.second = method.companion(experiment.embedding)
        self.tables = self._first(observed)
        self.best = self.tables.to(device)
        if self.best.companion is not None and method.watches:  # then each is kept at a round of its own
            self.best.companion.relations = self.best.companion.relations.clone()
        self.kept = {
            axis: {name: torch.zeros_like(self.tables.table(axis)) for name in method.keeps}
            for axis in method.shares
        }
        self.dials = {name: torch.zeros(len(members), device=device) for name in method.dials}
        ends = {Axis.ENTITY: corpus.entity_ends.tolist(), Axis.RELATION: corpus.relation_ends.tolist()}
        self.parts = {
            name: {axis: slice(([0, *ends[axis]])[number], ends[axis][number]) for axis in Axis}
            for number, name in enumerate(self.names)
        }
        rest = (
            partial(method.objective, experiment.trainer, dials=self.dials),
            {
                axis: Penalty(self.kept[axis][method.penalises], method.penalty)
                for axis in (method.shares if method.penalises else ())
            },
            self._factored(shared),
            captured,
        )
        if protection is None:
            self.training = Training(experiment.trainer, self.tables, corpus, *rest)
        else:
            (site,) = graphs.items()
            own = (self.tables, site, experiment.seed, protection)
            self.training = PrivateTraining(experiment.trainer, *own, *rest)
        self.sites = {name: self._site(name, shared[name]) for name in self.names}
        self.bests = {n: self.best.part(p[Axis.ENTITY], p[Axis.RELATION]) for n, p in self.parts.items()}
        views = {site: view.graph for m in members.values() for site, view in m.views.items()}
        self.known = {site: Known.from_graph(graph) for site, graph in views.items()}
        self.known_openly = self.known
        if experiment.privacy.strict or experiment.privacy.mode == "u-only":
            opened = {site: unmarked(graph, experiment.privacy) for site, graph in views.items()}
            self.known_openly = {site: Known.from_graph(graph) for site, graph in opened.items()}

    def _first(self, observed: Tensor) -> Tables:
        """First rows of everyone's tables, and of their companions; models may look at the triples."""
        experiment, graphs = self.experiment, [member.graph for member in self.members.values()]
        entities, relations = (
            torch.from_numpy(np.concatenate([_keys(names) for names in of]))
            for of in ([graph.entities for graph in graphs], [graph.relations for graph in graphs])
        )
        first = (entities, relations, experiment.seed, observed.device)
        tables = Tables.create(experiment.embedding, *first)
        experiment.embedding.observe(tables.relations, observed)
        if self.second is not None:
            tables.companion = Tables.create(self.second.model, *first)
            if not self.second.relations:
                tables.companion.relations = tables.relations
            self.second.model.observe(tables.companion.relations, observed)
        return tables

    def _site(self, name: str, shared: Mapping[Axis, tuple[Ids, Ids]]) -> Site:
        """One member's share, as its method sees it."""
        parts, device = self.parts[name], self.tables.device
        return Site(
            name,
            self.tables.part(parts[Axis.ENTITY], parts[Axis.RELATION]),
            {axis: Shared(*(torch.from_numpy(ids).to(device) for ids in shared[axis])) for axis in Axis},
            {axis: {k: t[parts[axis]] for k, t in kept.items()} for axis, kept in self.kept.items()},
            dials={k: t[self.numbers[name], None] for k, t in self.dials.items()},
        )

    def _factored(self, shared: Mapping[str, Mapping[Axis, tuple[Ids, Ids]]]) -> dict[Axis, Changes]:
        """The rows that the method trains as factors, where it does: those that members share."""
        how = self.experiment.method.factoring()
        if how is None:
            return {}
        changes = {}
        for axis, kept in self.kept.items():
            rows = [np.sort(shared[name][axis][0]) + self.parts[name][axis].start for name in self.names]
            stacked = torch.from_numpy(np.concatenate(rows)).to(self.tables.device)
            changes[axis] = Changes(how, kept["received"], stacked)
        return changes

    def fit(self, names: Sequence[str], round: int) -> dict[str, float]:
        """Train some members for a round, counted from 1; each one's mean loss."""
        epochs = self.experiment.trainer.epochs
        chosen = [self.numbers[name] for name in names]
        self.training.choose(chosen)
        for restarts, prefix in ((self.experiment.method.restart, ""), (self._renews, "companion.")):
            if restarts and prefix in self.training.steppers:
                self.training.steppers[prefix].restart()
        if isinstance(self.training, PrivateTraining):
            self.training.check_rows()
        losses = self.training.run((round - 1) * epochs).tolist()
        return {self.names[i]: losses[i] for i in chosen}

    def visits(self, names: Sequence[str]) -> int:
        """How many triples a round of these members trains on, counted once per epoch and side."""
        trainer = self.experiment.trainer
        return sum(len(self.members[n].graph.train) for n in names) * trainer.epochs * trainer.visits

    def ranks(self, name: str, tables: Tables, split: Split, openly: bool = False) -> dict[str, Ranks]:
        """By whose triples they are; `openly`: as if confidential triples were not known."""
        known = self.known_openly if openly else self.known
        return {
            site: rank(view.of(tables), view.graph.split(split), known[site], site=site)
            for site, view in self.members[name].views.items()
        }

    def measure(self, name: str, tables: Tables, split: Split, openly: bool = False) -> SiteMetrics:
        """By whose triples -> side (head, tail, both) -> metric."""
        found = self.ranks(name, tables, split, openly)
        return {site: metrics_by_side(ranks) for site, ranks in found.items()}

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
        for prefix, restarts in (("", self.experiment.method.restart), ("companion.", self._renews)):
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
    experiment: Experiment,
    members: Mapping[str, Member],
    device: torch.device,
    stacked: bool,
    captured: bool,
    protections: Mapping[str, Protection] = MappingProxyType({}),
) -> list[Stack]:
    """All members in as few stacks as is fast: one on a GPU, on a CPU those that its cache holds together.

    Where some train in private, everyone is alone: samples are of random sizes.
    """
    shared = alignments({name: member.graph for name, member in members.items()})
    width = experiment.embedding.width(Axis.ENTITY)
    rows = np.array([member.graph.n_entities for member in members.values()])
    together = stacked and not protections
    limit = (1 << 62 if device.type == "cuda" else CACHE // (4 * width)) if together else 0
    names = list(members)
    found = []
    for start, end in _groups(rows.tolist(), limit):
        own = {name: members[name] for name in names[start:end]}
        found.append(Stack(experiment, own, shared, device, captured, protections.get(names[start])))
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


def _keys(names: Names) -> Ids:
    return name_keys(names).view(np.int64)
