"""What one end of a pair of parties keeps for the other: codecs' memory, and rows that both ends hold.

With `codec.delta`, changes are coded instead of rows. What they are changes of is the last row that the hub
has told the site: both ends hold it, as it was decoded. A row that they do not hold yet travels as float16.

The hub moves on to the rows of a message when the site's answer says that it has them; until then it goes on
from those before. A site keeps the rows of the last message and those that this one started from, and every
message says which it starts from, so that a lost one does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.channel import Announced, Receiver, Sender
from fedkge.exchange.codec import Codec, Float16, blocks
from fedkge.exchange.rows import Memory, Rows, Update, under
from fedkge.graphs.graph import Axis

BASE, NEW = "base", "new"
WHOLE = Float16()  #: how rows are written that the ends do not hold yet


class Line:
    """One end: `encode` what goes, `decode` what comes, `settle` what became of the last message."""

    def __init__(self, codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool) -> None:
        self.sender = Sender(codec, announced)
        self.receiver = Receiver(codec, announced, widths, supported=not hub)

    def encode(self, update: Update, round: int) -> dict[str, Tensor]:
        return self.sender.encode(update)

    def decode(self, body: Mapping[str, Tensor], round: int) -> Update:
        return self.receiver.decode(body)

    def settle(self, accepted: bool) -> None:
        """Whether the other end has used the last message."""
        self.sender.settle(accepted)

    def memory(self) -> Memory:
        return self.sender.memory()

    def load(self, memory: Mapping[str, Tensor]) -> None:
        self.sender.load(memory)


@dataclass(frozen=True, slots=True)
class Held:
    """The rows that both ends hold after the message of a round; round 0 is none."""

    round: int
    values: Mapping[Axis, Tensor]  # [announced rows, width]
    known: Mapping[Axis, Tensor]  # bool [announced rows]

    def after(self, round: int, announced: Announced, update: Update) -> Held:
        """With an update taken in; its rows are not copied where they are all that were announced."""
        values, known = dict(self.values), dict(self.known)
        for axis, rows in update.items():
            at = positions(announced[axis], rows.ids)
            if at is None:
                values[axis], known[axis] = rows.values, torch.ones_like(known[axis])
            else:
                values[axis] = values[axis].index_copy(0, at, rows.values)
                known[axis] = known[axis].index_fill(0, at, True)
        return Held(round, values, known)

    def memory(self, prefix: str) -> Memory:
        memory = {f"{prefix}.round": torch.tensor(self.round)}
        memory |= {f"{prefix}.{axis}.values": t for axis, t in self.values.items()}
        return memory | {f"{prefix}.{axis}.known": t for axis, t in self.known.items()}

    @classmethod
    def load(cls, memory: Mapping[str, Tensor]) -> Held:
        axes = [axis for axis in Axis if f"{axis}.values" in memory]
        values, known = ({a: memory[f"{a}.{part}"] for a in axes} for part in ("values", "known"))
        return cls(int(memory["round"]), values, known)


class DeltaLine(Line):
    """A line whose codec codes changes."""

    def __init__(self, codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool) -> None:
        super().__init__(codec, announced, widths, hub)
        self.hub, self.announced = hub, announced
        if hub:  # what coding lost of a row is part of its next change: the rows held are the decoded ones
            self.sender = Sender(replace(codec, feedback=False), announced)  # type: ignore[type-var]
        self.whole = Sender(WHOLE, announced)
        nothing = {
            axis: torch.zeros(len(ids), widths[axis], device=ids.device) for axis, ids in announced.items()
        }
        known = {axis: torch.zeros_like(ids, dtype=torch.bool) for axis, ids in announced.items()}
        self.base = Held(0, nothing, known)  # what the next message goes on from
        self.other = self.base  # at the hub: as the site will be; at a site: as it was before

    def encode(self, update: Update, round: int) -> dict[str, Tensor]:
        changes, new = {}, {}
        for axis, rows in update.items():
            known = self.base.known[axis]
            if (at := positions(self.announced[axis], rows.ids)) is not None:
                known = known[at]
            if bool(known.all()):
                changes[axis] = rows
            else:
                changes[axis], new[axis] = rows[known.nonzero()[:, 0]], rows[(~known).nonzero()[:, 0]]
        body = self.sender.encode(changes, self.base.values)
        for axis, rows in new.items():
            sent = self.whole.encode({axis: rows}) if len(rows) else {}
            body |= {f"{axis}.{NEW}.{name.partition('.')[2]}": tensor for name, tensor in sent.items()}
        if body:
            body[f"{BASE}.round"] = torch.tensor(self.base.round, dtype=torch.int32)
        if self.hub and body:
            self.other = self.base.after(round, self.announced, self._decoded(body, self.base))
        return body

    def decode(self, body: Mapping[str, Tensor], round: int) -> Update:
        if not body:
            return {}
        base = self._named(body)
        update = self._rows(body, base, self.receiver)
        if self.hub:
            if base is self.other:
                self.base = self.other
        else:
            self.other, self.base = base, base.after(round, self.announced, update)
        return update

    def _named(self, body: Mapping[str, Tensor]) -> Held:
        """The rows that a message goes on from."""
        named = body.get(f"{BASE}.round")
        if named is None or named.dtype != torch.int32 or named.ndim:
            raise DataError(f"{BASE}.round: expected the number of a round")
        for held in (self.base, self.other):
            if held.round == int(named):
                return held
        known = sorted({self.base.round, self.other.round})
        raise DataError(f"changes of the rows of round {int(named)}, expected {' or '.join(map(str, known))}")

    def _decoded(self, body: Mapping[str, Tensor], base: Held) -> Update:
        """What the other end will make of a message."""
        widths = self.receiver.widths
        return self._rows(body, base, Receiver(self.sender.codec, self.announced, widths, supported=True))

    def _rows(self, body: Mapping[str, Tensor], base: Held, receiver: Receiver) -> Update:
        """Changes added to what they are changes of, and rows that are new."""
        changes = {n: t for n, t in body.items() if not n.startswith(f"{BASE}.") and f".{NEW}." not in n}
        found: dict[Axis, list[Rows]] = {}
        for axis, rows in receiver.decode(changes).items():
            at = positions(self.announced[axis], rows.ids)
            known = base.known[axis] if at is None else base.known[axis][at]
            if not bool(known.all()):
                raise DataError(f"{axis} rows: changes of rows that were never told")
            for block in blocks(rows.values):  # codecs that code changes decode into memory of their own
                rows.values[block] += base.values[axis][block if at is None else at[block]]
            found[axis] = [rows]
        for axis in self.announced:
            if new := under(f"{axis}.{NEW}", body):
                plain = Receiver(WHOLE, self.announced, receiver.widths, receiver.supported)
                whole = plain.decode({f"{axis}.{part}": tensor for part, tensor in new.items()})
                found.setdefault(axis, []).append(whole[axis])
        return {axis: _joined(parts) for axis, parts in found.items()}

    def memory(self) -> Memory:
        return {**super().memory(), **self.base.memory("base"), **self.other.memory("other")}

    def load(self, memory: Mapping[str, Tensor]) -> None:
        kept = ("base.", "other.")
        super().load({name: t for name, t in memory.items() if not name.startswith(kept)})
        if "base.round" in memory:
            self.base, self.other = Held.load(under("base", memory)), Held.load(under("other", memory))


def positions(announced: Tensor, ids: Tensor) -> Tensor | None:
    """Where ids are among those announced; nothing when they are all of them."""
    return None if len(ids) == len(announced) else torch.searchsorted(announced, ids)


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    ids, order = torch.cat([part.ids for part in parts]).sort()
    supports = [part.support for part in parts if part.support is not None]
    if supports and len(supports) != len(parts):
        raise DataError("rows with and without a number of sites in one message")
    values = torch.cat([part.values for part in parts])[order]
    return Rows(ids, values, torch.cat(supports)[order] if supports else None)


def line(codec: Codec, announced: Announced, widths: Mapping[Axis, int], hub: bool) -> Line:
    """One end of a line for a codec."""
    return (DeltaLine if codec.delta else Line)(codec, announced, widths, hub)
