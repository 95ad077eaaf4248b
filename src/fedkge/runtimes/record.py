"""What a runtime writes down of its rounds, traffic and time, and what it tells who watches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from fedkge.exchange.rows import HUB
from fedkge.exchange.tally import Tally, total
from fedkge.nodes.base import Event
from fedkge.nodes.clock import Clock
from fedkge.nodes.journal import Journal, dated, read_journal
from fedkge.runtimes.progress import Progress, Watch, ignored


class Record:
    """Hears what happens at nodes that are at hand, and counts what is sent between them."""

    def __init__(
        self, journal: Journal, rounds: int, tally: Tally, clock: Clock, watch: Watch = ignored
    ) -> None:
        self.journal, self.rounds, self.tally, self.clock, self.watch = journal, rounds, tally, clock, watch
        self.failed: str | None = None
        self.diverged: set[str] = set()
        self.courses: dict[str, Any] = {}
        self.mrr: float | None = None
        self._trained: list[Event] = []
        self._closed: list[int] = []
        self._exchanged = 0.0  # seconds of exchange that earlier rounds have
        self._written: dict[int, float] = {}  # round that is written down -> its seconds of exchange
        self._begun = False  # what was sent before the first round is written down

    def say(self, text: str) -> None:
        """Something that whoever waits at a terminal should know."""
        print(f"note: {text}", file=sys.stderr, flush=True)

    def hear(self, node: str, event: Event) -> None:
        """Something has happened at a node."""
        kind = event["event"]
        if kind == "trained":
            self._trained.append(event)
        elif kind == "diverged":
            if node not in self.diverged:
                self.say(f"{node}: {event['why']}; round {event['round']} goes on without it")
            self.diverged.add(node)
        elif kind == "turned_down":
            self.say(f"{node}: the hub does not let it in: {event['why']}")
        elif node != HUB:
            return  # what happens to the run is the hub's to say
        elif kind == "round":
            self._closed.append(event["round"])
        elif kind == "evaluate":
            self.mrr = event["mrr"]
        elif kind == "aligned":
            for said in event.get("exposed", ()):
                self.say(said)
        elif kind == "declined":
            self.say(f"{event['site']} declines round {event['round']}: {event['why']}")
        elif kind == "done":
            self.courses = event["courses"]
        elif kind == "failed":
            beside = f"; training diverged at {', '.join(sorted(self.diverged))}" if self.diverged else ""
            self.failed = event["why"] + beside

    def write(self) -> None:
        """Journal the rounds that were closed: what each site sent and was sent, and the time that took.

        What came before the first round is written as round 0, and then again as part of round 1. A round
        that something came late for, or for which a site joined again, is written again.
        """
        if not self._begun and not self._closed:
            self._sent(0, self.tally.round(1), self._spent)
        self._begun = True
        for number in sorted(self.tally.grown & self._written.keys()):
            self._sent(number, self.tally.round(number), self._written[number])
        self.tally.grown.clear()
        for number in self._closed:
            self.clock.lap()
            self._written[number] = self._spent
            self._sent(number, self.tally.round(number), self._spent)
            self._exchanged = self.clock.seconds["exchange"]
            self._tell(number)
        self._closed, self._trained = [], []

    @property
    def _spent(self) -> float:
        """Seconds of exchange since the last round was written down."""
        return self.clock.seconds["exchange"] - self._exchanged

    def _sent(self, number: int, sites: Mapping[str, Mapping[str, int]], spent: float) -> None:
        event = {"event": "traffic", "round": number, "exchange_seconds": spent}
        event |= {"seconds": dict(self.clock.seconds), "sites": sites, **total(sites.values())}
        self.journal.append([dated(event)], sync=False)  # the disk has the round itself, from the hub

    def _tell(self, number: int) -> None:
        losses = [event["loss"] for event in self._trained]
        seconds = sum(event["seconds"] for event in self._trained)
        triples = sum(event["triples"] for event in self._trained)
        sent = total(self.tally.sites.values())
        self.watch(
            Progress(
                number,
                self.rounds,
                sum(losses) / len(losses) if losses else None,
                self.mrr,
                triples / seconds if seconds else 0.0,
                sent["up_bytes"] + sent["down_bytes"],
            )
        )

    def resume(self, round: int) -> None:
        """Go on after a round, with what the journal has of it and of those before."""
        if not self.journal.path.is_file():
            return
        events = {e["round"]: e for e in read_journal(self.journal.path) if e.get("event") == "traffic"}
        for number, event in sorted(events.items()):
            if min(1, round) <= number <= round:
                self.tally.add(max(1, number), event["sites"])
                self._written |= {number: event["exchange_seconds"]} if number else {}
                self.clock.load(event["seconds"])
        self._begun = True
        self._exchanged = self.clock.seconds["exchange"]
