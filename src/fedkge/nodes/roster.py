"""Who has joined, which rows they have in common, and what the hub keeps by row.

Rows in common are found from announced ids, and nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedkge.errors import DataWarning
from fedkge.exchange.announce import Id, announced, announcement, in_common
from fedkge.exchange.channel import Channel, channel
from fedkge.exchange.direction import WHERE, pack
from fedkge.exchange.rows import Update, carried, renumbered, under
from fedkge.graphs.exposure import Exposure
from fedkge.graphs.graph import Axis
from fedkge.methods import Hub
from fedkge.nodes.notes import Joining
from fedkge.nodes.terms import Terms

Moved: TypeAlias = Callable[[str, Update], Update]  #: a site's rows under their new numbers
Places: TypeAlias = Mapping[Axis, Tensor]  #: where each old number, or each old row, went; -1: it is gone


class Roster:
    """What sites have announced. `settle` numbers the rows that at least two of them have.

    It owns what is kept by these numbers: the hub's memory, and a channel to each site.
    """

    def __init__(self, terms: Terms, device: torch.device, late: bool) -> None:
        self.terms, self.axes, self.device, self.late = terms, terms.method.shares, device, late
        self.hub = Hub(aggregation=terms.method.combining(terms.aggregate))
        self.channels: dict[str, Channel] = {}
        self.joined: dict[str, Joining] = {}  # taken in
        self.waiting: dict[str, Joining] = {}  # to be taken in when a round is closed
        self.numbers: dict[Axis, dict[Id, int]] = {}
        self.owners: dict[Axis, Tensor] = {}  # how many sites have each numbered row

    def has(self, site: str, said: Joining) -> bool:
        """Whether this is what a site has announced before: its rows, and how much its metrics weigh."""
        known = self.joined.get(site)
        return known is not None and (known.ids, known.queries) == (said.ids, said.queries)

    def stranger(self, site: str, said: Joining) -> str | None:
        """A site that has another secret than this one, so that they would have nothing in common."""
        every = {**self.joined, **self.waiting}
        return next(
            (one for one in sorted(every) if one != site and every[one].fingerprint != said.fingerprint), None
        )

    def exposures(self) -> dict[Axis, Exposure]:
        """How many rows are in common, and how many of them exactly two sites have."""
        return {axis: Exposure(axis, len(of), int((of == 2).sum())) for axis, of in self.owners.items()}

    def by_two(self, site: str) -> dict[str, int]:
        """How many rows of a site exactly one other site has too."""
        ids = self.hub.ids[site]
        return {str(axis): int((of[ids[axis]] == 2).sum()) for axis, of in self.owners.items()}

    def settle(self) -> tuple[list[str], Moved]:
        """Take in what was announced; the sites that share other rows now, and where their rows went."""
        before = {site: dict(ids) for site, ids in self.hub.ids.items()}
        to = self._number()
        rows = {site: self._places(site, of, to) for site, of in before.items()}
        self._move(to, rows)

        def moved(site: str, update: Update) -> Update:
            found, ids = renumbered(update, to), self.hub.ids[site]
            return {axis: own[torch.isin(own.ids, ids[axis])] for axis, own in found.items()}

        changed = [
            site
            for site, ids in sorted(self.hub.ids.items())
            if site not in before
            or any(
                len(before[site].get(a, ())) != len(own) or bool((rows[site][a] < 0).any())
                for a, own in ids.items()
            )
        ]
        return changed, moved

    def _number(self) -> Places:
        """Number all rows anew; where each old number went."""
        before = self.numbers
        self.joined |= self.waiting
        self.waiting = {}
        for axis in self.axes:
            common = in_common(one.ids[axis] for one in self.joined.values())
            self.owners[axis] = torch.tensor(list(common.values()), dtype=torch.int32, device=self.device)
            self.numbers = {**self.numbers, axis: {one: number for number, one in enumerate(common)}}
            self.hub.sizes[axis] = len(common)
        for site, one in self.joined.items():
            self.hub.ids[site] = {axis: self._shared(axis, one.ids[axis]) for axis in self.axes}
            self.hub.totals[site] = {axis: len(one.ids[axis]) for axis in self.axes}
        return {axis: self._new_numbers(axis, before.get(axis, {})) for axis in self.axes}

    def _places(self, site: str, ids: Mapping[Axis, Tensor], to: Places) -> Places:
        """Where each row that a site shared before is among those that it shares now."""
        return {axis: _positions(self.hub.ids[site][axis], to[axis][own]) for axis, own in ids.items()}

    def _move(self, to: Places, rows: Mapping[str, Places]) -> None:
        """Bring everything that is kept by number to its new place."""
        hub = self.hub
        hub.fresh = {}
        hub.by_id = {
            a: {k: carried(t, to[a], hub.sizes[a]) for k, t in of.items()} for a, of in hub.by_id.items()
        }
        for site, by_axis in hub.by_row.items():
            for a, of in by_axis.items():
                by_axis[a] = {k: carried(t, rows[site][a], len(hub.ids[site][a])) for k, t in of.items()}
        for site, ids in hub.ids.items():
            if site in self.channels:
                self.channels[site] = self.channels[site].moved(ids, rows[site])
            else:
                self.channels[site] = self._channel(site)

    def _channel(self, site: str) -> Channel:
        return channel(self.terms.coding, self.hub.ids[site], self.terms.widths, hub=True, late=self.late)

    def bits(self, site: str) -> dict[str, Tensor]:
        """Which of the rows that a site announced others have: a bit per row."""
        announced = self.joined[site].ids
        return {
            f"{axis}.{WHERE}": pack(self.shared_places(site, axis), len(announced[axis]))
            for axis in self.axes
        }

    def shared_places(self, site: str, axis: Axis) -> Tensor:
        """Where the rows that others have are among those that a site announced."""
        numbers, ids = self.numbers[axis], self.joined[site].ids[axis]
        return torch.tensor([i for i, one in enumerate(ids) if one in numbers], dtype=torch.int64)

    def warn(self) -> None:
        """Say who has nothing to share, where others have."""
        rows = {site: sum(map(len, of.values())) for site, of in self.hub.ids.items()}
        alone = [site for site, count in rows.items() if self.axes and not count]
        if alone and len(alone) == len(rows):
            warnings.warn(
                "no two sites have anything in common: every site trains alone", DataWarning, stacklevel=2
            )
            return
        for site in alone:
            message = f"site {site!r} has nothing in common with the others: it trains alone"
            warnings.warn(message, DataWarning, stacklevel=2)

    def _shared(self, axis: Axis, ids: Sequence[Id]) -> Tensor:
        numbers = self.numbers[axis]
        found = [numbers[one] for one in ids if one in numbers]
        return torch.tensor(found, dtype=torch.int64, device=self.device)

    def _new_numbers(self, axis: Axis, before: Mapping[Id, int]) -> Tensor:
        now = self.numbers[axis]
        return torch.tensor([now.get(one, -1) for one in before], dtype=torch.int64, device=self.device)

    # What lasts

    def state(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        hub, plain = self.hub, []
        tensors = {f"memory.{name}": tensor for name, tensor in hub.memory.items()}
        tensors |= {f"fresh.{name}": tensor for name, tensor in hub.fresh.items()}
        for axis, of in hub.by_id.items():
            tensors |= {f"id.{axis}.{name}": tensor for name, tensor in of.items()}
        for number, (site, one) in enumerate(sorted(self.joined.items())):
            tensors |= {f"joined.{number}.{name}": t for name, t in announcement(one.ids).items()}
            for axis, of in hub.by_row.get(site, {}).items():
                tensors |= {f"row.{number}.{axis}.{name}": tensor for name, tensor in of.items()}
            tensors |= {f"sent.{number}.{name}": t for name, t in self.channels[site].memory().items()}
            said = {"version": one.version, "queries": dict(one.queries), "fingerprint": one.fingerprint}
            plain.append({"site": site, **said})
        return tensors, plain

    def load(self, tensors: Mapping[str, Tensor], plain: Sequence[Mapping[str, Any]]) -> None:
        """What `state` wrote, before anyone has joined."""
        for number, one in enumerate(plain):
            ids = announced(
                {name: t.cpu() for name, t in under(f"joined.{number}", tensors).items()}, self.axes
            )
            self.waiting[one["site"]] = Joining(
                one["version"], ids, one["queries"], None, one.get("fingerprint")
            )
        self._number()
        hub = self.hub
        hub.memory, hub.fresh = under("memory", tensors), under("fresh", tensors)
        hub.by_id = {axis: found for axis in Axis if (found := under(f"id.{axis}", tensors))}
        for number, site in enumerate(sorted(self.joined)):
            rows = {axis: found for axis in Axis if (found := under(f"row.{number}.{axis}", tensors))}
            if rows:
                hub.by_row[site] = rows
            self.channels[site] = self._channel(site)
            self.channels[site].load(under(f"sent.{number}", tensors))


def _positions(ids: Tensor, wanted: Tensor) -> Tensor:
    """Where `wanted` are in the ascending `ids`; -1 where they are not."""
    if not len(ids):
        return torch.full_like(wanted, -1)
    at = torch.searchsorted(ids, wanted).clamp_max(len(ids) - 1)
    return torch.where((wanted >= 0) & (ids[at] == wanted), at, -1)
