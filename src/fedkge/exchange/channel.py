"""What one end of a pair of nodes keeps for the other: codecs' memory, and rows that both ends hold.

With `codec.delta`, changes are coded instead of rows. What they are changes of is the last row that the hub
has told the site: both ends hold it, as it was decoded. A row that they do not hold yet travels as float16.

Every message of the hub has a serial number that no other has, and every message names the number of the rows
that it starts from. The hub moves on to the rows of a message when an answer says that the site has them;
until then it goes on from those before. A site keeps the rows of the last message and those that this one
started from, so that a lost one does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.codec import Codec
from fedkge.exchange.direction import Receiver, Sender
from fedkge.exchange.held import Held
from fedkge.exchange.rows import Announced, Memory, Update, under
from fedkge.graphs.graph import Axis
from fedkge.models.tables import LONGEST

SERIAL = "base.serial"  #: the name of the serial number that a message starts from
KEPT = ("base", "other", "older")  #: names of held rows in a channel's memory


def serial(kind: str, round: int) -> int:
    """The number of the hub's message of a kind in a round: it asks a site to train, and then to measure."""
    return 2 * round + (kind == "measure")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a body says; nothing has been done about it yet."""

    update: Update
    base: Held | None = None  #: the rows that it is changes of


class Channel:
    """One end: `encode` what goes, `read` and `accept` what comes, `settle` what became of the last message.

    What is sent may be of any size that can be trained on, both ways.
    """

    def __init__(
        self, codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool, late: bool = False
    ) -> None:
        self.codec, self.widths, self.hub, self.late = codec, widths, hub, late
        self.sender = Sender(codec, announced)
        self.receiver = Receiver(codec, announced, widths, supported=not hub, longest=LONGEST)

    def encode(self, update: Update, serial: int) -> dict[str, Tensor]:
        return self.sender.encode(update)

    def read(self, body: Mapping[str, Tensor]) -> Reading:
        """What a body says. Changes nothing; what does not fit is a `DataError`."""
        return Reading(self.receiver.decode(body))

    def accept(self, reading: Reading, serial: int) -> Update:
        """Go on from what was read."""
        return reading.update

    def decode(self, body: Mapping[str, Tensor], serial: int) -> Update:
        """Both in a row."""
        return self.accept(self.read(body), serial)

    def settle(self, accepted: bool) -> None:
        """Whether the other end has used the last message."""
        self.sender.settle(accepted)

    def answered(self, serial: int) -> None:
        """At the hub: the site has answered the message of a number, and so has what was sent."""
        self.settle(True)

    def moved(self, announced: Announced, to: Mapping[Axis, Tensor]) -> Self:
        """The channel for other rows, with what it keeps of those that stay: `to` is as in `renumbered`."""
        new = type(self)(self.codec, announced, self.widths, self.hub, self.late)
        new.sender = self.sender.moved(announced, to)
        return new

    def memory(self) -> Memory:
        return self.sender.memory()

    def load(self, memory: Mapping[str, Tensor]) -> None:
        self.sender.load(memory)


class DeltaChannel(Channel):
    """A channel whose codec codes changes. `late`: answers to the message before the last are read too."""

    def __init__(
        self, codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool, late: bool = False
    ) -> None:
        super().__init__(codec, announced, widths, hub, late)
        self.announced = announced
        if hub:  # what coding lost of a row is part of its next change: the rows held are the decoded ones
            self.sender = Sender(replace(codec, feedback=False), announced)  # type: ignore[type-var]
            self.mirror = Receiver(self.sender.codec, announced, widths, supported=True)
        self.base = Held.nothing(announced, widths)  # what the next message goes on from
        self.other = self.base  # at the hub: as the site will be; at a site: as it was before
        self.older = self.base  # at the hub, with `late`: what `other` was one message ago

    def encode(self, update: Update, serial: int) -> dict[str, Tensor]:
        body = self.sender.encode(update, self.base)
        if not body:
            return body
        if self.hub:
            if self.late and self.other.serial != serial:  # a question asked again replaces itself
                self.older = self.other
            told = self.mirror.decode(body, self.base)
            self.other = self.base.after(serial, self.announced, told)
        return {**body, SERIAL: torch.tensor(self.base.serial, dtype=torch.int32)}

    def read(self, body: Mapping[str, Tensor]) -> Reading:
        if not body:
            return Reading({})
        base = self._named(body.get(SERIAL))
        rest = {name: tensor for name, tensor in body.items() if name != SERIAL}
        return Reading(self.receiver.decode(rest, base), base)

    def accept(self, reading: Reading, serial: int) -> Update:
        base = reading.base
        if base is not None and not self.hub:
            self.other, self.base = base, base.after(serial, self.announced, reading.update)
        elif base is not None and base is self.other:
            self.base = base
        return reading.update

    def answered(self, serial: int) -> None:
        super().answered(serial)
        if self.other.serial == serial:
            self.base = self.other

    def _named(self, named: Tensor | None) -> Held:
        """The rows that a message goes on from."""
        if named is None or named.dtype != torch.int32 or named.ndim:
            raise DataError(f"{SERIAL}: expected the number of a message")
        for held in (self.base, self.other, self.older):
            if held.serial == int(named):
                return held
        known = sorted({self.base.serial, self.other.serial})
        raise DataError(
            f"changes of the rows of message {int(named)}, expected {' or '.join(map(str, known))}"
        )

    def moved(self, announced: Announced, to: Mapping[Axis, Tensor]) -> Self:
        new = super().moved(announced, to)
        held = {id(one): one.moved(announced, to) for one in (self.base, self.other, self.older)}
        new.base, new.other, new.older = (held[id(one)] for one in (self.base, self.other, self.older))
        return new

    def memory(self) -> Memory:
        kept = {name: getattr(self, name) for name in KEPT if self.late or name != "older"}
        held = [one.memory(name) for name, one in kept.items()]
        return {**super().memory(), **{name: t for one in held for name, t in one.items()}}

    def load(self, memory: Mapping[str, Tensor]) -> None:
        kept = tuple(f"{name}." for name in KEPT)
        super().load({name: t for name, t in memory.items() if not name.startswith(kept)})
        for name in KEPT:
            if found := under(name, memory):
                setattr(self, name, Held.load(found))


def channel(
    codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool, late: bool = False
) -> Channel:
    """One end of a channel for a codec; `late`: the hub's, which uses answers that come late."""
    kind = DeltaChannel if codec.delta else Channel
    return kind(codec, announced, widths, hub, late)
