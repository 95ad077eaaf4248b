"""A run as its folder tells it: what was asked, what each round did and sent, and how it ended if it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Curve: TypeAlias = Mapping[int, float]  # round -> value
Curves: TypeAlias = Mapping[str, Curve]  # site -> round -> value
SIDES = {"both": "head and tail", "head": "heads alone", "tail": "tails alone"}  #: of questions, in words


class Traffic(NamedTuple):
    """What went between hub and sites; `up` is towards the hub."""

    up_bytes: int = 0
    down_bytes: int = 0
    up_values: int = 0
    down_values: int = 0

    @property
    def bytes(self) -> int:
        return self.up_bytes + self.down_bytes

    @property
    def values(self) -> int:
        return self.up_values + self.down_values

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Traffic:
        return cls(*(int(found.get(name, 0)) for name in cls._fields))

    @classmethod
    def total(cls, parts: Iterable[Traffic]) -> Traffic:
        return cls(*(sum(column) for column in zip(cls(), *parts, strict=True)))


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
        start = None if found.get("start") is None else cls.read(found["start"])
        return cls(str(found["method"]), Kind(found["kind"]), rounds, epochs, sent, start)

    @property
    def chain(self) -> list[Before]:
        """Itself and those before."""
        return [self, *(self.start.chain if self.start else ())]

    @property
    def approach(self) -> str:
        """Its method and those before: `single after fedprox`."""
        return " after ".join(one.method for one in self.chain)

    @property
    def spent(self) -> str:
        """What training it took: `200 rounds of fedprox, 3 epochs each`."""
        return ", after ".join(
            f"{one.rounds} round{'s' * (one.rounds != 1)} of {one.method}, {one.epochs} epochs each"
            for one in self.chain
        )

    @property
    def sent(self) -> int:
        """Bytes that it and those before have sent."""
        return sum(one.bytes for one in self.chain)


@dataclass(frozen=True)
class Round:
    """One round: training at the sites that took part, then exchange."""

    seconds: float  #: of training
    exchange_seconds: float
    triples: int  #: triples visited, once per side and epoch
    losses: Mapping[str, float]  # site -> mean loss
    participants: frozenset[str]
    late: frozenset[str]
    refused: Mapping[str, str]  # site -> reason
    void: bool  #: fewer sites answered than the quorum: nothing was combined
    sites: Mapping[str, Traffic]
    traffic: Traffic  #: over all sites


@dataclass(frozen=True)
class Between:
    """A number for every two sites, as a method notes them."""

    sites: Sequence[str]
    values: Sequence[Sequence[float]]  # [s][s], the row's site towards the column's


@dataclass(frozen=True)
class Validation:
    """One look at the validation triples of the sites that still train.

    `dials` are what the hub tells each site to train with, from the next round on.
    """

    mrr: float  #: over these sites
    sites: Mapping[str, Mapping[str, float]]  # site -> metrics
    views: Mapping[str, float] = field(default_factory=dict)  #: MRR of other tables that the method has
    notes: Mapping[str, Between] = field(default_factory=dict)  #: what the method says about the round
    dials: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # name -> site -> value


@dataclass(frozen=True)
class Run:
    """A run folder's content; `summary` is None until the run has ended, and always at a hub."""

    path: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    sites: Sequence[str]
    environment: Mapping[str, Any]
    started: float | None  #: seconds since 1970
    resumed: int  #: how often it went on from a checkpoint
    rounds: Mapping[int, Round]
    validations: Mapping[int, Validation]
    links: Mapping[str, Mapping[str, Any]]  #: by axis, how many given alignments were used and left out
    before: Before | None = None  #: the run whose tables this one began with
    kind: Kind = Kind.HUB  #: how its sites work together
    written: Mapping[str, Any] = field(default_factory=dict)  #: the config with whole paths
    over: bool = False  #: its journal says that it has ended; that of a hub has no summary all the same

    @property
    def name(self) -> str:
        """What it was called, or else its folder."""
        return str(self.config.get("name") or self.path.name)

    @property
    def ended(self) -> bool:
        return self.summary is not None

    @property
    def method(self) -> str:
        return str(self.config["method"]["name"])

    @property
    def approach(self) -> str:
        """The method, and what it goes on from: `single after fedprox` is not every site alone."""
        if "start" not in self.config:
            return self.method
        before = self.before.approach if self.before else Path(str(self.config["start"])).name
        return f"{self.method} after {before}"

    @property
    def pools(self) -> bool:
        """Whether graphs have left their sites, in this run or in one that it goes on from."""
        kinds = {self.kind, *(one.kind for one in (self.before.chain if self.before else ()))}
        return Kind.POOLED in kinds

    @property
    def reference(self) -> Kind | None:
        """Alone or pooled from the beginning: what others are compared with; none if it is neither."""
        first = self.kind in (Kind.ALONE, Kind.POOLED) and "start" not in self.config
        return self.kind if first else None

    @property
    def model(self) -> str:
        return str(self.config["model"]["name"])

    @property
    def dataset(self) -> str:
        data = self.config["data"]
        return str(data.get("name") or data["path"])

    @property
    def problem(self) -> tuple[str, str]:
        """Runs with different ones cannot be compared."""
        return self.dataset, self.model

    def at(self, site: str) -> Mapping[str, Any]:
        """What the summary has of a site; nothing before the run has ended."""
        found: Mapping[str, Any] = (self.summary or {}).get("sites", {}).get(site, {})
        return found

    @property
    def names_persons(self) -> bool:
        """Whether some entities are persons, whose names and rows are for nobody else to see."""
        return any(self.config.get("persons", {}).get(key) for key in ("prefixes", "names", "relations"))

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def sides(self) -> str:
        """Whose questions decided on validation, and are judged by: both, head or tail."""
        return str(self.config.get("evaluate", {}).get("sides", "both"))

    def headline(self, view: str = "") -> str:
        """The metrics that the run, or another table that its method measures, is judged by."""
        parts = ("test", view, "" if self.sides == "both" else self.sides)
        return "_".join(part for part in parts if part)

    @property
    def chosen_by(self) -> str:
        """The validation metrics that the run is compared by before anybody looks at test."""
        return "valid" if self.sides == "both" else f"valid_{self.sides}"

    @property
    def last_round(self) -> int:
        """0 before the first round has ended."""
        return max(self.rounds, default=0)

    @property
    def losses(self) -> Curves:
        """Training loss per site and round."""
        return by_site({number: done.losses for number, done in self.rounds.items()})

    def validation(self, metric: str = "mrr") -> Curves:
        """A validation metric per site and round, where the site had any questions."""
        found = {
            number: {site: of[metric] for site, of in one.sites.items() if known(of[metric])}
            for number, one in self.validations.items()
        }
        return by_site(found)

    @property
    def chooses_keep(self) -> bool:
        """Whether it is a choice whose best round is kept: not where sites stop alone, or have one table."""
        return self.kind not in (Kind.ALONE, Kind.POOLED)

    @property
    def keeps_each(self) -> bool:
        """Whether every site keeps the round that is best for itself."""
        asked = self.config.get("evaluate", {}).get("keep") == "each"
        return self.kind is Kind.ALONE or "peers" in (self.summary or {}) or (self.chooses_keep and asked)

    @property
    def kept(self) -> dict[str, int]:
        """The round whose tables each site keeps: the first with the best validation, its own or of all."""
        own = self.validation()
        if self.keeps_each:
            return {site: max(sorted(own[site]), key=own[site].__getitem__) for site in own}
        best = max(sorted(self.validations), key=lambda number: self.validations[number].mrr, default=0)
        return dict.fromkeys(own, best)

    def kept_rounds(self, view: str = "") -> set[int]:
        """The rounds whose tables are kept: one, unless each site keeps its own.

        Of another view, those in which it is best, where it is validated. Where it is not, it lies on the
        tables of one that is, or else on those that the run is judged by.
        """
        if not view:
            return set(self.kept.values())
        if self.summary is None and self.keeps_each:
            return set()  # the journal has no MRR of a site's views
        if self.summary is None:
            rounds = [n for n in sorted(self.validations) if view in self.validations[n].views]
            best = max(rounds, key=lambda number: self.validations[number].views[view], default=None)
            return set() if best is None else {best}
        beside = [course.get("best_rounds", {}) for course in self.summary.get("courses", {}).values()]
        own = {of[view] if view in of else max(of.values()) for of in beside if of}
        return own or self.kept_rounds()

    @property
    def traffic(self) -> Traffic:
        """Everything sent so far."""
        if self.summary is not None:
            return Traffic.read(self.summary.get("traffic", {}))
        return Traffic.total(done.traffic for done in self.rounds.values())

    def sent(self, direction: str = "bytes") -> dict[int, float]:
        """Round -> sent up to and with it: `bytes` or `values` in both directions, in one as `up_bytes`."""
        numbers = sorted(self.rounds)
        amounts = [getattr(self.rounds[number].traffic, direction) for number in numbers]
        return dict(zip(numbers, accumulate(amounts), strict=True))

    def metrics(self, split: str, site: str | None = None) -> Mapping[str, float]:
        """Metrics of one site or of all; without those that are not known (yet), or no number."""
        of = (self.summary or {}) if site is None else self.at(site)
        found = of.get("metrics", {}).get(split, {})
        return {name: value for name, value in found.items() if known(value)}


def by_site(rounds: Mapping[int, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    """The same numbers as curves: of each site over rounds."""
    curves: dict[str, dict[int, float]] = {}
    for number in sorted(rounds):
        for site, value in rounds[number].items():
            curves.setdefault(site, {})[number] = value
    return curves


def known(value: float | None) -> bool:
    """Whether it was measured: JSON has null for what is no number."""
    return value is not None and isfinite(value)


def asked(runs: Iterable[Run]) -> str:
    """Whose questions runs are judged by, in words."""
    words = list(dict.fromkeys(SIDES[run.sides] for run in runs))
    return words[0] if len(words) == 1 else f"{' or '.join(words)}, as each run validates"


def side_note(runs: Iterable[Run]) -> str:
    """The same for a title, which does not mention what is usual."""
    words = asked(runs)
    return "" if words == SIDES["both"] else f", {words}"
