"""What a run went on from: the runs whose tables its sites began with, and what had been spent on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """How sites work together, whatever the method is called."""

    ALONE = "alone"  #: every site for itself: what others are compared with
    POOLED = "pooled"  #: graphs leave their sites: what sharing everything would give
    HUB = "hub"  #: rows travel to a hub and back
    PEERS = "peers"  #: sites talk to each other


@dataclass(frozen=True)
class Before:
    """A run that another one began with."""

    method: str
    kind: Kind
    rounds: int  #: until it stopped, not only to those that were kept
    epochs: int  #: in each
    bytes: int  #: sent in both directions
    start: Before | None  #: what it began with itself

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Before:
        rounds, epochs, sent = (int(found[name]) for name in ("rounds", "epochs", "bytes"))
        start = found.get("start")
        before = None if start is None else cls.read(start)
        kind = Kind(found.get("kind", Kind.HUB if sent else Kind.ALONE))  # earlier versions did not tell
        return cls(str(found["method"]), kind, rounds, epochs, sent, before)

    @property
    def approach(self) -> str:
        """Its method and those before: `single after fedprox`."""
        return " after ".join(self.methods)

    @property
    def kinds(self) -> list[Kind]:
        """How sites worked together in it, and in those before."""
        return [self.kind, *(self.start.kinds if self.start else ())]

    @property
    def methods(self) -> list[str]:
        """Its own and those before."""
        return [self.method, *(self.start.methods if self.start else ())]

    @property
    def spent(self) -> str:
        """What training it took: `200 rounds of fedprox, 3 epochs each`."""
        own = f"{self.rounds} round{'s' * (self.rounds != 1)} of {self.method}, {self.epochs} epochs each"
        return own if self.start is None else f"{own}, after {self.start.spent}"

    @property
    def sent(self) -> int:
        """Bytes that it and those before have sent."""
        return self.bytes + (0 if self.start is None else self.start.sent)
