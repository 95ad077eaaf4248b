"""A site's turns: adopt what the hub says, train, publish; measure when asked; keep the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedkge.errors import FedkgeError
from fedkge.exchange.codec import Codec
from fedkge.exchange.line import line, turn
from fedkge.exchange.rows import HUB, Message, Update, named, under, update_under
from fedkge.exchange.select import Choice, Selection
from fedkge.methods import Method, Site
from fedkge.models import Tables
from fedkge.training.stopping import OWN

Metrics: TypeAlias = Mapping[str, Mapping[str, float]]  #: by whose triples they are: metric -> value


class SiteParty:
    """Plays a site. `fit(round)` trains its tables, `measure(tables)` validates some.

    A runtime that trains many sites in one go calls `begin`, trains, and calls `finish`; `receive` does the
    three in a row.
    """

    def __init__(
        self,
        method: Method,
        site: Site,
        codec: Codec,
        selection: Selection,
        best: Tables,
        fit: Callable[[int], None],
        measure: Callable[[Tables], Metrics],
    ) -> None:
        self.method, self.site, self.best, self.fit, self.measure = method, site, best, fit, measure
        self.id = site.id
        self.announced = {axis: site.shared[axis].ids for axis in method.shares}
        widths = {axis: site.traded.table(axis).shape[1] for axis in method.shares}
        self.line = line(codec, self.announced, widths, hub=False)
        self.held: Update = {}  # an answer that came to be measured, for the next turn
        self.told: Update = {}  # the answer of the round whose table, of those that travel, is kept
        self.uploaded = 0  # the round of the last upload
        method.prepare(site)
        self.choice = Choice(selection, method.publish(site))

    def open(self) -> list[Message]:
        """Announce which rows the site shares, and where these count how many it has; no value leaves it."""
        ids = {f"{axis}.ids": ids for axis, ids in self.announced.items()}
        totals = {str(axis): len(self.site.traded.table(axis)) for axis in self.announced}
        note = {"totals": totals} if self.method.counts else {}
        return [Message(self.id, HUB, "join", 0, ids, note)]

    def receive(self, message: Message) -> list[Message]:
        if message.kind == "train":
            self.begin(message)
            self.fit(message.round)
            return [self.finish(message.round)]
        self._heed(message.note)
        if message.kind == "measure":
            self.held = self._answer(message)
            return [Message(self.id, HUB, "metrics", message.round, note=self._measure())]
        if message.kind == "stop":
            return []
        raise FedkgeError(f"{self.id}: a message of unknown kind {message.kind!r} from {message.sender}")

    def expire(self, round: int) -> list[Message]:
        return []

    def begin(self, message: Message) -> None:
        """Adopt what came now, or what came to be measured."""
        self._heed(message.note)
        self._dial(message.note.get("dials", {}))
        self.method.adopt(self.site, self._answer(message))
        self.held = {}

    def finish(self, round: int) -> Message:
        self.uploaded = round
        update = self.choice.up(self.method.publish(self.site), round)
        body = self.line.encode(update, turn("train", round))
        return Message(self.id, HUB, "upload", round, body)

    def views(self) -> Mapping[str, Tables]:
        """What else is measured of what was kept, by name."""
        kept = replace(self.site, tables=self.best)
        return {name: self.method.view(name, kept, self.told) for name in self.method.views}

    def _answer(self, message: Message) -> Update:
        """What the hub says now, if anything; or what it said before, where it says so."""
        if message.note.get("held"):
            return self.held
        return self.line.decode(message.body, turn(message.kind, message.round))

    def _measure(self) -> dict[str, Any]:
        note: dict[str, Any] = {"metrics": self.measure(self.method.measured(self.site, self.held))}
        if self.method.watches:
            of = self.site, self.held
            note["views"] = {name: self.measure(self.method.view(name, *of)) for name in self.method.watches}
        return note

    def _dial(self, told: Mapping[str, float]) -> None:
        if told.keys() != self.site.dials.keys():
            found, expected = sorted(told), sorted(self.site.dials)
            raise FedkgeError(f"{self.id}: the hub sets {found}, expected {expected}; another method?")
        for name, dial in self.site.dials.items():
            dial.fill_(told[name])

    def _heed(self, note: Mapping[str, Any]) -> None:
        """The hub says which upload it took last, and what of what was measured last is the best."""
        if "taken" in note:
            for remembers in (self.line, self.choice):
                remembers.settle(note["taken"] == self.uploaded)
        for view in note.get("best", ()):
            self._keep(view)

    def _keep(self, view: str) -> None:
        """The tables that the site is measured by, with a second one that nobody watches; or one that is."""
        if view == OWN:
            self.best.copy_(self.method.measured(self.site, self.held), beside=not self.method.watches)
        elif self.best.companion is not None:
            self.best.companion.copy_(self.site.traded)
        if self.method.keeps_answer and (view != OWN or not self.method.watches):
            self.told = self.held

    def state(self) -> dict[str, Tensor]:
        """What the site keeps besides its tables."""
        memory = {f"memory.{name}": tensor for name, tensor in self.site.memory.items()}
        sent = {f"sent.{name}": tensor for name, tensor in self.line.memory().items()}
        sent |= {f"chosen.{name}": tensor for name, tensor in self.choice.memory().items()}
        answers = {**named("held", self.held), **named("told", self.told)}
        return {**answers, **memory, **sent, "uploaded": torch.tensor(self.uploaded)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.site.memory.update(under("memory", state))
        self.line.load(under("sent", state))
        self.choice.load(under("chosen", state))
        self.held, self.told = update_under("held", state), update_under("told", state)
        self.uploaded = int(state["uploaded"])
