"""Rows that both ends of a channel hold, as they were decoded: what changes are changes of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedkge.exchange.rows import Announced, Memory, Update, carried
from fedkge.graphs.graph import Axis


@dataclass(frozen=True, slots=True)
class Held:
    """What the hub has told a site up to and with the message of this serial number; 0 is nothing yet."""

    serial: int
    values: Mapping[Axis, Tensor]  # [announced rows, width]
    known: Mapping[Axis, Tensor]  # bool [announced rows]

    @classmethod
    def nothing(cls, announced: Announced, widths: Mapping[Axis, int]) -> Held:
        values = {a: torch.zeros(len(ids), widths[a], device=ids.device) for a, ids in announced.items()}
        return cls(0, values, {a: torch.zeros_like(ids, dtype=torch.bool) for a, ids in announced.items()})

    def has(self, axis: Axis, at: Tensor | None) -> Tensor:
        """Which [n] of the rows at these positions are held; none: of all."""
        return self.known[axis] if at is None else self.known[axis][at]

    def after(self, serial: int, announced: Announced, update: Update) -> Held:
        """With an update taken in; its rows are not copied where they are all that were announced."""
        values, known = dict(self.values), dict(self.known)
        for axis, rows in update.items():
            if len(rows) == len(announced[axis]):
                values[axis], known[axis] = rows.values, torch.ones_like(known[axis])
            else:
                at = torch.searchsorted(announced[axis], rows.ids)
                values[axis] = values[axis].index_copy(0, at, rows.values)
                known[axis] = known[axis].index_fill(0, at, True)
        return Held(serial, values, known)

    def moved(self, announced: Announced, to: Mapping[Axis, Tensor]) -> Held:
        """What is held of other rows: of those that were not there before, nothing."""
        values, known = (
            {axis: carried(t, to[axis], len(announced[axis])) for axis, t in of.items()}
            for of in (self.values, self.known)
        )
        return Held(self.serial, values, known)

    def memory(self, prefix: str) -> Memory:
        memory = {f"{prefix}.serial": torch.tensor(self.serial)}
        memory |= {f"{prefix}.{axis}.values": t for axis, t in self.values.items()}
        return memory | {f"{prefix}.{axis}.known": t for axis, t in self.known.items()}

    @classmethod
    def load(cls, memory: Mapping[str, Tensor]) -> Held:
        axes = [axis for axis in Axis if f"{axis}.values" in memory]
        values, known = ({a: memory[f"{a}.{part}"] for a in axes} for part in ("values", "known"))
        return cls(int(memory["serial"]), values, known)
