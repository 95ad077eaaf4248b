"""FedE (Chen et al., IJCKG 2021): sites share entity rows, the hub averages them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedkge.exchange.rows import Rows, Update
from fedkge.graphs.graph import Axis
from fedkge.methods.base import METHODS, Hub, Method, Pair, Site
from fedkge.models import Tables

AXES = {
    "entities": (Axis.ENTITY,),
    "relations": (Axis.RELATION,),
    "both": (Axis.ENTITY, Axis.RELATION),
}


@METHODS.register("fede")
@dataclass(frozen=True)
class FedE(Method):
    """`E_e` = the mean over the sites that own e and answered, each counting once.

    Measured is the hub's aggregate: each site lays it over a copy of its table, with its own relations.

    Deviations from the authors' code. Only rows that at least two sites own travel; the code sends the table
    of all entities to everyone. Negatives are drawn from the site's own entities, so that a site touches no
    row that it does not own. Where a fraction of the sites takes part, the code averages over all owners,
    the others with the row that they were last sent; here the mean is over those that answered, or, with
    `absent = "last"`, the others count with what they last sent.
    """

    averages: ClassVar[bool] = True
    share: Literal["entities", "relations", "both"] = "entities"  #: whose rows travel
    restart: bool = True  #: a new optimizer every round, as the authors' code has it; false: moments are kept
    absent: Literal["out", "last"] = "out"  #: owners that did not answer: left out, or their last rows count

    @property
    def shares(self) -> tuple[Axis, ...]:
        return AXES[self.share]

    def combine(self, hub: Hub, uploads: Mapping[str, Update]) -> None:
        for axis in self.shares:
            rows = {site: update[axis] for site, update in uploads.items() if axis in update}
            if self.absent == "last":
                rows = self._last(hub, axis, rows)
            hub.memory = {k: t for k, t in hub.memory.items() if not k.startswith(f"sparse.{axis}.")}
            if rows:
                total, owners = summed(rows, hub.sizes[axis])
                self._average(hub, axis, total, owners)
                if self.absent == "out" and hub.sparse:
                    self._keep_sums(hub, axis, rows, total, owners)

    def _last(self, hub: Hub, axis: Axis, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """Everyone's last rows: the hub's copy of what each site sent."""
        for site, sent in rows.items():
            ids, values = sent.ids, sent.values
            if f"last.values.{axis}.{site}" in hub.memory and len(sent) < len(hub.ids[site][axis]):
                before = Rows(hub.memory[f"last.ids.{axis}.{site}"], hub.memory[f"last.values.{axis}.{site}"])
                before = before[~torch.isin(before.ids, ids)]
                ids, order = torch.cat((ids, before.ids)).sort()
                values = torch.cat((values, before.values))[order]
            hub.memory[f"last.values.{axis}.{site}"], hub.memory[f"last.ids.{axis}.{site}"] = values, ids
        return {
            site: Rows(hub.memory[f"last.ids.{axis}.{site}"], hub.memory[f"last.values.{axis}.{site}"])
            for site in hub.ids
            if f"last.values.{axis}.{site}" in hub.memory
        }

    def _keep_sums(
        self, hub: Hub, axis: Axis, rows: Mapping[str, Rows], total: Tensor, owners: Tensor
    ) -> None:
        """Where only some rows came, a site is told about those of the others: see `answer`."""
        hub.memory[f"sparse.{axis}.total"], hub.memory[f"sparse.{axis}.owners"] = total, owners
        for site, sent in rows.items():
            hub.memory[f"sparse.{axis}.ids.{site}"] = sent.ids
            hub.memory[f"sparse.{axis}.values.{site}"] = sent.values

    def _average(self, hub: Hub, axis: Axis, total: Tensor, owners: Tensor) -> None:
        """Rows that nobody sent keep their last value."""
        mean = total / owners.clamp_min(1)[:, None]
        known = owners > 0
        if f"mean.{axis}" in hub.memory:
            mean = torch.where(known[:, None], mean, hub.memory[f"mean.{axis}"])
            known = known | hub.memory[f"known.{axis}"]
        hub.memory[f"mean.{axis}"], hub.memory[f"known.{axis}"] = mean, known

    def answer(self, hub: Hub, site: str) -> Update:
        """The means of the rows that the site announced, as far as anyone has sent them yet.

        After a round in which only some rows came (a selection chose them), the rows that others sent, as
        means over those others with their number: the site merges them with its own (FedS, Eqs. 3 and 4).
        """
        update = {}
        for axis in self.shares:
            ids = hub.ids[site][axis]
            if f"sparse.{axis}.total" in hub.memory:
                update[axis] = self._of_others(hub, axis, site)
            elif f"mean.{axis}" in hub.memory and len(ids):
                known = hub.memory[f"known.{axis}"][ids]
                ids = ids if bool(known.all()) else ids[known]
                update[axis] = Rows(ids, hub.memory[f"mean.{axis}"][ids])
        return update

    def _of_others(self, hub: Hub, axis: Axis, site: str) -> Rows:
        ids, own = hub.ids[site][axis], f"sparse.{axis}.ids.{site}"
        total = hub.memory[f"sparse.{axis}.total"][ids]
        support = hub.memory[f"sparse.{axis}.owners"][ids]
        if own in hub.memory:
            at = torch.searchsorted(ids, hub.memory[own])
            total[at] -= hub.memory[f"sparse.{axis}.values.{site}"]
            support[at] -= 1
        others = (support > 0).nonzero()[:, 0]
        mean = total[others] / support[others, None]
        return Rows(ids[others], mean, support[others].to(torch.int64))

    def own_part(self, hub: Hub, pair: Pair) -> Tensor:
        """Half where the mean is of both; none where it is of the other alone, as where only some rows came.

        The mean is of those that sent the row last, or with `absent = "last"` of all that ever have.
        """
        if f"sparse.{pair.axis}.total" in hub.memory:
            return torch.zeros_like(pair.own, dtype=torch.float64)
        since = torch.maximum(pair.own, pair.others) if self.absent == "out" else torch.ones_like(pair.own)
        own, others = (rounds >= since for rounds in (pair.own, pair.others))
        return own.double() / (own.double() + others.double())

    @property
    def measures_answer(self) -> bool:
        return True

    def measured(self, site: Site, answer: Update) -> Tables:
        return site.overlay(site.merged(answer))


def summed(rows: Mapping[str, Rows], size: int) -> tuple[Tensor, Tensor]:
    """For every id below `size` the sum [size, width] of its rows, and how many [size] there are.

    Site by site in the order of their names, so that the sum does not depend on who answered first.
    """
    first = next(iter(rows.values())).values
    total, owners = first.new_zeros(size, first.shape[1]), first.new_zeros(size)
    for site in sorted(rows):
        total[rows[site].ids] += rows[site].values  # ids do not repeat; index_add_ would be slow on a CPU
        owners[rows[site].ids] += 1
    return total, owners
