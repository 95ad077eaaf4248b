"""Which rows travel: all of them, or those that matter most this round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import torch
from torch import Tensor
from torch.linalg import vector_norm

from fedkge.errors import ConfigError, DataError
from fedkge.exchange.codec import blocks
from fedkge.exchange.rows import Announced, Memory, Rows, Update
from fedkge.graphs.graph import Axis
from fedkge.registry import Registry


class Selection(ABC):
    """Chooses among the rows that a method publishes or answers, before they are coded.

    A selection filters and computes nothing: what rows mean when only some come is the method's.
    """

    remembers: ClassVar[bool] = False  #: whether sites need the rows that they last sent

    def whole(self, round: int) -> bool:
        """Whether all rows travel in a round, both ways."""
        return True

    def sent(self, announced: int, round: int) -> tuple[int, int]:
        """The fewest and the most rows that a site sends of so many that it announced."""
        return announced, announced

    def check(self, update: Update, announced: Announced, round: int) -> None:
        """A `DataError` where an upload of a round has fewer or more rows than a site sends."""
        for axis, ids in announced.items():
            found, (least, most) = len(update.get(axis, ())), self.sent(len(ids), round)
            if not least <= found <= most:
                expected = f"{least}" if least == most else f"{least} to {most}"
                raise DataError(f"{axis} rows: {found} of {len(ids)}, expected {expected} in round {round}")

    @abstractmethod
    def up(self, rows: Rows, last: Tensor | None, round: int) -> Tensor | None:
        """Positions, ascending, of the rows that a site sends; none: all. `last`: each as last sent."""

    @abstractmethod
    def down(self, rows: Rows, announced: int, key: int) -> Tensor | None:
        """The same for an answer to a site that announced so many rows; `key` breaks ties."""


SELECTIONS: Registry[Selection] = Registry("selection", "fedkge.exchange")


@SELECTIONS.register("full")
@dataclass(frozen=True)
class Full(Selection):
    """Every shared row, every round."""

    def up(self, rows: Rows, last: Tensor | None, round: int) -> Tensor | None:
        return None

    def down(self, rows: Rows, announced: int, key: int) -> Tensor | None:
        return None


@SELECTIONS.register("topk")
@dataclass(frozen=True)
class TopK(Selection):
    """FedS (Zhang et al., 2024): the K = p N rows of a site's N shared ones that matter most.

    Up: those that turned furthest, `1 - cos`, since they were last sent (Eqs. 1 and 2). Down: those that most
    other sites sent this round, ties at random. Every s + 1 rounds all rows travel both ways. The paper
    leaves open how K is rounded: up; and when all rows travel first: in round s, so that what is trained, and
    with the paper's settings validated, in every (s + 1)-th round begins with equal rows.
    """

    remembers: ClassVar[bool] = True
    p: float = 0.4  #: share of the shared rows that is sent; 1 is `full`
    s: int | None = None  #: rounds between two in which all rows are sent; unset: there are none
    first: int | None = None  #: the first round in which all rows are sent; unset: round s

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ConfigError(f"p: expected a number above 0 and at most 1, got {self.p}")
        if self.s is not None and self.s < 0:
            raise ConfigError(f"s: expected at least 0, got {self.s}")
        if self.first is not None and (self.s is None or not 1 <= self.first <= self.s + 1):
            expected = "s with it" if self.s is None else f"1 to {self.s + 1}, which is s + 1"
            raise ConfigError(f"first: expected {expected}, got {self.first}")

    def synchronises(self, round: int) -> bool:
        """Whether all rows travel in a round, counted from 1."""
        if self.s is None:
            return False
        return (round - (self.s if self.first is None else self.first)) % (self.s + 1) == 0

    def whole(self, round: int) -> bool:
        return self.p == 1 or self.synchronises(round)

    def sent(self, announced: int, round: int) -> tuple[int, int]:
        count = announced if self.whole(round) else self.count(announced)
        return count, count

    def count(self, announced: int) -> int:
        return portion(self.p, announced)

    def up(self, rows: Rows, last: Tensor | None, round: int) -> Tensor | None:
        if self.sent(len(rows), round)[0] == len(rows):
            return None
        assert last is not None
        return _largest(turned(rows.values, last), self.count(len(rows)))

    def down(self, rows: Rows, announced: int, key: int) -> Tensor | None:
        if rows.support is None or len(rows) <= self.count(announced):
            return None
        generator = torch.Generator().manual_seed(key)
        tie = torch.rand(len(rows), generator=generator, dtype=torch.float64).to(rows.support.device)
        return _largest(rows.support + tie, self.count(announced))


@SELECTIONS.register("moved")
@dataclass(frozen=True)
class Moved(TopK):
    """`topk` that sends no more than it has to: the fewest rows that together made `mass` of all change.

    A site whose rows have settled sends few of them, one that learns sends up to the share p. Of rows that
    turned equally far, the first are sent.
    """

    mass: float = 0.8  #: share of all change (1 - cosine, summed over rows) that the sent rows make up

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mass <= 1:
            raise ConfigError(f"mass: expected a number above 0 and at most 1, got {self.mass}")

    def whole(self, round: int) -> bool:
        return self.synchronises(round)

    def sent(self, announced: int, round: int) -> tuple[int, int]:
        least, most = super().sent(announced, round)
        return least if self.whole(round) else min(1, most), most

    def up(self, rows: Rows, last: Tensor | None, round: int) -> Tensor | None:
        if self.synchronises(round) or not len(rows):
            return None
        assert last is not None
        change, order = turned(rows.values, last).double().sort(descending=True, stable=True)
        enough = torch.searchsorted(change.cumsum(0), self.mass * change.sum()) + 1
        return order[: min(int(enough), self.count(len(rows)))].sort().values


class History:
    """What a site chose before: what it last sent of every row, where the selection asks for that.

    The rows of a message count as sent when the hub has used it.
    """

    def __init__(self, selection: Selection, first: Update) -> None:
        self.selection = selection
        remembered = first if selection.remembers else {}
        self._last = {axis: rows.values.clone() for axis, rows in remembered.items()}
        self._pending: dict[Axis, tuple[Tensor | None, Tensor]] = {}

    def chosen(self, update: Update, round: int) -> Update:
        """The part of an update, which holds every row that is shared, that is sent."""
        self._pending.clear()
        chosen = {}
        for axis, rows in update.items():
            at = self.selection.up(rows, self._last.get(axis), round)
            chosen[axis] = rows if at is None else rows[at]
            if self.selection.remembers:
                self._pending[axis] = at, chosen[axis].values
        return chosen

    def settle(self, accepted: bool) -> None:
        for axis, (at, values) in self._pending.items() if accepted else ():
            if at is None:
                self._last[axis].copy_(values)
            else:
                self._last[axis][at] = values
        self._pending.clear()

    def moved(self, update: Update, to: Mapping[Axis, Tensor]) -> History:
        """The history of other rows, which are in `update`; `to` is as in `renumbered`."""
        new = History(self.selection, update)
        for axis, last in new._last.items():
            here = to[axis] >= 0
            if axis in self._last:
                last[to[axis][here]] = self._last[axis][here]
            if axis in self._pending:
                at, values = self._pending[axis]
                places = to[axis] if at is None else to[axis][at]
                new._pending[axis] = places[places >= 0], values[places >= 0]
        return new

    def memory(self) -> Memory:
        """What lasts, by name."""
        memory = {f"{axis}.last": last for axis, last in self._last.items()}
        for axis, (at, values) in self._pending.items():
            memory[f"{axis}.pending"] = values
            if at is not None:
                memory[f"{axis}.at"] = at
        return memory

    def load(self, memory: Mapping[str, Tensor]) -> None:
        for axis, last in self._last.items():
            last.copy_(memory[f"{axis}.last"])
            if f"{axis}.pending" in memory:
                self._pending[axis] = memory.get(f"{axis}.at"), memory[f"{axis}.pending"]


def turned(values: Tensor, last: Tensor) -> Tensor:
    """`1 - cos` [n] between rows now and then, some rows at a time; 1 between a row of zeros and another.

    As `|a |b| / |a| - b|^2 / (2 |b|^2)`, in which nothing cancels: a row that stays as it is has 0, and one
    that turned a little has more than one that turned less.
    """
    change = values.new_empty(len(values))
    for part in blocks(values):
        now, then = values[part], last[part]
        length, before = vector_norm(now, dim=1), vector_norm(then, dim=1)
        apart = vector_norm((now * (before / length)[:, None]).sub_(then), dim=1)
        turn = (apart / before).square_().div_(2)
        zeros = (length == 0) | (before == 0)
        change[part] = torch.where(zeros, (length != before).to(turn.dtype), turn)
    return change


def portion(part: float, whole: int) -> int:
    """So large a part of a number of things, rounded up; at least one of any.

    0.07 of 100 are 7, though `0.07 * 100` is a little more.
    """
    return min(whole, max(1, ceil(part * whole * (1 - 1e-12))))


def _largest(score: Tensor, count: int) -> Tensor:
    return score.topk(count).indices.sort().values
