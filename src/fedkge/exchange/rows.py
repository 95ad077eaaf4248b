"""What parties exchange: rows of tables by shared id, in messages of named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis

PROTOCOL = 1  #: version of the messages: their kinds, bodies and notes
HUB = "hub"  #: the party that every site talks to; no site may have this name


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one table: `values[i]` belongs to the shared id `ids[i]`. Local ids never leave a site.

    With `support`, a row is the mean over that many *other* sites, to be merged with the receiver's own.
    """

    ids: Tensor  # int64 [n], strictly increasing
    values: Tensor  # float [n, width]
    support: Tensor | None = None  # int64 [n], at least 1

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or self.values.ndim != 2 or len(self.ids) != len(self.values):
            raise ValueError(f"ids {list(self.ids.shape)} for rows {list(self.values.shape)}")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, where: Tensor) -> Rows:
        """The rows at these positions, or where this mask is true."""
        at = where.nonzero()[:, 0] if where.dtype == torch.bool else where
        support = None if self.support is None else self.support[at]
        return Rows(self.ids[at], self.values.index_select(0, at.to(self.values.device)), support)

    def take(self, ids: Tensor) -> Rows:
        """The rows whose id is in `ids`."""
        return self[torch.isin(self.ids, ids)]


Announced: TypeAlias = Mapping[Axis, Tensor]  #: int64 [n], strictly increasing: the ids one party shares
Update: TypeAlias = Mapping[Axis, Rows]  #: what one party tells another in one round
Memory: TypeAlias = dict[str, Tensor]  #: what a party keeps between rounds, by name


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `body` holds named tensors, `note` small plain values: no pickle, ever."""

    sender: str
    recipient: str
    kind: str  #: join, shared, train, upload, measure, metrics, stop, refusal
    round: int
    body: Mapping[str, Tensor] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)  #: JSON: flags, metrics
    run: str = ""  #: the id of the run that it belongs to
    protocol: int = PROTOCOL


def under(prefix: str, tensors: Mapping[str, Tensor]) -> Memory:
    """The tensors named `prefix.x`, as x."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def renumbered(update: Update, to: Mapping[Axis, Tensor]) -> Update:
    """The same rows under other ids: `to[axis][old]` is the new one, in the same order; -1: it is gone."""
    found = {}
    for axis, rows in update.items():
        ids = to[axis].to(rows.ids.device)[rows.ids]
        left = rows[ids >= 0]
        found[axis] = Rows(ids[ids >= 0], left.values, left.support)
    return found


def carried(tensor: Tensor, to: Tensor, rows: int) -> Tensor:
    """A table [rows, ...] with the lines of an old one where they are now; lines that it had not are zero."""
    to = to.to(tensor.device)
    new = tensor.new_zeros(rows, *tensor.shape[1:])
    new[to[to >= 0]] = tensor[to >= 0]
    return new


def named(prefix: str, update: Update) -> Memory:
    """An update as tensors that `update_under` finds again."""
    return {
        f"{prefix}.{axis}.{part}": getattr(rows, part)
        for axis, rows in update.items()
        for part in ("ids", "values", "support")
        if getattr(rows, part) is not None
    }


def update_under(prefix: str, tensors: Mapping[str, Tensor]) -> Update:
    """What `named` wrote."""
    found = under(prefix, tensors)
    return {
        axis: Rows(found[f"{axis}.ids"], found[f"{axis}.values"], found.get(f"{axis}.support"))
        for axis in Axis
        if f"{axis}.ids" in found
    }
