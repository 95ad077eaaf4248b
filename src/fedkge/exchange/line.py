"""What one end of a pair of parties keeps for the other: codecs' memory, and rows that both ends hold.

With `codec.delta`, changes are coded instead of rows. What they are changes of is the last row that the hub
has told the site: both ends hold it, as it was decoded. A row that they do not hold yet travels as float16.

Every message of the hub has a turn, a number that no other has, and every message names the turn of the rows
that it starts from. The hub moves on to the rows of a message when an answer says that the site has them;
until then it goes on from those before. A site keeps the rows of the last message and those that this one
started from, so that a lost one does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.channel import Receiver, Sender
from fedkge.exchange.codec import Codec
from fedkge.exchange.held import Held
from fedkge.exchange.rows import Announced, Memory, Update, under
from fedkge.graphs.graph import Axis
from fedkge.models.tables import LONGEST

TURN = "base.turn"  #: the name of the turn that a message starts from
KEPT = ("base", "other", "older")  #: names of held rows in a line's memory


def turn(kind: str, round: int) -> int:
    """The number of the hub's message of a kind in a round: it asks a site to train, and then to measure."""
    return 2 * round + (kind == "measure")


class Line:
    """One end: `encode` what goes, `decode` what comes, `settle` what became of the last message.

    What a site sends may be of any size that can be trained on; the hub's answers are means of such rows,
    and a code may make them a little longer.
    """

    def __init__(self, codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool) -> None:
        self.sender = Sender(codec, announced)
        longest = LONGEST if hub else torch.finfo(torch.float32).max
        self.receiver = Receiver(codec, announced, widths, supported=not hub, longest=longest)

    def encode(self, update: Update, turn: int) -> dict[str, Tensor]:
        return self.sender.encode(update)

    def decode(self, body: Mapping[str, Tensor], turn: int) -> Update:
        return self.receiver.decode(body)

    def settle(self, accepted: bool) -> None:
        """Whether the other end has used the last message."""
        self.sender.settle(accepted)

    def answered(self, turn: int) -> None:
        """At the hub: the site has answered the message of a turn, and so has what was sent."""
        self.settle(True)

    def memory(self) -> Memory:
        return self.sender.memory()

    def load(self, memory: Mapping[str, Tensor]) -> None:
        self.sender.load(memory)


class DeltaLine(Line):
    """A line whose codec codes changes. `late`: answers to the message before the last one are read too."""

    def __init__(
        self, codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool, late: bool = False
    ) -> None:
        super().__init__(codec, announced, widths, hub)
        self.hub, self.late, self.announced = hub, late, announced
        if hub:  # what coding lost of a row is part of its next change: the rows held are the decoded ones
            self.sender = Sender(replace(codec, feedback=False), announced)  # type: ignore[type-var]
            self.mirror = Receiver(self.sender.codec, announced, widths, supported=True)
        self.base = Held.nothing(announced, widths)  # what the next message goes on from
        self.other = self.base  # at the hub: as the site will be; at a site: as it was before
        self.older = self.base  # at the hub, with `late`: what `other` was one message ago

    def encode(self, update: Update, turn: int) -> dict[str, Tensor]:
        body = self.sender.encode(update, self.base)
        if not body:
            return body
        if self.hub:
            if self.late and self.other.turn != turn:  # a question asked again replaces itself
                self.older = self.other
            told = self.mirror.decode(body, self.base)
            self.other = self.base.after(turn, self.announced, told)
        return {**body, TURN: torch.tensor(self.base.turn, dtype=torch.int32)}

    def decode(self, body: Mapping[str, Tensor], turn: int) -> Update:
        if not body:
            return {}
        base = self._named(body.get(TURN))
        update = self.receiver.decode({name: t for name, t in body.items() if name != TURN}, base)
        if not self.hub:
            self.other, self.base = base, base.after(turn, self.announced, update)
        elif base is self.other:
            self.base = base
        return update

    def answered(self, turn: int) -> None:
        super().answered(turn)
        if self.other.turn == turn:
            self.base = self.other

    def _named(self, named: Tensor | None) -> Held:
        """The rows that a message goes on from."""
        if named is None or named.dtype != torch.int32 or named.ndim:
            raise DataError(f"{TURN}: expected the number of a message")
        for held in (self.base, self.other, self.older):
            if held.turn == int(named):
                return held
        known = sorted({self.base.turn, self.other.turn})
        raise DataError(f"changes of the rows of turn {int(named)}, expected {' or '.join(map(str, known))}")

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


def line(
    codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool, late: bool = False
) -> Line:
    """One end of a line for a codec; `late`: the hub's, which uses answers that come late."""
    if codec.delta:
        return DeltaLine(codec, announced, widths, hub, late)
    return Line(codec, announced, widths, hub)
