"""What was sent: bytes of messages as they are on the wire, and numbers as the papers count them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fedkge.exchange.rows import HUB, Envelope
from fedkge.exchange.wire import length
from fedkge.graphs.graph import Axis

KINDS = ("up_bytes", "down_bytes", "up_values", "down_values")


class Traffic:
    """Sums per round and site. Joining is counted with the first round.

    A method that shares nothing has no messages that would have to be sent, and counts none.
    """

    def __init__(self, widths: Mapping[Axis, int]) -> None:
        self.widths = widths  # numbers of a coded row; none: nothing is shared
        self.sites: dict[str, dict[str, int]] = defaultdict(_zero)
        self._announced: dict[tuple[str, str], int] = {}
        self.rounds: dict[int, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(_zero))

    def count(self, envelope: Envelope, again: bool = False) -> None:
        """`again`: a message that was counted before the run was interrupted."""
        if not self.widths:
            return
        up = envelope.recipient == HUB
        site, way = (envelope.sender, "up") if up else (envelope.recipient, "down")
        values, size = self._values(envelope, site), length(envelope)
        for sums in () if again else (self.sites[site], self.rounds[max(1, envelope.round)][site]):
            sums[f"{way}_bytes"] += size
            sums[f"{way}_values"] += values

    def _values(self, envelope: Envelope, site: str) -> int:
        """Every number of every row, and one per row that was announced where only some are sent."""
        count = 0
        for name, tensor in envelope.body.items():
            axis, _, part = name.partition(".")
            kind = part.rpartition(".")[2]
            if kind == "ids":
                self._announced[site, axis] = len(tensor)
            elif kind == "where":
                count += self._announced[site, axis]
            elif kind == "values":
                count += len(tensor) * self.widths[Axis(axis)]
            elif kind == "support":
                count += len(tensor)
        return count

    def round(self, number: int) -> dict[str, dict[str, int]]:
        """A round's sums by site."""
        return {site: dict(sums) for site, sums in self.rounds[number].items()}

    def summary(self) -> dict[str, Any]:
        per_round = [{"round": n, **total(sites.values())} for n, sites in sorted(self.rounds.items())]
        return {**total(self.sites.values()), "per_round": per_round}

    def state(self) -> dict[str, Any]:
        return {"sites": self.sites, "rounds": self.rounds}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.sites.update(state["sites"])
        for number, sites in state["rounds"].items():
            self.rounds[int(number)].update(sites)


def total(sums: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """All of them added up."""
    every = list(sums)
    return {kind: sum(one[kind] for one in every) for kind in KINDS}


def _zero() -> dict[str, int]:
    return dict.fromkeys(KINDS, 0)
