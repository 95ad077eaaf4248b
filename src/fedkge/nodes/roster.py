"""Who has joined, and which rows they have in common: found from announced ids, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedkge.exchange.announce import Id, announced, announcement, in_common
from fedkge.exchange.rows import under
from fedkge.graphs.graph import Axis
from fedkge.methods import Hub
from fedkge.nodes.notes import Joining


class Roster:
    """What sites have announced. `settle` numbers what at least two of them have."""

    def __init__(self, axes: Sequence[Axis], device: torch.device) -> None:
        self.axes, self.device = axes, device
        self.joined: dict[str, Joining] = {}  # taken in
        self.waiting: dict[str, Joining] = {}  # to be taken in when a round is closed
        self.numbers: dict[Axis, dict[Id, int]] = {}

    def has(self, site: str, said: Joining) -> bool:
        """Whether this is what a site has announced before: its rows, and how much its metrics weigh."""
        known = self.joined.get(site)
        return known is not None and (known.ids, known.queries) == (said.ids, said.queries)

    def settle(self, hub: Hub) -> tuple[dict[Axis, Tensor], dict[str, dict[Axis, Tensor]]]:
        """Take in who waits and number all rows anew; where each old number, and each site's old row, went.

        Where a row went is -1 if nobody else has it any more; see `exchange.rows.renumbered`.
        """
        before, old = self.numbers, {site: hub.ids.get(site, {}) for site in self.joined}
        self.joined |= self.waiting
        self.waiting = {}
        for axis in self.axes:
            common = in_common(one.ids[axis] for one in self.joined.values())
            self.numbers = {**self.numbers, axis: {one: number for number, one in enumerate(common)}}
            hub.sizes[axis] = len(common)
        for site, one in self.joined.items():
            hub.ids[site] = {axis: self._shared(axis, one.ids[axis]) for axis in self.axes}
            hub.totals[site] = {axis: len(one.ids[axis]) for axis in self.axes}
        to = {axis: self._moved(axis, before.get(axis, {})) for axis in self.axes}
        rows = {
            site: {axis: _places(hub.ids[site][axis], to[axis][ids]) for axis, ids in of.items()}
            for site, of in old.items()
        }
        return to, rows

    def where(self, site: str, axis: Axis) -> Tensor:
        """The positions of the rows that others have among those that a site announced."""
        numbers = self.numbers[axis]
        return torch.tensor(
            [i for i, one in enumerate(self.joined[site].ids[axis]) if one in numbers], dtype=torch.int64
        )

    def _shared(self, axis: Axis, ids: Sequence[Id]) -> Tensor:
        numbers = self.numbers[axis]
        found = [numbers[one] for one in ids if one in numbers]
        return torch.tensor(found, dtype=torch.int64, device=self.device)

    def _moved(self, axis: Axis, before: Mapping[Id, int]) -> Tensor:
        now = self.numbers[axis]
        return torch.tensor([now.get(one, -1) for one in before], dtype=torch.int64, device=self.device)

    # What lasts

    def state(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        tensors: dict[str, Tensor] = {}
        plain = []
        for number, (site, one) in enumerate(sorted(self.joined.items())):
            tensors |= {f"{number}.{name}": t for name, t in announcement(one.ids).items()}
            plain.append({"site": site, "version": one.version, "queries": dict(one.queries)})
        return tensors, plain

    def load(self, tensors: Mapping[str, Tensor], plain: Sequence[Mapping[str, Any]], hub: Hub) -> None:
        for number, one in enumerate(plain):
            ids = announced({name: t.cpu() for name, t in under(str(number), tensors).items()}, self.axes)
            self.waiting[one["site"]] = Joining(one["version"], ids, one["queries"], None)
        self.settle(hub)


def _places(ids: Tensor, wanted: Tensor) -> Tensor:
    """Where `wanted` are in the ascending `ids`; -1 where they are not."""
    if not len(ids):
        return torch.full_like(wanted, -1)
    at = torch.searchsorted(ids, wanted).clamp_max(len(ids) - 1)
    return torch.where((wanted >= 0) & (ids[at] == wanted), at, -1)
