"""A site as far as others know of it: the terms that it accepts, what it announces, which rows are shared."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from fedkge import __version__
from fedkge.errors import DataError
from fedkge.exchange.announce import announcement
from fedkge.exchange.channel import channel
from fedkge.exchange.direction import WHERE, unpack
from fedkge.exchange.displaced import split
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.select import History
from fedkge.graphs.graph import Axis, Ids
from fedkge.nodes.accept import Accept
from fedkge.nodes.base import Node, Setting
from fedkge.nodes.displaced import Displaced
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import Learner
from fedkge.nodes.notes import Declined, reading, refusal, version_of
from fedkge.nodes.protection import rounds_left
from fedkge.nodes.terms import Terms


class Announcing(Node):
    """A site that joins. How it hears questions is `Hearing`, and what it does then is `SiteNode`."""

    def __init__(
        self,
        id: str,
        terms: Terms,
        learner: Learner,
        identity: Identity,
        setting: Setting,
        accept: Accept,
    ) -> None:
        super().__init__(id, terms, setting)
        self.accept = accept
        self.unwilling: str | None = None  # why it takes no part, if its policy forbids it
        self.turned_down: str | None = None  # why the hub does not let it in, as it says
        self.learner, self.site = learner, learner.site
        self.method, self.identity = terms.method, identity
        none = {axis: learner.site.shared[axis].ids for axis in self.method.shares}
        self.channel = channel(terms.coding, none, terms.widths, hub=False)
        self.history = History(terms.selection, {})
        self.version = 0  # of the announcement
        self.ready = False  # the hub has said which rows are shared
        self.announced = {axis: identity.announced(axis) for axis in self.method.shares}
        self.asked = -1  # the round of the last question
        self.displaced: Displaced | None = None  # what is said of rows that were moved to forget triples

    @property
    def round(self) -> int:
        return max(0, self.asked)

    def partners(self) -> Collection[str]:
        return (HUB,)

    @abstractmethod
    def _moved(self, to: Mapping[Axis, Tensor]) -> None:
        """Shared rows have other places now: `to` says where each went; -1: it is shared no more."""

    def open(self) -> list[Message]:
        """Announce the ids of all rows that may be shared, and how many validation questions there are.

        Nothing is announced on terms that the site does not accept: it says why, and no more.
        """
        first, self.unwilling = super().open(), self._unwilling()
        if self.unwilling is not None:
            self.note({"event": "declines", "round": 0, "why": self.unwilling})
            self.write_down()
            return [*first, self.message(HUB, "refusal", 0, why=self.unwilling)]
        ids = {axis: [self.identity.ids[axis][i] for i in rows] for axis, rows in self.announced.items()}
        sides = 2 if self.terms.evaluate.sides == "both" else 1
        asked = {site: self.learner.stack.opened[site] for site in self.learner.member.parts}
        queries = {site: sides * len(graph.valid) for site, graph in asked.items()}
        said = {"fedkge": __version__, "version": self.version, "queries": queries, **self._allows()}
        if self.identity.fingerprint is not None:
            said["fingerprint"] = self.identity.fingerprint
        moved = {} if self.displaced is None else self.displaced.said(self.announced)
        return [*first, self.message(HUB, "join", 0, announcement(ids) | moved, **said)]

    def _unwilling(self) -> str | None:
        """Why the site's policy forbids these terms, or what it would be announced as."""
        if self.accept.pseudonyms and self.identity.fingerprint is None:
            return "rows would be announced by name, the site accepts pseudonyms only; give it a secret"
        return self.accept.refuses(self.terms)

    def _turned_down(self, message: Message) -> list[Message]:
        """The hub does not let the site in, and says why."""
        with reading():
            self.turned_down = refusal(message)
        self.note({"event": "turned_down", "round": message.round, "why": self.turned_down})
        self.write_down()
        return []

    def announce(self, identity: Identity) -> list[Message]:
        """Announce other rows than before; the hub says when it has taken them in, if the terms allow it."""
        self.identity, self.version = identity, self.version + 1
        self.announced = {axis: identity.announced(axis) for axis in self.method.shares}
        return self.open()

    def _shared(self, message: Message) -> list[Message]:
        """The hub says which of the announced rows others have: at first, again, or when that has changed."""
        axes = self.method.shares
        moved: dict[Axis, Tensor] = {}
        owners: dict[Axis, Tensor] = {}
        with reading():
            self._check_time(message)
            if self.displaced is not None:
                message, moved, owners = split(message)
            version, by_two = version_of(message, axes, self.identity.fingerprint is not None)
            if version != self.version or message.body.keys() != {f"{a}.{WHERE}" for a in axes}:
                raise DataError(
                    f"expected a bit per row of announcement {self.version}, for {', '.join(axes)}"
                )
            at = {a: unpack(message.body[f"{a}.{WHERE}"].cpu(), len(self.announced[a]), a) for a in axes}
            if self.displaced is not None:
                self.displaced.check(moved, owners, at)
            for axis, count in by_two.items():
                if count > len(at[axis]):
                    raise DataError(f"by_two: {count} {axis} rows, expected at most {len(at[axis])}")
        rows = {axis: self.announced[axis][where.numpy()] for axis, where in at.items()}
        self._check_share(rows)
        if not self.ready or any(not np.array_equal(own, self._rows(axis)) for axis, own in rows.items()):
            self._share(rows)
            self._note_aligned(rows, by_two)
            if self.setting.often and self.asked < 0:
                self.save()  # something to go back to, should the first question be a bad one
        if self.displaced is not None:
            self.displaced.hear(self.site, moved, owners)
        return []

    def _check_share(self, rows: Mapping[Axis, Ids]) -> None:
        """No more entities are shared than the site accepts, whatever the hub says that others have."""
        shared = len(rows.get(Axis.ENTITY, ()))
        too_many = self.accept.refuses_rows(shared, len(self.identity.ids[Axis.ENTITY]))
        self.unwilling = self._unwilling() or too_many
        if self.unwilling is not None:
            raise Declined(self.unwilling)

    def _note_aligned(self, rows: Mapping[Axis, Ids], by_two: Mapping[Axis, int]) -> None:
        found = {
            str(axis): {"own": len(self.identity.ids[axis]), "shared": len(own)}
            | ({"by_two": by_two[axis]} if axis in by_two else {})
            for axis, own in rows.items()
        }
        self.note({"event": "aligned", "round": self.round, "rows": found})

    def _rows(self, axis: Axis) -> Ids:
        """The local rows that are shared, in the order in which they travel."""
        rows: Ids = self.site.shared[axis].local.cpu().numpy()
        return rows

    def _share(self, rows: Mapping[Axis, Ids]) -> None:
        """Set up the channel to the hub for these rows; what it had of them before stays."""
        order = self.identity.ids
        before = {axis: [order[axis][i] for i in self._rows(axis).tolist()] for axis in rows}
        self.learner.share(rows)
        device = self.site.tables.device
        place = {a: {order[a][i]: n for n, i in enumerate(own.tolist())} for a, own in rows.items()}
        to = {
            a: torch.tensor([place[a].get(one, -1) for one in own], dtype=torch.int64, device=device)
            for a, own in before.items()
        }
        self.channel = self.channel.moved({axis: self.site.shared[axis].ids for axis in rows}, to)
        self.history = self.history.moved(self.method.publish(self.site), to)
        self._moved(to)
        self.ready = True

    def _allows(self) -> dict[str, int]:
        """How many more rounds the privacy budget has steps for, where there is one."""
        allowed = rounds_left(self.terms, self.learner.protection)
        return {} if allowed is None else {"allows": allowed}

    def _check_time(self, message: Message) -> None:
        """What is no question is of the last round that was asked about, or of one since.

        Or of the one before: a hub that was gone says again who shares what, and then asks again.
        """
        if not self.asked - 1 <= message.round <= self.terms.rounds:
            raise DataError(f"is of round {message.round}, after round {self.asked}, of {self.terms.rounds}")
