"""Hubs with scripted sites, and small federations whose messages a test carries by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedkge import __version__
from fedkge.exchange.announce import announcement
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.select import Full, Selection
from fedkge.graphs.graph import Axis, Federation
from fedkge.methods.base import Method
from fedkge.methods.fedep import FedEP
from fedkge.models import MODELS
from fedkge.nodes.base import Event, Setting
from fedkge.nodes.hub import HubNode
from fedkge.nodes.site import SiteNode
from fedkge.nodes.terms import Evaluate, Participation, Terms
from fedkge.runtimes.run import Simulation
from small_federations import federated

SITES = ("a", "b", "c")
IDS = (b"0", b"1")


class Heard(HubNode):
    """A hub whose events are at hand."""

    def __init__(self, terms: Terms, sites: Collection[str], first: bool = False) -> None:
        self.events: list[Event] = []
        super().__init__(terms, sites, Setting(tell=lambda _, event: self.events.append(event)), first)


def hub(
    method: Method | None = None,
    rounds: int = 20,
    every: int = 100,
    select: Selection | None = None,
    sites: Collection[str] = SITES,
    first: bool = False,
    rule: Any = "patience",
    keep: Any = "together",
    **participation: Any,
) -> Heard:
    terms = Terms(
        model=MODELS["transe"](dim=2),
        rounds=rounds,
        method=method or FedEP(),
        select=select or Full(),
        evaluate=Evaluate(every, patience=2, rule=rule, keep=keep),
        participation=Participation(**participation),
    )
    return Heard(terms, sites, first)


def joining(site: str, ids: Sequence[bytes] | None = IDS) -> Message:
    """A site that has no entities but these; none: one of a method that shares nothing."""
    body = announcement({} if ids is None else {Axis.ENTITY: ids})
    return Message(site, HUB, "join", 0, body, {"fedkge": __version__, "version": 0, "queries": {site: 10}})


def join(at: Heard, ids: Sequence[bytes] | None = IDS) -> dict[str, Message]:
    """Everyone joins; what they are asked."""
    messages = [message for site in at.sites for message in at.receive(joining(site, ids))]
    return {message.recipient: message for message in messages if message.kind != "shared"}


def upload(site: str, round: int, value: float) -> Message:
    return Message(site, HUB, "upload", round, {"entity.values": torch.full((2, 2), value)})


def metrics(site: str, round: int, mrr: float) -> Message:
    found = {"mrr": mrr, "mr": 1.0, **{f"hits@{k}": 0.0 for k in (1, 3, 5, 10)}, "count": 10}
    return Message(site, HUB, "metrics", round, note={"metrics": {site: found}})


def mean(message: Message) -> float:
    return float(message.body["entity.values"][0, 0])


def events(at: Heard, kind: str) -> list[Event]:
    return [event for event in at.events if event["event"] == kind]


class ByHand:
    """The nodes of a small federation, each site with a stack of its own; the test carries their messages."""

    def __init__(self, folder: Path, federation: Federation, **options: Any) -> None:
        self.run = federated(folder, federation, Simulation(stacked=False), **options)
        self.nodes: dict[str, HubNode | SiteNode] = {node.id: node for node in self.run.nodes}
        self.events: dict[str, list[Event]] = {name: [] for name in self.nodes}
        for name, node in self.nodes.items():
            node.setting = replace(node.setting, tell=partial(self._hear, name))
        self.mail = deque(self.run.open())

    def _hear(self, name: str, node: str, event: Event) -> None:
        self.events[name].append(event)

    def deliver(self) -> Message:
        """The next message, to whom it is for."""
        message = self.mail.popleft()
        self.mail.extend(self.nodes[message.recipient].receive(message))
        return message

    def until(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message that is wanted; those before it are delivered, it is not."""
        while not wanted(self.mail[0]):
            self.deliver()
        return self.mail[0]

    def play(self) -> None:
        while self.mail:
            self.deliver()

    def noted(self, name: str, kind: str) -> list[Event]:
        return [event for event in self.events[name] if event["event"] == kind]


def question(kind: str, round: int, site: str = "a") -> Callable[[Message], bool]:
    return lambda message: (message.recipient, message.kind, message.round) == (site, kind, round)


def answer(kind: str, round: int, site: str = "a") -> Callable[[Message], bool]:
    return lambda message: (message.sender, message.kind, message.round) == (site, kind, round)
