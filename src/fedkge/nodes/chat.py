"""The conversation that a peer is in: its end of it, hop by hop, and what is noted of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedkge.exchange.hops import Hops, Parcel
from fedkge.methods.ends import Heard


@dataclass(slots=True)
class Chat:
    """Lives in memory only: a peer that is killed has lost it, and so has its partner."""

    talk: str
    partner: str
    hops: Hops[Heard]
    sent: int = 0  #: hops that were said
    got: int = 0  #: hops that were heard
    heard: Heard | None = None  #: set when everything was said and heard

    def advance(self, parcel: Parcel | None) -> Iterator[tuple[int, Parcel]]:
        """What this end says next, with the number of each hop, until it waits or is complete."""
        try:
            found = next(self.hops) if parcel is None else self.hops.send(parcel)
            while found is not None:
                yield self.sent, found
                self.sent += 1
                found = next(self.hops)
        except StopIteration as end:
            self.heard = end.value

    def event(self, heard: Heard) -> dict[str, Any]:
        """For the journal. The vote counts are private: the journal stays at the peer."""
        return {
            "event": "conversation",
            "talk": self.talk,
            "partner": self.partner,
            "session": heard.session,
            "aligned": {str(axis): len(rows) for axis, rows in heard.aligned.items()},
            "lent": 0 if heard.loan is None else len(heard.loan.edges),
            "votes": heard.votes,
            "real": heard.real,
            "gaps": {str(gap): count for gap, count in sorted(heard.gaps.items())},
            "refused": heard.refused,
            "hops": self.sent + self.got,
        }
