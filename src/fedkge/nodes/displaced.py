"""Displacements at both ends: what a site that unlearns says and hears, and what the hub makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedkge.exchange.displaced import MOVED, OWNERS, body, check_moved, check_owners
from fedkge.graphs.graph import Axis, Ids
from fedkge.methods import Site
from fedkge.nodes.roster import Roster
from fedkge.nodes.terms import Terms

MOST = 1 << 20  #: owners that a row can have


def following(terms: Terms) -> tuple[Axis, ...]:
    """The tables that never travel and follow what other sites move: FedLU's local ones."""
    second = terms.method.second(terms.embedding)
    if second is None or second.model != terms.embedding:
        return ()
    return tuple(a for a in terms.method.shares if a is Axis.ENTITY or second.relations)


@dataclass(eq=False)
class Displaced:
    """A site's part: how far it has moved its rows, and how much of what others moved it follows."""

    terms: Terms
    part: float  #: of what others moved that tables which never travel follow
    moved: Mapping[Axis, Tensor] = field(
        default_factory=dict
    )  # axis -> [rows, width]; none: it forgets nothing

    def said(self, announced: Mapping[Axis, Ids]) -> dict[str, Tensor]:
        """With what it announces."""
        rows = {axis: torch.from_numpy(announced[axis]).to(of.device) for axis, of in self.moved.items()}
        return body(MOVED, {axis: of.index_select(0, rows[axis]) for axis, of in self.moved.items()})

    def check(
        self, moved: Mapping[Axis, Tensor], owners: Mapping[Axis, Tensor], rows: Mapping[Axis, Tensor]
    ) -> None:
        """What the hub says about the rows that are shared; anything else is a `DataError`."""
        widths = self.terms.widths
        check_moved(moved, {axis: (len(rows[axis]), widths[axis]) for axis in following(self.terms)})
        check_owners(owners, {axis: len(rows[axis]) for axis in self.moved}, MOST)

    def hear(self, site: Site, moved: Mapping[Axis, Tensor], owners: Mapping[Axis, Tensor]) -> None:
        """Follow the others; send so much more that a mean of k owners has all of what was moved."""
        for axis, of in moved.items():
            table = site.tables.table(axis)
            table.index_add_(0, site.shared[axis].local, of.to(table), alpha=self.part)
        for axis, of in owners.items():
            own, local = self.moved[axis], site.shared[axis].local
            beyond = torch.zeros_like(own)
            beyond[local] = own[local] * (of.to(own) - 1)[:, None]
            site.beyond[axis] = beyond


def told(roster: Roster, site: str) -> dict[str, Tensor]:
    """What the hub says to a site, where any site has moved rows."""
    own, ids = roster.joined[site], roster.hub.ids[site]
    owners = {axis: roster.owners[axis][ids[axis]] for axis in own.moved}
    moved = {}
    for axis in following(roster.terms):
        others = [(other, one) for other, one in sorted(roster.joined.items()) if other != site]
        theirs = {other: one.moved[axis] for other, one in others if axis in one.moved}
        if theirs:
            total = torch.zeros(roster.hub.sizes[axis], roster.terms.widths[axis], device=roster.device)
            for other, of in theirs.items():
                at = roster.shared_places(other, axis).to(of.device)
                total.index_add_(0, roster.hub.ids[other][axis], of[at].to(roster.device))
            moved[axis] = total[ids[axis]]
    return body(OWNERS, owners) | body(MOVED, moved)
