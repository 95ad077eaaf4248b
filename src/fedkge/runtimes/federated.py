"""The parties of a deployment in one process, their messages delivered in memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any

import torch

from fedkge.errors import DataWarning
from fedkge.evaluation import Ranks
from fedkge.evaluation.checks import diverged
from fedkge.exchange.rows import HUB, Message, under
from fedkge.graphs.graph import Axis, Federation, Split
from fedkge.models import Tables
from fedkge.parties import HubParty, Participation, Plan, SiteParty
from fedkge.parties.site import Metrics
from fedkge.parties.validation import TOGETHER
from fedkge.randomness import generator
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.folder import RunFolder
from fedkge.runtimes.protection import Protected, check_marks, openly
from fedkge.runtimes.record import Record, Watch
from fedkge.runtimes.stack import Stack, stacks
from fedkge.runtimes.start import Start
from fedkge.runtimes.summary import Course, Result, SiteMetrics, by_side
from fedkge.runtimes.traffic import Traffic
from fedkge.training import Stopping

CHECKPOINT = "federation"
SAVE_EVERY = 30.0  #: seconds of work that a killed run loses at most, and the rest of the round


@dataclass(frozen=True, slots=True)
class Simulation:
    """How a simulation uses its device; on the CPU nothing of it changes a result."""

    stacked: bool = True  #: sites train in one go
    captured: bool = True  #: on a GPU, steps are launched as graphs
    save_every: float = SAVE_EVERY


class Federated:
    """Hub, sites and what they train on, from the last checkpoint on.

    `named` has the graphs under their own names, where links have given them others.
    """

    def __init__(
        self,
        experiment: Experiment,
        federation: Federation,
        folder: RunFolder,
        device: torch.device,
        how: Simulation,
        named: Federation | None = None,
    ) -> None:
        self.experiment, self.folder, self.how = experiment, folder, how
        method = experiment.method
        self.members = method.members(federation)
        # Where nothing is exchanged, nobody is waited for and nothing gets lost.
        self.participation = experiment.participation if method.shares else Participation()
        self.data = {name: member.graph.digest() for name, member in self.members.items()}
        check_marks(experiment, self.members)
        self.protected = self._protected() if experiment.privacy.noisy else None
        protections = self.protected.sites if self.protected else {}
        trained = openly(experiment, self.members)
        self.stacks = stacks(experiment, trained, device, how.stacked, how.captured, protections)
        self.stack_of = {name: stack for stack in self.stacks for name in stack.names}
        self.start = self._start(named or federation)
        self.sites = {name: self._site(stack, name) for name, stack in self.stack_of.items()}
        evaluate = experiment.evaluate
        plan = Plan(
            experiment.rounds,
            evaluate.every,
            Stopping(evaluate.patience, evaluate.rule),
            experiment.seed,
            each=evaluate.keep == "each",
            first=experiment.start is not None,
        )
        second = method.companion(experiment.embedding)
        widths = {axis: (second.model if second else experiment.embedding).width(axis) for axis in Axis}
        self.hub = HubParty(
            method,
            self.members,
            experiment.coding,
            experiment.selection,
            widths,
            self.participation,
            plan,
        )
        self.traffic = Traffic(experiment.coding, {axis: widths[axis] for axis in method.shares})
        self.record = Record(folder.journal, experiment.rounds, self.traffic)
        self.clock = self.record.clock
        self._warn()
        self._saved, self._resumed = time.monotonic(), False
        self._resume()
        if self.protected is not None:
            self._afford(self.protected)

    def _protected(self) -> Protected:
        checkpoint = self.folder.checkpoint_state(CHECKPOINT)
        return Protected(self.experiment, self.members, self.folder, checkpoint)

    def _start(self, federation: Federation) -> dict[str, Any] | None:
        """Lay what another run kept over the first rows; what is to be told of it.

        A run that is resumed has its tables: what it started from need not be there any more.
        """
        if self.experiment.start is None:
            return None
        saved = self.folder.checkpoint_state(CHECKPOINT)
        if saved is not None:
            return dict(saved["start"])
        start = Start.open(self.experiment, federation)
        start.warn(federation)
        for stack in self.stacks:
            start.lay(stack)
        self.folder.journal.write("warm_start", **start.plain())
        return start.plain()

    def _afford(self, protected: Protected) -> None:
        """As many rounds as the budgets have steps for; what a killed run had spent is gone."""
        done = self.hub.round
        validated = any(stopping.best_at > 0 for stopping in self.hub.validation.stopping.values())
        if not done or not validated:
            protected.check_budget()
        self.hub.plan = replace(self.hub.plan, rounds=done + protected.rounds_left(done))

    def _warn(self) -> None:
        """Say who has nothing to share, where others have."""
        shares = self.experiment.method.shares
        rows = {name: sum(len(party.announced[a]) for a in shares) for name, party in self.sites.items()}
        alone = [name for name, count in rows.items() if shares and not count]
        if alone and len(alone) == len(rows):
            warnings.warn(
                "no two sites have anything in common: every site trains alone", DataWarning, stacklevel=2
            )
            return
        for name in alone:
            message = f"site {name!r} has nothing in common with the others: it trains alone"
            warnings.warn(message, DataWarning, stacklevel=2)

    def _site(self, stack: Stack, name: str) -> SiteParty:
        def measure(tables: Tables) -> Metrics:
            with self.clock.spending("evaluate"):
                found = stack.measure(name, tables, Split.VALID, openly=True)
            return {site: sides[self.experiment.evaluate.sides] for site, sides in found.items()}

        fit = partial(self._fit, stack, [name])
        site = stack.sites[name]
        one = self.experiment
        return SiteParty(one.method, site, one.coding, one.selection, stack.bests[name], fit, measure)

    def _fit(self, stack: Stack, names: Sequence[str], round: int) -> None:
        before = self.clock.seconds["train"]
        with self.clock.spending("train"):
            losses = stack.fit(names, round)
        for name, loss in losses.items():
            if not isfinite(loss):
                raise diverged(name)
        self.record.trained(losses, self.clock.seconds["train"] - before, stack.visits(names))

    # The loop

    def play(self, watch: Watch) -> None:
        """Deliver messages until nobody has anything left to say."""
        mail = [message for site in self.sites.values() for message in site.open()]
        while mail:
            if all(message.kind in ("train", "stop") for message in mail):
                self._between_rounds(mail, watch)
            questions = [message for message in mail if message.kind == "train"]
            mail = [
                answer for message in mail if message.kind != "train" for answer in self._deliver(message)
            ]
            if questions:
                mail += self._turn(questions)
            if not mail and self.hub.phase != "done":
                mail = self.hub.expire(self.hub.round)

    def _deliver(self, message: Message) -> list[Message]:
        if message.kind != "stop":  # counted before the last round is journalled
            self.traffic.count(message, again=message.kind == "join" and self._resumed)
        party = self.hub if message.recipient == HUB else self.sites[message.recipient]
        return party.receive(message)

    def _turn(self, questions: Sequence[Message]) -> list[Message]:
        """The turns of all sites that were asked, trained in one go; their answers in the order they come."""
        asked = {message.recipient: message for message in questions}
        for name, message in asked.items():
            self.traffic.count(message)
            self.sites[name].begin(message)
        number = questions[0].round
        for stack in self.stacks:
            if names := [name for name in stack.names if name in asked]:
                self._fit(stack, names, number)
        answers = [self.sites[name].finish(number) for name in sorted(asked)]
        return self._arrivals(answers, number)

    def _arrivals(self, answers: list[Message], number: int) -> list[Message]:
        """Where not everyone is waited for, answers come in a random order, and some get lost."""
        participation = self.participation
        if participation.quorum == 1 and participation.dropout == 0:
            return answers
        random = generator(self.experiment.seed, "arrivals", number)
        lost = random.random(len(answers)) < participation.dropout
        for answer, gone in zip(answers, lost.tolist(), strict=True):
            if gone:
                self.traffic.count(answer)  # sent all the same
        return [answers[i] for i in random.permutation(len(answers)).tolist() if not lost[i]]

    # Between rounds: nothing is under way but questions, which the hub would ask again

    def _between_rounds(self, mail: Sequence[Message], watch: Watch) -> None:
        for message in mail:
            if message.kind == "stop":
                self.traffic.count(message, again=self._resumed)
        self._resumed = False
        events, self.hub.events = self.hub.events, []
        self.record.write(events, self.hub.validation.stopping.values(), watch)
        final = self.hub.phase == "done"
        if final or time.monotonic() - self._saved >= self.how.save_every:
            with self.clock.spending("checkpoint"):
                self._save()

    # Checkpoints

    def _save(self) -> None:
        tensors, plain = self.hub.state()
        whole = {f"hub.{name}": tensor for name, tensor in tensors.items()}
        for number, (name, site) in enumerate(self.sites.items()):
            own = {**self.stack_of[name].state(name), **site.state()}
            whole |= {f"site.{number}.{key}": tensor for key, tensor in own.items()}
        state = {"hub": plain, **self.record.state(), "data": self.data}
        if self.start is not None:
            state["start"] = self.start
        if self.protected is not None:
            state |= self.protected.ledger.seal
        self.folder.save_checkpoint(CHECKPOINT, whole, state)
        self._saved = time.monotonic()

    def _resume(self) -> None:
        saved = self.folder.load_checkpoint(CHECKPOINT)
        if saved is None:
            return
        tensors, state = saved
        self._resumed = True
        self.folder.check_digests(state["data"], self.data)
        device = self.stacks[0].tables.device
        tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        for number, (name, site) in enumerate(self.sites.items()):
            own = under(f"site.{number}", tensors)
            self.stack_of[name].load_state(name, own)
            site.load_state(own)
        self.hub.load_state(under("hub", tensors), state["hub"])
        self.record.load_state(state)

    # Results

    def ranks(self, split: Split) -> Mapping[str, Ranks]:
        """What everyone kept, by whose triples."""
        with self.clock.spending("evaluate"):
            found = [stack.ranks(n, stack.bests[n], split) for n, stack in self.stack_of.items()]
        return {site: ranks for one in found for site, ranks in one.items()}

    def measure(self, split: Split) -> SiteMetrics:
        """The same, summed up."""
        return by_side(self.ranks(split))

    def result(self) -> Result:
        kept = self.hub.validation.keeping
        names = {TOGETHER: next(iter(self.members)) if len(self.members) == 1 else "federation"}
        last = {name: (s.last_at, s.best_at, dict(s.beside_at)) for name, s in kept.items()}
        courses = {names.get(name, name): Course(*rounds) for name, rounds in last.items()}
        valid, ranks = self.measure(Split.VALID), self.ranks(Split.TEST)
        views = self._views()
        self.clock.lap()
        return Result(courses, self.clock.seconds, self.traffic, valid, by_side(ranks), views, ranks)

    def _views(self) -> Mapping[str, SiteMetrics]:
        """What else the method has measured on test, by name."""
        views: dict[str, dict[str, Any]] = {}
        with self.clock.spending("evaluate"):
            for name, stack in self.stack_of.items():
                for view, tables in self.sites[name].views().items():
                    views.setdefault(view, {}).update(stack.measure(name, tables, Split.TEST))
        return views
