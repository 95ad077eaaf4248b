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
from fedkge.exchange.codec import Codec, Float16
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

    def after(self, round: int, rows: Mapping[Axis, tuple[Tensor, Tensor]]) -> Held:
        """With rows (positions, values) taken in."""
        values, known = ({axis: t.clone() for axis, t in of.items()} for of in (self.values, self.known))
        for axis, (at, new) in rows.items():
            values[axis][at], known[axis][at] = new, True
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
            at = torch.searchsorted(self.announced[axis], rows.ids)
            known = self.base.known[axis][at]
            change = Rows(rows.ids, rows.values - self.base.values[axis][at], rows.support)
            if bool(known.all()):
                changes[axis] = change
            else:
                changes[axis], new[axis] = change[known.nonzero()[:, 0]], rows[(~known).nonzero()[:, 0]]
        body = self.sender.encode(changes)
        for axis, rows in new.items():
            sent = self.whole.encode({axis: rows}) if len(rows) else {}
            body |= {f"{axis}.{NEW}.{name.partition('.')[2]}": tensor for name, tensor in sent.items()}
        if body:
            body[f"{BASE}.round"] = torch.tensor(self.base.round, dtype=torch.int32)
        if self.hub and body:
            self.other = self.base.after(round, self._decoded(body, self.base))
        return body

    def decode(self, body: Mapping[str, Tensor], round: int) -> Update:
        if not body:
            return {}
        base = self._named(body)
        update = {axis: rows for axis, (_, rows) in self._rows(body, base).items()}
        if self.hub:
            if base is self.other:
                self.base = self.other
        else:
            at = {axis: torch.searchsorted(self.announced[axis], rows.ids) for axis, rows in update.items()}
            self.other = base
            self.base = base.after(round, {axis: (at[axis], rows.values) for axis, rows in update.items()})
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

    def _decoded(self, body: Mapping[str, Tensor], base: Held) -> dict[Axis, tuple[Tensor, Tensor]]:
        """What the other end will make of a message."""
        receiver, self.receiver = (
            self.receiver,
            Receiver(self.sender.codec, self.announced, self.receiver.widths, supported=True),
        )
        try:
            return {axis: (at, rows.values) for axis, (at, rows) in self._rows(body, base).items()}
        finally:
            self.receiver = receiver

    def _rows(self, body: Mapping[str, Tensor], base: Held) -> dict[Axis, tuple[Tensor, Rows]]:
        """Positions and rows: changes added to what they are changes of, and rows that are new."""
        changes = {n: t for n, t in body.items() if not n.startswith(f"{BASE}.") and f".{NEW}." not in n}
        found: dict[Axis, list[Rows]] = {}
        for axis, rows in self.receiver.decode(changes).items():
            at = torch.searchsorted(self.announced[axis], rows.ids)
            if not bool(base.known[axis][at].all()):
                raise DataError(f"{axis} rows: changes of rows that were never told")
            found[axis] = [Rows(rows.ids, base.values[axis][at] + rows.values, rows.support)]
        for axis in self.announced:
            if new := under(f"{axis}.{NEW}", body):
                receiver = Receiver(WHOLE, self.announced, self.receiver.widths, self.receiver.supported)
                whole = receiver.decode({f"{axis}.{part}": tensor for part, tensor in new.items()})
                found.setdefault(axis, []).append(whole[axis])
        joined = {axis: _joined(parts) for axis, parts in found.items()}
        return {a: (torch.searchsorted(self.announced[a], rows.ids), rows) for a, rows in joined.items()}

    def memory(self) -> Memory:
        return {**super().memory(), **self.base.memory("base"), **self.other.memory("other")}

    def load(self, memory: Mapping[str, Tensor]) -> None:
        kept = ("base.", "other.")
        super().load({name: t for name, t in memory.items() if not name.startswith(kept)})
        if "base.round" in memory:
            self.base, self.other = Held.load(under("base", memory)), Held.load(under("other", memory))


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
