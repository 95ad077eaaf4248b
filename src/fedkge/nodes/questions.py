"""What the hub asks a site: the answer to its last upload, and what it is to know about it.

What became of an upload, and which measurement is the best, is said until the site answers a question that
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from fedkge.exchange.channel import serial
from fedkge.exchange.rows import Rows, Update
from fedkge.graphs.graph import Axis
from fedkge.nodes.roster import Roster
from fedkge.nodes.terms import Terms
from fedkge.nodes.validation import Judge
from fedkge.randomness import key


class Questions:
    """The hub's; `roster` knows who shares what, `judge` whose best is which round."""

    def __init__(self, terms: Terms, roster: Roster, judge: Judge) -> None:
        self.method, self.selection, self.seed = terms.method, terms.selection, terms.seed
        self.roster, self.judge = roster, judge
        self.holds: set[str] = set()  # who was sent the current answer, to be measured
        self.taken: dict[str, int] = {}  # to be told: the round of a site's last upload; below 0: not used
        self.said: dict[str, int] = {}  # since which question a site is told what it is to know

    def ask(
        self, site: str, kind: str, round: int, void: bool
    ) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Body and note of a question; `void`: the last round came to nothing."""
        number = serial(kind, round)
        note = self.about(site, number)
        if site in self.holds:
            update: Update = {}
            note["held"] = True
        else:
            # Means of what others sent are of the round just closed: after a void one, they were told before.
            answer = self.method.answer(self.roster.hub, site).items()
            news = {axis: rows for axis, rows in answer if not void or rows.support is None}
            update = {axis: self._chosen(site, axis, rows, round) for axis, rows in news.items()}
        self.holds.discard(site)
        dials = self.method.dials() if kind == "train" else None
        if dials is not None:
            note["dials"] = dict(dials.told(self.roster.hub, site))
        return self.roster.channels[site].encode(update, number), note

    def _chosen(self, site: str, axis: Axis, rows: Rows, round: int) -> Rows:
        tie = key(self.seed, site, axis, round, "ties")
        at = self.selection.down(rows, len(self.roster.hub.ids[site][axis]), tie)
        return rows if at is None else rows[at]

    def about(self, site: str, number: int) -> dict[str, Any]:
        """What a site is told by the question of a number."""
        note: dict[str, Any] = {"taken": self.taken[site]} if site in self.taken else {}
        if site in self.judge.best:
            note["best"] = dict(self.judge.best[site])
        if note:
            self.said.setdefault(site, number)
        return note

    def acknowledged(self, site: str, number: int) -> None:
        """A site has answered the question of a number: it knows what was said since then."""
        if site in self.said and number >= self.said[site]:
            for known in (self.said, self.taken, self.judge.best):
                known.pop(site, None)

    def anew(self, sites: Iterable[str]) -> None:
        """There is something new to tell these sites, which no question has said yet."""
        for site in sites:
            self.said.pop(site, None)

    def take(self, taken: Mapping[str, int]) -> None:
        """Note what became of uploads."""
        self.taken |= taken
        self.anew(taken)

    def plain(self) -> dict[str, Any]:
        return {"holds": sorted(self.holds), "taken": dict(self.taken), "said": dict(self.said)}

    def load(self, plain: Mapping[str, Any]) -> None:
        self.holds, self.taken, self.said = set(plain["holds"]), dict(plain["taken"]), dict(plain["said"])
