"""FedE (Chen et al., IJCKG 2021): sites send shared entity rows, the hub averages them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedkge.aggregation import Aggregation
from fedkge.aggregation.others import gathered, of_others
from fedkge.exchange.rows import Rows, Update, under
from fedkge.graphs.graph import Axis
from fedkge.methods.base import METHODS, Method
from fedkge.methods.state import Hub, Pair, Site
from fedkge.models import Tables

AXES = {
    "entities": (Axis.ENTITY,),
    "relations": (Axis.RELATION,),
    "both": (Axis.ENTITY, Axis.RELATION),
}


@METHODS.register("fede")
@dataclass(frozen=True)
class FedE(Method):
    """The hub's row of an entity is the mean (or another aggregate) over the owners that answered.

    Each owner counts once. A site writes the hub's rows over a copy of its table, keeps its own
    relations, and measures that copy.

    Deviations from the authors' code. Only rows with at least two owners are sent; the code sends the
    table of all entities to everyone. Negatives are drawn from the site's own entities, so a site changes
    only rows that it owns. If a fraction of the sites takes part, the mean is over those that answered,
    or, with `absent = "last"`, the others count with their last upload. The code averages over all
    owners, the others with the row that they last received.
    """

    averages: ClassVar[bool] = True
    share: Literal["entities", "relations", "both"] = "entities"  #: which rows are sent
    restart: bool = True  #: starts every round with a new optimizer, as the authors' code does
    absent: Literal["out", "last"] = "out"  #: owners that did not answer: left out, or with their last upload

    @property
    def shares(self) -> tuple[Axis, ...]:
        return AXES[self.share]

    def aggregate(self, hub: Hub, uploads: Mapping[str, Update]) -> None:
        for axis in self.shares:
            rows = {site: update[axis] for site, update in uploads.items() if axis in update}
            if self.absent == "last":
                rows = self._last(hub, axis, rows)
            if rows:
                found, owners, round = gathered(hub.aggregation, rows, hub.sizes[axis])
                self._remember(hub, axis, found, owners)
                if self.absent == "out" and hub.sparse:
                    hub.fresh |= {f"{axis}.{name}": tensor for name, tensor in round.items()}

    def _last(self, hub: Hub, axis: Axis, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """Everyone's last rows: the hub's copy of what each site sent."""
        for site, sent in rows.items():
            hub.take_in(site, axis, sent)
        last = hub.last(axis)
        return {site: Rows(hub.ids[site][axis], values)[known] for site, (values, known) in last.items()}

    def _remember(self, hub: Hub, axis: Axis, found: Tensor, owners: Tensor) -> None:
        """Rows that nobody sent keep their last value."""
        known, last = owners > 0, hub.by_id.get(axis)
        if last:
            found = torch.where(known[:, None], found, last["mean"])
            known = known | last["known"]
        hub.by_id[axis] = {"mean": found, "known": known}

    def answer(self, hub: Hub, site: str) -> Update:
        """The aggregates of the rows that the site announced, as far as anyone has sent them yet.

        After a round in which only some rows came (a selection chose them), the rows that others sent,
        aggregated over those others, with their number: the site merges them with its own (FedS, Eqs. 3, 4).
        """
        update = {}
        for axis in self.shares:
            ids, memory = hub.ids[site][axis], hub.by_id.get(axis)
            if round := under(str(axis), hub.fresh):
                update[axis] = of_others(hub.aggregation, round, site, ids, hub.sizes[axis])
            elif memory and len(ids):
                known = memory["known"][ids]
                ids = ids if bool(known.all()) else ids[known]
                update[axis] = Rows(ids, memory["mean"][ids])
        return update

    def needs(self, aggregation: Aggregation, sparse: bool) -> Literal["nothing", "sums", "rows"]:
        """Single rows, too, where a site is told of the others' rows, or absent ones count."""
        return "sums" if aggregation.sums and self.absent == "out" and not sparse else "rows"

    def own_part(self, hub: Hub, pair: Pair) -> Tensor:
        """Half where the mean is of both; none where it is of the other alone, as where only some rows came.

        The mean is of those that sent the row last, or with `absent = "last"` of all that ever have.
        """
        if under(str(pair.axis), hub.fresh):
            return torch.zeros_like(pair.own, dtype=torch.float64)
        since = torch.maximum(pair.own, pair.others) if self.absent == "out" else torch.ones_like(pair.own)
        own, others = (rounds >= since for rounds in (pair.own, pair.others))
        return own.double() / (own.double() + others.double())

    @property
    def measures_answer(self) -> bool:
        return True

    def measured(self, site: Site, answer: Update) -> Tables:
        return site.overlay(site.merged(answer))
