"""What went over the wire, as whoever hears every message reads it: rows by announced id, both ways."""

from __future__ import annotations

import torch

from fedkge.exchange.announce import Id, announced
from fedkge.exchange.channel import SERIAL, serial
from fedkge.exchange.direction import WHERE, Receiver, unpack
from fedkge.exchange.displaced import split
from fedkge.exchange.held import Held
from fedkge.exchange.rows import HUB, Announced, Message, Update
from fedkge.graphs.graph import Axis
from fedkge.nodes.terms import Terms


class Transcript:
    """Reads messages in the order in which they are sent. It knows the terms, and no node.

    A row's number is the place of its id among all announced ids, so that rows of two sites can be compared.
    Every site announces its ids once, before the hub says which of them are shared.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.wires: dict[str, Wire] = {}  # by site
        self._announced: dict[str, dict[Axis, tuple[Id, ...]]] = {}
        self._places: dict[Axis, dict[Id, int]] = {}

    def read(self, message: Message) -> Update:
        """The rows in a message."""
        site = message.sender if message.recipient == HUB else message.recipient
        if message.kind == "join":
            self._announced[site] = announced(split(message)[0].body, self.terms.method.shares)
            return {}
        if message.kind == "shared":
            shared = {axis: self._shared(axis, site, message) for axis in self.terms.method.shares}
            self.wires[site] = Wire(self.terms, shared)
            return {}
        return self.wires[site].read(message)

    def _shared(self, axis: Axis, site: str, message: Message) -> torch.Tensor:
        """The numbers of the rows of a site that the hub says others have too."""
        own = self._announced[site][axis]
        if axis not in self._places:
            every = sorted({one for of in self._announced.values() for one in of[axis]})
            self._places[axis] = {one: place for place, one in enumerate(every)}
        numbers = torch.tensor([self._places[axis][one] for one in own], dtype=torch.int64)
        return numbers[unpack(message.body[f"{axis}.{WHERE}"], len(own), axis)]

    def twice(self, axis: Axis) -> torch.Tensor:
        """The rows that exactly two sites share, ascending."""
        ids, sites = torch.cat([wire.shared[axis] for wire in self.wires.values()]).unique(return_counts=True)
        return ids[sites == 2]


class Wire:
    """What the hub and one site say to each other: `exchange.channel` without an end of its own.

    Where changes are coded, it keeps the rows of the hub's messages by serial number, as far back as the hub
    starts from them.
    """

    def __init__(self, terms: Terms, shared: Announced) -> None:
        self.shared, self.delta = shared, terms.coding.delta
        self.up = Receiver(terms.coding, shared, terms.widths)
        self.down = Receiver(terms.coding, shared, terms.widths, supported=True)
        self.held = {0: Held.nothing(shared, terms.widths)}

    def read(self, message: Message) -> Update:
        """The rows in a message to or from the site."""
        told, body = message.sender == HUB, dict(message.body)
        receiver = self.down if told else self.up
        if not self.delta or not body:
            return receiver.decode(body)
        base = self.held[int(body.pop(SERIAL))]
        update = receiver.decode(body, base)
        if told:
            number = serial(message.kind, message.round)
            left = {n: held for n, held in self.held.items() if n >= base.serial}
            self.held = {**left, number: base.after(number, self.shared, update)}
        return update
