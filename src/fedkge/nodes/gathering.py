"""The hub as far as sites come to it: they join, at first or again, decline, or are turned down."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import torch

from fedkge import __version__
from fedkge.errors import DataError
from fedkge.exchange.displaced import check_moved, split
from fedkge.exchange.rows import HUB, Message
from fedkge.nodes.base import REFUSALS, Node, Setting
from fedkge.nodes.displaced import told
from fedkge.nodes.notes import Refusal, joining, reading, refusal
from fedkge.nodes.roster import Roster
from fedkge.nodes.terms import Terms


class Gathering(Node):
    """Who is here, and what they have in common. What they are asked then is for `HubNode` to say."""

    def __init__(
        self,
        terms: Terms,
        sites: Iterable[str],
        setting: Setting,
        pooled: bool,
        device: torch.device | str,
        pseudonyms: bool,
    ) -> None:
        super().__init__(HUB, terms, setting)
        self.method = terms.method
        # Where nothing is exchanged, nobody is waited for and nothing gets lost.
        self.participation = terms.participation if self.method.shares else type(terms.participation)()
        self.pooled, self.device = pooled, torch.device(device)
        self.pseudonyms = pseudonyms  # whether sites must announce these, and no names
        self.sites = sorted(sites)
        self._partners = frozenset(self.sites)
        self.roster = Roster(terms, self.device, late=self.participation.late == "use")
        self.hub, self.channels = self.roster.hub, self.roster.channels
        self._round = 0  # the last that was closed, or is open
        self.phase = "join"
        self.until: dict[str, int] = {}  # the last round that a site's privacy budget allows
        self.stopped: set[str] = set()
        self.unlearns = False  # whether sites may say how far they have moved their rows
        self._here: set[str] = set()  # who has joined since the hub was started
        self._absent: dict[str, str] = {}  # who would not join, or was not let in, and why
        self._open: dict[str, Message] = {}  # questions that are not answered yet
        self._ended: dict[str, Message] = {}  # what sites that have stopped were told

    def partners(self) -> Collection[str]:
        return self._partners

    @abstractmethod
    def _asked_first(self) -> list[Message]:
        """What is asked when everyone is here: the first round, or the open one again."""

    @abstractmethod
    def _go_on_without(self, site: str, why: str) -> list[Message]:
        """The answer of a site to the open question is no longer waited for."""

    @abstractmethod
    def _stop(self, site: str) -> Message:
        """The end, for a site; it is kept in `_ended`."""

    @abstractmethod
    def _fail(self, why: str) -> list[Message]:
        """Give up."""

    # Who is not let in

    def refuse(self, message: Message, why: str) -> list[Message]:
        """A site that is not let in is told why."""
        super().refuse(message, why)
        joins = self._is_mine(message) and message.kind == "join" and message.sender in self._partners
        return self._turned_down(message.sender, why) if joins else []

    def _is_mine(self, message: Message) -> bool:
        return (message.recipient, message.run) == (self.id, self.setting.run)

    def _turned_down(self, site: str, why: str) -> list[Message]:
        """Tell a site why it is not let in; who floods the hub is told some times only."""
        self._absent[site] = f"{site} was refused: {why}"
        told = self._refusals[site] <= REFUSALS
        return [self.message(site, "refusal", self._round, why=why)] if told else []

    def _declined(self, message: Message) -> list[Message]:
        """A site's own policy forbids what it was asked for."""
        site = message.sender
        with reading():
            why = refusal(message)
            if message.round > self._round:
                raise DataError("declines a round that has not begun")
        self.note({"event": "declined", "site": site, "round": message.round, "why": why})
        if self.phase == "join":
            self._absent[site] = f"{site} declines: {why}"
            missing = set(self.sites) - self._here
            return self._begin_without(missing) if missing <= self._absent.keys() else []
        if message.round != self._round or self.phase not in ("train", "measure") or site not in self._open:
            return []
        return self._go_on_without(site, f"declines: {why}")

    # Joining

    def _join(self, message: Message) -> list[Message]:
        """A site joins: at first, again after it or the hub was gone, or with other rows than before."""
        site = message.sender
        with reading():
            most = self.participation.most
            plain, moved, _ = split(message) if self.unlearns else (message, {}, {})
            said = joining(plain, self.method.shares, self.pooled, self.pseudonyms, most)
            check_moved(moved, {a: (len(said.ids[a]), width) for a, width in self.terms.widths.items()})
            said = replace(said, moved=moved)
        if other := self.roster.stranger(site, said):
            raise Refusal(
                f"has another secret than {other}; expected the same file at all sites, and a new run for a "
                "new secret"
            )
        again = self.roster.has(site, said)
        if self.settled and not again and not self.participation.open:
            what = "announces other rows, or other validation questions, than before"
            what = what if site in self.roster.joined else "joins too late"
            raise Refusal(f"{what}, and participation.open is false")
        if again:
            self.roster.joined[site] = said
            self.roster.waiting.pop(site, None)
        else:
            self.roster.waiting[site] = said
        self._here.add(site)
        self._absent.pop(site, None)
        if said.allows is not None:
            now = self._round - (self.phase == "train" and site in self._open) + said.allows
            self.until[site] = max(now, self.until.get(site, 0)) if again else now
        if self.phase == "join":
            return self._begin() if self._here >= set(self.sites) else []
        return [self._share(site), *self._unanswered(site)] if again else []

    def _begin_without(self, missing: Collection[str]) -> list[Message]:
        """Time is up for joining: who is missing may join later, if the terms allow it."""
        if self.participation.open and self._here:
            return self._begin()
        why = "; ".join(self._absent[site] for site in sorted(missing) if site in self._absent)
        return self._fail(f"{', '.join(sorted(missing))} did not join{why and ': '}{why}")

    def _begin(self) -> list[Message]:
        """Everyone is here: say who shares what, and ask for the first round, or for the open one again."""
        if not self.settled:
            self.roster.settle()
            self.roster.warn()
            self._note_aligned()
        out = [self._share(site) for site in sorted(self.roster.joined)]
        self.roster.joined = {n: replace(one, moved={}) for n, one in self.roster.joined.items()}  # told once
        out += [message for site in sorted(self.stopped) for message in self._unanswered(site)]
        return out + self._asked_first()

    @property
    def settled(self) -> bool:
        """Whether it is known who shares what."""
        return bool(self.roster.joined)

    def _share(self, site: str) -> Message:
        """Which of the rows that a site announced others have."""
        note: dict[str, Any] = {"fedkge": __version__, "version": self.roster.joined[site].version}
        if self.pseudonyms:
            note["by_two"] = self.roster.by_two(site)
        body = self.roster.bits(site) | told(self.roster, site)
        return self.message(site, "shared", self._round, body, **note)

    def _note_aligned(self) -> None:
        """Who is here, how many rows are in common, and how many of them exactly two sites have.

        Where ids are pseudonyms, nobody else can count and warn.
        """
        found, here = self.roster.exposures(), sorted(self.roster.joined)
        rows = {str(axis): {"shared": one.shared, "by_two": one.by_two} for axis, one in found.items()}
        event: dict[str, Any] = {"event": "aligned", "round": self._round, "sites": here, "rows": rows}
        if self.pseudonyms and self.method.averages:
            event["exposed"] = [str(one) for one in found.values() if one.by_two]
        self.note(event)

    def _unanswered(self, site: str) -> list[Message]:
        """The question that a site which was gone has not answered, or the end, in the same words."""
        if site in self.stopped and site not in self._ended:  # the hub was gone too
            self._stop(site)
        return [of[site] for of in (self._open, self._ended) if site in of]
