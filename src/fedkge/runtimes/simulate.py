"""All nodes of a run in one process, their messages delivered in memory, their sites trained in one go."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.tally import Tally
from fedkge.nodes.accept import Accept
from fedkge.nodes.base import Setting
from fedkge.nodes.clock import Clock
from fedkge.nodes.hub import HubNode
from fedkge.nodes.learner import Fitted, Learner, fitted
from fedkge.nodes.ledgers import check_begun
from fedkge.nodes.protection import protection
from fedkge.nodes.site import SiteNode
from fedkge.nodes.stack import stacks
from fedkge.runs.account import accounts_of
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.start import started
from fedkge.runtimes.loop import Carrier, Loop, Tap
from fedkge.runtimes.progress import Watch, ignored
from fedkge.runtimes.record import Record

SAVE_EVERY = 30.0  #: seconds between two saves; more where they take long (`Rhythm`)


@dataclass(frozen=True, slots=True)
class Simulation:
    """How a simulation uses its device; on the CPU nothing of it changes a result."""

    stacked: bool = True  #: sites train in one go
    captured: bool = True  #: on a GPU, steps are launched as graphs
    save_every: float = SAVE_EVERY
    tables: bool = True  #: false: results only, without tables and checkpoints: it cannot be resumed


class Simulated(Carrier):
    """Hub and sites in one process, from their last common checkpoint on."""

    def __init__(
        self,
        experiment: Experiment,
        sources: Sources,
        folder: RunFolder,
        device: torch.device,
        how: Simulation = Simulation(),  # noqa: B008 - frozen
        watch: Watch = ignored,
        tap: Tap | None = None,
    ) -> None:
        self.experiment, self.sources, self.folder, self.how = experiment, sources, folder, how
        members = self.members = sources.members(experiment)
        self.clock = Clock()
        tally = Tally(experiment.coding, experiment.widths)
        self.record = Record(folder.journal, experiment.rounds, tally, self.clock, watch)
        run = folder.begin({name: member.graph.digest() for name, member in members.items()})
        homes = {name: folder.home(name, member) for name, member in members.items()}
        found = {
            n: protection(experiment, n, m.graph, homes[n], accounts_of(experiment, m), run)
            for n, m in members.items()
        }
        protections = {name: one for name, one in found.items() if one is not None}
        check_begun(folder.home(HUB), {name: homes[name] for name in protections})
        identities = {name: sources.identity(experiment, member) for name, member in members.items()}
        ids = {name: identity.ids for name, identity in identities.items()}
        self.stacks = stacks(experiment, members, ids, device, how.stacked, how.captured, protections)
        self.stack_of = {name: stack for stack in self.stacks for name in stack.names}
        self.sites = {
            name: SiteNode(
                name,
                experiment,
                Learner(stack, name),
                identities[name],
                self._setting(run, homes[name]),
                experiment.accept.get(name, Accept()),
            )
            for name, stack in self.stack_of.items()
        }
        first, pooled = experiment.start is not None, len(members) == 1
        hub = self._setting(run, folder.home(HUB))
        pseudonyms = experiment.align.secret is not None
        self.hub = HubNode(experiment, members, hub, first, pooled, device, pseudonyms)
        common = self._common()
        start, self.start = started(experiment, sources.named, folder, bool(common))
        if start is not None:
            for name, site in self.sites.items():
                site.learner.lay(start.rows(members[name], name))
        if common:
            for node in self.nodes:
                node.resume(common[-1])
            self.record.resume(self.hub.round)
        self.round = self.hub.round
        for site in self.sites.values():
            site.check_budget()
        self.loop = Loop(
            self, self.hub.participation, experiment.seed, self.record, how.save_every, bool(common), tap
        )

    def _setting(self, run: str, home: Any) -> Setting:
        return Setting(run, home, tables=self.how.tables, tell=self.record.hear, clock=self.clock)

    @property
    def nodes(self) -> list[HubNode | SiteNode]:
        return [self.hub, *self.sites.values()]

    # What the loop asks for

    def open(self) -> list[Message]:
        self.hub.open()
        return [message for site in self.sites.values() for message in site.open()]

    def deliver(self, messages: Sequence[Message]) -> list[Message]:
        """Questions to train are answered in one go, after all others."""
        answers, questions = [], []
        for message in messages:
            if message.kind == "train" and message.recipient in self.sites:
                questions.append(message)
            elif message.recipient == HUB:
                answers += self.hub.receive(message)
            elif message.recipient in self.sites:
                answers += self.sites[message.recipient].receive(message)
        return answers + self._trained(questions)

    def _trained(self, questions: Sequence[Message]) -> list[Message]:
        ready = {message.recipient: self.sites[message.recipient].begin(message) for message in questions}
        rounds = {message.recipient: message.round for message in questions}
        noted: dict[str, Fitted] = {}
        for stack in self.stacks:
            for round in sorted({rounds[n] for n in stack.names if n in ready}):
                if names := [
                    n for n in stack.names if n in ready and ready[n] is None and rounds[n] == round
                ]:
                    with self.clock.spending("train"):
                        noted |= fitted(stack, names, round)
        answers = []
        for name in sorted(ready):
            stored = ready[name]
            answers += [self.sites[name].finish(rounds[name], noted[name])] if stored is None else stored
        return answers

    def expire(self, round: int) -> list[Message]:
        return self.hub.expire(round)

    def save(self, round: int) -> None:
        """All nodes under one number: a run that is killed meanwhile goes on from the number before."""
        for node in self.nodes:
            node.save(round)
        with self.clock.spending("checkpoint"):
            os.sync()  # once for all: a thousand sites would wait a thousand times
        for node in self.nodes:
            if node.store is not None:
                node.store.forget(round)

    def _common(self) -> list[int]:
        """The rounds that all nodes have checkpoints of, ascending."""
        stores = [set(node.store.rounds()) for node in self.nodes if node.store is not None]
        return sorted(set.intersection(*stores)) if stores else []
