"""What was sent: bytes of messages as they are on the wire, and numbers as the papers count them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch

from fedkge.errors import DataError
from fedkge.exchange.codec import Codec
from fedkge.exchange.direction import WHERE, unpack
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.values import values
from fedkge.exchange.wire import length
from fedkge.graphs.graph import Axis

NO_BITS = torch.empty(0, dtype=torch.uint8)
KINDS = ("up_bytes", "down_bytes", "up_values", "down_values")


class Tally:
    """Sums per round and site. Joining is counted with the first round.

    A method that shares nothing has no messages that would have to be sent, and counts none. What is counted
    was sent, whether or not the other end can read it.
    """

    def __init__(self, codec: Codec, widths: Mapping[Axis, int]) -> None:
        self.codec, self.widths = codec, widths  # of the rows that are shared; none: nothing is
        self.sites: dict[str, dict[str, int]] = defaultdict(_zero)
        self._shared: dict[str, dict[Axis, int]] = {}  # rows that each site shares
        self.rounds: dict[int, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(_zero))
        self.grown: set[int] = set()  # rounds that something was added to since they were last written down

    def count(self, message: Message, again: bool = False, latest: int | None = None) -> None:
        """`again`: a message that was counted before the run was interrupted.

        No round after the `latest` has begun: what a site says of one counts in the latest.
        """
        if not self.widths:
            return
        up = message.recipient == HUB
        site, way = (message.sender, "up") if up else (message.recipient, "down")
        if message.kind == "shared" and not up:
            bits = {axis: message.body.get(f"{axis}.{WHERE}", NO_BITS) for axis in self.widths}
            with suppress(DataError, TypeError):  # what is no bits shares nothing
                self._shared[site] = {a: len(unpack(own, 8 * len(own), a)) for a, own in bits.items()}
        if again:
            return
        rows = {} if message.kind in ("join", "shared") else self._shared.get(site, {})
        numbers = values(message.body, rows, self.codec, self.widths)
        number = message.round if latest is None or not up else min(message.round, latest)
        self._add(max(1, number), site, {f"{way}_bytes": length(message), f"{way}_values": numbers})

    def unread(self, site: str, size: int, round: int) -> None:
        """Bytes that came from a site in this round and are no message of it."""
        if self.widths:
            self._add(max(1, round), site, {"up_bytes": size})

    def _add(self, number: int, site: str, more: Mapping[str, int]) -> None:
        self.grown.add(number)
        for sums in (self.sites[site], self.rounds[number][site]):
            for kind, count in more.items():
                sums[kind] += count

    def round(self, number: int) -> dict[str, dict[str, int]]:
        """A round's sums by site."""
        return {site: dict(sums) for site, sums in self.rounds[number].items()}

    def until(self, number: int) -> dict[str, int]:
        """The sums of all sites up to and with a round."""
        return total(sums for n, sites in self.rounds.items() if n <= number for sums in sites.values())

    def summary(self) -> dict[str, Any]:
        per_round = [{"round": n, **total(sites.values())} for n, sites in sorted(self.rounds.items())]
        return {**total(self.sites.values()), "per_round": per_round}

    def add(self, round: int, sites: Mapping[str, Mapping[str, int]]) -> None:
        """What was sent in a round, counted before."""
        self.rounds[round].update({site: dict(sums) for site, sums in sites.items()})
        for site, sums in sites.items():
            for kind in KINDS:
                self.sites[site][kind] += sums[kind]


def total(sums: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """All of them added up."""
    every = list(sums)
    return {kind: sum(one[kind] for one in every) for kind in KINDS}


def _zero() -> dict[str, int]:
    return dict.fromkeys(KINDS, 0)
