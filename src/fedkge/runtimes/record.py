"""What a run writes down of its rounds: losses, traffic and time, in the journal and for who watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, TypeAlias

from fedkge.runtimes.clock import Clock
from fedkge.runtimes.journal import Journal
from fedkge.runtimes.traffic import Traffic, total
from fedkge.training import Stopping


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is."""

    round: int
    rounds: int
    loss: float  #: mean over the sites that trained
    mrr: float | None  #: the last validation's
    triples_per_s: float
    bytes: int  #: sent so far, both ways


Watch: TypeAlias = Callable[[Progress], None]  #: told after every round


class Record:
    """Gathers what happens in a round until the round is over."""

    def __init__(self, journal: Journal, rounds: int, traffic: Traffic) -> None:
        self.journal, self.rounds = journal, rounds
        self.traffic, self.clock = traffic, Clock()
        self._losses: dict[str, float] = {}
        self._seconds, self._triples = 0.0, 0
        self._exchanged = 0.0  # seconds of exchange that earlier rounds have

    def trained(self, losses: Mapping[str, float], seconds: float, triples: int) -> None:
        """Some sites have trained."""
        self._losses |= losses
        self._seconds += seconds
        self._triples += triples

    def write(self, events: Sequence[dict[str, Any]], stopping: Iterable[Stopping], watch: Watch) -> None:
        """Journal what the hub says has happened; rounds with what was gathered."""
        validated = [one.last for one in stopping if one.best_at >= 0]
        mrr = sum(validated) / len(validated) if validated else None
        for event in events:
            self.journal.write(**(self._round(event, mrr, watch) if event["event"] == "round" else event))

    def _round(self, event: dict[str, Any], mrr: float | None, watch: Watch) -> dict[str, Any]:
        number, losses = event["round"], self._losses
        self.clock.lap()
        traffic = self.traffic.round(number)
        sites: dict[str, dict[str, float]] = {name: {"loss": loss} for name, loss in losses.items()}
        for name, sums in traffic.items():
            sites[name] = {**sites.get(name, {}), **sums}
        sent = total(self.traffic.sites.values())
        loss = sum(losses.values()) / len(losses) if losses else nan
        speed = self._triples / self._seconds if self._seconds else 0.0
        watch(Progress(number, self.rounds, loss, mrr, speed, sent["up_bytes"] + sent["down_bytes"]))
        whole = {
            **event,
            "seconds": self._seconds,
            "exchange_seconds": self.clock.seconds["exchange"] - self._exchanged,
            "triples": self._triples,
            "sites": sites,
            **total(traffic.values()),
        }
        self._losses, self._seconds, self._triples = {}, 0.0, 0
        self._exchanged = self.clock.seconds["exchange"]
        return whole

    def state(self) -> dict[str, Any]:
        return {"traffic": self.traffic.state(), "seconds": self.clock.seconds}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.traffic.load_state(state["traffic"])
        self.clock.load(state["seconds"])
        self._exchanged = self.clock.seconds["exchange"]
