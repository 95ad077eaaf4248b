"""The journal's events put together; of a round that was done again only the last time counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

from fedkge.reports.folders.before import Before, Kind
from fedkge.reports.folders.run import Between, Round, Traffic, Validation


@dataclass
class Story:
    """What the events so far have told."""

    sites: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    kind: Kind | None = None  # None: not told, as in folders of earlier versions
    started: float | None = None
    resumed: int = 0
    rounds: dict[int, Round] = field(default_factory=dict)
    validations: dict[int, Validation] = field(default_factory=dict)
    links: dict[str, dict[str, Any]] = field(default_factory=dict)  # by axis
    before: Before | None = None
    over: bool = False

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take the next event; kinds that no table or plot needs are passed over."""
        kinds: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "start": self._start,
            "links": self._links,
            "warm_start": self._warm_start,
            "resumed": self._resumed,
            "round": self._round,
            "evaluate": self._evaluate,
            "end": self._end,
        }
        kind = kinds.get(str(event.get("event")))
        if kind is not None:
            kind(event)

    def _end(self, event: Mapping[str, Any]) -> None:
        self.over = True

    def _start(self, event: Mapping[str, Any]) -> None:
        self.over = False
        self.sites, self.environment = list(event["sites"]), dict(event["environment"])
        self.kind = Kind(event["kind"]) if "kind" in event else None
        if self.started is None:
            self.started = float(event["time"])

    def kind_of_rounds(self) -> Kind:
        """How sites worked together, by what was done: of a run that does not tell it in a word."""
        if any(done.traffic.bytes for done in self.rounds.values()) or not self.rounds:
            return Kind.HUB
        trained = {who for done in self.rounds.values() for who in done.losses}
        return Kind.ALONE if trained <= set(self.sites) else Kind.POOLED

    def _links(self, event: Mapping[str, Any]) -> None:
        known = {name: int(event[name]) for name in ("given", "used", "left_out")}
        unusable = {name: int(event.get(name, 0)) for name in ("within_site", "unmatched")}
        examples = list(event.get("examples", []))
        self.links[str(event["axis"])] = {"axis": event["axis"], **known, **unusable, "examples": examples}

    def _warm_start(self, event: Mapping[str, Any]) -> None:
        self.before = Before.read(event)

    def _resumed(self, event: Mapping[str, Any]) -> None:
        """What was done after the checkpoint is lost, and will be done again."""
        self.resumed += 1
        last = int(event["round"])
        self.rounds = {number: done for number, done in self.rounds.items() if number <= last}
        self.validations = {number: found for number, found in self.validations.items() if number <= last}

    def _round(self, event: Mapping[str, Any]) -> None:
        sites = event["sites"]
        traffic = {site: Traffic.read(found) for site, found in sites.items()}
        self.rounds[int(event["round"])] = Round(
            seconds=float(event["seconds"]),
            exchange_seconds=float(event.get("exchange_seconds", 0.0)),
            triples=int(event["triples"]),
            losses={site: number(found["loss"]) for site, found in sites.items() if "loss" in found},
            participants=frozenset(event.get("participants", sites)),
            late=frozenset(event.get("late", [])),
            refused=dict(event.get("refused", {})),
            void=bool(event.get("void", False)),
            sites=traffic,
            traffic=Traffic.read(event) if "up_bytes" in event else Traffic.total(traffic.values()),
        )

    def _evaluate(self, event: Mapping[str, Any]) -> None:
        if event["split"] == "valid":
            sites = {site: dict(metrics) for site, metrics in event["sites"].items()}
            views = {view: number(mrr) for view, mrr in event.get("views", {}).items()}
            notes = {name: _between(found) for name, found in event.get("notes", {}).items()}
            dials = {name: _by_site(told, sites) for name, told in event.get("dials", {}).items()}
            mrr = number(event["mrr"])
            self.validations[int(event["round"])] = Validation(mrr, sites, views, notes, dials)


def number(value: float | None) -> float:
    """As written down; null, which stands for what is no number, is NaN again."""
    return nan if value is None else float(value)


def _by_site(told: float | Mapping[str, float], sites: Iterable[str]) -> dict[str, float]:
    """What each site is told, where a single number is for all of them."""
    by_site = told if isinstance(told, Mapping) else dict.fromkeys(sites, told)
    return {site: number(value) for site, value in by_site.items()}


def _between(found: Mapping[str, Any]) -> Between:
    sites, values = list(found["sites"]), [[number(value) for value in row] for row in found["values"]]
    if {len(values), *map(len, values)} != {len(sites)}:
        raise ValueError(f"numbers between {len(sites)} sites that are not {len(sites)} rows of as many")
    return Between(sites, values)
